"""What the cells of a column of text say: numbers, yes/no, dates, moments, clock times, or text.

A column is what all of its cells are, or text. Spaces around a cell are no part of it. What is missing: an empty cell;
in a column of numbers or dates every mark (NA, null, None, -, ? …); among text NA, N/A, NaN and null, unless they stand
in quotes, or among codes of two capital letters, where NA may be Namibia. The notes say what is not as it was written,
and what could not be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as arrow
import pyarrow.compute as compute

from regard.database.csv_conventions import MARKS, TEXT_MARKS
from regard.database.number_and_date_parsing import HEAD, PARSERS, Said, Style, all_match, almost, clean, merged


class Cells(NamedTuple):
    """A column as it was understood, what has to be said about that, and how its cells are written.

    That is "," where numbers have decimal commas and ".," where they have groups of digits, too; "day" or "month" where
    dates begin with it; "" where there is no question.
    """

    array: Any
    notes: list[str]
    writing: str = ""


def understand(name: str, cells: Any, style: Style, with_marks: Callable[[], Any]) -> Cells:
    """A column of text as what its cells say.

    Args:
        name: what the column is called.
        cells: a chunked array of strings, null where `TEXT_MARKS` stand without quotes.
        style: how the file writes numbers.
        with_marks: gives the column with those marks as text.
    """
    # What the first cells are not, the column is not: so a column of text is not tried as all the others in full.
    found = _read(name, cells.slice(0, HEAD), style)
    if len(cells) > HEAD and (found is None or found.array is not None or found.notes):
        found = _read(name, cells, style)
    if found is not None and found.array is not None:
        return found
    array, marks = _text(name, cells, with_marks)
    return Cells(array, [*(found.notes if found else []), *marks])


def _read(name: str, cells: Any, style: Style) -> Cells | None:
    """A column that is not text as what it is, or why it is text after all; None if nothing is written in it."""
    plain = clean(compute.if_else(compute.equal(cells, ""), None, cells), style)
    if plain is not None and not cells.null_count:
        return Cells(plain, merged(name, cells, plain), style.writing)
    trimmed = compute.utf8_trim_whitespace(cells)
    is_mark = compute.is_in(trimmed, value_set=arrow.array(sorted(MARKS), arrow.string()))
    present = compute.if_else(compute.or_(is_mark, compute.equal(trimmed, "")), None, trimmed)
    if present.null_count == len(present):
        return None
    said = Said()
    for parse in PARSERS:
        array = parse(name, present, style, said)
        if array is not None:
            return Cells(array, [*said.notes, *_marks_note(name, cells, trimmed, is_mark)], said.writing)
    return Cells(None, said.notes or almost(name, present))


def _marks_note(name: str, cells: Any, trimmed: Any, is_mark: Any) -> list[str]:
    # A mark without quotes is null already, and no longer says which one it was.
    said = compute.unique(trimmed.filter(compute.fill_null(is_mark, False))).to_pylist()
    count = cells.null_count + (compute.sum(is_mark).as_py() or 0)
    said = ["NA or the like"] * bool(cells.null_count) + sorted(said)
    return [f"{name}: {_cells(count)} {' or '.join(said)}, taken as missing"] if count else []


def _cells(count: int) -> str:
    return "1 cell says" if count == 1 else f"{count:,} cells say"


def _text(name: str, cells: Any, with_marks: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The column as text, without the spaces around its cells, and with what is missing in it."""
    trimmed = compute.utf8_trim_whitespace(cells)
    spaced = compute.not_equal(trimmed, cells)
    missing = compute.and_(spaced, compute.is_in(trimmed, value_set=arrow.array(TEXT_MARKS, arrow.string())))
    n_missing = cells.null_count + (compute.sum(missing).as_py() or 0)
    others = compute.if_else(compute.or_(missing, compute.equal(trimmed, "")), None, trimmed)
    notes = []
    if compute.any(spaced).as_py():
        written = compute.count_distinct(cells.filter(compute.is_valid(others)))
        if written.as_py() > compute.count_distinct(others).as_py():
            notes.append(f"{name}: spaces around cells are left out")
    if not n_missing:
        return others, notes
    if all_match(compute.match_substring_regex(others, "^[A-Z]{2}$")):
        array = compute.utf8_trim_whitespace(with_marks())
        array = compute.if_else(compute.equal(array, ""), None, array)
        said = f"{name}: NA or the like is taken as text, as in Namibia's code; leave cells empty to mean missing"
    else:
        array = others
        said = f'{name}: {_cells(n_missing)} NA or the like, taken as missing; in quotes, "NA", it is text'
    return array, [*notes, said]
