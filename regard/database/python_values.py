"""The entries of a column as the user wrote them, and as plain Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Protocol

from torch import Tensor

EPOCH = datetime(1970, 1, 1)
DAY = timedelta(days=1)


class Entries(Protocol):
    """The entries of a column as the user wrote them."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class TensorEntries:
    """The entries of a tensor: numbers, or tuples of numbers."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, row: int, /) -> Any:
        return plain(self.tensor[row])

    def __iter__(self) -> Iterator[Any]:
        return (tuple(entry) if isinstance(entry, list) else entry for entry in self.tensor.tolist())


def plain(entry: Any) -> Any:
    """An entry as a plain Python object: scalars of torch, NumPy and Arrow unwrapped, vectors as tuples."""
    if isinstance(entry, Tensor):
        entry = entry.tolist()
        return tuple(entry) if isinstance(entry, list) else entry
    module = type(entry).__module__.partition(".")[0]
    if module == "numpy":
        if type(entry).__name__ in ("datetime64", "timedelta64"):
            # Nanoseconds would come out as a bare integer.
            entry = entry.astype(f"{type(entry).__name__}[us]")
        entry = entry.tolist()
        return tuple(entry) if isinstance(entry, list) else entry
    if module == "pandas" and type(entry).__name__ == "Period":
        return entry.start_time.to_pydatetime()
    if module == "pyarrow" and hasattr(entry, "as_py"):
        return entry.as_py()
    return entry


def hashable(entry: Any) -> Any:
    """An entry in the form under which exact lookup knows it."""
    entry = plain(entry)
    return tuple(entry) if isinstance(entry, list) else entry


def is_missing(entry: Any) -> bool:
    """True for None, NaN, NaT and pandas.NA."""
    if entry is None or type(entry).__name__ in ("NaTType", "NAType"):
        return True
    return isinstance(entry, float) and entry != entry


def hours_of(entry: time) -> float:
    """A clock time in hours since midnight."""
    return entry.hour + entry.minute / 60 + (entry.second + entry.microsecond / 1e6) / 3600


def days_of(entry: Any, zone: tzinfo | None) -> float | None:
    """A date, moment or duration in days; None for anything else. A moment without a zone is taken to be in `zone`."""
    if isinstance(entry, timedelta):
        return entry / DAY
    if isinstance(entry, datetime):
        if (entry.tzinfo is None) != (zone is None):
            if zone is None:
                return None
            entry = entry.replace(tzinfo=zone)
        if entry.tzinfo is not None:
            entry = entry.astimezone(UTC).replace(tzinfo=None)
        return float((entry - EPOCH) / DAY)
    if isinstance(entry, date):
        return days_of(datetime(entry.year, entry.month, entry.day), zone)
    return None
