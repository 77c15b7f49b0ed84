"""Pairs: key columns and value columns of the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
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

    def label(self, row: int) -> Any:
        """The row's own label."""
        return row if self.index is None else self.index[row]

    def key(self, row: int) -> Any:
        """The key of a row: an entry, or a tuple with one for each key column."""
        return self.keys[0].entries[row] if len(self.keys) == 1 else tuple(column.entries[row] for column in self.keys)

    def value(self, row: int) -> Any:
        """The value of a row: an entry, or a dict with one for each value column."""
        if len(self.values) == 1:
            return self.values[0].entries[row]
        return {column.name: column.entries[row] for column in self.values}

    def each(self) -> Iterator[tuple[Any, Any]]:
        """Every key with its value, in order."""
        keys, values = (zip(*(column.entries for column in side), strict=True) for side in (self.keys, self.values))
        for key, value in zip(keys, values, strict=True):
            yield (
                key[0] if len(self.keys) == 1 else key,
                value[0] if len(self.values) == 1 else dict(zip(names(self.values), value, strict=True)),
            )
