"""Text and queries on standard input."""

from __future__ import annotations

import csv
import io
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from regard.errors import OptionError

UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)
ONE_CELL = "\x1f"  # A delimiter that nobody writes: the line is one cell, commas and all.


def standard_text() -> str:
    """All of standard input."""
    try:
        read = sys.stdin.buffer.read()
        return read.decode("utf-16" if read.startswith(UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"Standard input must be UTF-8: got {error.object[error.start]:#x}. Convert it first."
        ) from None
    except OSError as error:
        raise OptionError(f"Standard input must be readable: it is not ({error.strerror or error}).") from None


class Line(NamedTuple):
    """A query as text, and the line of standard input that it begins on; 0 for an argument."""

    number: int
    text: str

    @property
    def place(self) -> str:
        """Where a mistake in it is, to begin a message with."""
        return f"Line {self.number} of standard input: " if self.number else ""


def standard_input(names: Sequence[str], delimiters: str = ",;\t|") -> list[Line]:
    """Queries from standard input, one a record of CSV. A first record that names the key columns says their order.

    A blank line is a query that says nothing: the answers stand where their questions do. At the end it is none: no
    answer comes after it.

    Args:
        names: the key columns.
        delimiters: what may stand between cells, the first that fits.
    """
    text = standard_text()
    if not text.strip():
        raise OptionError("Standard input must have a query on each line: got nothing. Write one, or leave out the -.")
    usual = ONE_CELL if len(names) == 1 else ","
    by_delimiter = {}
    for delimiter in (ONE_CELL, *delimiters):
        with suppress(OptionError):
            by_delimiter[delimiter] = _records(text, delimiter)
    for records in by_delimiter.values():
        first = next((place for place, (_, cells) in enumerate(records) if not _is_blank(cells)), 0)
        header = [cell.strip() for cell in records[first][1]]
        if set(names) <= set(header):
            places = [header.index(name) for name in names]
            return [
                Line(number, _joined([cells[place] if place < len(cells) else "" for place in places]))
                for number, cells in records[first + 1 :]
            ]
    if len(names) == 1:
        return [Line(number, "".join(cells)) for number, cells in _records(text, usual)]
    fitting = (
        records
        for records in by_delimiter.values()
        if all(len(cells) == len(names) or _is_blank(cells) for _, cells in records)
    )
    return [
        Line(number, _joined([""] * len(names) if _is_blank(cells) else cells))
        for number, cells in next(fitting, None) or _records(text, usual)
    ]


def _records(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """The records of a CSV text, each with the line that it begins on; a blank line has no cells, or a blank one."""
    # Strict: a quote that is not closed would swallow the queries below it.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    records: list[tuple[int, list[str]]] = []
    start = 1
    try:
        for cells in reader:
            records.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise OptionError(
            f"Standard input must have a query on each line: line {start} has none ({error}). "
            f"Put quotes around what has a quote, a comma or a line break in it."
        ) from error
    while len(records) > 1 and _is_blank(records[-1][1]):
        records.pop()
    return records


def _is_blank(cells: Sequence[str]) -> bool:
    return len(cells) < 2 and not "".join(cells).strip()


def _joined(cells: Sequence[str]) -> str:
    if len(cells) == 1:
        return cells[0]
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
