"""The pictures of the tour: those of `plots/terminal.py`, and weights as columns within a line."""

from __future__ import annotations

from collections.abc import Sequence

from regard.plots.terminal import cells, columns_that_fit, scale

__all__ = ["cells", "columns_that_fit", "scale", "spark"]

LEVELS = "▁▂▃▄▅▆▇█"


def spark(weights: Sequence[float], largest: float | None = None) -> str:
    """One column for each weight, as high as its share of the largest; a dot is less than a sixteenth of it.

    Example:
        >>> spark([0.0, 0.1, 0.4, 0.8])
        '·▁▄█'
    """
    top = largest or max(weights, default=0.0) or 1.0
    return "".join(("·" + LEVELS)[round(min(max(weight / top, 0.0), 1.0) * len(LEVELS))] for weight in weights)
