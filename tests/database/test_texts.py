"""Claims about queries that are text."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from regard import Database
from regard.errors import OptionError


@pytest.mark.parametrize(
    ("keys", "text", "query"),
    [
        ([3.5], "3.5", 3.5),
        ([3], "3", 3),
        ([2**60 + 1], str(2**60 + 1), 2**60 + 1),
        (["Doe, John"], "Doe, John", "Doe, John"),
        (["3"], "3", "3"),
        ([True, False], "yes", True),
        ([True, False], "False", False),
        ([1, "a"], "1", 1),
        (["a"], "zebra", "zebra"),
        ([date(2020, 1, 1)], "2020-01-31", date(2020, 1, 31)),
        ([datetime(2020, 1, 1)], "2020-01-31 12:00", datetime(2020, 1, 31, 12)),
        ([timedelta(1)], "1.5", timedelta(days=1.5)),
        ([[1.0, 2.0]], "3, 4", (3.0, 4.0)),
        ([[1.0, 2.0]], "[3 4]", (3.0, 4.0)),
        ([3.5], " ", None),
    ],
)
def test_text_is_read_as_what_the_keys_are(keys: list[object], text: str, query: object) -> None:
    assert Database(keys, list(range(len(keys)))).parse(text) == query


def test_several_entries_have_commas_between_them() -> None:
    database = Database({"gpa": [3.5], "name": ["Doe, John"], "major": ["law"]}, [1])
    assert database.parse('3.5, "Doe, John",law') == (3.5, "Doe, John", "law")
    assert database.parse("3.5,,") == (3.5, None, None)


def test_too_few_entries_are_refused() -> None:
    with pytest.raises(OptionError) as error:
        Database({"gpa": [3.5], "major": ["law"]}, [1]).parse("3.5")
    assert str(error.value) == (
        "A query must have one entry for each key column, with commas between them (gpa,major): got '3.5'. "
        "Leave an entry empty if it does not matter."
    )


def test_text_that_is_no_number_is_refused() -> None:
    with pytest.raises(OptionError) as error:
        Database({"gpa": [3.5]}, [1]).parse("abc")
    assert str(error.value) == "`gpa` must be a number: got 'abc'. Ask with numbers."
