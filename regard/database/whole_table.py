"""All columns of a file at once, for who does not know yet which are keys and which is the value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from regard.database.columns import Column
from regard.database.files import names_in, read_file
from regard.database.pairs import Pairs
from regard.database.tables import column_in
from regard.errors import TableError

FEW = 64
"""Up to how many columns each is read by itself, where one of them cannot be read."""


@dataclass(frozen=True)
class WholeTable:
    """The columns of a file, and what has to be said about it.

    Args:
        columns: those that can be read, in the file's order.
        said: of each column, and of the file itself under "", what was made of it.
        unread: why a column that is there is none of them.
    """

    columns: tuple[Column, ...]
    said: dict[str, list[str]]
    unread: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0])

    def pairs(self, keys: list[int], value: int) -> Pairs:
        """Keys and values, by the places of their columns."""
        chosen = [self.columns[place] for place in (*keys, value)]
        notes = [
            note for name in dict.fromkeys(["", *(each.name for each in chosen)]) for note in self.said.get(name, [])
        ]
        return Pairs(tuple(chosen[:-1]), (chosen[-1],), said=tuple(notes))


def read_whole(path: Path, most: int) -> WholeTable:
    """Every column of a file that has at most so many."""
    counted = Counter(names_in(path, most))
    wanted = [name for name, count in counted.items() if count == 1]
    unread = [f"{count} columns are called {name!r}: rename them" for name, count in counted.items() if count > 1]
    if not wanted:
        raise TableError(f"{path.name} must have columns with names that differ: it has none. Name its columns.")
    try:
        return _read(path, wanted, unread)
    except TableError:
        if not 1 < len(wanted) <= FEW:
            raise
        readable, errors = _apart(path, wanted)
        if not readable:
            raise
        return _read(path, readable, [*unread, *errors])


def _read(path: Path, wanted: list[str], unread: list[str]) -> WholeTable:
    table, said = read_file(path, wanted)
    return WholeTable(tuple(column_in(table, name) for name in wanted), said, tuple(unread))


def _apart(path: Path, wanted: list[str]) -> tuple[list[str], list[str]]:
    """The columns that can be read, and what is wrong with the others."""
    readable, errors = [], []
    for name in wanted:
        try:
            _read(path, [name], [])
            readable.append(name)
        except TableError as error:
            errors.append(str(error))
    return readable, errors
