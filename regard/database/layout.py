"""Cells side by side in so many columns: text gives way, then the bars, digits never."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import cache

CELL = 28
"""How wide a cell of text may be, or a third of the terminal."""

SHORT = 12
"""How short a cell of text may become before the bars are dropped."""

SHORTEST = 6
"""How short it may become after that."""

NUMBER = re.compile(r"(\w+ )?[-–<>(]*\d[\d.,:;%±()+\-–…eET\s]*( days| hours)?")
"""A cell that must not lose a digit: a number, a date, a vector, a weight, "row 12"."""


@cache
def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for each Chinese character, say.

    Example:
        >>> cell_width("law"), cell_width("法律")
        (3, 4)
    """
    if text.isascii():
        return len(text)
    try:
        from rich.cells import cell_len
    except ImportError:
        return sum(_character_width(character) for character in text)
    return cell_len(text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0  # drawn over the one before it
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A text with spaces after it, or before it, up to so many columns."""
    space = " " * max(width - cell_width(text), 0)
    return space + text if right else text + space


def cut(text: str, width: int) -> str:
    """A text that takes at most so many columns; it ends in … where something is left out."""
    if cell_width(text) <= width:
        return text
    kept = ""
    for character in text:
        if cell_width(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def fitted(
    lines: Sequence[Sequence[str]], width: int, bar: int, whole: Collection[int] = ()
) -> tuple[list[list[list[str]]], int]:
    """The cells of a table, a header first, until its lines fit; and how long its bars may be, 0 for none.

    A cell is a list of one text, which may be cut; or, in the columns that are to stay `whole`, the lines it takes.

    The widest column of text gives way first, then the bars are dropped, then text gives way again. Where even that is
    too wide, the lines stay too wide.
    """
    columns = list(zip(*lines, strict=True))
    digits = [max(map(_width_of_digits, column[1:]), default=0) for column in columns]
    sizes = [max(map(cell_width, column)) for column in columns]
    widths = [max(min(size, max(CELL, width // 3)), least) for size, least in zip(sizes, digits, strict=True)]
    with_bars = _shrunk(widths, digits, SHORT, width - bar - 2) if bar else None
    if with_bars is None:
        bar = 0
    widths = with_bars or _shrunk(widths, digits, SHORTEST, width) or _least(widths, digits)
    return [
        [
            wrapped(cell, size, indent=0) if place in whole else [cut(cell, size)]
            for place, (cell, size) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
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
    return cell_width(cell) if NUMBER.fullmatch(cell) else 0


def wrapped(text: str, width: int, indent: int = 2) -> list[str]:
    """A text in lines of at most so many columns; all but the first are indented."""
    lines: list[str] = []
    line = ""
    for word in _pieces(text, width - indent):
        longer = f"{line} {word}" if line.strip() else line + word
        if cell_width(longer) > width and line.strip():
            lines.append(line)
            longer = " " * indent + word
        line = longer
    return [*lines, line]


def _pieces(text: str, width: int) -> Iterator[str]:
    """The words of a text; one that is too long for a line comes in several pieces."""
    for word in text.split():
        while cell_width(word) > width:
            head = cut(word, width + 1)[:-1]
            yield head
            word = word[len(head) :]
        yield word
