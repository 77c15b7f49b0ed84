"""Claims about columns as numbers: what a query is encoded to, and what a mean is decoded to."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import torch

from regard.database.columns import CategoryColumn, Quantity, TimeColumn
from regard.database.python_columns import column_from
from regard.database.python_values import is_missing, plain
from regard.errors import OptionError


def quantity(entries: object, name: str = "x") -> Quantity:
    column = column_from(name, entries)
    assert isinstance(column, Quantity)
    return column


def test_dates_count_in_days() -> None:
    column = quantity([date(1970, 1, 2), datetime(1970, 1, 3, 12)])
    assert column.numbers.flatten().tolist() == [1.0, 2.5]
    assert quantity([timedelta(hours=12)]).numbers.item() == 0.5


@pytest.mark.parametrize(
    "moment",
    [
        date(2024, 2, 29),
        datetime(1850, 3, 1, 4, 5, 6),
        datetime(2024, 2, 29, 23, 59, 59, 999_000),
        datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("America/New_York")),
        timedelta(days=-3, seconds=7),
    ],
)
def test_what_is_encoded_is_decoded(moment: date | timedelta) -> None:
    column = quantity([moment])
    decoded = column.mean(torch.tensor(column.encode(moment), dtype=torch.float64))
    assert abs(decoded - moment) <= timedelta(microseconds=100)
    assert getattr(decoded, "tzinfo", None) == getattr(moment, "tzinfo", None)


def test_a_naive_moment_is_taken_to_be_in_the_column_s_zone() -> None:
    column = quantity([datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Rome"))])
    assert column.encode(datetime(2024, 7, 1, 12)) == column.numbers[0].tolist()
    assert column.encode("2024-07-01T10:00:00+00:00") == column.numbers[0].tolist()


def test_a_category_that_no_row_has_gets_no_code() -> None:
    column = column_from("x", ["a", "b", "a"])
    assert isinstance(column, CategoryColumn)
    assert column.codes.tolist() == [0, 1, 0]
    assert [column.code(each) for each in ("a", "b", "c", ["unhashable"])] == [0, 1, -1, -1]


def test_scalars_become_plain_objects() -> None:
    numpy = pytest.importorskip("numpy")
    arrow = pytest.importorskip("pyarrow")
    assert plain(torch.tensor(3)) == 3
    assert plain(torch.tensor([1.0, 2.0])) == (1.0, 2.0)
    assert plain(numpy.float32(0.5)) == 0.5
    assert plain(numpy.array([1, 2])) == (1, 2)
    assert plain(numpy.datetime64("2020-01-01T00:00:00", "ns")) == datetime(2020, 1, 1)
    assert plain(arrow.scalar("a")) == "a"


def test_missing_is_none_nan_nat_and_na() -> None:
    pandas = pytest.importorskip("pandas")
    assert all(map(is_missing, [None, float("nan"), pandas.NaT, pandas.NA]))
    assert not any(map(is_missing, [0, "", False, float("inf")]))


@pytest.mark.parametrize(
    ("entries", "query", "text"),
    [
        (
            [3.5],
            "1.234,50 €",
            "`x` must be a finite number: got '1.234,50 €'. Ask with a number, such as 3.5; .parse() reads text as the "
            "column is written.",
        ),
        ([3.5], float("inf"), "`x` must be a finite number: got inf. Ask with a number, such as 3.5."),
        ([date(2020, 1, 1)], "tomorrow", "`x` must be a date: got 'tomorrow'. Ask with one, such as 2024-01-31."),
        ([datetime(2020, 1, 1)], 7, "`x` must be a moment: got 7. Ask with one, such as 2024-01-31T12:00:00."),
        ([timedelta(1)], "long", "`x` must be a duration: got 'long'. Ask with one, such as timedelta(days=2)."),
        ([[1.0, 2.0]], [1.0], "`x` must be a vector of 2 finite numbers: got [1.0]. Ask with one of that length."),
        ([[1.0, 2.0]], "ab", "`x` must be a vector of 2 finite numbers: got 'ab'. Ask with one of that length."),
    ],
)
def test_a_query_of_the_wrong_kind_is_refused(entries: object, query: object, text: str) -> None:
    with pytest.raises(OptionError) as error:
        quantity(entries).encode(query)
    assert str(error.value) == text


def test_an_aware_moment_cannot_be_asked_of_naive_ones() -> None:
    with pytest.raises(OptionError) as error:
        quantity([datetime(2020, 1, 1)]).encode(datetime(2020, 1, 1, tzinfo=UTC))
    assert str(error.value) == (
        "`x` must be a moment without a time zone, as the others are: got 2020-01-01 00:00:00+00:00 in UTC. "
        "Ask with .replace(tzinfo=None), in the zone that the column is in."
    )


def test_a_time_column_says_what_it_counts_in() -> None:
    column = quantity([date(2020, 1, 1)])
    assert isinstance(column, TimeColumn)
    assert (column.kind, column.label, column.unit) == ("date", "date", "days")
