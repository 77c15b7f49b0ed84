"""Queries as text: what a command line or a line of CSV says."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from regard.database.columns import CategoryColumn, Column, NumberColumn, TextColumn, TimeColumn, VectorColumn, names
from regard.errors import OptionError


def read_text(text: str, columns: Sequence[Column]) -> tuple[Any, ...]:
    """A query from text: the key itself, or an entry for each of several key columns with commas between them.

    An empty entry does not count.

    Example:
        >>> from regard.database.inference import columns_from
        >>> columns = columns_from({"gpa": [3.5], "major": ["physics"]}, "key")
        >>> read_text('3.5,"physics"', columns)
        (3.5, 'physics')
    """
    cells = [text] if len(columns) == 1 else next(csv.reader([text], skipinitialspace=True), [])
    if len(cells) != len(columns):
        raise OptionError(
            f"A query must have one entry for each key column, with commas between them "
            f"({','.join(names(columns))}): got {text!r}. Leave an entry empty if it does not matter."
        )
    return tuple(entry_from(cell, column) for cell, column in zip(cells, columns, strict=True))


def entry_from(text: str, column: Column) -> Any:
    """A cell of text as an entry of its column; None for an empty one."""
    if not text.strip():
        return None
    if isinstance(column, NumberColumn):
        return _number(text, column)
    if isinstance(column, TimeColumn):
        return column.mean(column.numbers.new_tensor(column.encode(text)))
    if isinstance(column, VectorColumn):
        return tuple(column.encode([_number(part, column) for part in text.strip(" []()").replace(",", " ").split()]))
    if isinstance(column, TextColumn):
        return text
    assert isinstance(column, CategoryColumn)
    return text if column.code(text) >= 0 else _spelled(text, column)


def _number(text: str, column: Column) -> Any:
    for read in (int, float):
        try:
            return read(text)
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
