"""What to say when a key is not there, or when no row is like the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.database.answer import Answer, Row
from regard.database.columns import CategoryColumn, Column, NumberColumn, names
from regard.database.lookup import has_entry, nearest
from regard.database.pairs import Pairs
from regard.database.python_values import plain
from regard.database.queries import UNKNOWN, Query
from regard.errors import MissingKey


def missing_key(key: Any, keys: Sequence[Column], values: Sequence[Column]) -> MissingKey:
    """The error for a key that no pair has: the nearest keys, or that it is a value."""
    got = _quoted(key)
    start = f"A lookup must be for a key of the database: got {got}"
    if len(keys) > 1:
        return MissingKey(f"{start}. {_which_part(key, keys)}")
    column = keys[0]
    if len(values) == 1 and has_entry(values[0], key):
        return MissingKey(f"{start}, and that is a value. To ask by values, use .swap().")
    near = nearest(column, key)
    if not near:
        return MissingKey(f"{start}. {_a_few(column)}")
    advice = "" if isinstance(column, CategoryColumn) else f" To weigh similar keys, use .attend({got})."
    return MissingKey(f"{start}. The nearest {_plural(near)}.{advice}")


def _which_part(key: Any, keys: Sequence[Column]) -> str:
    """Of a key with several parts: which of them no row has."""
    entries = plain(key)
    if isinstance(entries, dict):
        entries = [entries.get(name) for name in names(keys)] if set(entries) == set(names(keys)) else []
    if not isinstance(entries, list | tuple) or len(entries) != len(keys):
        return f"Pass one entry for each key column: ({', '.join(names(keys))})."
    for column, entry in zip(keys, entries, strict=True):
        if not has_entry(column, entry):
            near = nearest(column, entry)
            return f"No row has {column.name} = {_quoted(entry)}" + (f"; the nearest {_plural(near)}." if near else ".")
    return "Each part is in the database, but never together. To weigh similar keys, use .attend(...)."


def missing_query(pairs: Pairs) -> Answer:
    """The answer to a query that says nothing, among others: it keeps its place."""
    return Answer(
        query=None,
        found=False,
        value=None,
        std=None,
        probabilities=None,
        rows=[],
        rest=0.0,
        similarity="",
        n_rows=0,
        n_left_out=0,
        message=f"The query is missing: it says nothing about {', '.join(names(pairs.keys))}.",
        labels=pairs.labels,
        notes=pairs.notes,
    )


def unknown_categories(query: Query, keys: Sequence[Column]) -> str:
    """A remark on the parts of a query that no row has; "" if there are none."""
    remarks = []
    for column, entry in zip(keys, query, strict=True):
        if entry is not UNKNOWN and isinstance(column, CategoryColumn) and column.code(entry) < 0:
            near = nearest(column, entry)
            remarks.append(
                f"no row has {column.name} = {_quoted(entry)}" + (f" (the nearest {_plural(near)})" if near else "")
            )
    return "; ".join(remarks)


def same_floats(query: Query, keys: Sequence[Column], nearest_key: Any) -> str:
    """A remark on integers of a query that are not those of the nearest row, and are the same float; "" if none are."""
    parts = (nearest_key,) if len(keys) == 1 else nearest_key
    return "; ".join(
        f"the query's {column.name} = {entry} is taken for {part}, which is the same float"
        for column, entry, part in zip(keys, map(plain, query), map(plain, parts), strict=True)
        if isinstance(column, NumberColumn) and isinstance(entry, int) and isinstance(part, int)
        if entry != part and float(entry) == float(part)
    )


def no_similar_rows(query: Query, keys: Sequence[Column], rows: Sequence[Row]) -> str:
    """Why there is no answer."""
    unknown = unknown_categories(query, keys)
    if unknown:
        return f"No similar rows: {unknown}."
    if rows:
        known = [place for place, entry in enumerate(query) if entry is not UNKNOWN]
        parts = [rows[0].key] if len(keys) == 1 else [rows[0].key[place] for place in known]
        near = ", ".join(f"{keys[place].name} = {_quoted(part)}" for place, part in zip(known, parts, strict=True))
        return f"No similar rows: the nearest, {near}, is too far away. To reach it, pass a wider `score`."
    if all(
        isinstance(column, CategoryColumn) for column, entry in zip(keys, query, strict=True) if entry is not UNKNOWN
    ):
        reason = (
            "that key has a missing value"
            if len(keys) == 1
            else "the parts of the key are never together in a complete row"
        )
        return f"No similar rows: {reason}."
    return "No similar rows: every row has weight 0. Pass a wider `score`, or other `weights`."


def _plural(near: Sequence[Any]) -> str:
    return f"{'key is' if len(near) == 1 else 'keys are'} {', '.join(map(_quoted, near))}"


def _a_few(column: Column) -> str:
    shown = []
    for row in range(min(len(column), 3)):
        shown.append(_quoted(column.entries[row]))
    return f"Its first keys are {', '.join(shown)}." if shown else "It is empty."


def _quoted(entry: Any) -> str:
    entry = plain(entry)
    return str(entry) if hasattr(entry, "isoformat") else repr(entry)
