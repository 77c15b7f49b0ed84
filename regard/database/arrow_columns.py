"""Arrow arrays as columns."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import torch
from torch import Tensor

from regard.database.columns import CategoryColumn, Column, NumberColumn, TimeColumn, TimeKind, VectorColumn
from regard.database.python_columns import column_from
from regard.errors import TableError

DAYS_OF_DATES = (-719_161.0, 2_932_895.0)
"""The first and the last day, counted from 1970, that Python's dates know; a zone may move a moment by one."""

DAYS_OF_DURATIONS = 999_999_999.0


class ArrowEntries:
    """The entries of an Arrow array, made into Python objects one at a time."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int, /) -> Any:
        entry = self.array[row].as_py()
        return tuple(entry) if isinstance(entry, list) else entry

    def __iter__(self) -> Iterator[Any]:
        return (tuple(entry) if isinstance(entry, list) else entry for entry in self.array.to_pylist())


def arrow_column(name: str, array: Any) -> Column:
    """A column of the kind that the Arrow type says.

    Args:
        name: what the column is called.
        array: a `pyarrow.ChunkedArray`.
    """
    types = importlib.import_module("pyarrow").types
    kind = array.type
    if types.is_dictionary(kind):
        if types.is_nested(kind.value_type):
            return column_from(name, array.to_pylist())
        # One dictionary for all chunks; a dictionary of numbers is a column of numbers.
        array = array.cast(_large(kind.value_type))
        kind = array.type
    if types.is_boolean(kind) or _is_text(types, kind):
        return _categories(name, array)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NumberColumn(name, ArrowEntries(array), _floats(array).unsqueeze(-1))
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return _times(name, array)
    if types.is_time(kind):
        return _clock_times(name, array)
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        return _vectors(name, array)
    return column_from(name, array.to_pylist())


def _is_text(types: Any, kind: Any) -> bool:
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(types, f"is_{test}")(kind) for test in tests if hasattr(types, f"is_{test}"))


def _large(kind: Any) -> Any:
    """The type with room for text of any length in one piece; others as they are."""
    arrow = importlib.import_module("pyarrow")
    return {arrow.string(): arrow.large_string(), arrow.binary(): arrow.large_binary()}.get(kind, kind)


def _tensor(array: Any) -> Tensor:
    """A chunked array without nulls as a tensor of its own."""
    numbers = array.to_numpy()
    # Arrow's buffers are read-only, and torch warns about a tensor on one.
    return torch.from_numpy(numbers if numbers.flags.writeable else numbers.copy())


def _floats(array: Any) -> Tensor:
    """Numbers in float64, NaN where missing: `(n_rows,)`."""
    compute, arrow = importlib.import_module("pyarrow.compute"), importlib.import_module("pyarrow")
    # Integers beyond 2⁵³ round here; exact lookup compares the entries themselves.
    numbers = compute.cast(array, arrow.float64(), safe=False)
    return _tensor(compute.fill_null(numbers, float("nan")))


def _categories(name: str, array: Any) -> Column:
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    # One piece has one dictionary; unifying those of many chunks takes far longer.
    whole = arrow.concat_arrays(array.cast(_large(array.type)).chunks or [arrow.array([], array.type)])
    encoded = whole.dictionary_encode()
    codes = compute.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype("int64")
    return CategoryColumn(name, ArrowEntries(array), torch.from_numpy(codes), encoded.dictionary.to_pylist())


def _times(name: str, array: Any) -> Column:
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    types, kind, zone = arrow.types, array.type, None
    time_kind: TimeKind
    if types.is_duration(kind):
        time_kind, micro = "duration", arrow.duration("us")
    else:
        time_kind = "date" if types.is_date(kind) else "moment"
        zone = getattr(kind, "tz", None)
        micro = arrow.timestamp("us", tz=zone)
    beyond = TableError(
        f"{name!r} must hold dates of the years 1 to 9999, or durations of less than 10⁹ days: some are beyond. "
        f"Leave them out, or pass them as numbers."
    )
    try:
        # Nanoseconds lose digits, which is no mistake; larger units may not fit, which is.
        exact = compute.cast(array, micro, safe=getattr(kind, "unit", "") != "ns")
    except arrow.ArrowInvalid as error:
        raise beyond from error
    days = _floats(compute.cast(exact, arrow.int64())) / 86_400e6
    limits = (-DAYS_OF_DURATIONS, DAYS_OF_DURATIONS) if time_kind == "duration" else DAYS_OF_DATES
    known = days[days.isfinite()]
    if len(known) and not limits[0] <= float(known.min()) <= float(known.max()) <= limits[1]:
        raise beyond
    # Python's moments end at microseconds.
    entries = ArrowEntries(array if time_kind == "date" else exact)
    return TimeColumn(name, entries, days.unsqueeze(-1), time_kind, None if zone is None else _zone(zone))


def _clock_times(name: str, array: Any) -> Column:
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    exact = compute.cast(array, arrow.time64("us"), safe=False)
    hours = _floats(compute.cast(exact, arrow.int64())) / 3_600e6
    return TimeColumn(name, ArrowEntries(exact), hours.unsqueeze(-1), "clock")


def _zone(name: str) -> Any:
    from datetime import datetime

    if name[:1] in "+-":
        return datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
    return ZoneInfo(name)


def _vectors(name: str, array: Any) -> Column:
    compute, arrow = importlib.import_module("pyarrow.compute"), importlib.import_module("pyarrow")
    flat_type = array.type.value_type
    whole = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    lengths = compute.unique(compute.list_value_length(whole)).to_pylist()
    numeric = arrow.types.is_floating(flat_type) or arrow.types.is_integer(flat_type)
    if not numeric or len(lengths) != 1 or lengths[0] in (None, 0) or whole.null_count:
        return column_from(name, array.to_pylist())
    numbers = _floats(arrow.chunked_array([whole.flatten()])).reshape(len(array), lengths[0])
    if flat_type == arrow.float32():
        numbers = numbers.float()
    return VectorColumn(name, ArrowEntries(array), numbers)
