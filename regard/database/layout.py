"""Cells side by side in so many columns: text gives way, then the bars, digits never."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

CELL = 28
"""How wide a cell of text may be, or a third of the terminal."""

SHORT = 12
"""How short a cell of text may become before the bars are dropped."""

SHORTEST = 6
"""How short it may become after that."""

NUMBER = re.compile(r"(\w+ )?[-–<>(]*\d[\d.,:;%±()+\-–…eET\s]*( days| hours)?")
"""A cell that must not lose a digit: a number, a date, a vector, a weight, "row 12"."""


def padded(column: Sequence[str], *, right: bool) -> list[str]:
    """The texts of a column with spaces after them, or before them, until all are as wide as the widest."""
    widths = list(map(cell_len, column))
    spaces = [" " * (max(widths) - width) for width in widths]
    return [space + text if right else text + space for text, space in zip(column, spaces, strict=True)]


def cut(text: str, width: int) -> str:
    """A text that takes at most so many columns; it ends in … where something is left out.

    Example:
        >>> cut("law", 3), cut("lawyers", 4), cut("法律法律", 6)
        ('law', 'law…', '法律…')
    """
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def fitted(
    columns: Sequence[Sequence[str]], width: int, bar: int, whole: Collection[int] = ()
) -> tuple[list[list[list[str]]], int]:
    """The columns of a table, each with its header first, until lines fit; and how long its bars may be, 0 for none.

    A cell is a list of one text, which may be cut; or, in the columns that are to stay `whole`, the lines it takes.

    The widest column of text gives way first, then the bars are dropped, then text gives way again. Where even that is
    too wide, the lines stay too wide.
    """
    digits = [max(map(_width_of_digits, column[1:]), default=0) for column in columns]
    sizes = [max(map(cell_len, column)) for column in columns]
    widths = [max(min(size, max(CELL, width // 3)), least) for size, least in zip(sizes, digits, strict=True)]
    with_bars = _shrunk(widths, digits, SHORT, width - bar - 2) if bar else None
    if with_bars is None:
        bar = 0
    widths = with_bars or _shrunk(widths, digits, SHORTEST, width) or _least(widths, digits)
    return [
        [wrapped(cell, size, indent=0) if place in whole else [cut(cell, size)] for cell in column]
        for place, (column, size) in enumerate(zip(columns, widths, strict=True))
    ], bar


def _shrunk(widths: Sequence[int], digits: Sequence[int], least: int, room: int) -> list[int] | None:
    """The widths that fit, with columns of text no narrower than `least`; None if there are none."""
    narrowed = list(widths)
    while sum(narrowed) + 2 * (len(narrowed) - 1) > room:
        wide = [place for place, size in enumerate(narrowed) if size > max(digits[place], least)]
        if not wide:
            return None
        narrowed[max(wide, key=lambda place: narrowed[place])] -= 1
    return narrowed


def _least(widths: Sequence[int], digits: Sequence[int]) -> list[int]:
    return [min(size, max(least, SHORTEST)) for size, least in zip(widths, digits, strict=True)]


def _width_of_digits(cell: str) -> int:
    return cell_len(cell) if NUMBER.fullmatch(cell) else 0


def wrapped(text: str, width: int, indent: int = 2) -> list[str]:
    """A text in lines of at most so many columns; all but the first are indented."""
    lines: list[str] = []
    line = ""
    for word in _pieces(text, width - indent):
        longer = f"{line} {word}" if line.strip() else line + word
        if cell_len(longer) > width and line.strip():
            lines.append(line)
            longer = " " * indent + word
        line = longer
    return [*lines, line]


def _pieces(text: str, width: int) -> Iterator[str]:
    """The words of a text; one that is too long for a line comes in several pieces."""
    for word in text.split():
        while cell_len(word) > width:
            head = set_cell_size(word, width).rstrip()
            yield head
            word = word[len(head) :]
        yield word
