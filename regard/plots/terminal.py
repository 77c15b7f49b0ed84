"""Weights as pictures made of characters: readable in 80 columns, in a pipe, and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.style import Style
from rich.text import Text

from regard.errors import ShapeError
from regard.plots.bounded import Reading, first_of_each, read, shown

# A cell of three characters is six half-blocks: each picture has one more of them than the picture before.
CELLS = (" · ", " ▄ ", " █ ", "▄▄▄", "▄█▄", "█▄█", "███")
# From far to near, for terminals that have colour: the shape says it already.
COLOURS = ("grey42", "deep_sky_blue4", "dodger_blue2", "deep_sky_blue1", "turquoise2", "gold1", "yellow1")
# Viridis, at every ninth: dark violet over green to yellow.
RAMP = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")

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

    Where cells of three characters do not fit, each key is one character, a shade or a colour, with its name above
    from top to bottom. Up to 100 queries with names have a line each. Without names, with colour, a line holds two.
    Longer inputs are pooled; the last line says so.

    Args:
        weights: What `weigh` gives, or a tensor `(..., n_queries, n_keys)`.
        rows: A name for each query; numbers if left out.
        columns: A name for each key; likewise.
        width: How wide the terminal is.
        colour: Whether it has colour. `rich` leaves colour out of what is printed where it has none, but cannot choose
            another picture.
        more: What to say where not every name has a place: how to see them all.

    Example:
        >>> print(draw_matrix([[0.9, 0.1], [0.0, 0.6]], ["dog", "tail"], ["dog", "tail"]))
              dog
                  tail
         dog  ███  ▄
        tail   ·  ▄█▄
         ·  0.00   ▄  0.15   █  0.30  ▄▄▄ 0.45  ▄█▄ 0.60  █▄█ 0.75  ███ 0.90
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
        largest = _largest(table)
        picture = half_blocks(table, row_names, column_names, largest)
        legend = half_blocks_legend(largest, width)
        return Text("\n").join([picture, legend, *_caption(full, width)])
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
    from regard.view.drawing import SHADES

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
    largest = _largest(table)
    if names and len(names) != len(table):
        names = [_cut(f"{names[place]} …", left // halves - 1) for place in first_of_each(len(names), len(table))]
    lines = header or ([_numbers(n_keys, left, each)] if reading.is_whole else [])
    each = max(each, 1)
    for first in range(0, len(table), halves):
        line = Text()
        for name in [*names[first : first + halves], ""][:halves] if names else []:
            line.append(_padded(name, left // halves - 1) + " ", style="bold")
        for column in range(len(table[first])):
            drawn = [row[column] / largest for row in table[first : first + halves]]
            if not all(map(math.isfinite, drawn)):
                line.append("?" * each)
            elif halves == 2:
                upper, lower = [*map(_ramp, drawn), None][:2]
                line.append("▀" * each, style=Style(color=upper, bgcolor=lower))
            elif colour:
                line.append("█" * each, style=Style(color=_ramp(drawn[0])))
            else:
                line.append(SHADES[_shade(drawn[0], len(SHADES))] * each)
        if not colour:
            line.rstrip()
        lines.append(line)
    entries = []
    pictures = [("██", ramp) for ramp in RAMP[::3]] if colour else [(shade, "") for shade in SHADES[1:]]
    for level, (picture, style) in enumerate(pictures):
        weight = largest * ((level / (len(pictures) - 1 if colour else len(pictures))) ** 2)
        entries.append(Text.assemble((picture, style), (f" {weight:.2f}", "dim")))
    entries += [] if colour else [Text("and more")]
    how = "the upper half of a line is its first query, the lower half its second" if halves == 2 else ""
    if len(header) > 1:
        how = "; ".join(part for part in ("names of keys are read downwards", how) if part)
    is_named = reading.is_whole and (columns is None or bool(header))
    return Text("\n").join(
        [*lines, _in_lines(entries, width), *_caption(reading, width, how, "" if is_named else more)]
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
    for sign in shown(name, TALLEST):
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
    """One row of weights as text, heaviest first: name, weight, bar.

    Example:
        >>> print(draw_ranked([0.25, 0.5, 0.25], ["the", "dog", "was"], width=24))
        dog  0.500  ████████████
        the  0.250  ██████
        was  0.250  ██████
    """
    from regard.view.drawing import bar

    weights = [float(each) for each in weights]
    if len(weights) != len(columns):
        raise ShapeError(f"`columns` must have a name for each weight: got {len(columns)} for {len(weights)}.")
    width = max(width, NARROWEST)
    order = sorted(range(len(columns)), key=lambda place: (math.isnan(weights[place]), -weights[place]))[:most]
    names = {place: _cut(columns[place], min(LONGEST, width // 2 - 2)) for place in order}
    name_width = max(map(cell_len, names.values()), default=0)
    largest = _largest([weights])
    room = min(width - name_width - 9, 40)
    lines = []
    for place in order:
        line = Text(_padded(names[place], name_width, left=True), style="bold")
        line.append(f"  {weights[place]:.3f}  ", style="not bold")
        if math.isfinite(weights[place]):
            line.append(bar(weights[place] / largest, room), style="not bold deep_sky_blue1")
        line.rstrip()
        lines.append(line)
    rest = len(columns) - len(order)
    if rest:
        lines.append(Text(f"and {rest} lighter one{'s' if rest > 1 else ''}", style="dim"))
    return Text("\n").join(lines)


def cell(fraction: float) -> int:
    """Which of the seven CELLS stands for a share of the largest weight."""
    return round(min(max(fraction, 0.0), 1.0) * (len(CELLS) - 1))


def columns_that_fit(row_names: Sequence[str], width: int) -> int:
    """How many columns of `half_blocks` fit in `width`, at least one. A name may be wider than the last of them."""
    return max((width - max(map(cell_len, row_names), default=0) - 5) // 4, 1)


def half_blocks(
    matrix: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    largest: float | None = None,
) -> Text:
    """An attention matrix, a row a line: the more of its six half-blocks a cell fills, the larger the weight.

    Column names stand above in two lines by turns, so that each has the width of two cells. `largest` is the weight
    that fills a cell; that of the matrix, if not given.

    Example:
        >>> print(half_blocks([[0.9, 0.1], [0.0, 0.6]], ["dog", "tail"], ["dog", "tail"]))
              dog
                  tail
         dog  ███  ▄
        tail   ·  ▄█▄
    """
    width = max(map(cell_len, row_names), default=0)
    largest = largest or _largest(matrix)
    lines = []
    for turn in (0, 1):
        header = " " * (width + 2)
        for column, name in enumerate(column_names):
            if column % 2 == turn:
                header = _padded(header, width + 2 + 4 * column, left=True)
                header += name if cell_len(name) <= 7 else set_cell_size(name, 7)
        lines.append(Text(header, style="dim"))
    for name, row in zip(row_names, matrix, strict=True):
        line = Text(f"{_padded(name, width)} ", style="bold")
        for weight in row:
            if math.isfinite(weight):
                level = cell(weight / largest)
                line.append(" " + CELLS[level], style=f"not bold {COLOURS[level]}")
            else:
                line.append("  ? ", style="not bold")
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def half_blocks_legend(largest: float, width: int = 80) -> Text:
    """What each cell of `half_blocks` stands for, when `largest` is the largest weight of the matrix."""
    entries = [
        Text.assemble((picture, COLOURS[level]), (f" {level / (len(CELLS) - 1) * largest:.2f}", "dim"))
        for level, picture in enumerate(CELLS)
    ]
    return _in_lines(entries, width)


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


def _largest(table: Sequence[Sequence[float]]) -> float:
    """The largest weight that is finite; 1 where none is above 0."""
    return max((weight for row in table for weight in row if math.isfinite(weight)), default=0.0) or 1.0


def _cut(name: str, width: int) -> str:
    """A name of at most so many columns of a terminal."""
    name = shown(name, width)
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


def _ramp(fraction: float) -> Color:
    """By the square root, so that small weights can be told apart beside large ones."""
    return Color.parse(RAMP[round(math.sqrt(min(max(fraction, 0.0), 1.0)) * (len(RAMP) - 1))])


def _shade(fraction: float, count: int) -> int:
    return 0 if not fraction > 0 else min(1 + int(math.sqrt(fraction) * (count - 1)), count - 1)
