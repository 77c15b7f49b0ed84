"""Claims about exact lookup, and about what a missing key is told."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import Database, Equal, OneHot, weigh
from regard.errors import MissingKey


def message(database: Database, key: object) -> str:
    with pytest.raises(MissingKey) as error:
        database[key]
    return str(error.value)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(-3, 3))
def test_a_lookup_finds_the_row_that_one_hot_over_equality_finds(keys: list[int], query: int) -> None:
    database = Database(keys, list(range(len(keys))))
    matrix = torch.tensor(keys, dtype=torch.float64).unsqueeze(-1)
    wanted = torch.tensor([[float(query)]], dtype=torch.float64)
    if query in database:
        view = weigh(wanted, matrix, torch.ones(len(keys), 1, dtype=torch.float64), score=Equal(), weights=OneHot())
        assert database[query] == int(view.top(1).indices)
    else:
        assert float(Equal()(wanted, matrix).max()) == 0.0


@pytest.mark.parametrize(
    "keys",
    [
        ["a", "b", "a"],
        [1, 2, 1],
        [1.5, 2.5, 1.5],
        [True, False, True],
        [date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 1)],
        [(1, 2), (3, 4), (1, 2)],
        [("x", 1), ("y", 2), ("x", 1)],
        [frozenset({1}), frozenset({2}), frozenset({1})],
    ],
)
def test_the_first_of_several_pairs_is_looked_up_and_all_can_be(keys: list[object]) -> None:
    database = Database(keys, ["first", "other", "second"])
    assert database[keys[0]] == "first"
    assert database[keys[1]] == "other"
    assert database.lookup_all(keys[0]) == ["first", "second"]


def test_integers_beyond_what_floats_hold_are_told_apart() -> None:
    database = Database([2**60, 2**60 + 1], ["even", "odd"])
    assert (database[2**60], database[2**60 + 1]) == ("even", "odd")
    assert database.lookup_all(2**60 + 1) == ["odd"]
    assert 2**60 + 2 not in database


def test_a_float32_key_is_met_by_the_number_that_was_written() -> None:
    assert Database(torch.tensor([3.4, 3.5]), ["a", "b"])[3.4] == "a"
    assert Database(torch.tensor([[3.4, 0.1], [3.5, 0.2]]), ["a", "b"])[3.5, 0.2] == "b"
    assert Database(torch.tensor([[3.4, 0.1], [3.5, 0.2]]), ["a", "b"])[torch.tensor([3.4, 0.1])] == "a"


def test_scalars_of_torch_and_numpy_are_their_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    database = Database([1, 2], ["a", "b"])
    assert (database[torch.tensor(2)], database[numpy.int64(2)], database[2.0]) == ("b", "b", "b")


def test_dates_are_found_as_dates_as_midnights_and_as_text() -> None:
    days = Database([date(2020, 1, 1), date(2020, 1, 2)], ["a", "b"])
    assert days[datetime(2020, 1, 2)] == "b"
    assert days["2020-01-02"] == "b"
    assert datetime(2020, 1, 2, 12) not in days
    moments = Database([datetime(2020, 1, 1, 12), datetime(2020, 1, 2)], ["noon", "midnight"])
    assert moments[date(2020, 1, 2)] == "midnight"
    assert moments["2020-01-01T12:00"] == "noon"


def test_a_moment_is_the_same_in_any_time_zone() -> None:
    noon = datetime(2020, 7, 1, 12, tzinfo=UTC)
    database = Database([noon], ["noon"])
    assert database[noon.astimezone(ZoneInfo("Europe/Rome"))] == "noon"
    assert database[datetime(2020, 7, 1, 12)] == "noon"


def test_a_missing_key_cannot_be_looked_up() -> None:
    assert None not in Database([1.0, None], [1, 2])
    assert float("nan") not in Database([1.0, float("nan")], [1, 2])


def test_a_misspelt_key_is_told_the_nearest_spellings() -> None:
    assert message(Database(["John Doe", "Jane Roe", "Max"], [1, 2, 3]), "jon doe") == (
        "A lookup must be for a key of the database: got 'jon doe'. The nearest keys are 'John Doe', 'Jane Roe'."
    )


def test_a_number_that_is_no_key_is_told_the_nearest_keys() -> None:
    assert message(Database([3.0, 3.5, 3.6, 3.6], ["a", "b", "c", "d"]), 3.55) == (
        "A lookup must be for a key of the database: got 3.55. The nearest keys are 3.5, 3.6, 3.0. "
        "To weigh similar keys, use .attend(3.55)."
    )


def test_a_date_that_is_no_key_is_told_the_nearest_dates() -> None:
    assert "The nearest key is 2020-01-01." in message(Database([date(2020, 1, 1)], ["a"]), date(2020, 1, 5))


def test_a_key_that_is_a_value_is_told_to_swap() -> None:
    assert message(Database(["John Doe"], ["psychology"]), "psychology") == (
        "A lookup must be for a key of the database: got 'psychology', and that is a value. "
        "To ask by values, use .swap()."
    )
    assert "use .swap()" in message(Database(["a", "b"], [1.0, 2.0]), 2)


def test_a_number_written_as_text_is_neither_a_key_nor_a_value() -> None:
    assert "The nearest keys are 2.0, 1.0" in message(Database([1.0, 2.0], [1.0, 2.0]), "2.0")


def test_a_key_like_no_other_is_shown_some_keys() -> None:
    assert message(Database(["alpha", "beta", "gamma", "delta"], [1, 2, 3, 4]), 17) == (
        "A lookup must be for a key of the database: got 17. Its first keys are 'alpha', 'beta', 'gamma'."
    )
    assert message(Database([], []), "a").endswith("got 'a'. It is empty.")


def test_a_key_of_several_parts_is_told_which_part_is_not_there() -> None:
    database = Database({"gpa": [3.5, 3.6], "major": ["law", "art"]}, [1, 2])
    assert message(database, (3.5, "lew")).endswith("No row has major = 'lew'; the nearest key is 'law'.")
    assert message(database, (3.5, "art")).endswith(
        "Each part is in the database, but never together. To weigh similar keys, use .attend(...)."
    )
    assert message(database, 3.5).endswith("Pass one entry for each key column: (gpa, major).")
    assert message(database, {"gpa": 3.5}).endswith("Pass one entry for each key column: (gpa, major).")


def test_the_spelling_of_a_hundred_thousand_keys_is_still_compared_at_once() -> None:
    database = Database([f"student {row}" for row in range(100_000)], range(100_000))
    assert "'student 99999'" in message(database, "studemt 99999")


def test_the_error_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Database(["a"], [1])["b"]


def test_one_column_can_be_named() -> None:
    assert Database({"name": ["a"]}, [1]).lookup({"name": "a"}) == 1
    assert Database({"name": ["a"]}, [1]).lookup_all({"name": "a"}) == [1]
    assert {"nam": "a"} not in Database({"name": ["a"]}, [1])
    assert Database({"x": [1.5]}, [1]).lookup({"x": 1.5}) == 1


def test_a_value_is_told_from_its_neighbour_beyond_what_floats_hold() -> None:
    database = Database(["a"], [2**60])
    assert "that is a value" in message(database, 2**60)
    assert "that is a value" not in message(database, 2**60 + 1)


def test_a_number_beyond_floats_is_no_key_but_no_crash() -> None:
    assert message(Database([1, 2], [3, 4]), 10**400).startswith("A lookup must be for a key of the database: got 1000")
    assert Database([1, 10**400], [3, 4])[10**400] == 4
    assert 10**400 not in Database(torch.tensor([1.0]), [3])
