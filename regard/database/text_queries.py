"""Queries as text: what a command line or a line of CSV says."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any

from regard.database.columns import (
    CategoryColumn,
    Column,
    IdColumn,
    NumberColumn,
    TextColumn,
    TimeColumn,
    VectorColumn,
    names,
)
from regard.database.csv_conventions import DELIMITERS, MARKS, TEXT_MARKS
from regard.database.queries import is_infinite
from regard.errors import OptionError

WRITTEN = re.compile(r"([+-]?) ?[$€£¥]? ?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?) ?[%€]?")
WITH_COMMA = re.compile(r"([+-]?) ?[$€£¥]? ?((?:[1-9]\d{0,2}(?:\.\d{3})+|\d*)(?:,\d+)?(?:[eE][+-]?\d+)?) ?[%$€£¥]?")


def read_text(text: str, columns: Sequence[Column]) -> tuple[Any, ...]:
    """A query from text: the key itself, or an entry for each of several key columns with commas between them.

    Or with another delimiter of tables, where that gives an entry for each, and commas do not, or give texts that no
    row has. An empty entry does not count.

    Example:
        >>> from regard.database.python_columns import columns_from
        >>> columns = columns_from({"gpa": [3.5], "major": ["physics"]}, "key")
        >>> read_text('3.5,"physics"', columns), read_text("3.5;physics", columns)
        ((3.5, 'physics'), (3.5, 'physics'))
    """
    if len(columns) == 1:
        return (entry_from(text, columns[0]),)
    splits = {delimiter: _split(text, delimiter) for delimiter in delimiters_of(columns)}
    readings: list[tuple[Any, ...]] = []
    refused: list[OptionError] = []
    for cells in splits.values():
        if len(cells) == len(columns):
            try:
                readings.append(tuple(entry_from(cell, column) for cell, column in zip(cells, columns, strict=True)))
            except OptionError as error:
                refused.append(error)
    if readings:
        return next((reading for reading in readings if _all_known(reading, columns)), readings[0])
    if refused:
        raise refused[0]
    many = len(splits[","]) > len(columns)
    advice = "Put quotes around one with a comma in it" if many else "Leave an entry empty if it does not matter"
    raise OptionError(
        f"A query must have one entry for each key column, with commas between them "
        f"({','.join(names(columns))}): got {text!r}. {advice}."
    )


def delimiters_of(columns: Sequence[Column]) -> str:
    """What may stand between the entries of a query; last of all a comma, where the table has it within numbers."""
    return DELIMITERS[1:] + DELIMITERS[0] if any("," in column.writing for column in columns) else DELIMITERS


def _split(text: str, delimiter: str) -> list[str]:
    try:
        # Strict but for commas: what is in quotes, and goes on behind them, is not written with that delimiter.
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True, strict=delimiter != ","), [])
    except csv.Error:
        return []


def _all_known(entries: Sequence[Any], columns: Sequence[Column]) -> bool:
    """Whether each entry that has to be equal to one of its column is."""
    return all(
        entry is None or not isinstance(column, CategoryColumn) or column.code(entry) >= 0
        for entry, column in zip(entries, columns, strict=True)
    )


def entry_from(text: str, column: Column) -> Any:
    """A cell of text as an entry of its column; None for an empty one, for a mark such as NA, and for an infinity."""
    if not text.strip() or _is_mark(text.strip(), column):
        return None
    if isinstance(column, IdColumn):
        return _number(text, column)
    if isinstance(column, NumberColumn):
        number = _number(text, column)
        return None if is_infinite(number, column) else number
    if isinstance(column, TimeColumn):
        return column.mean(column.numbers.new_tensor(column.encode(text)))
    if isinstance(column, VectorColumn):
        return tuple(column.encode([_number(part, column) for part in text.strip(" []()").replace(",", " ").split()]))
    if isinstance(column, TextColumn):
        return text
    assert isinstance(column, CategoryColumn)
    known = next((each for each in (text, text.strip()) if column.code(each) >= 0), None)
    return _spelled(text, column) if known is None else known


def _is_mark(text: str, column: Column) -> bool:
    """Whether a cell says that there is nothing, as the same cell would in a file."""
    if isinstance(column, CategoryColumn) and not isinstance(column, IdColumn):
        return text in TEXT_MARKS and column.code(text) < 0
    return text in MARKS and not isinstance(column, TextColumn)


def _number(text: str, column: Column) -> Any:
    # As tables may write them, $1,200 and 10%; the answer's first line shows how it was understood.
    written, with_comma = WRITTEN.fullmatch(text.strip()), WITH_COMMA.fullmatch(text.strip())
    if with_comma and (column.writing == ".," or (column.writing == "," and "." not in text)):
        digits = with_comma[1] + with_comma[2].replace(".", "").replace(",", ".")
    else:
        digits = written[1] + written[2].replace(",", "") if written else text
    for read in (int, float):
        try:
            return read(digits)
        except ValueError:
            continue
    raise OptionError(f"`{column.name}` must be a {column.label}: got {text!r}. Ask with numbers.")


def _spelled(text: str, column: CategoryColumn) -> Any:
    """The category that is written like that: yes/no columns take true, yes and 1; other entries their own text."""
    said = text.strip().casefold()
    if column.label == "yes/no" and said in ("true", "yes", "1", "false", "no", "0"):
        return said in ("true", "yes", "1")
    return next(
        (category for category in column.categories if not isinstance(category, str) and str(category) == text), text
    )
