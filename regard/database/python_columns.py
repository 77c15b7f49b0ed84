"""Python sequences and tensors as columns: what kind of entries are these?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from regard.database.columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    OtherColumn,
    TimeColumn,
    TimeKind,
    VectorColumn,
)
from regard.database.python_values import TensorEntries, days_of, hashable, hours_of, is_missing, plain
from regard.errors import OptionError, ShapeError


def columns_from(data: Any, name: str) -> tuple[Column, ...]:
    """The columns of what a user passed as keys or as values: one column called `name`, or a dict of columns."""
    if isinstance(data, Mapping):
        if not data:
            raise OptionError(f"`{name}s` must have at least one column: got an empty dict. Pass {{column: entries}}.")
        columns = tuple(column_from(str(each), entries) for each, entries in data.items())
        lengths = {column.name: len(column) for column in columns}
        if len(set(lengths.values())) > 1:
            raise ShapeError(
                f"The columns of `{name}s` must have the same number of rows: got {lengths}. "
                f"Pass one entry for each row."
            )
        return columns
    return (column_from(name, data),)


def check_aligned(keys: Any, values: Any) -> None:
    """Raise where pandas would pair keys and values by their labels, and we would pair them by position."""
    columns = [column for side in (keys, values) for column in (side.values() if isinstance(side, Mapping) else [side])]
    indexes = [
        each.index
        for each in columns
        if type(each).__module__.partition(".")[0] == "pandas" and type(each).__name__ == "Series"
    ]
    for index in indexes[1:]:
        if not indexes[0].equals(index):
            raise ShapeError(
                f"`keys` and `values` that are pandas Series must have the same index, in the same order: got "
                f"{list(indexes[0][:3])}… and {list(index[:3])}…. Align them with .reindex(), or pass .to_numpy() to "
                f"pair them by position."
            )


def column_from(name: str, data: Any) -> Column:
    """A column of the kind that its entries show.

    Example:
        >>> column_from("gpa", [3.4, 3.5, None]).label
        'number'
        >>> column_from("major", ["psychology", "physics"]).label
        'text'
    """
    if isinstance(data, Tensor):
        # A copy: what is done to the tensor later is not done to the database.
        return _from_tensor(name, data.detach().clone())
    if isinstance(data, str | bytes) or not hasattr(data, "__len__"):
        if hasattr(data, "__iter__") and not isinstance(data, str | bytes):
            return column_from(name, list(data))
        raise _no_sequence(name, type(data).__name__)
    if getattr(data, "ndim", 1) == 0:
        raise _no_sequence(name, f"a {type(data).__name__} with no axis")
    if str(getattr(data, "dtype", "")).startswith("period["):
        return _from_sequence(name, _periods(data))
    if type(data).__module__.partition(".")[0] == "numpy" and data.dtype.kind in "fiub" and data.ndim in (1, 2):
        return _from_tensor(name, torch.from_numpy(data.astype(data.dtype.newbyteorder("="), copy=True)))
    return _from_sequence(name, listed_entries(data))


def _no_sequence(name: str, got: str) -> OptionError:
    return OptionError(f"`{name}` must be a sequence of entries: got {got}. Pass a list, a tensor or an array.")


def _periods(data: Any) -> list[Any]:
    """The periods of pandas by their first moment; as dates, where that is always a midnight."""
    starts = [None if is_missing(period) else plain(period) for period in list(data)]
    midnight = all(start is None or start.time() == time.min for start in starts)
    return [start.date() if midnight and start is not None else start for start in starts]


def listed_entries(data: Any) -> list[Any]:
    """The entries of any sequence as plain Python objects."""
    if type(data).__module__.partition(".")[0] == "numpy" and data.dtype.kind in "Mm":
        # Nanoseconds would come out as bare integers.
        data = data.astype(f"{'datetime64' if data.dtype.kind == 'M' else 'timedelta64'}[us]")
    if isinstance(data, list | tuple | range):
        return [plain(entry) for entry in data]
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(data, method):
            return [plain(entry) for entry in getattr(data, method)()]
    return [plain(entry) for entry in data]


def _from_tensor(name: str, tensor: Tensor) -> Column:
    if tensor.ndim not in (1, 2):
        raise ShapeError(
            f"`{name}` must be a tensor of shape (n_rows,) or (n_rows, dim): got {tuple(tensor.shape)}. "
            f"Flatten what belongs to one row into one vector."
        )
    if tensor.is_complex():
        raise OptionError(f"`{name}` must hold real numbers: got {tensor.dtype}. Pass .real and .imag as two columns.")
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bool and tensor.ndim == 1:
        return CategoryColumn(name, TensorEntries(tensor), tensor.long(), [False, True])
    if tensor.ndim == 2:
        narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
        return VectorColumn(name, TensorEntries(tensor), tensor.to(torch.float32 if narrow else torch.float64))
    given = tensor.dtype if tensor.is_floating_point() else torch.float64
    return NumberColumn(name, TensorEntries(tensor), tensor.double().unsqueeze(-1), given)


def _from_sequence(name: str, entries: list[Any]) -> Column:
    present = [entry for entry in entries if not is_missing(entry)]
    types = set(map(type, present))
    if not present:
        return CategoryColumn(name, entries, torch.full((len(entries),), -1), [])
    if bool not in types and all(issubclass(each, Real | Decimal) for each in types):
        return NumberColumn(name, entries, _numbers(entries))
    if all(issubclass(each, date) for each in types):
        return _times(name, entries, "moment" if any(issubclass(each, datetime) for each in types) else "date")
    if all(issubclass(each, timedelta) for each in types):
        return _times(name, entries, "duration")
    if all(issubclass(each, time) for each in types) and not any(entry.tzinfo for entry in present):
        hours = [float("nan") if is_missing(entry) else hours_of(entry) for entry in entries]
        return TimeColumn(name, entries, torch.tensor(hours, dtype=torch.float64).unsqueeze(-1), "clock")
    if all(issubclass(each, list | tuple) for each in types) and _are_vectors(present):
        return _vectors(name, entries, len(present[0]))
    return _categories(name, entries)


def _numbers(entries: Sequence[Any]) -> Tensor:
    numbers = [float("nan") if is_missing(entry) else _number(entry) for entry in entries]
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(-1)


def _number(entry: Any) -> float:
    try:
        return float(entry)
    except OverflowError:
        return float("inf")  # beyond floats: as an infinity, it counts as missing


def _times(name: str, entries: list[Any], kind: TimeKind) -> Column:
    zones = {entry.tzinfo for entry in entries if isinstance(entry, datetime) and not is_missing(entry)}
    if None in zones and len(zones) > 1:
        raise OptionError(
            f"`{name}` must have a time zone in every moment or in none: got both. "
            f"Use .replace(tzinfo=...) on the naive ones."
        )
    # Moments of several zones have no zone in common: their mean is told in UTC.
    zone = next(iter(zones), None) if len(zones) < 2 else UTC
    days = [None if is_missing(entry) else days_of(entry, zone) for entry in entries]
    numbers = torch.tensor([float("nan") if each is None else each for each in days], dtype=torch.float64)
    return TimeColumn(name, entries, numbers.unsqueeze(-1), kind, zone)


def _are_vectors(present: Sequence[Any]) -> bool:
    length = len(present[0])
    return length > 0 and all(
        len(entry) == length and all(isinstance(each, Real) and not isinstance(each, bool) for each in entry)
        for entry in present
    )


def _vectors(name: str, entries: list[Any], dim: int) -> Column:
    blank = [float("nan")] * dim
    numbers = [blank if is_missing(entry) else [_number(each) for each in entry] for entry in entries]
    rows = [None if is_missing(entry) else tuple(entry) for entry in entries]
    return VectorColumn(name, rows, torch.tensor(numbers, dtype=torch.float64))


def _categories(name: str, entries: list[Any]) -> Column:
    code_of: dict[Any, int] = {}
    try:
        codes = [-1 if is_missing(entry) else code_of.setdefault(hashable(entry), len(code_of)) for entry in entries]
    except TypeError:
        return OtherColumn(name, entries, torch.tensor([is_missing(entry) for entry in entries], dtype=torch.bool))
    return CategoryColumn(name, entries, torch.tensor(codes, dtype=torch.int64), list(code_of))
