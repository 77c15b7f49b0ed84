"""Claims about Arrow types: each becomes the column that it says."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from regard.database.arrow_columns import arrow_column
from regard.database.columns import CategoryColumn, Quantity

arrow = pytest.importorskip("pyarrow")


def column(entries: list[Any], kind: Any = None) -> Any:
    return arrow_column("x", arrow.chunked_array([arrow.array(entries, kind)]))


@pytest.mark.parametrize(
    ("entries", "kind", "label"),
    [
        ([1, None], "int64", "number"),
        ([1.5], "float16", "number"),
        ([Decimal("1.50")], "decimal", "number"),
        (["a", None], "string", "text"),
        (["a"], "large_string", "text"),
        (["a"], "string_view", "text"),
        ([b"a"], "binary", "category"),
        ([True, None], "bool", "yes/no"),
        ([date(2020, 1, 1)], "date32", "date"),
        ([date(2020, 1, 1)], "date64", "date"),
        ([datetime(2020, 1, 1)], "timestamp", "moment"),
        ([timedelta(1)], "duration", "duration"),
        ([[1.0, 2.0]], "list", "vector of 2"),
        ([[1.0, 2.0]], "fixed list", "vector of 2"),
        ([[1.0], [1.0, 2.0]], "list", "category"),
        ([[1.0, 2.0], None], "list", "vector of 2"),
        ([{"a": 1}], "struct", "other"),
        ([None, None], "null", "category"),
    ],
)
def test_each_type_becomes_its_kind(entries: list[Any], kind: str, label: str) -> None:
    kinds = {
        "decimal": arrow.decimal128(10, 2),
        "timestamp": arrow.timestamp("ns"),
        "duration": arrow.duration("s"),
        "list": arrow.list_(arrow.float64()),
        "fixed list": arrow.list_(arrow.float32(), 2),
        "struct": arrow.struct({"a": arrow.int64()}),
        "bool": arrow.bool_(),
    }
    made = column(entries, kinds.get(kind) or getattr(arrow, kind)())
    assert made.label == label
    assert made.missing.tolist() == [entry is None for entry in entries]
    assert len(list(made.entries)) == len(made) == len(entries)


def test_a_dictionary_of_lists_is_read_through() -> None:
    encoded = arrow.DictionaryArray.from_arrays(arrow.array([1, 0, 1]), arrow.array([[1.0, 2.0], [3.0, 4.0]]))
    got = arrow_column("x", arrow.chunked_array([encoded]))
    assert list(got.entries) == [(3.0, 4.0), (1.0, 2.0), (3.0, 4.0)]


def test_a_dictionary_is_read_through() -> None:
    words = arrow_column("x", arrow.chunked_array([arrow.array(["b", "a", "b", None]).dictionary_encode()]))
    assert isinstance(words, CategoryColumn)
    assert words.codes.tolist() == [0, 1, 0, -1]
    numbers = arrow_column("x", arrow.chunked_array([arrow.array([3.5, 3.5]).dictionary_encode()]))
    assert numbers.label == "number"


def test_chunks_share_their_categories() -> None:
    made = arrow_column("x", arrow.chunked_array([["a", "b"], ["b", "c", "a"], []], type=arrow.string()))
    assert isinstance(made, CategoryColumn)
    assert [made.categories[code] for code in made.codes.tolist()] == ["a", "b", "b", "c", "a"]


def test_an_array_without_chunks_is_an_empty_column() -> None:
    for kind in (arrow.string(), arrow.float64(), arrow.timestamp("us")):
        assert len(arrow_column("x", arrow.chunked_array([], type=kind))) == 0


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome", "+02:00"])
def test_moments_keep_their_zone(zone: str) -> None:
    made = column([datetime(2020, 7, 1, 12)], arrow.timestamp("us", tz=zone))
    assert isinstance(made, Quantity)
    assert made.mean(made.numbers[0]) == made.entries[0]
    assert made.mean(made.numbers[0]).utcoffset() == made.entries[0].utcoffset()


def test_entries_come_out_as_python_objects() -> None:
    assert column([[1.0, 2.0]], arrow.list_(arrow.float64())).entries[0] == (1.0, 2.0)
    assert type(column([datetime(2020, 1, 1, 0, 0, 1)], arrow.timestamp("ns")).entries[0]) is datetime
