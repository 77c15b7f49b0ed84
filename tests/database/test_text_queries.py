"""Claims about queries that are text."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

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


def test_too_many_entries_are_told_of_quotes() -> None:
    with pytest.raises(OptionError, match=r"got '1,5,1.234'. Put quotes around one with a comma in it.$"):
        Database({"x": [3.5], "y": [1.0]}, [1]).parse("1,5,1.234")


def test_a_query_may_have_the_delimiter_of_the_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "sales.csv"
    path.write_text('amount;region;v\n1.234,50 €;north;1\n2.000,00 €;a;2\n3.100,25 €;"b;c";3\n', encoding="utf-8")
    sales = Database.from_table(path, key=["amount", "region"], value="v")
    assert sales.parse("1.234,50 €;north") == (1234.5, "north")
    assert sales.parse("1.234,50 €;west") == (1234.5, "west")
    assert sales.parse('"1.234,50 €",north') == (1234.5, "north")
    assert sales.parse("1500,north") == (1500, "north")
    assert sales.parse('1500,"b;c"') == (1500, "b;c")
    assert sales.parse("1500,b;c") == (1500, "b;c")
    words = Database({"size": ["1,5", "2,5"], "word": ["a", "b"]}, [1, 2])
    assert words.parse("1,5;a") == ("1,5", "a")
    assert words.parse("1,5;other") == ("1", "5;other")


def test_text_that_is_no_number_is_refused() -> None:
    with pytest.raises(OptionError) as error:
        Database({"gpa": [3.5]}, [1]).parse("abc")
    assert str(error.value) == "`gpa` must be a number: got 'abc'. Ask with numbers."
