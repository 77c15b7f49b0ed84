"""What every figure shares: no window, one colour map, one legend from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import MissingDependency
from regard.plots.bounded import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

COLOURS = "viridis"  # light grows with the weight: readable for the colour-blind, and in grey
TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
FEW_TICKS = (0.0, 0.1, 0.5, 1.0)  # on a low figure, where more would touch
LOW = 3.0  # inches
DARK_BELOW = 0.2  # weights below it have a dark colour, and a number on them is light
MOST_LABELS = 64
# For letters that matplotlib's own font has not: whichever of these are installed. It draws outlines only, no pictures.
FALLBACKS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Nirmala UI",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Noto Emoji",
    "Segoe UI Emoji",
    "Symbola",
    "Unifont",
)


def new_figure(width: float, height: float) -> Figure:
    """A figure of that size in inches, which draws itself without a window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency("Figures need matplotlib. Install it with: pip install 'regard[plots]'") from None
    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def colours() -> Any:
    """From weights to colours, from 0 to 1 always; by the square root, so that small weights can be told apart."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    return ScalarMappable(PowerNorm(0.5, vmin=0.0, vmax=1.0, clip=True), COLOURS)


def paint(axes: Axes, picture: Tensor, size: tuple[int, int] | None = None) -> Any:
    """Draw weights as colours, on the scale of `colours`; with the axes of a matrix of `size`, where it was pooled."""
    n_queries, n_keys = picture.shape if size is None else size
    return axes.imshow(
        picture.tolist(),
        cmap=COLOURS,
        norm=colours().norm,
        aspect="auto",
        extent=(-0.5, n_keys - 0.5, n_queries - 0.5, -0.5),
        interpolation="nearest",
    )


def add_legend(figure: Figure, image: Any, axes: Any, *pictures: Tensor) -> None:
    """The legend from 0 to 1. It says so where weights of the pictures lie outside."""
    low = any(bool(((each < 0) & each.isfinite()).any()) for each in pictures)
    high = any(bool(((each > 1 + 1e-5) & each.isfinite()).any()) for each in pictures)
    ends = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((low, high), "neither")
    ticks = FEW_TICKS if figure.get_figheight() < LOW else TICKS
    bar = figure.colorbar(image, ax=axes, extend=ends, ticks=ticks, format="%g", fraction=0.04, pad=0.02)
    outside = " (others at the ends)" if low or high else ""
    bar.set_label(f"weight{outside}")


def label(axes: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None, most: int = MOST_LABELS) -> None:
    """Write the names at their rows and columns; every second, third … of them where there are many."""
    if columns is None:
        axes.xaxis.set_major_locator(_whole_numbers(axes.get_xlim()))
    else:
        places = range(0, len(columns), -(-len(columns) // most))
        turned = 90 if max(map(len, columns), default=0) > 2 else 0
        names = [shown(columns[place]) for place in places]
        axes.set_xticks(list(places), names, rotation=turned, parse_math=False, fontsize=_size(places))
    if rows is None:
        axes.yaxis.set_major_locator(_whole_numbers(axes.get_ylim()))
    else:
        places = range(0, len(rows), -(-len(rows) // most))
        axes.set_yticks(
            list(places), [shown(rows[place]) for place in places], parse_math=False, fontsize=_size(places)
        )


def _whole_numbers(limits: tuple[float, float]) -> Any:
    """Where an axis of so many rows or columns has its numbers."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    count = round(abs(limits[1] - limits[0]))
    return FixedLocator(list(range(count))) if count <= 10 else MaxNLocator(integer=True)


def _size(places: Sequence[int]) -> int:
    """The size of letters that so many names have room for."""
    return 10 if len(places) <= 28 else 7


def write_numbers(axes: Axes, picture: Tensor) -> None:
    """Write each weight into its cell, in hundredths; ? where it is no finite number."""
    for row, weights in enumerate(picture.tolist()):
        for column, weight in enumerate(weights):
            if math.isfinite(weight):
                text = f"{100 * weight:.0f}" if abs(weight) >= 0.005 else "·"
                colour = "white" if weight < DARK_BELOW else "black"
            else:
                text, colour = "?", "black"  # on a cell that has no colour
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)


def write_around(figure: Figure, title: str, caption: str, note: str) -> None:
    """The title above, the caption and the note below; each wrapped to the figure's width."""
    import textwrap

    room = int(figure.get_figwidth() * 14)
    if title:
        lines = textwrap.wrap(title, int(room * 0.8))
        figure.suptitle("\n".join(lines), fontsize=11, parse_math=False)
    below = [line for part in (caption, note) if part for line in textwrap.wrap(part, room)]
    figure.supxlabel("\n".join(below), fontsize=8, color="0.25", parse_math=False)
    _take_fallbacks(figure)


def _take_fallbacks(figure: Figure) -> None:
    """Let every text of a figure find its letters in other fonts, of those that are there: others are warned about."""
    from matplotlib.font_manager import fontManager
    from matplotlib.text import Text

    installed = set(fontManager.get_font_names())
    found = [name for name in FALLBACKS if name in installed]
    for text in figure.findobj(Text) if found else []:
        assert isinstance(text, Text)
        text.set_fontfamily([*text.get_fontfamily(), *found])
