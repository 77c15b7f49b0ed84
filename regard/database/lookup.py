"""Exact lookup: the row whose key is the query. It is one-hot attention over equality, found by a hash table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import cached_property
from typing import Any

import torch

from regard.database.column_names import closest
from regard.database.columns import CategoryColumn, Column, NumberColumn, Quantity, TextColumn, TimeColumn, VectorColumn
from regard.database.python_values import hashable, is_missing, plain
from regard.errors import OptionError

CANDIDATES = 5000
"""How many spellings are compared in full when a key is missing; for a million that would take minutes."""


class KeyIndex:
    """Where each key stands: the first row that has it, and all of them."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)

    def first(self, key: Any) -> int | None:
        """The first row with that key."""
        column = self.columns[0]
        if len(self.columns) == 1 and isinstance(column, CategoryColumn):
            code = column.code(self._entries(key)[0])
            return int(self._first_of_code[code]) if code >= 0 else None
        try:
            return self._first.get(self._form(self._entries(key)))
        except TypeError:
            return None

    @cached_property
    def _first_of_code(self) -> torch.Tensor:
        """The first row of each category: their hash table is the column's own."""
        column = self.columns[0]
        assert isinstance(column, CategoryColumn)
        rows = torch.arange(len(column))[~column.missing]
        first = torch.full((len(column.categories),), len(column))
        return first.scatter_reduce(0, column.codes[rows], rows, "amin")

    @cached_property
    def _first(self) -> dict[Any, int]:
        first: dict[Any, int] = {}
        for row, entries in enumerate(zip(*(column.entries for column in self.columns), strict=True)):
            if not any(map(is_missing, entries)):
                first.setdefault(self._form(entries), row)
        return first

    def all(self, key: Any) -> list[int]:
        """Every row with that key, in order."""
        if self.first(key) is None:
            return []
        entries = self._entries(key)
        wanted = self._form(entries)
        equal = torch.ones(len(self.columns[0]), dtype=torch.bool)
        for column, entry in zip(self.columns, entries, strict=True):
            equal &= _equal_rows(column, entry)
        # Integers beyond 2⁵³ are equal as floats: compare the entries themselves.
        rows: list[int] = equal.nonzero().flatten().tolist()
        return [row for row in rows if self._form([column.entries[row] for column in self.columns]) == wanted]

    def _entries(self, key: Any) -> tuple[Any, ...]:
        if len(self.columns) == 1 and not isinstance(key, dict):
            return (key,)
        if isinstance(key, dict):
            if set(map(str, key)) != {column.name for column in self.columns}:
                return (object(),) * len(self.columns)
            key = {str(name): entry for name, entry in key.items()}
            return tuple(key[column.name] for column in self.columns)
        entries = plain(key)
        if not isinstance(entries, list | tuple) or len(entries) != len(self.columns):
            return (object(),) * len(self.columns)
        return tuple(entries)

    def _form(self, entries: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(exact(column, entry) for column, entry in zip(self.columns, entries, strict=True))


def exact(column: Column, entry: Any) -> Any:
    """An entry in the form under which it is looked up: equal entries have equal forms."""
    entry = hashable(entry)
    if isinstance(column, TimeColumn):
        if isinstance(entry, str) or (
            isinstance(entry, date) and not isinstance(entry, datetime) and column.kind == "moment"
        ):
            return _first_or(column, entry)
        if isinstance(entry, datetime) and column.kind == "date":
            return entry.date() if entry.time() == datetime.min.time() else entry
        if isinstance(entry, datetime) and entry.tzinfo is None and column.zone is not None:
            return entry.replace(tzinfo=column.zone)
    elif (isinstance(column, NumberColumn) and column.given != torch.float64) or isinstance(column, VectorColumn):
        try:
            numbers = tuple(column.encode(entry))
        except OptionError:
            return entry
        return numbers if isinstance(column, VectorColumn) else numbers[0]
    return entry


def _first_or(column: TimeColumn, entry: Any) -> Any:
    try:
        return column.mean(torch.tensor(column.encode(entry), dtype=torch.float64))
    except OptionError:
        return entry


def _equal_rows(column: Column, entry: Any) -> torch.Tensor:
    if isinstance(column, CategoryColumn):
        return column.codes == column.code(entry)
    if isinstance(column, TextColumn):
        # By the text itself: a vector's last digits depend on what was encoded beside it.
        return torch.tensor([each == entry for each in column.entries], dtype=torch.bool)
    assert isinstance(column, Quantity)
    numbers = torch.tensor(column.encode(entry), dtype=column.numbers.dtype)
    return (column.numbers == numbers).all(dim=-1)


def nearest(column: Column, entry: Any, count: int = 3) -> list[Any]:
    """The entries of a column that are nearest to one that it does not have: by spelling, or by distance."""
    if isinstance(column, CategoryColumn):
        return _nearest_spelling(column.categories, entry, count)
    assert isinstance(column, Quantity)
    try:
        numbers = torch.tensor(column.encode(entry), dtype=column.numbers.dtype)
    except OptionError:
        return []
    distance = (column.numbers - numbers).square().sum(dim=-1)
    distance[column.missing] = torch.inf
    found: dict[Any, None] = {}
    # More rows than asked for, since several may share a key; sorted by row where the distances tie.
    for row in distance.sort(stable=True).indices[: 8 * count].tolist():
        if not column.missing[row] and len(found) < count:
            found.setdefault(column.entries[row])
    return list(found)


def _nearest_spelling(categories: Sequence[Any], entry: Any, count: int) -> list[str]:
    if not isinstance(entry, str):
        return []
    texts = [category for category in categories if isinstance(category, str)]
    return closest(entry, texts if len(texts) <= CANDIDATES else _same_half(texts, entry), count)


def _same_half(texts: list[str], wanted: str) -> list[str]:
    """The texts that begin or end as the wanted one does, for as long as possible: one slip leaves a half as it was."""
    wanted, folded = wanted.casefold(), [text.casefold() for text in texts]
    for length in range(len(wanted) - 1, max(len(wanted) // 2 - 1, 0), -1):
        head, tail = wanted[:length], wanted[-length:]
        found = [text for text, fold in zip(texts, folded, strict=True) if fold.startswith(head) or fold.endswith(tail)]
        if found:
            return sorted(found, key=lambda text: abs(len(text) - len(wanted)))[:CANDIDATES]
    return []


def has_entry(column: Column, entry: Any) -> bool:
    """Whether a column holds an entry, of whatever kind it is."""
    entry = plain(entry)
    if isinstance(column, CategoryColumn):
        return column.code(entry) >= 0
    if isinstance(column, Quantity) and (isinstance(column, TimeColumn | TextColumn) or not isinstance(entry, str)):
        try:
            rows: list[int] = _equal_rows(column, entry).nonzero().flatten().tolist()
            # Integers beyond 2⁵³ are equal as floats: compare the entries themselves.
            return any(exact(column, column.entries[row]) == exact(column, entry) for row in rows)
        except OptionError:
            return False
    return False
