"""What a worker keeps of tables: columns that were read, and databases of some of them, within a budget."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import torch

from regard import Database
from regard.database.columns import CategoryColumn, Column, Quantity
from regard.database.database import database_of, rows_of
from regard.database.hidden_rows import HiddenRows
from regard.database.whole_table import WholeTable, read_whole
from regard.errors import OptionError, RegardError, TableError

BUDGET = 1 << 30  # bytes of the tables that a worker keeps
MOST_COLUMNS = 1000
DATABASES = 3  # of one table: each has matrices of its own


class Kept:
    """A table, and what was made of it."""

    def __init__(self, whole: WholeTable) -> None:
        self.whole = whole
        self._databases: OrderedDict[tuple[int, ...], Database] = OrderedDict()
        self._hidden: tuple[tuple[int, ...], HiddenRows] | None = None
        self._baseline: tuple[HiddenRows, float] | None = None

    @property
    def bytes(self) -> int:
        """About what it takes: each number of it stands in some matrices, too."""
        return sum(_bytes_of(column) for column in self.whole.columns) + 8 * 12 * len(self.whole) * len(self._databases)

    def column(self, place: int) -> Column:
        """A column by its place."""
        if place >= len(self.whole.columns):
            raise OptionError(f"A column must be from 0 to {len(self.whole.columns) - 1}: got {place}.")
        return self.whole.columns[place]

    def database(self, keys: list[int], value: int) -> Database:
        """The table as keys and a value."""
        for place in (*keys, value):
            self.column(place)
        chosen = (*keys, value)
        if chosen not in self._databases:
            self._databases[chosen] = database_of(self.whole.pairs(keys, value))
        self._databases.move_to_end(chosen)
        while len(self._databases) > DATABASES:
            self._databases.popitem(last=False)
        return self._databases[chosen]

    def hidden(self, keys: list[int], value: int, known: list[int]) -> HiddenRows:
        """The error of leave-one-out for queries that know some of the keys."""
        chosen = (*keys, value, -1, *known)
        if self._hidden is None or self._hidden[0] != chosen:
            self._hidden = chosen, HiddenRows(rows_of(self.database(keys, value), known))
        return self._hidden[1]

    def baseline(self, keys: list[int], value: int, known: list[int]) -> float:
        """The error of who knows nothing of any key, and predicts each row by the mean of the others."""
        hidden = self.hidden(keys, value, known)
        if self._baseline is None or self._baseline[0] is not hidden:
            self._baseline = hidden, hidden.errors([[None] * len(known)])[0]
        return self._baseline[1]


class Tables:
    """The tables that were asked about last."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._kept: OrderedDict[tuple[str, int, int], Kept] = OrderedDict()

    def get(self, table: str, file: Path) -> Kept:
        """A table; read now, unless it is kept and its file is as it was."""
        try:
            status = file.stat()
        except OSError:
            raise TableError("The table's file is not there any more.") from None
        key = (table, status.st_mtime_ns, status.st_size)
        if key not in self._kept:
            self._kept[key] = Kept(_read(file))
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(each.bytes for each in self._kept.values()) > self._budget:
            self._kept.popitem(last=False)
        return self._kept[key]


def _read(file: Path) -> WholeTable:
    try:
        str(file).encode()
    except UnicodeEncodeError:
        raise TableError("The file must have a name in UTF-8, which its readers ask for. Rename it.") from None

    # The page knows a file by another name than the one that it is kept under.
    def told(message: str) -> str:
        return message.replace(str(file), "the file").replace(file.name, "The file")

    try:
        whole = read_whole(file, MOST_COLUMNS)
    except RegardError as error:
        raise TableError(told(str(error))) from error
    said = {name: [told(note) for note in notes] for name, notes in whole.said.items()}
    return replace(whole, said=said, unread=tuple(map(told, whole.unread)))


def _bytes_of(column: Column) -> int:
    if isinstance(column, Quantity):
        numbers: torch.Tensor = column.numbers
        return 2 * numbers.nbytes  # and as it was read
    return 4 * column.codes.nbytes if isinstance(column, CategoryColumn) else 64 * len(column)
