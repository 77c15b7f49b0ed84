"""A small text drawing of weights, for terminals and notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView

SHADES = " ·░▒▓█"
BAR_COLOUR = "#1d91c0"  # the colour of bars: reads on white and on black

# A repr must not keep a debugger waiting.
MOST_PAIRS = 1 << 22

WHOLE = 20  # rows that are drawn each in a line of its own


def draw(view: WeightsView, height: int = 8, width: int = 40) -> list[str]:
    """The weights of the first batch entry as lines of shaded characters, and a legend.

    More than 20 queries are drawn as `height` lines, and more than `width` keys as so many columns.
    """
    import torch

    *batch, n_queries, n_keys = view.shape
    if 0 in view.shape:
        return ["(empty)"]
    if math.prod(view.shape) > MOST_PAIRS:
        return [f"(more than {MOST_PAIRS:,} weights: draw them with .map(height, width))"]
    height = n_queries if n_queries <= WHOLE else height
    with torch.no_grad():
        picture = view.map(height, width, pool="max")[(0,) * len(batch)].float()
    top = float(picture.abs().max())
    lines = []
    for row in picture.tolist():
        shades = (SHADES[_shade(abs(each), top)] for each in row)
        lines.append("".join(shades))
    rows, columns = picture.shape
    pooled = (
        ""
        if (rows, columns) == (n_queries, n_keys)
        else f", each the largest of about {ratio(n_queries, rows)} × {ratio(n_keys, columns)}"
    )
    entry = f" of batch entry {tuple(0 for _ in batch)}" if batch else ""
    return [*lines, f"rows are queries, columns are keys{entry}{pooled}; █ is {top:.3g}"]


def ratio(count: int, cells: int) -> str:
    """How many of `count` one of so many cells stands for, to a tenth where that is telling.

    Example:
        >>> ratio(12, 8), ratio(12, 12), ratio(30_000, 8)
        ('1.5', '1', '3,750')
    """
    return f"{count / cells:.2g}" if count < 10 * cells else f"{count // cells:,}"


def bar(fraction: float, width: int) -> str:
    """A bar, to an eighth of a character; never invisible, unless the fraction is 0 or less.

    Example:
        >>> bar(0.5, 5)
        '██▌'
    """
    if fraction <= 0:
        return ""
    whole, rest = divmod(max(round(min(fraction, 1.0) * width * 8), 1), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def percent(weight: float) -> str:
    """A weight in percent, with enough digits not to look like 0.

    Example:
        >>> percent(0.25), percent(0.0004), percent(1e-7)
        ('25.0%', '0.04%', '<0.01%')
    """
    if weight != 0 and abs(weight) < 5e-5:
        return "<0.01%" if weight > 0 else ">-0.01%"
    return f"{weight:.1%}" if abs(weight) >= 5e-3 or weight == 0 else f"{weight:.2%}"


def _shade(value: float, top: float) -> int:
    if not value > 0 or not top > 0:
        return 0
    return min(1 + int(value / top * (len(SHADES) - 1)), len(SHADES) - 1)
