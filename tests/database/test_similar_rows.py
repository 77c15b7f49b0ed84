"""Claims about which rows answer: none where nothing is similar, and none that lack what is asked about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from random import Random
from typing import Any

import pytest
import torch

from regard import (
    Boxcar,
    Database,
    Equal,
    Gaussian,
    Laplacian,
    OneHot,
    Softmax,
    Uniform,
)
from regard.errors import OptionError


def test_nothing_within_the_radius_is_no_answer(salaries: Database) -> None:
    for weights in (None, Softmax(), OneHot()):
        answer = salaries.attend(5.0, score=Boxcar(0.5), weights=weights)
        assert not answer.found
        assert answer.value is None
        assert answer.rows == []
    assert salaries.attend(5.0, score=Boxcar(0.5)).message == (
        "No similar rows: every row has weight 0. Pass a wider `score`, or other `weights`."
    )


def test_a_query_far_from_every_row_is_no_answer(salaries: Database) -> None:
    answer = salaries.attend(35.0)
    assert not answer.found
    assert answer.value is None
    assert answer.message == (
        "No similar rows: the nearest, gpa = 4.0, is too far away. To reach it, pass a wider `score`."
    )


@pytest.mark.parametrize("score", [Gaussian(0.1), Laplacian(0.1), {"gpa": Gaussian(0.1)}, 2 * Gaussian(0.1)])
def test_a_score_that_was_asked_for_reaches_a_few_bandwidths(salaries: Database, score: object) -> None:
    answer = salaries.attend(35.0, score=score)  # type: ignore[arg-type]
    assert not answer.found
    assert answer.message.startswith("No similar rows: the nearest, gpa = 4.0, is too far away.")
    assert salaries.attend(4.4, score=score).found  # type: ignore[arg-type]


def test_vectors_may_be_a_few_bandwidths_away_in_every_coordinate() -> None:
    database = Database(torch.zeros(3, 400), [1.0, 2.0, 3.0])
    assert database.attend(torch.full((400,), 5.0), score=Gaussian(1.0)).value == pytest.approx(2.0)
    assert not database.attend(torch.full((400,), 7.0), score=Gaussian(1.0)).found


def test_a_query_far_outside_of_the_rows_is_said_to_be(salaries: Database) -> None:
    above, below = (salaries.attend(query, score=Gaussian(0.1)) for query in (4.2, 2.8))
    assert above.message == "The rows end at gpa = 4.0, far from the query."
    assert below.message == "The rows begin at gpa = 3.0, far from the query."
    assert [salaries.attend(query, score=Gaussian(0.1)).message for query in (3.5, 4.04)] == ["", ""]
    assert salaries.attend(5.0, weights=Uniform()).message == ""
    days = Database({"day": [date(2020, 1, 1), date(2020, 1, 11)]}, [1.0, 2.0])
    assert days.attend(date(2020, 1, 20), score=Gaussian(5.0)).message == (
        "The rows end at day = 2020-01-11, far from the query."
    )


def test_a_query_far_outside_of_the_rows_in_a_key_that_is_ignored_is_not(salaries: Database) -> None:
    random = Random(0)
    x, noise = [random.random() for _ in range(90)], [random.gauss(0, 1) for _ in range(90)]
    answer = Database({"x": x, "noise": noise}, [3 * each + random.gauss(0, 0.2) for each in x]).attend((0.5, 100.0))
    assert "noise: ignored" in answer.similarity
    assert answer.message == ""


def test_a_text_that_no_row_has_is_no_answer_but_a_spelling() -> None:
    answer = Database({"major": ["psychology", "physics"]}, [1.0, 2.0]).attend("psycology")
    assert not answer.found
    assert answer.message == "No similar rows: no row has major = 'psycology' (the nearest key is 'psychology')."


def test_parts_that_are_never_together_are_no_answer() -> None:
    answer = Database({"city": ["Rome", "Oslo"], "major": ["law", "art"]}, [1.0, 2.0]).attend(("Rome", "art"))
    assert not answer.found
    assert answer.message == "No similar rows: the parts of the key are never together in a complete row."


def test_rows_with_a_missing_key_or_value_are_left_out_and_counted() -> None:
    database = Database([1.0, None, 2.0, math.nan, 3.0, math.inf], [10.0, 20.0, None, 40.0, 50.0, 60.0])
    answer = database.attend(2.0, weights=Uniform())
    assert answer.value == 30.0
    assert (answer.n_rows, answer.n_left_out) == (2, 4)
    assert "2 rows, 4 left out (missing key or value)" in repr(answer)


def test_keys_that_are_not_asked_about_may_be_missing() -> None:
    database = Database({"x": [1.0, 2.0, None], "word": ["a", None, "a"]}, [10.0, 20.0, 60.0])
    average = database.average()
    assert (average.value, average.n_rows, average.n_left_out) == (30.0, 3, 0)
    by_word = database.attend({"word": "a"})
    assert (by_word.value, by_word.n_rows, by_word.n_left_out) == (35.0, 2, 1)
    assert [row.key for row in by_word.rows] == [(1.0, "a"), (None, "a")]
    assert database.attend({"x": 2.0}, weights=OneHot()).value == 20.0
    assert database.attend((2.0, "a"), weights=OneHot()).value == 10.0
    assert database.attend({"x": 2.0}, score={"x": Boxcar(1.0), "word": Equal()}).n_rows == 2


def _with_holes(entries: Sequence[Any]) -> list[Any]:
    return [None if place % 3 == 0 else entry for place, entry in enumerate(entries)]


def test_a_key_that_is_ignored_costs_no_rows() -> None:
    random = Random(0)
    x, noise = [random.random() for _ in range(90)], [random.gauss(0, 1) for _ in range(90)]
    database = Database({"x": x, "noise": _with_holes(noise)}, [3 * each + random.gauss(0, 0.2) for each in x])
    both, alone = database.attend((0.5, 1.0)), database.attend({"x": 0.5})
    assert "noise: ignored" in both.similarity
    assert (both.value, both.std, both.n_rows, both.n_left_out) == (alone.value, alone.std, 90, 0)
    assert database.attend((0.5, 1.0), weights=OneHot()).value == database.attend({"x": 0.5}, weights=OneHot()).value
    with pytest.raises(OptionError, match="`noise` must be a finite number"):
        database.attend((0.5, "loud"))


def test_where_every_key_is_ignored_rows_without_any_are_asked_too() -> None:
    random = Random(0)
    noise, values = ([random.gauss(0, 1) for _ in range(90)] for _ in range(2))
    database = Database(_with_holes(noise), values)
    answer = database.attend(0.5)
    assert "ignored" in answer.similarity
    assert (answer.n_rows, answer.value) == (90, pytest.approx(database.average().value))


def test_a_missing_cell_of_an_ignored_key_makes_no_mismatch_absolute() -> None:
    random = Random(0)
    noise, words = [random.gauss(0, 1) for _ in range(200)], [random.choice("abc") for _ in range(200)]
    values = ["abc".index(word) + random.gauss(0, 0.2) for word in words]
    for holes in (noise, [None, *noise[1:]]):
        database = Database({"noise": holes, "word": words, "same": ["s"] * 200}, values)
        answer = database.attend((0.1, "other", "s"), score={"same": Equal()})
        assert "a mismatch weighs" in answer.similarity
        assert answer.found


def test_a_quantity_that_is_ignored_beside_a_category_costs_no_rows() -> None:
    random = Random(0)
    noise = [random.gauss(0, 1) for _ in range(90)]
    words = [random.choice("abc") for _ in noise]
    values = ["abc".index(word) + random.gauss(0, 0.2) for word in words]
    for holes in (noise, _with_holes(noise)):
        answer = Database({"word": words, "noise": holes}, values).attend(("b", 1.0))
        assert "noise: ignored" in answer.similarity
        assert answer.n_rows == 90
        assert answer.value == pytest.approx(1.0, abs=0.1)
    given = Database({"word": words, "noise": _with_holes(noise)}, values).attend(("b", 1.0), score={"word": Equal()})
    assert given.n_rows == 90
    assert given.value == pytest.approx(1.0, abs=0.1)


def test_a_key_whose_value_is_missing_can_be_looked_up_but_not_weighed() -> None:
    database = Database(["a", "b"], [1.0, None])
    assert database["b"] is None
    answer = database.attend("b")
    assert not answer.found
    assert answer.message == "No similar rows: that key has a missing value."


def test_rows_that_are_all_incomplete_are_no_answer() -> None:
    answer = Database([1.0, 2.0], [None, None]).attend(1.0)
    assert not answer.found
    assert answer.message == "No similar rows: every row has a missing key or value."
