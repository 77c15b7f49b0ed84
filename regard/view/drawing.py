"""The scale of every picture of weights (shades, bars, percents), and the small drawing that the repr of a view has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView

SHADES = "·░▒▓█"  # from the weight 0 to the largest
POWER = 2 / 3  # of a weight's share of the largest: small weights can be told apart, and large ones stand out
BAR_COLOUR = "#1d91c0"  # the colour of bars: reads on white and on black
NOTICE_COLOUR = "#c2620a"  # an orange that reads on white and on black, as yellow, green and cyan do not

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
        picture = view.map(height, width, pool="max")[(0,) * len(batch)].cpu().double()
    table = picture.tolist()
    largest = largest_of(weight for row in table for weight in row)
    lines = ["".join(_sign(weight, largest) for weight in row) for row in table]
    rows, columns = picture.shape
    pooled = (
        ""
        if (rows, columns) == (n_queries, n_keys)
        else f", each the largest of about {ratio(n_queries, rows)} × {ratio(n_keys, columns)}"
    )
    entry = f" of batch entry {tuple(0 for _ in batch)}" if batch else ""
    signs = []
    if any("█" in line for line in lines):
        # Linear weights are no shares of anything.
        signs.append(f"█ is {f'{largest:.3g}' if view.kind == 'linear' else three_digits(largest)}")
    if bool((picture < 0).any()):
        signs.append("weights below 0 are drawn as 0")
    if not bool(picture.isfinite().all()):
        signs.append("? is no finite number")
    return [*lines, f"rows are queries, columns are keys{entry}{pooled}" + ("; " + ", ".join(signs) if signs else "")]


def ratio(count: int, cells: int) -> str:
    """How many of `count` one of so many cells stands for, to a tenth where that is telling.

    Example:
        >>> ratio(12, 8), ratio(12, 12), ratio(30_000, 8)
        ('1.5', '1', '3,750')
    """
    return f"{count / cells:.2g}" if count < 10 * cells else f"{count // cells:,}"


def largest_of(weights: Iterable[float]) -> float:
    """The weight at the top of the scale: the largest that is finite; 1 where none is above 0."""
    return max((weight for weight in weights if 0 < weight < math.inf), default=1.0)


def place_of(weight: float, largest: float) -> float:
    """Where a weight lies on the scale, from 0 to 1.

    Example:
        >>> round(place_of(0.2, 0.4), 2), round(place_of(0.05, 0.4), 2), place_of(0.0, 0.4)
        (0.63, 0.25, 0.0)
    """
    return math.pow(min(max(weight / largest, 0.0), 1.0), POWER)


def shade_at(place: float) -> str:
    """The shade for a place of the scale, where there is no colour: the nearest of five.

    Example:
        >>> shade_at(0.0), shade_at(0.2), shade_at(1.0)
        ('·', '░', '█')
    """
    return SHADES[round(place * (len(SHADES) - 1))]


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


def three_digits(weight: float) -> str:
    """A weight in percent, to three digits, as legends have it.

    Example:
        >>> three_digits(0.0923456), three_digits(1.0), three_digits(0)
        ('9.23%', '100%', '0%')
    """
    return f"{float(f'{100 * weight:.3g}'):g}%"


def _sign(weight: float, largest: float) -> str:
    if not math.isfinite(weight):
        return "?"
    return shade_at(place_of(weight, largest)) if weight > 0 else " "  # a dot would hide a mask
