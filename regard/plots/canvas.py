"""What every figure shares: no window, one scale of colours from 0 to the largest weight, one legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import MissingDependency
from regard.plots.palette import GREY, STOPS, colour_at, in_cell, ink_on, legend
from regard.printable import short_name
from regard.view.drawing import POWER, largest_of, place_of, three_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

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


def is_dark() -> bool:
    """Whether figures are made for a dark page: matplotlib's style says so by text that is light."""
    import matplotlib
    from matplotlib.colors import to_hex

    return ink_on(to_hex(matplotlib.rcParams["text.color"])) == "#000000"


def scale(*pictures: Tensor) -> Any:
    """From weights to colours: from 0 to the largest of the pictures, as `palette` has it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    finite = [float(each[each.isfinite()].max()) for each in pictures if bool(each.isfinite().any())]
    largest = largest_of(finite)
    stops = STOPS[::-1] if is_dark() else STOPS
    colours = LinearSegmentedColormap.from_list("regard", stops).with_extremes(bad=GREY)
    return ScalarMappable(PowerNorm(POWER, 0.0, largest, clip=True), colours)


def paint(axes: Axes, picture: Tensor, colours: Any, size: tuple[int, int] | None = None) -> None:
    """Draw weights in the colours of a `scale`; with the axes of a matrix of `size`, where it was pooled."""
    n_queries, n_keys = picture.shape if size is None else size
    axes.imshow(
        picture.tolist(),
        cmap=colours.cmap,
        norm=colours.norm,
        aspect="auto",
        extent=(-0.5, n_keys - 0.5, n_queries - 0.5, -0.5),
        interpolation="nearest",
    )


def add_legend(figure: Figure, colours: Any, axes: Any, *pictures: Tensor) -> None:
    """The legend from 0 to the largest weight. It says so where weights of the pictures are below 0."""
    low = any(bool(((each < 0) & each.isfinite()).any()) for each in pictures)
    entries = [weight for _, weight in legend(colours.norm.vmax)]
    bar = figure.colorbar(colours, ax=axes, extend="min" if low else "neither", ticks=entries, fraction=0.04, pad=0.02)
    bar.set_ticklabels([three_digits(weight) for weight in entries])
    bar.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("weight, up to the largest" + (" (below 0 at the end)" if low else ""))


def label(axes: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None, most: int = MOST_LABELS) -> None:
    """Write the names at their rows and columns; every second, third … of them where there are many."""
    if columns is None:
        axes.xaxis.set_major_locator(_whole_numbers(axes.get_xlim()))
    else:
        places = range(0, len(columns), -(-len(columns) // most))
        turned = 90 if max(map(len, columns), default=0) > 2 else 0
        names = [short_name(columns[place]) for place in places]
        axes.set_xticks(list(places), names, rotation=turned, parse_math=False, fontsize=_size(places))
    if rows is None:
        axes.yaxis.set_major_locator(_whole_numbers(axes.get_ylim()))
    else:
        places = range(0, len(rows), -(-len(rows) // most))
        axes.set_yticks(
            list(places), [short_name(rows[place]) for place in places], parse_math=False, fontsize=_size(places)
        )


def _whole_numbers(limits: tuple[float, float]) -> Any:
    """Where an axis of so many rows or columns has its numbers."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    count = round(abs(limits[1] - limits[0]))
    return FixedLocator(list(range(count))) if count <= 10 else MaxNLocator(integer=True)


def _size(places: Sequence[int]) -> int:
    """The size of letters that so many names have room for."""
    return 10 if len(places) <= 28 else 7


def write_numbers(axes: Axes, picture: Tensor, colours: Any) -> None:
    """Write each weight into its cell, in percent; ? where it is no finite number."""
    dark = is_dark()
    for row, weights in enumerate(picture.tolist()):
        for column, weight in enumerate(weights):
            tint = colour_at(place_of(weight, colours.norm.vmax), dark) if math.isfinite(weight) else GREY
            axes.text(column, row, in_cell(weight), ha="center", va="center", fontsize=7, color=ink_on(tint))


def write_around(figure: Figure, title: str, caption: str, note: str) -> None:
    """The title above, the caption and the note below; each wrapped to the figure's width."""
    import textwrap

    room = int(figure.get_figwidth() * 14)
    if title:
        lines = textwrap.wrap(title, int(room * 0.8))
        figure.suptitle("\n".join(lines), fontsize=11, parse_math=False)
    below = [line for part in (caption, note) if part for line in textwrap.wrap(part, room)]
    figure.supxlabel("\n".join(below), fontsize=8, parse_math=False)
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
