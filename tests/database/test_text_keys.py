"""Keys that are texts, compared by the vectors that an encoder gives them."""

from __future__ import annotations

import pytest
import torch

from regard import Cosine, Database, Dot, Gaussian, OneHot
from regard.errors import MissingKey, OptionError, ShapeError, TableError

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def count_letters(texts):
    """A vector for each text: how often it has each letter."""
    return torch.tensor([[float(text.count(letter)) for letter in LETTERS] for text in texts]).reshape(-1, 26)


class Counter:
    """The same as an object, which remembers what it was given."""

    def __init__(self):
        self.seen = []

    def embed(self, texts):
        self.seen.append(list(texts))
        return count_letters(texts)


@pytest.fixture
def animals():
    return Database(["a cat", "a dog", "an eel"], ["meow", "woof", "…"], encoder=count_letters)


def test_a_query_in_other_words_finds_the_key_that_means_the_same(animals):
    answer = animals.attend("act")  # the letters of cat
    assert answer.value == "meow"
    assert answer.rows[0].key == "a cat"
    assert answer.query == "act"
    assert "key: Cosine(temperature=0.1)" in answer.similarity


def test_weights_are_the_softmax_of_cosines(animals):
    answer = animals.attend("god")
    cosines = torch.nn.functional.cosine_similarity(count_letters(["god"]), count_letters(["a cat", "a dog", "an eel"]))
    expected = (cosines / 0.1).softmax(0)
    got = {row.key: row.weight for row in answer.rows}
    assert got == pytest.approx(dict(zip(["a cat", "a dog", "an eel"], expected.tolist(), strict=True)), rel=1e-4)


def test_many_texts_are_many_queries(animals):
    assert animals.attend(["act", "god"], weights=OneHot()).values == ["meow", "woof"]
    assert animals.attend(("act",)).values == ["meow"]


def test_lookup_is_still_by_the_text_itself():
    database = Database(["cat", "act", "cat"], [1.0, 2.0, 3.0], encoder=count_letters)
    assert database["act"] == 2.0
    assert database.lookup_all("cat") == [1.0, 3.0]
    assert "tac" not in database
    with pytest.raises(MissingKey, match="got 'tac'. The nearest keys are 'cat', 'act'. To weigh similar keys, use"):
        database["tac"]
    with pytest.raises(MissingKey, match="got 5"):
        database[5]


def test_lookup_does_not_depend_on_digits_that_change_with_what_is_encoded_together():
    database = Database(["cat", "dog", "cat"], [1.0, 2.0, 3.0], encoder=lambda texts: count_letters(texts) + len(texts))
    assert database.lookup_all("cat") == [1.0, 3.0]
    assert database.swap().lookup_all(2.0) == ["dog"]


def test_an_object_with_embed_is_an_encoder_and_sees_each_key_once():
    encoder = Counter()
    database = Database(["cat", "dog", "cat", None], [1.0, 2.0, 3.0, 4.0], encoder=encoder)
    assert encoder.seen == [["cat", "dog"]]
    answer = database.attend("tac", weights=OneHot())
    assert encoder.seen[1:] == [["tac"]]
    assert answer.value == 1.0
    assert (answer.n_rows, answer.n_left_out) == (3, 1)


def test_many_queries_are_encoded_together():
    encoder = Counter()
    database = Database(["cat", "dog"], [1.0, 2.0], encoder=encoder)
    assert database.attend(["god", "act", "dog"], weights=OneHot()).values == [2.0, 1.0, 2.0]
    assert encoder.seen[1:] == [["god", "act", "dog"]]


def test_queries_that_know_different_columns_keep_their_places():
    keys = {"what": ["cat", "dog"], "age": [1.0, 9.0]}
    database = Database(keys, ["meow", "woof"], encoder=count_letters, score={"age": Gaussian(1.0)})
    queries = [("god", None), (None, 1.0), ("act", 1.0), (None, 9.0), ("dog", 9.0)]
    assert database.attend(queries).values == ["woof", "meow", "meow", "woof", "woof"]


