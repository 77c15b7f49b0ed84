"""Claims about Database: the documents' examples, and what a container of pairs does."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any, get_overloads

import pytest
import torch

from regard import Database, Equal, OneHot, attend
from regard.database import Answer, Answers
from regard.errors import MissingKey, OptionError, ShapeError

GPA = [3.0, 3.2, 3.4, 3.5, 3.6, 3.8, 4.0]
SALARY = [61_000, 66_500, 69_000, 70_000, 72_000, 75_500, 80_000]


@pytest.fixture
def majors() -> Database:
    return Database.from_dict({"John Doe": "psychology", "Jane Roe": "physics", "Ann Poe": "physics"})


def test_john_doe_studies_psychology(majors: Database) -> None:
    assert majors["John Doe"] == "psychology"
    assert majors.lookup("John Doe") == "psychology"


def test_a_member_has_the_date_they_joined() -> None:
    members = Database([17, 42], [date(2019, 5, 1), date(2021, 2, 3)])
    assert members[42] == date(2021, 2, 3)


def test_a_business_has_a_valuation() -> None:
    businesses = Database(["Acme", "Initech"], [1_000_000.0, 250_000.0])
    assert businesses["Initech"] == 250_000.0
    assert businesses.attend("Initech").value == 250_000.0


def test_people_are_found_by_major_only_after_the_swap(majors: Database) -> None:
    with pytest.raises(KeyError, match="that is a value"):
        majors["psychology"]
    assert majors.swap()["psychology"] == "John Doe"
    assert majors.swap().lookup_all("physics") == ["Jane Roe", "Ann Poe"]


def test_swapping_twice_changes_nothing(majors: Database) -> None:
    assert list(majors.swap().swap()) == list(majors)


def test_a_gpa_of_3_5_listens_to_3_4_through_3_6_and_a_little_to_3_0_and_4_0() -> None:
    answer = Database(GPA, SALARY).attend(3.5)
    weight = {row.key: row.weight for row in answer.rows}
    assert set(list(weight)[:3]) == {3.4, 3.5, 3.6}
    assert weight[3.4] + weight[3.5] + weight[3.6] > 0.7
    assert 0 < weight[3.0] < 0.05
    assert 0 < weight[4.0] < 0.05
    assert 69_000 < answer.value < 72_000


def test_exact_lookup_is_one_hot_attention_over_equality() -> None:
    keys, values = [3, 1, 2, 1, 3], [10.0, 20.0, 30.0, 40.0, 50.0]
    database = Database(keys, values)
    queries = torch.tensor([[1.0], [2.0], [3.0]])
    one_hot = attend(
        queries, torch.tensor(keys).float()[:, None], torch.tensor(values)[:, None], score=Equal(), weights=OneHot()
    )
    assert [database[key] for key in (1, 2, 3)] == one_hot.flatten().tolist()


def test_it_has_a_length_keys_and_pairs(majors: Database) -> None:
    assert len(majors) == 3
    assert "John Doe" in majors
    assert "psychology" not in majors
    assert ["unhashable"] not in majors
    assert next(iter(majors)) == ("John Doe", "psychology")
    assert (majors.key_names, majors.value_names) == (["key"], ["value"])


def test_several_keys_are_a_tuple_and_several_values_a_dict() -> None:
    database = Database({"gpa": [3.5, 3.6], "major": ["law", "art"]}, {"salary": [1, 2], "city": ["Rome", "Oslo"]})
    assert list(database)[1] == ((3.6, "art"), {"salary": 2, "city": "Oslo"})
    assert database[3.6, "art"] == {"salary": 2, "city": "Oslo"}
    assert database[{"major": "law", "gpa": 3.5}] == {"salary": 1, "city": "Rome"}
    assert (3.6, "law") not in database


def test_an_empty_database_finds_nothing() -> None:
    empty = Database([], [])
    assert len(empty) == 0
    assert list(empty) == []
    answer = empty.average()
    assert not answer.found
    assert answer.message == "No similar rows: the database is empty."


def test_averaging_is_the_mean_of_every_value() -> None:
    answer = Database(GPA, SALARY).average()
    assert answer.value == pytest.approx(sum(SALARY) / len(SALARY))
    assert answer.weights.tolist() == pytest.approx([1 / len(GPA)] * len(GPA))


def test_the_repr_shows_the_kinds_and_the_first_pairs() -> None:
    database = Database({"gpa": GPA}, {"salary": SALARY})
    assert repr(database).splitlines() == [
        "Database of 7 pairs: gpa (number) → salary (number)",
        "row  gpa  salary",
        "  0  3.0  61,000",
        "  1  3.2  66,500",
        "  2  3.4  69,000",
        "  3  3.5  70,000",
        "  4  3.6  72,000",
        "… and 2 more",
    ]
    assert database._repr_html_().startswith("<div><p><b>Database of 7 pairs")


def test_rows_have_the_labels_that_they_were_given() -> None:
    database = Database(["a", "b"], [1.0, 2.0], index=["first", "second"])
    assert database.attend("b").rows[0].index == "second"
    assert database.swap().attend(1.0).rows[0].index == "first"


def test_text_from_a_command_line_becomes_a_query() -> None:
    database = Database({"gpa": [3.5], "major": ["law"]}, [70_000])
    assert database.parse("3.5,law") == (3.5, "law")
    assert Database(["Doe, John"], [1]).parse("Doe, John") == "Doe, John"


def test_keys_without_a_value_each_are_refused() -> None:
    with pytest.raises(ShapeError, match="same number of rows: got 3 keys and 2 values. Pass one value for each key."):
        Database([1, 2, 3], [1, 2])


def test_labels_must_be_one_for_each_row() -> None:
    with pytest.raises(ShapeError, match="`index` must have one label for each row: got 1 labels and 2 rows"):
        Database([1, 2], [1, 2], index=["a"])


def test_keys_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(OptionError, match="A key must be a number, .* got dict in 'key'. Convert such keys to text"):
        Database([{"a": 1}, {"b": 2}], [1, 2])


def test_a_number_is_not_a_sequence_of_keys() -> None:
    with pytest.raises(OptionError, match="`key` must be a sequence of entries: got int. Pass a list"):
        Database(3, [1])


@pytest.mark.parametrize("top", [0, -1, 2.5, True])
def test_top_must_be_a_positive_integer(top: object) -> None:
    with pytest.raises(OptionError, match="`top` must be a positive integer: got"):
        Database([1.0], [1.0]).attend(1.0, top=top)  # type: ignore[arg-type]


def test_in_memory_it_needs_no_optional_dependency() -> None:
    program = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pyarrow", "pandas", "polars"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import warnings
warnings.simplefilter("ignore")  # torch remarks that there is no NumPy
from regard import Database
database = Database({"gpa": [3.0, 3.5, 4.0, 3.4], "major": ["law", "art", "law", "art"]}, [1.0, 2.0, 3.0, 2.0])
answer = database.attend((3.5, "art"))
print(answer.found, len(repr(answer)) > 100, len(answer._repr_html_()) > 100, database[3.0, "law"])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "True True True 1.0\n", result.stderr


def test_a_database_is_a_snapshot() -> None:
    keys, values, labels = torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]]), ["a", "b"]
    database = Database(keys, values, index=labels)
    keys.zero_(), values.zero_(), labels.clear()
    assert list(database) == [(1.0, (3.0,)), (2.0, (4.0,))]
    answer = database.attend(2.0, weights=OneHot())
    assert (answer.value.tolist(), answer.rows[0].index) == ([4.0], "b")


def test_a_query_beyond_floats_is_refused() -> None:
    with pytest.raises(OptionError, match="`key` must be a finite number: got 1000"):
        Database([1, 2], [3, 4]).attend(10**400)
    with pytest.raises(OptionError, match="must be a vector of 2 finite numbers"):
        Database(torch.eye(2), [3, 4]).attend((10**400, 1))


def test_what_is_one_query_and_what_is_many_is_in_the_types() -> None:
    assert [each.__annotations__["return"] for each in get_overloads(Database.attend)] == [
        "Answer",
        "Answers",
        "Answer | Answers",
    ]
    rows = Database({"x": [1.0, 2.0], "word": ["a", "b"]}, [1.0, 2.0])
    assert isinstance(rows.attend([(1.0, "a")]), Answers)
    assert isinstance(rows.attend([{"x": 1.0}]), Answers)
    assert isinstance(Database([1.0, 2.0], [1.0, 2.0]).attend([{"key": 1.0}]), Answers)
    assert isinstance(Database([1.0, 2.0], [1.0, 2.0]).attend(1), Answer)


IDS = [10**17 + step for step in range(5)]


@pytest.mark.parametrize("numbers", [IDS, torch.tensor(IDS), [Decimal(number) for number in IDS], [*IDS, 3]])
def test_integers_that_are_the_same_float_are_compared_by_equality(numbers: Any) -> None:
    database = Database({"id": numbers}, [10, 20, 30, 40, 50, 60][: len(numbers)])
    for score, weights in ((None, None), (Equal(), None), (None, OneHot())):
        assert [answer.value for answer in database.attend(IDS, score=score, weights=weights)] == [10, 20, 30, 40, 50]
    assert not database.attend(10**17 + 9).found
    assert database.notes == (
        "id: compared by equality, since beyond 2⁵³ numbers are taken for others nearby, such as 100000000000000001 "
        "for 100000000000000000",
    )
    assert repr(database.attend(IDS[3])).startswith("id = 100000000000000003 → 40.0\n")
    assert "100000000000000004" in repr(database)
    assert database.parse("100000000000000003") == IDS[3]
    assert database.parse(" NA ") is None
    with pytest.raises(OptionError, match="`id` must be a number by equality: got 'x'. Ask with numbers."):
        database.parse("x")
    assert database.lookup_all(IDS[4]) == [50]
    with pytest.raises(MissingKey, match="got 100000000000000009. Its first keys are "):
        database.lookup(10**17 + 9)


def test_an_integer_that_is_taken_for_the_key_of_a_row_is_said_to_be() -> None:
    said = "The query's id = 100000000000000003 is taken for 100000000000000000, which is the same float."
    alone = Database({"id": [IDS[0], 5]}, [10, 20])
    assert alone.attend(IDS[3], score=Equal()).message == said
    assert alone.attend(IDS[0], score=Equal()).message == ""
    beside = Database({"id": [IDS[0], 5], "word": ["a", "b"]}, [10, 20])
    assert said[1:-1] in beside.attend((IDS[3], "a"), score={"id": Equal()}).message
    assert beside.attend({"word": "a"}).message == ""


def test_integers_beyond_floats_are_numbers_as_values() -> None:
    database = Database([1, 2], {"id": IDS[:2]})
    said = "id: beyond 2⁵³ 1 number is rounded in an average, such as 100000000000000001"
    assert database.notes == (said,)
    assert database.average().value == 1e17
    assert database.swap().swap().average().value == 1e17
    assert database.swap().attend(IDS[1]).value == 2
    assert Database([1, 2, 3], {"id": [2**60, 2**61, 2**60]}).notes == ()
    assert Database([1, 2], {"x": [1e20, 1e20]}).notes == ()


def test_numbers_that_floats_tell_apart_are_compared_by_distance() -> None:
    database = Database([2**60, 2**61, 2**61, 10**400, 3.5, None], [1] * 6)
    assert database.notes == ("key: 1 is infinite, taken as missing",)
    assert "number" in repr(database)
    assert "by equality" not in repr(database)


def test_infinities_are_said_to_be_missing() -> None:
    database = Database({"x": [1.0, math.inf, -math.inf, None]}, {"y": [1.0, 2.0, 3.0, math.inf]})
    assert database.notes == ("x: 2 are infinite, taken as missing", "y: 1 is infinite, taken as missing")
    assert database.swap().notes == database.notes[::-1]
