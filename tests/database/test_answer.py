"""Claims about answers as objects: what they hold, and what JSON makes of them."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta
from decimal import Decimal

import pytest
import torch

from regard import Database
from regard.database import Answers, Row
from regard.database.answer import jsonable


def test_a_row_is_a_label_a_key_a_value_and_a_weight() -> None:
    answer = Database(["a", "b"], [1.0, 2.0]).attend("b")
    assert answer.rows == [Row(index=1, key="b", value=2.0, weight=1.0)]
    assert answer.weights.tolist() == [1.0]


def test_an_answer_goes_through_json() -> None:
    answer = Database({"x": [1.0, 1.0]}, {"day": [date(2020, 1, 1), date(2020, 1, 3)], "word": ["a", "a"]}).attend(1.0)
    read = json.loads(json.dumps(answer.as_dict(), allow_nan=False))
    assert read["query"] == 1.0
    assert read["found"] is True
    assert read["value"] == {"day": "2020-01-02", "word": "a"}
    assert read["std"] == {"day": 1.0}
    assert read["probabilities"] == {"word": {"a": 1.0}}
    assert read["rows"][0] == {"index": 0, "key": 1.0, "value": {"day": "2020-01-01", "word": "a"}, "weight": 0.5}
    assert (read["n_rows"], read["n_left_out"], read["message"]) == (2, 0, "")


def test_no_answer_goes_through_json_too() -> None:
    read = Database(["a"], [1.0]).attend("b").as_dict()
    assert (read["found"], read["value"], read["rows"]) == (False, None, [])
    assert read["message"].startswith("No similar rows")


@pytest.mark.parametrize(
    ("entry", "plain"),
    [
        (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
        ((1, "a"), [1, "a"]),
        ({True: 0.5, date(2020, 1, 1): 0.5}, {"True": 0.5, "2020-01-01": 0.5}),
        (timedelta(hours=12), 0.5),
        (math.nan, None),
        (Decimal("1.5"), "1.5"),
    ],
)
def test_entries_become_plain(entry: object, plain: object) -> None:
    assert jsonable(entry) == plain


def test_many_answers_are_a_sequence() -> None:
    answers = Database(["a", "b"], [1.0, 2.0]).attend(["b", "a", "zebra"])
    assert isinstance(answers, Answers)
    assert len(answers) == 3
    assert answers.values == [2.0, 1.0, None]
    assert answers[0].value == 2.0
    assert [answer.value for answer in answers[1:]] == [1.0, None]
    assert isinstance(answers[:1], Answers)


def test_labels_of_numpy_stay_numbers_in_json() -> None:
    numpy = pytest.importorskip("numpy")
    entries = (numpy.int64(7), numpy.array([1, 2]), numpy.float64("nan"), torch.tensor([1.0, math.nan]))
    assert [jsonable(each) for each in entries] == [7, [1, 2], None, [1.0, None]]


def test_one_and_the_text_one_stay_two_categories_in_json() -> None:
    answer = Database(["x"] * 4, ["1", 1, 1, "a"]).attend("x")
    assert answer.as_dict()["probabilities"] == {"int 1": 0.5, "1": 0.25, "a": 0.25}
