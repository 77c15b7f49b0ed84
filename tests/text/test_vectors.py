"""Word vectors: those that are shipped, and what can be asked of any."""

from __future__ import annotations

import re

import pytest
import torch

from regard import Cosine, Database, OneHot
from regard.errors import DtypeError, MissingKey, OptionError, ShapeError
from regard.text import Neighbour, WordVectors
from regard.text.vectors import SHIPPED

DOG = "When he saw his owner, the dog was happy, so he wagged his tail"


@pytest.fixture(scope="module")
def shipped():
    return WordVectors.load()


@pytest.fixture
def small():
    return WordVectors(["east", "north", "far", "west"], torch.tensor([[1.0, 0], [0, 1], [6, 8], [-2, 0]]))


def test_a_few_thousand_words_are_shipped_in_a_few_hundred_kilobytes(shipped):
    assert len(shipped) == 4007
    assert shipped.dim == 100
    assert shipped.vectors.dtype == torch.float32
    assert SHIPPED.stat().st_size < 500_000
    assert repr(shipped) == "WordVectors(4,007 words × 100)"


def test_every_word_of_the_documents_sentence_is_shipped(shipped):
    words = re.findall(r"\w+", DOG.lower())
    assert len(words) == 14
    assert [word for word in words if word not in shipped] == []


def test_king_less_man_and_woman_is_queen(shipped):
    (answer,) = shipped.analogy(plus=["king", "woman"], minus=["man"])
    assert answer.word == "queen"
    assert 0.7 < answer.similarity < 0.9


@pytest.mark.parametrize(
    ("plus", "minus", "word"),
    [
        (["paris", "italy"], "france", "rome"),
        (["walking", "saw"], "walked", "seeing"),
        (["his", "woman"], "man", "her"),
    ],
)
def test_other_analogies_hold_among_the_first_three(shipped, plus, minus, word):
    assert word in [each.word for each in shipped.analogy(plus=plus, minus=[minus], k=3)]


def test_an_analogy_leaves_out_the_words_given(shipped):
    found = {each.word for each in shipped.analogy(plus=["king", "woman"], minus=["man"], k=len(shipped))}
    assert found == set(shipped.words) - {"king", "woman", "man"}


def test_a_cat_is_nearer_to_a_kitten_than_to_stocks(shipped):
    assert shipped.similarity("cat", "kitten") > shipped.similarity("cat", "stocks") + 0.2


def test_lookup_gives_the_vector_of_a_word_or_of_many(small):
    assert small["far"].tolist() == [6.0, 8.0]
    assert small[["west", "east"]].tolist() == [[-2.0, 0.0], [1.0, 0.0]]
    assert small[[]].shape == (0, 2)
    assert "far" in small
    assert "Far" not in small
    assert 3 not in small
    assert list(small) == small.words


def test_neighbours_are_by_angle_nearest_first_without_the_word_itself(small):
    found = small.neighbours("east", 2)
    assert [each.word for each in found] == ["far", "north"]
    assert found[0].similarity == pytest.approx(0.6)
    assert found[1] == Neighbour("north", 0.0)


def test_neighbours_of_a_vector_may_be_the_word_that_has_it(small):
    assert small.neighbours(small["far"], 1)[0] == ("far", pytest.approx(1.0))
    assert small.neighbours([3.0, 0.1], 1)[0].word == "east"
    assert small.neighbours(torch.tensor([3, 0]), 1)[0].word == "east"


def test_there_are_no_more_neighbours_than_words(small):
    assert len(small.neighbours("east", 50)) == 3
    assert len(small.neighbours([1.0, 0.0], 50)) == 4


def test_of_words_alike_the_first_comes_first():
    same = WordVectors([f"w{number}" for number in range(50)], torch.ones(50, 3))
    assert [each.word for each in same.neighbours([1.0, 1.0, 1.0], 50)] == same.words


def test_an_unknown_word_is_refused_with_the_nearest_spellings(shipped):
    with pytest.raises(MissingKey, match="one of the 4,007 that have a vector: got 'Happpy'. The nearest .* 'happy'"):
        shipped["Happpy"]
    for ask in (
        lambda word: shipped.neighbours(word),
        lambda word: shipped.analogy(plus=["king", word]),
        lambda word: shipped.analogy(plus=["king"], minus=[word]),
        lambda word: shipped.similarity("king", word),
        lambda word: shipped[["king", word]],
    ):
        with pytest.raises(KeyError, match="got 'qqqqqq'. None is spelled like it"):
            ask("qqqqqq")


def test_the_vocabulary_is_a_database_whose_keys_are_vectors_and_whose_values_are_words(shipped):
    database = shipped.database()
    assert isinstance(database, Database)
    assert len(database) == len(shipped)
    assert database.lookup(shipped["owner"]) == "owner"
    answer = database.attend(shipped["dog"], top=6)
    assert "Cosine(temperature=0.05)" in answer.similarity
    assert [row.value for row in answer.rows] == ["dog", *(each.word for each in shipped.neighbours("dog", 5))]
    cosines = torch.nn.functional.cosine_similarity(shipped.vectors, shipped["dog"][None])
    expected = (cosines / 0.05).softmax(0).topk(6).values
    torch.testing.assert_close(answer.weights.float(), expected, rtol=1e-3, atol=1e-5)


def test_a_database_of_words_takes_another_temperature_score_or_rule(small):
    sharp, blunt = (small.database(each).attend(small["east"]).rows[0].weight for each in (0.01, 10.0))
    assert sharp > 0.99
    assert blunt < 0.5
    assert small.database().attend([0.0, 2.0], weights=OneHot()).rows == [(1, (0.0, 1.0), "north", 1.0)]
    assert "temperature=2" in small.database().attend([0.0, 2.0], score=Cosine(2.0)).similarity


@pytest.mark.parametrize(
    ("words", "vectors", "error", "said"),
    [
        (["a"], torch.ones(2, 3), ShapeError, r"a row for each word: got \(2, 3\) for 1 words"),
        (["a"], torch.ones(1), ShapeError, "a row for each word"),
        (["a", "b", "a"], torch.ones(3, 2), OptionError, "each word once: got 'a' again"),
        (["a"], torch.ones(1, 2, dtype=torch.int64), DtypeError, "floating-point"),
    ],
)
def test_words_and_vectors_must_fit_together(words, vectors, error, said):
    with pytest.raises(error, match=said):
        WordVectors(words, vectors)


def test_bad_questions_are_refused(small):
    with pytest.raises(OptionError, match="`k` must be a positive integer: got 0"):
        small.neighbours("east", 0)
    with pytest.raises(ShapeError, match=r"must have 2 numbers, as the words' have: got shape \(3,\)"):
        small.neighbours([1.0, 2.0, 3.0])
    with pytest.raises(OptionError, match=r"`plus` must be a list of words: got 'east'. Pass \['east'\]"):
        small.analogy(plus="east")
    with pytest.raises(OptionError, match="must have a word to add or to take away"):
        small.analogy(plus=[])
