"""Weights as pictures made of characters: readable in 80 columns, in a pipe, and without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

LEVELS = "▁▂▃▄▅▆▇█"
# A cell of three characters is six half-blocks: each picture has one more of them than the picture before.
CELLS = (" · ", " ▄ ", " █ ", "▄▄▄", "▄█▄", "█▄█", "███")
# From far to near, for terminals that have colour: the shape says it already.
COLOURS = ("grey42", "deep_sky_blue4", "dodger_blue2", "deep_sky_blue1", "turquoise2", "gold1", "bright_yellow")


def spark(weights: Sequence[float], largest: float | None = None) -> str:
    """One column for each weight, as high as its share of the largest; a dot is less than a sixteenth of it.

    Example:
        >>> spark([0.0, 0.1, 0.4, 0.8])
        '·▁▄█'
    """
    top = largest or max(weights, default=0.0) or 1.0
    return "".join(("·" + LEVELS)[round(min(max(weight / top, 0.0), 1.0) * len(LEVELS))] for weight in weights)


def cell(fraction: float) -> int:
    """Which of the seven CELLS stands for a share of the largest weight."""
    return round(min(max(fraction, 0.0), 1.0) * (len(CELLS) - 1))


def columns_that_fit(row_names: Sequence[str], width: int) -> int:
    """How many columns of `half_blocks` fit in `width`, at least one. A name may be wider than the last of them."""
    return max((width - max(map(len, row_names), default=0) - 5) // 4, 1)


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
    width = max(map(len, row_names), default=0)
    largest = largest or max((weight for row in matrix for weight in row), default=0.0) or 1.0
    lines = []
    for turn in (0, 1):
        header = " " * (width + 2)
        for column, name in enumerate(column_names):
            if column % 2 == turn:
                header = header.ljust(width + 2 + 4 * column) + name[:7]
        lines.append(Text(header, style="dim"))
    for name, row in zip(row_names, matrix, strict=True):
        line = Text(f"{name:>{width}} ", style="bold")
        for weight in row:
            level = cell(weight / largest)
            line.append(" " + CELLS[level], style=f"not bold {COLOURS[level]}")
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def half_blocks_legend(largest: float, width: int = 80) -> Text:
    """What each cell of `half_blocks` stands for, when `largest` is the largest weight of the matrix."""
    legend = Text()
    for level, picture in enumerate(CELLS):
        if level and level % max((width + 2) // 10, 1) == 0:
            legend.append("\n")
        legend.append(picture, style=COLOURS[level])
        legend.append(f" {level / (len(CELLS) - 1) * largest:.2f}  ", style="dim")
    legend.rstrip()
    return legend
