"""The scale of weights that figures, pages and terminals share: its colours, its shades and its legend.

docs/visual.md shows it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

# From near white to deep blue, each stop darker than the one before: readable for the colour-blind, and in grey.
STOPS = ("#fdfdf4", "#e6f4cf", "#bfe5b9", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#1f3a8a", "#0b1740")
GREY = "#9a9a9a"  # of cells that are no finite number
FIVE = (0.0, 0.25, 0.5, 0.75, 1.0)  # where a legend has its entries
SHADES = "·░▒▓█"  # of those five, where there is no colour
POWER = 2 / 3  # of a weight's share of the largest: small weights can be told apart, and large ones stand out
SMALLEST = 0.005  # percents below it round to 0: a cell has a dot for them


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


def legend(largest: float) -> list[tuple[float, float]]:
    """Five places on the scale, and the weight at each; the last is the largest.

    Example:
        >>> [three_digits(weight) for _, weight in legend(0.4)]
        ['0%', '5%', '14.1%', '26%', '40%']
    """
    return [(place, place ** (1 / POWER) * largest) for place in FIVE]


def colour_at(place: float, dark: bool = False) -> str:
    """The colour at a place of the scale; on a dark page the scale runs from dark to light.

    Example:
        >>> colour_at(0.0), colour_at(1.0), colour_at(0.0, dark=True)
        ('#fdfdf4', '#0b1740', '#0b1740')
    """
    along = (1.0 - place if dark else place) * (len(STOPS) - 1)
    low = min(int(along), len(STOPS) - 2)
    pairs = zip(_channels(STOPS[low]), _channels(STOPS[low + 1]), strict=True)
    return "#" + "".join(f"{round(one + (along - low) * (other - one)):02x}" for one, other in pairs)


def shade_at(place: float) -> str:
    """The shade for a place of the scale, where there is no colour: the nearest of five.

    Example:
        >>> shade_at(0.0), shade_at(0.2), shade_at(1.0)
        ('·', '░', '█')
    """
    return SHADES[round(place * (len(SHADES) - 1))]


def is_terminal_dark() -> bool:
    """Whether the terminal is dark, by $COLORFGBG, which some of them set; dark, where it is not known."""
    return not os.environ.get("COLORFGBG", "").endswith((";7", ";15"))


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour.

    Example:
        >>> ink_on("#ffffff"), ink_on("#225ea8")
        ('#000000', '#ffffff')
    """
    linear = [(each / 255) ** 2.2 for each in _channels(colour)]
    light = sum(share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if light > 0.18 else "#ffffff"  # where both have the same contrast


def in_cell(weight: float) -> str:
    """A weight as a cell shows it: whole percents, · for those that round to 0, ? for what is no finite number.

    Example:
        >>> in_cell(0.264), in_cell(0.001), in_cell(float("nan"))
        ('26', '·', '?')
    """
    if not math.isfinite(weight):
        return "?"
    return f"{100 * weight:.0f}" if abs(weight) >= SMALLEST else "·"


def three_digits(weight: float) -> str:
    """A weight in percent, to three digits, as legends have it.

    Example:
        >>> three_digits(0.0923456), three_digits(1.0), three_digits(0)
        ('9.23%', '100%', '0%')
    """
    return f"{float(f'{100 * weight:.3g}'):g}%"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
