"""The colours of the scale of weights, light and dark."""

from __future__ import annotations

from regard.view.drawing import POWER

# From near white to deep blue, each stop darker than the one before: readable for the colour-blind, and in grey.
STOPS = ("#fdfdf4", "#e6f4cf", "#bfe5b9", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#1f3a8a", "#0b1740")
GREY = "#9a9a9a"  # of cells that are no finite number
FIVE = (0.0, 0.25, 0.5, 0.75, 1.0)  # where a legend has its entries


def legend(largest: float) -> list[tuple[float, float]]:
    """Five places on the scale, and the weight at each; the last is the largest.

    Example:
        >>> from regard.view.drawing import three_digits
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
    pairs = zip(channels(STOPS[low]), channels(STOPS[low + 1]), strict=True)
    return "#" + "".join(f"{round(one + (along - low) * (other - one)):02x}" for one, other in pairs)


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour.

    Example:
        >>> ink_on("#ffffff"), ink_on("#225ea8")
        ('#000000', '#ffffff')
    """
    linear = [(each / 255) ** 2.2 for each in channels(colour)]
    light = sum(share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if light > 0.18 else "#ffffff"  # where both have the same contrast


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
