"""Word and phoneme error rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Errors:
    """How much of a set of words was said wrongly."""

    words: float  # the share of words of which no pronunciation was met
    phonemes: float  # edits over phonemes, each word against its nearest pronunciation, of two alike the longer

    def __str__(self) -> str:
        return f"word error {self.words:.2%}, phoneme error {self.phonemes:.2%}"


def count_errors(said: Sequence[Sequence[str]], known: Sequence[Sequence[tuple[str, ...]]]) -> Errors:
    """The error rates of what was said, where each word has one or more known pronunciations."""
    wrong = edits = length = 0
    for each, ways in zip(said, known, strict=True):
        distances = [(edit_distance(each, way), len(way)) for way in ways]
        nearest, of_length = min(distances, key=lambda found: (found[0], -found[1]))
        wrong += nearest > 0
        edits += nearest
        length += of_length
    return Errors(wrong / max(len(said), 1), edits / max(length, 1))


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that make one of the other.

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (one != other))
    return row[-1]
