"""Pairs: key columns and value columns of the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.database.answer import Labels
from regard.database.columns import Column, IdColumn, OtherColumn, as_key, names
from regard.database.python_values import Entries
from regard.errors import OptionError, ShapeError


class Pairs:
    """Key columns, value columns, and the rows' own labels.

    Args:
        keys, values: columns of one length.
        index: the label of each row; rows are numbered from 0 if left out.
        index_name: what the labels are called.
        said: what was made of the table when it was read.
    """

    def __init__(
        self,
        keys: tuple[Column, ...],
        values: tuple[Column, ...],
        index: Entries | None = None,
        index_name: str = "row",
        said: tuple[str, ...] = (),
    ) -> None:
        n_keys, n_values = len(keys[0]), len(values[0])
        if n_keys != n_values:
            raise ShapeError(
                f"`keys` and `values` must have the same number of rows: got {n_keys} keys and {n_values} values. "
                f"Pass one value for each key."
            )
        if index is not None and len(index) != n_keys:
            raise ShapeError(
                f"`index` must have one label for each row: got {len(index)} labels and {n_keys} rows. "
                f"Pass as many labels as keys, or leave `index` out to number the rows."
            )
        for column in keys:
            if isinstance(column, OtherColumn):
                kind = next((type(entry).__name__ for entry in column.entries if entry is not None), "nothing")
                raise OptionError(
                    f"A key must be a number, a date, a vector or something hashable: got {kind} in {column.name!r}. "
                    f"Convert such keys to text or to tuples."
                )
        self.keys, self.values = tuple(map(as_key, keys)), values
        self.index, self.index_name = index, index_name
        self.said = said
        self._length = n_keys

    def __len__(self) -> int:
        return self._length

    @cached_property
    def labels(self) -> Labels:
        """What everything is called."""
        ids = frozenset(column.name for column in self.keys if isinstance(column, IdColumn))
        return Labels(tuple(names(self.keys)), tuple(names(self.values)), self.index_name, ids)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was made of the table, and of its entries, for every answer to say."""
        sides = (self.keys, True), (self.values, False)
        found = [note for side, compared in sides for column in side for note in column.notes(compared=compared)]
        return tuple(dict.fromkeys([*self.said, *found]))  # a column may be key and value

    def complete_in(self, keys: Sequence[int]) -> Tensor:
        """The rows in which none of those key columns is missing, and no value."""
        columns = [*(self.keys[place] for place in keys), *self.values]
        missing = torch.stack([column.missing for column in columns]).any(dim=0)
        return (~missing).nonzero().flatten()

    def listed(self, rows: Sequence[int]) -> Iterator[tuple[Any, Any, Any]]:
        """The label, the key and the value of some rows."""
        labels = rows if self.index is None else map(self.index.__getitem__, rows)
        keys = [map(column.entries.__getitem__, rows) for column in self.keys]
        values = [map(column.entries.__getitem__, rows) for column in self.values]
        return zip(labels, self._joined_keys(keys), self._joined_values(values), strict=True)

    def value(self, row: int) -> Any:
        """The value of a row: an entry, or a dict with one for each value column."""
        return next(iter(self._joined_values([[column.entries[row]] for column in self.values])))

    def each(self) -> Iterator[tuple[Any, Any]]:
        """Every key with its value, in order."""
        keys, values = ([column.entries for column in side] for side in (self.keys, self.values))
        return zip(self._joined_keys(keys), self._joined_values(values), strict=True)

    def _joined_keys(self, columns: Sequence[Iterable[Any]]) -> Iterable[Any]:
        """Keys of some rows: entries, or tuples with one for each key column."""
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def _joined_values(self, columns: Sequence[Iterable[Any]]) -> Iterable[Any]:
        """Values of some rows: entries, or dicts with one for each value column."""
        if len(columns) == 1:
            return columns[0]
        return (dict(zip(self.labels.values, each, strict=True)) for each in zip(*columns, strict=True))