def test_texts_and_quantities_are_asked_together():
    keys = {"what": ["cat", "cat", "dog", "dog"], "age": [1.0, 9.0, 1.0, 9.0]}
    database = Database(keys, ["kitten", "tomcat", "puppy", "hound"], encoder=count_letters)
    score = {"age": Gaussian(0.5)}
    assert database.attend(("act", 9.0), score=score).value == "tomcat"
    assert database.attend({"what": "god", "age": 1.2}, score=score).value == "puppy"
    assert "what: Cosine(temperature=0.1)" in database.attend({"what": "god"}).similarity
    assert database.parse("god, 9") == ("god", 9)
    assert database[("dog", 9.0)] == "hound"
    with pytest.raises(MissingKey, match="No row has what = 'cow'"):
        database[("cow", 9.0)]


def test_several_columns_of_text_have_encoders_by_name():
    keys = {"what": ["cat", "dog"], "where": ["sea", "sky"]}
    with pytest.raises(OptionError, match="`encoder` must be for one key column of text: got 2 .* a dict"):
        Database(keys, [1, 2], encoder=count_letters)
    database = Database(keys, [1, 2], encoder={"what": count_letters})
    assert database.attend({"what": "god"}, weights=OneHot()).value == 2
    assert database.attend({"where": "sea"}).value == 1  # by equality
    with pytest.raises(TableError, match="`encoder` must name key columns: got 'wat'. Did you mean 'what'"):
        Database(keys, [1, 2], encoder={"wat": count_letters})


def test_a_table_takes_an_encoder_too():
    table = {"question": ["cat", "dog"], "answer": ["meow", "woof"]}
    database = Database.from_table(table, key="question", value="answer", encoder=count_letters)
    assert database.attend("god").value == "woof"


def test_the_other_way_round_the_texts_are_values(animals):
    swapped = animals.swap()
    assert swapped["woof"] == "a dog"
    assert swapped.attend("woof").value == "a dog"


def test_a_database_shows_texts_not_numbers(animals):
    assert "text by meaning, in 26 numbers" in repr(animals)
    assert "a dog" in repr(animals)


def test_a_database_of_no_texts_finds_nothing():
    database = Database([], [], encoder=count_letters)
    assert len(database) == 0
    assert not database.attend("cat").found


def test_a_score_of_the_database_holds_unless_another_is_asked_for():
    keys = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    database = Database(keys, ["short", "long"], score=Cosine(0.05))
    assert "Cosine(temperature=0.05)" in database.attend([1.0, 0.9]).similarity
    assert database.attend([1.0, 0.9]).value == "short"
    assert database.attend([1.0, 0.9], score=Dot()).value == "long"
    with pytest.raises(OptionError, match="`score` must be a score"):
        Database(keys, ["short", "long"], score="cosine")


def test_a_score_of_the_database_for_one_column_leaves_the_others_theirs():
    keys = {"what": ["cat", "dog"], "age": [1.0, 9.0]}
    database = Database(keys, ["meow", "woof"], encoder=count_letters, score={"age": Gaussian(2.0)})
    told = database.attend(("cat", 1.0)).similarity
    assert "what: Cosine(temperature=0.1)" in told
    assert "age: Gaussian(bandwidth=2" in told


@pytest.mark.parametrize(
    ("encoder", "error", "said"),
    [
        (lambda texts: torch.ones(len(texts)), ShapeError, r"a vector for each text, \(2, dim\): got \(2,\)"),
        (lambda texts: torch.ones(1, 3), ShapeError, r"got \(1, 3\)"),
        (lambda texts: [[1.0]] * len(texts), ShapeError, "got list"),
        (7, OptionError, "must have a method embed"),
        (Counter, OptionError, "must have a method embed"),  # the class, where an object is meant
    ],
)
def test_what_is_no_encoder_is_refused(encoder, error, said):
    with pytest.raises(error, match=said):
        Database(["a", "b"], [1, 2], encoder=encoder)


def test_an_encoder_for_what_is_no_text_is_refused(animals):
    with pytest.raises(OptionError, match="one key column of text: got 0"):
        Database([1.0, 2.0], [1, 2], encoder=count_letters)
    with pytest.raises(OptionError, match="must be for a column of text: got 'age', a column of number"):
        Database({"age": [1.0, 2.0]}, [1, 2], encoder={"age": count_letters})
    with pytest.raises(OptionError, match="`key` must be a text: got 3.5. Ask with a text"):
        animals.attend(3.5)
