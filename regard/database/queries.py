"""Queries as the user writes them: one or many, positional or by name, whole or in part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from torch import Tensor

from regard.database.column_names import check_names
from regard.database.columns import CategoryColumn, Column, NumberColumn, VectorColumn, names
from regard.database.python_values import is_missing, plain
from regard.errors import OptionError, ShapeError

UNKNOWN = object()
"""Stands in a query for a column that the query says nothing about."""

Query = tuple[Any, ...]
"""One entry for each key column; UNKNOWN where the query says nothing about that column."""


def read_queries(query: Any, columns: Sequence[Column]) -> tuple[list[Query], bool]:
    """The queries that the user asked, and whether they were many.

    With one key column, a scalar is one query and a sequence is many; a vector is one query where keys are vectors.
    With several, a tuple or a dict is one query, and a list of them, a dict of lists or a matrix is many.

    Example:
        >>> from regard.database.python_columns import columns_from
        >>> columns = columns_from({"gpa": [3.5], "major": ["physics"]}, "key")
        >>> read_queries({"gpa": [3.4, 3.6], "major": ["physics", "law"]}, columns)
        ([(3.4, 'physics'), (3.6, 'law')], True)
    """
    queries, many = _read(query, columns)
    if many:  # an infinite number is missing, as it is in a table
        queries = [
            tuple(UNKNOWN if is_infinite(entry, column) else entry for entry, column in zip(each, columns, strict=True))
            for each in queries
        ]
    if not many and all(entry is UNKNOWN for entry in queries[0]):
        raise OptionError(
            f"A query must say something about at least one key column ({', '.join(names(columns))}): got nothing. "
            f"Use .average() to average over every row."
        )
    return queries, many


def is_infinite(entry: Any, column: Column) -> bool:
    """Whether an entry of a column of numbers is an infinity, or beyond floats."""
    entry = plain(entry)
    if not isinstance(column, NumberColumn) or not isinstance(entry, int | float | Decimal):
        return False
    try:
        return math.isinf(float(entry))
    except OverflowError:
        return True


def says_nothing(query: Any) -> bool:
    """Whether a query, as it is asked, has nothing but missing entries: among many, it is not answered."""
    return all(is_missing(plain(entry)) for entry in (query if isinstance(query, tuple) else (query,)))


def _read(query: Any, columns: Sequence[Column]) -> tuple[list[Query], bool]:
    frame = _columns_of_frame(query)
    if frame is not None:
        return _from_frame(frame, columns), True
    if isinstance(query, Mapping):
        return _from_mapping(query, columns)
    if len(columns) > 1:
        return _from_rows(query, columns)
    column = columns[0]
    if _is_many(query, column):
        return [_one(row, columns) for row in _rows_of(query)], True
    return [_checked((query,), columns)], False


def _one(row: Any, columns: Sequence[Column]) -> Query:
    return _from_mapping(row, columns)[0][0] if isinstance(row, Mapping) else _checked((row,), columns)


def _columns_of_frame(query: Any) -> dict[str, list[Any]] | None:
    """The columns of a pandas or polars frame or of an Arrow table; None for anything else."""
    package, kind = type(query).__module__.partition(".")[0], type(query).__name__
    if package == "polars" and kind == "LazyFrame":
        query = query.collect()
    if package == "pandas" and kind == "DataFrame":
        return {str(name): query.iloc[:, place].to_list() for place, name in enumerate(query.columns)}
    if package == "polars" and hasattr(query, "to_dict"):
        return {str(name): entries for name, entries in query.to_dict(as_series=False).items()}
    return dict(query.to_pydict()) if package == "pyarrow" and hasattr(query, "to_pydict") else None


def _from_frame(frame: Mapping[str, list[Any]], columns: Sequence[Column]) -> list[Query]:
    """A query for each row of a frame."""
    check_names(list(frame), names(columns), "A query must name key columns")
    n_rows = len(next(iter(frame.values()), []))
    unknown = [UNKNOWN] * n_rows
    rows = zip(*(frame.get(name, unknown) for name in names(columns)), strict=True)
    return [_checked(row, columns) for row in rows]


def _from_mapping(query: Mapping[Any, Any], columns: Sequence[Column]) -> tuple[list[Query], bool]:
    check_names([str(name) for name in query], names(columns), "A query must name key columns")
    asked = {str(name): entry for name, entry in query.items()}
    many = {name for name in asked if _is_many(asked[name], columns[names(columns).index(name)])}
    if not many:
        return [_checked(tuple(asked.get(name, UNKNOWN) for name in names(columns)), columns)], False
    lists = {name: _rows_of(entry) for name, entry in asked.items() if name in many}
    lengths = {name: len(entries) for name, entries in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(
            f"The columns of a query must have the same number of entries: got {lengths}. "
            f"Pass one entry for each query."
        )
    queries = [
        tuple(lists[name][place] if name in lists else asked.get(name, UNKNOWN) for name in names(columns))
        for place in range(next(iter(lengths.values())))
    ]
    return [_checked(each, columns) for each in queries], True


def _from_rows(query: Any, columns: Sequence[Column]) -> tuple[list[Query], bool]:
    rows = _rows_of(query) if _is_sequence(query) else [query]
    present = [row for row in rows if not is_missing(row)]
    if (
        isinstance(query, tuple)
        or not present
        or not all(isinstance(row, Mapping) or _is_sequence(row) for row in present)
    ):
        # A bare row: one entry for each column.
        return ([_checked(tuple(rows), columns)], False) if rows else ([], True)
    queries: list[Query] = []
    for row in rows:
        if isinstance(row, Mapping):
            queries += _from_mapping(row, columns)[0]
        else:
            queries.append((UNKNOWN,) * len(columns) if is_missing(row) else _checked(tuple(_rows_of(row)), columns))
    return queries, True


def _checked(entries: Query, columns: Sequence[Column]) -> Query:
    if len(entries) != len(columns):
        raise ShapeError(
            f"A query must have one entry for each key column ({', '.join(names(columns))}): got {len(entries)} "
            f"({', '.join(map(repr, entries))}). Pass a tuple of {len(columns)}, or a dict of what you know."
        )
    return tuple(UNKNOWN if entry is not UNKNOWN and is_missing(plain(entry)) else entry for entry in entries)


def _is_sequence(query: Any) -> bool:
    if isinstance(query, str | bytes | Mapping | frozenset):
        return False
    return hasattr(query, "__len__") and getattr(query, "ndim", 1) > 0


def _is_many(query: Any, column: Column) -> bool:
    if isinstance(column, VectorColumn):
        rows = _rows_of(query) if _is_sequence(query) else []
        return any(map(_is_sequence, rows))
    if isinstance(column, CategoryColumn) and isinstance(query, tuple):
        return False  # a tuple can be a key
    return _is_sequence(query)


def _rows_of(query: Any) -> list[Any]:
    if isinstance(query, Tensor):
        return list(query.unbind()) if query.ndim else [query]
    for method in ("to_pylist", "to_list"):
        if hasattr(query, method):
            return list(getattr(query, method)())
    return list(query)
