"""Text and queries on standard input."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence

from regard.errors import OptionError

ONE_CELL = "\x1f"  # A delimiter that nobody writes: the line is one cell, commas and all.


def standard_text() -> str:
    """All of standard input."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"Standard input must be UTF-8: got {error.object[error.start]:#x}. Convert it first."
        ) from None


def standard_input(names: Sequence[str]) -> list[str]:
    """Queries from standard input, one a record of CSV. A first record that names the key columns says their order."""
    from regard.database.delimited import DELIMITERS

    text = standard_text()
    by_delimiter = {delimiter: _records(text, delimiter) for delimiter in (ONE_CELL, *DELIMITERS)}
    if not by_delimiter[ONE_CELL]:
        raise OptionError("Standard input must have a query on each line: got nothing. Write one, or leave out the -.")
    for records in by_delimiter.values():
        header = [cell.strip() for cell in records[0]]
        if set(names) <= set(header):
            places = [header.index(name) for name in names]
            return [_joined([row[place] if place < len(row) else "" for place in places]) for row in records[1:]]
    if len(names) == 1:
        return [cell for (cell,) in by_delimiter[ONE_CELL]]
    fitting = (records for records in by_delimiter.values() if all(len(record) == len(names) for record in records))
    return [_joined(record) for record in next(fitting, by_delimiter[DELIMITERS[0]])]


def _records(text: str, delimiter: str) -> list[list[str]]:
    """The records of a CSV text that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        return [record for record in reader if "".join(record).strip() or len(record) > 1]
    except csv.Error as error:
        raise OptionError(
            f"Standard input must have a query on each line: line {reader.line_num} has none ({error}). "
            f"Put quotes around what has a quote, a comma or a line break in it."
        ) from error


def _joined(cells: Sequence[str]) -> str:
    if len(cells) == 1:
        return cells[0]
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
