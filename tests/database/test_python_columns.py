"""Claims about what kind of column some entries make."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
import torch

from regard.database.columns import TimeColumn
from regard.database.python_columns import column_from, columns_from
from regard.errors import OptionError, ShapeError


@pytest.mark.parametrize(
    ("entries", "label"),
    [
        ([1, 2], "number"),
        ([1, 2.5, None], "number"),
        ([Decimal("1.5"), Fraction(1, 2)], "number"),
        (range(3), "number"),
        ((entry for entry in (1.0, 2.0)), "number"),
        (["a", "b", None], "text"),
        ([True, False], "yes/no"),
        ([1, "a"], "category"),
        ([1, True], "category"),
        ([date(2020, 1, 1), None], "date"),
        ([datetime(2020, 1, 1), date(2020, 1, 2)], "moment"),
        ([timedelta(1)], "duration"),
        ([[1, 2], [3, 4]], "vector of 2"),
        ([torch.ones(3), torch.zeros(3)], "vector of 3"),
        ([(1, 2), None], "vector of 2"),
        ([(1, 2), (1, 2, 3)], "category"),
        ([{"a": 1}], "other"),
        ([None, None], "category"),
        (torch.tensor([1, 2]), "number"),
        (torch.tensor([True, False]), "yes/no"),
        (torch.ones(2, 5), "vector of 5"),
        (torch.ones(2, 5, dtype=torch.bfloat16), "vector of 5"),
    ],
)
def test_entries_show_their_kind(entries: object, label: str) -> None:
    assert column_from("x", entries).label == label


def test_numpy_arrays_are_columns() -> None:
    numpy = pytest.importorskip("numpy")
    assert column_from("x", numpy.array([1.5, 2.5])).label == "number"
    assert column_from("x", numpy.ones((3, 4), dtype="f4")).label == "vector of 4"
    assert column_from("x", numpy.array(["a", "b"])).label == "text"
    assert column_from("x", numpy.array([True])).label == "yes/no"
    moments = column_from("x", numpy.array(["2020-01-01", "NaT"], dtype="datetime64[ns]"))
    assert moments.label == "moment"
    assert moments.missing.tolist() == [False, True]


def test_pandas_and_polars_series_are_columns() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert column_from("x", pandas.Series([1, 2])).label == "number"
    assert column_from("x", pandas.Series(["a", None])).missing.tolist() == [False, True]
    assert column_from("x", pandas.to_datetime(pandas.Series(["2020-01-01", None]))).missing.tolist() == [False, True]
    assert column_from("x", polars.Series(["a", None])).missing.tolist() == [False, True]


def test_none_nan_and_infinity_are_missing() -> None:
    assert column_from("x", [1.0, None, math.nan, math.inf, 2.0]).missing.tolist() == [False, True, True, True, False]
    assert column_from("x", ["a", None, math.nan]).missing.tolist() == [False, True, True]
    assert column_from("x", torch.tensor([[1.0, math.nan], [1.0, 2.0]])).missing.tolist() == [True, False]
    assert column_from("x", [{"a": 1}, None]).missing.tolist() == [False, True]


def test_a_dict_of_columns_keeps_their_names() -> None:
    columns = columns_from({"gpa": [3.5], "major": ["law"]}, "key")
    assert [(column.name, column.label) for column in columns] == [("gpa", "number"), ("major", "text")]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"columns of `keys` must have the same number of rows: got {'a': 1, 'b': 2}"):
        columns_from({"a": [1], "b": [1, 2]}, "key")


def test_a_dict_without_columns_is_refused() -> None:
    with pytest.raises(OptionError, match="`keys` must have at least one column: got an empty dict."):
        columns_from({}, "key")


def test_tensors_of_more_axes_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"of shape \(n_rows,\) or \(n_rows, dim\): got \(2, 2, 2\). Flatten"):
        column_from("x", torch.ones(2, 2, 2))


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(OptionError, match="must hold real numbers: got torch.complex64. Pass .real and .imag"):
        column_from("x", torch.ones(2, dtype=torch.complex64))


def test_moments_with_and_without_a_time_zone_do_not_mix() -> None:
    with pytest.raises(OptionError, match="a time zone in every moment or in none: got both."):
        column_from("x", [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)])


def test_text_is_not_a_sequence_of_entries() -> None:
    with pytest.raises(OptionError, match="must be a sequence of entries: got str"):
        column_from("x", "abc")


def test_an_array_with_no_axis_is_no_sequence() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(OptionError, match="`key` must be a sequence of entries: got a ndarray with no axis."):
        column_from("key", numpy.array(5))


def test_numbers_beyond_floats_are_missing_as_infinities_are() -> None:
    assert column_from("x", [1, 10**400]).missing.tolist() == [False, True]
    assert column_from("x", [[1, 2], [1, 10**400]]).missing.tolist() == [False, True]


def test_moments_of_several_zones_are_told_in_utc() -> None:
    rome, tokyo = (datetime(2020, 1, 1, 12, tzinfo=ZoneInfo(zone)) for zone in ("Europe/Rome", "Asia/Tokyo"))
    column = column_from("when", [rome, tokyo])
    assert isinstance(column, TimeColumn)
    assert column.zone is UTC
    same = column_from("when", [rome, rome])
    assert isinstance(same, TimeColumn)
    assert same.zone == ZoneInfo("Europe/Rome")
