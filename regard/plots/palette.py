"""The scale of weights that figures, pages and terminals share: its colours and its legend.

Its stops are in `regard/view/colours.py`, where a weight lies on it, and its shades, in `regard/view/drawing.py`;
docs/visual.md shows it.
"""

from __future__ import annotations

import math
import os

from regard.view.colours import FIVE, GREY, STOPS, colour_at, ink_on, legend

__all__ = ["FIVE", "GREY", "SMALLEST", "STOPS", "colour_at", "in_cell", "ink_on", "is_terminal_dark", "legend"]

SMALLEST = 0.005  # percents below it round to 0: a cell has a dot for them


def is_terminal_dark() -> bool:
    """Whether the terminal is dark, by $COLORFGBG, which some of them set; dark, where it is not known."""
    return not os.environ.get("COLORFGBG", "").endswith((";7", ";15"))


def in_cell(weight: float) -> str:
    """A weight as a cell shows it: whole percents, · for those that round to 0, ? for what is no finite number.

    Example:
        >>> in_cell(0.264), in_cell(0.001), in_cell(float("nan"))
        ('26', '·', '?')
    """
    if not math.isfinite(weight):
        return "?"
    return f"{100 * weight:.0f}" if abs(weight) >= SMALLEST else "·"
