"""Quotes in a CSV file: one that is not closed would swallow the rows below it."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable

from regard.errors import TableError

MOST_NOTES = 3

LONGEST = 1 << 26
"""How many bytes a cell in quotes may have: beyond this, its quote is taken for a slip."""


def check_quotes(chunks: Iterable[bytes], delimiter: str, n_columns: int, name: str) -> list[str]:
    """Raise where a quote is never closed, or closes within a cell of another line; notes on cells that hold rows.

    Args:
        chunks: the bytes of the file, in order.
        delimiter: what stands between its cells.
        n_columns: how many columns it has.
        name: what the file is called.
    """
    apart = re.escape(delimiter.encode())
    # A quote that opens a cell, all up to the one that closes it, and what follows up to the end of the cell. Quotes
    # within a cell that has no quote before it are text: 5" is five inches.
    cell = re.compile(rb'"(?<![^%b\r\n]")((?:[^"]++|"")*+)("?)([^%b\r\n]*+)' % (apart, apart))
    rest, line, notes = b"", 1, []
    for chunk, is_last in _with_last(chunks):
        if b'"' not in chunk and b'"' not in rest and rest:
            line += rest.count(b"\n") + chunk.count(b"\n", 0, len(chunk) - 1)
            rest = chunk[-1:] or rest
            continue
        text = rest + chunk
        # What the next bytes go on with: whether a quote opens a cell is told by what stands before it.
        kept = max(len(text.rstrip(b'"')) - 1, 0)
        for found in cell.finditer(text):
            at = line + text.count(b"\n", 0, found.start()) if found.end() == len(text) or b"\n" in found[1] else 0
            if found.end() == len(text) and not is_last and len(text) - found.start() < LONGEST:
                kept = max(found.start() - 1, 0)
                break
            inside, closed, after = found.groups()
            if not closed:
                raise TableError(
                    f"{name}, line {at}: a quote must be closed: the one that opens a cell there never is. Close it, "
                    f'or write "" for a quote in a text.'
                )
            breaks = inside.count(b"\n")
            if breaks and after.strip():
                raise TableError(
                    f"{name}, line {at}: a quote must be closed where its cell ends: the one that opens a cell there "
                    f'is closed on line {at + breaks}, within another cell. Close it, or write "" for a quote in a '
                    f"text."
                )
            if breaks and n_columns > 1 and inside.count(delimiter.encode()) == breaks * (n_columns - 1):
                notes.append(
                    f"{name}, line {at}: a cell in quotes goes on for {breaks + 1} lines and holds what looks like "
                    f"rows; if its quote is a slip, take it out"
                )
        line += text.count(b"\n", 0, kept)
        rest = text[kept:]
    return notes[:MOST_NOTES]


def _with_last(chunks: Iterable[bytes]) -> Iterable[tuple[bytes, bool]]:
    """Each chunk, and whether it is the last. A mark of the encoding at the very beginning is left out."""
    held, first = b"", True
    for chunk in chunks:
        if held:
            yield held, False
        held = chunk
        if first:
            held, first = chunk.removeprefix(BOM_UTF8), False
    yield held, True
