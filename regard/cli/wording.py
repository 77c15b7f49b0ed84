"""Names as sentences and pictures have them."""

from __future__ import annotations

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
    so_far: dict[str, int] = {}
    names = []
    for word in words:
        so_far[word] = so_far.get(word, 0) + 1
        names.append(word + str(so_far[word]).translate(SMALL) if words.count(word) > 1 else word)
    return names
