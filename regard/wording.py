"""Names as sentences and pictures have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def told_apart(words: Sequence[str]) -> list[str]:
    """The words, with a small number after those that are there more than once.

    Example:
        >>> told_apart(["he", "saw", "he"])
        ['he₁', 'saw', 'he₂']
    """
    counts = Counter(words)
    so_far: Counter[str] = Counter()
    names = []
    for word in words:
        so_far[word] += 1
        names.append(word + str(so_far[word]).translate(SMALL) if counts[word] > 1 else word)
    return names
