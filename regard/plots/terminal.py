"""Weights as pictures made of characters: readable in 80 columns, in a pipe, and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from regard.errors import ShapeError
from regard.plots.bounded import Reading, first_of_each, read
from regard.plots.palette import colour_at, in_cell, ink_on, is_terminal_dark, legend
from regard.printable import short_name
from regard.view.drawing import BAR_COLOUR, bar, largest_of, percent, place_of, shade_at, three_digits

CELL = 4  # columns of a cell: two digits, and one free on each side
MOST_LINES = 40
MOST_NAMED = 100  # queries with names, each of which has a line of its own
LONGEST = 16  # columns of a name
SHORTEST = 8  # to which names of queries are cut so that each key has a column
TALLEST = 12  # lines of a name that is written from top to bottom
NARROWEST = 20  # columns of a terminal: in a narrower one lines are longer than it is wide
NO_ROOM = "□"  # for a letter that is wider than its column


def draw_matrix(
    weights: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    width: int = 80,
    colour: bool = True,
    more: str = "",
) -> Text:
    """The weights as text of at most `width` columns, or 20: a line for each query, and a legend.

    With colour each weight is a tinted cell with its percents, without it a shade. Where such cells do not fit, each
    key is one character, a shade or a colour, with its name above from top to bottom. Up to 100 queries with names have
    a line each. Without names, with colour, a line holds two. Longer inputs are pooled; the last line says so.

    Args:
        weights: What `weigh` gives, or a tensor `(..., n_queries, n_keys)`.
        rows: A name for each query; numbers if left out.
        columns: A name for each key; likewise.
        width: How wide the terminal is.
        colour: Whether it has colour. `rich` leaves colour out of what is printed where it has none, but cannot choose
            another picture.
        more: What to say where not every name has a place: how to see them all.

    Example:
        >>> print(draw_matrix([[0.9, 0.1], [0.0, 0.6]], ["dog", "tail"], ["dog", "tail"], colour=False))
              dog
                  tail
         dog ████░░░░
        tail  ·  ▓▓▓▓
        · 0%  ░ 11.2%  ▒ 31.8%  ▓ 58.5%  █ 90%
        shades go up to the largest weight
        rows are queries, columns are keys
    """
    width = max(width, NARROWEST)
    longest = min(LONGEST, width // 3)
    full = read(weights, rows, columns, most=(MOST_LINES if rows is None else MOST_NAMED, width))
    height, n_keys = full.picture.shape
    row_names = [_cut(each, longest) for each in full.rows or map(str, range(height))]
    column_names = [_cut(each, longest) for each in full.columns or map(str, range(n_keys))]
    if full.is_whole and n_keys <= columns_that_fit(row_names, width):
        table = full.picture.tolist()
        largest = largest_of(full.picture.flatten().tolist())
        picture = cells(table, row_names, column_names, largest, colour)
        how = _how(colour, CELL)
        return Text("\n").join([picture, scale(largest, width, colour), *_caption(full, width, how)])
    return _dense(weights, full.size, rows, columns, width, colour, more)


def _dense(
    weights: Any,
    size: tuple[int, int],
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    width: int,
    colour: bool,
    more: str,
) -> Text:
    """One character a key, or a few; where each key has its own place, it has its name or number above."""
    n_queries, n_keys = size
    has_own_line = rows is not None and n_queries <= MOST_NAMED
    halves = 2 if colour and not has_own_line else 1
    longest = min(LONGEST, width // 2 // halves - 1)
    if has_own_line:
        longest = min(longest, max(width - n_keys - 1, SHORTEST))
    names = [] if rows is None else [_cut(each, longest) for each in rows]
    left, each = _room(names, halves, width, n_keys)
    header = [] if columns is None or not each else _upright(columns, left, each)
    if names and not header and (each or not has_own_line):  # columns have numbers, or rows are pooled
        longest = min(longest + 4, width // 2 // halves - 1)
        names = [_cut(f"{place} {name}", longest) for place, name in enumerate(rows or ())]
        left, each = _room(names, halves, width, n_keys)
    most = n_queries if has_own_line else MOST_LINES * halves
    reading = read(weights, rows, columns, most=(most, width - left))
    table = reading.picture.tolist()
    largest = largest_of(reading.picture.flatten().tolist())
    if names and len(names) != len(table):
        names = [_cut(f"{names[place]} …", left // halves - 1) for place in first_of_each(len(names), len(table))]
    lines = header or ([_numbers(n_keys, left, each)] if reading.is_whole else [])
    each = max(each, 1)
    for first in range(0, len(table), halves):
        line = Text()
        for name in [*names[first : first + halves], ""][:halves] if names else []:
            line.append(_padded(name, left // halves - 1) + " ", style="bold")
        for column in range(len(table[first])):
            drawn = [row[column] for row in table[first : first + halves]]
            if halves == 1 or not all(map(math.isfinite, drawn)):
                line.append(*_cell(min(drawn, key=math.isfinite), largest, each, colour))
            else:
                upper, lower = [*(_tint(place_of(weight, largest)) for weight in drawn), None][:2]
                line.append("▀" * each, style=Style(color=upper, bgcolor=lower))
        if not colour:
            line.rstrip()
        lines.append(line)
    how = _how(colour, each if halves == 1 else 1)
    if len(header) > 1:
        how += "; names of keys are read downwards"
    if halves == 2:
        how += "; the upper half of a line is its first query, the lower half its second"
    is_named = reading.is_whole and (columns is None or bool(header))
    return Text("\n").join(
        [*lines, scale(largest, width, colour), *_caption(reading, width, how, "" if is_named else more)]
    )


def _room(names: Sequence[str], halves: int, width: int, n_keys: int) -> tuple[int, int]:
    """How wide the names of queries are, with those of `halves` in a line; and each key, at most three: 0 if none."""
    left = halves * (max(map(cell_len, names)) + 1) if names else 0
    return left, min((width - left) // n_keys, 3)


def _upright(names: Sequence[str], left: int, each: int) -> list[Text]:
    """Names from top to bottom above columns that are `each` characters wide; none where letters are too wide."""
    columns = [[letter if cell_len(letter) <= each else NO_ROOM for letter in _letters(name)] for name in names]
    if sum(NO_ROOM in column for column in columns) > len(columns) / 4:
        return []
    height = max(map(len, columns))
    lines = []
    for place in range(height):
        line = " " * left
        for column in columns:
            above = height - len(column)  # names end at their columns
            letter = column[place - above] if place >= above else ""
            line += _padded(" " * (each == 3) + letter, each, left=True)
        lines.append(Text(line.rstrip(), style="dim"))
    return lines


def _letters(name: str) -> list[str]:
    """The letters of a name, as many as TALLEST, each with the marks that stand on it."""
    found: list[str] = []
    for sign in short_name(name, TALLEST):
        if found and (cell_len(sign) == 0 or found[-1].endswith("\u200d")):
            found[-1] += sign
        else:
            found.append(sign)
    return found


def _numbers(count: int, left: int, each: int) -> Text:
    """The numbers of columns that are `each` characters wide: of all, or of every tenth that has room."""
    line = " " * left
    for column in range(0, count, 1 if each == 3 and count <= 100 else 10):
        if each * column + len(str(column)) <= each * count:
            line = line.ljust(left + each * column) + str(column)
    return Text(line, style="dim")


def draw_ranked(weights: Sequence[float], columns: Sequence[str], *, width: int = 80, most: int = 20) -> Text:
    """One row of weights as text, heaviest first: name, percents, and a bar that is full for the largest.

    Example:
        >>> print(draw_ranked([0.25, 0.5, 0.25], ["the", "dog", "was"], width=24))
        dog  50.0%  ████████████
        the  25.0%  ██████
        was  25.0%  ██████
    """
    weights = [float(each) for each in weights]
    if len(weights) != len(columns):
        raise ShapeError(f"`columns` must have a name for each weight: got {len(columns)} for {len(weights)}.")
    width = max(width, NARROWEST)
    order = sorted(range(len(columns)), key=lambda place: (math.isnan(weights[place]), -weights[place]))[:most]
    names = {place: _cut(columns[place], min(LONGEST, width // 2 - 2)) for place in order}
    name_width = max(map(cell_len, names.values()), default=0)
    said = {place: percent(weights[place]) if math.isfinite(weights[place]) else "?" for place in order}
    said_width = max(map(len, said.values()), default=0)
    largest = largest_of(weights)
    room = min(width - name_width - said_width - 4, 40)
    lines = []
    for place in order:
        line = Text(_padded(names[place], name_width, left=True), style="bold")
        line.append(f"  {said[place]:>{said_width}}  ", style="not bold")
        if math.isfinite(weights[place]):
            line.append(bar(weights[place] / largest, room), style=f"not bold {BAR_COLOUR}")
        line.rstrip()
        lines.append(line)
    rest = len(columns) - len(order)
    if rest:
        lines.append(Text(f"and {rest} lighter one{'s' if rest > 1 else ''}", style="dim"))
    return Text("\n").join(lines)


def columns_that_fit(row_names: Sequence[str], width: int) -> int:
    """How many columns of `cells` fit in `width`, at least one. A name may be wider than the last of them."""
    return max((width - max(map(cell_len, row_names), default=0) - 5) // CELL, 1)


def cells(
    matrix: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    largest: float | None = None,
    colour: bool = True,
) -> Text:
    """An attention matrix, a row a line: each cell is tinted and has its percents, or is a shade without colour.

    Column names stand above in two lines by turns, so that each has the width of two cells. `largest` is the weight
    at the top of the scale; that of the matrix, if not given.

    Example:
        >>> cells([[0.9, 0.1], [0.0, 0.6]], ["dog", "tail"], ["dog", "tail"]).plain.splitlines()[2:]
        [' dog  90  10 ', 'tail   ·  60 ']
    """
    width = max(map(cell_len, row_names), default=0)
    largest = largest or largest_of(weight for row in matrix for weight in row)
    lines = []
    for turn in (0, 1):
        header = " " * (width + 2)
        for column, name in enumerate(column_names):
            if column % 2 == turn:
                header = _padded(header, width + 2 + CELL * column, left=True)
                header += name if cell_len(name) <= 2 * CELL - 1 else set_cell_size(name, 2 * CELL - 1)
        lines.append(Text(header, style="dim"))
    for name, row in zip(row_names, matrix, strict=True):
        line = Text(f"{_padded(name, width)} ", style="bold")
        for weight in row:
            line.append(*_cell(weight, largest, CELL, colour))
        if not colour:
            line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def scale(largest: float, width: int = 80, colour: bool = True) -> Text:
    """The legend of a matrix: five colours or shades, and the weight of each, up to the largest.

    Example:
        >>> print(scale(0.4, colour=False))
        · 0%  ░ 5%  ▒ 14.1%  ▓ 26%  █ 40%
    """
    entries = []
    for place, weight in legend(largest):
        said, tint = three_digits(weight), _tint(place)
        # On its colour, as in a cell: a colour alone may be that of the terminal.
        on_colour = Text(f" {said} ", Style(color=ink_on(tint), bgcolor=tint))
        entries.append(on_colour if colour else Text.assemble(shade_at(place), (f" {said}", "dim")))
    return _in_lines(entries, width)


def _cell(weight: float, largest: float, width: int, colour: bool) -> tuple[str, Style]:
    """What stands for a weight in so many columns: its percents where there is room and colour, else its shade."""
    text, plain = in_cell(weight).rjust(min(width, 3)).ljust(width), Style(bold=False)
    if not math.isfinite(weight):
        return text, plain
    place = place_of(weight, largest)
    if colour:
        tint = _tint(place)
        has_room = 3 <= width == len(text)
        return (
            (text, Style(color=ink_on(tint), bgcolor=tint, bold=False))
            if has_room
            else ("█" * width, Style(color=tint))
        )
    shade = shade_at(place)
    if shade == "·":
        shade = " " if weight <= 0 and width < CELL else shade  # as narrow as that, dots would hide a mask
        return f"{shade:^{width}}", plain
    return shade * width, plain


def _how(colour: bool, width: int) -> str:
    """How cells of that width are read."""
    signs = "shades" if not colour else "colours" if width < 3 else "numbers are percents; colours"
    return f"{signs} go up to the largest weight"


def _tint(place: float) -> str:
    return colour_at(place, is_terminal_dark())


def _in_lines(entries: Sequence[Text], width: int) -> Text:
    """The entries of a legend with two spaces between them, as many in a line as fit."""
    lines = [Text()]
    for entry in entries:
        if lines[-1] and lines[-1].cell_len + 2 + entry.cell_len > width:
            lines.append(Text())
        elif lines[-1]:
            lines[-1].append("  ")
        lines[-1].append_text(entry)
    return Text("\n").join(lines)


def _cut(name: str, width: int) -> str:
    """A name of at most so many columns of a terminal."""
    name = short_name(name, width)
    return name if cell_len(name) <= width else set_cell_size(name, width - 1).rstrip() + "…"


def _padded(name: str, width: int, left: bool = False) -> str:
    """A name filled up with spaces to so many columns of a terminal, where some letters are two wide."""
    room = " " * max(width - cell_len(name), 0)
    return name + room if left else room + name


def _caption(reading: Reading, width: int, how: str = "", more: str = "") -> list[Text]:
    """What a reader has to know, in lines: how to read the picture, and what in it is not as it seems."""
    import textwrap

    said = [how] if how else []
    said.append(reading.caption)
    picture = reading.picture
    if bool((picture < 0).any()):
        said.append("weights below 0 are drawn as 0")
    if not bool(picture.isfinite().all()):
        said.append("? is no finite number")
    if more:
        said.append(more)
    return [Text(line, style="dim") for part in said for line in textwrap.wrap(part, width)]
