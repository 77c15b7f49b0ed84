"""The CMU Pronouncing Dictionary: read, cleaned, split by word."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

Pronunciations = dict[str, list[tuple[str, ...]]]  # of each word, the ways to say it

_VARIANT = re.compile(r"\(\d+\)$")
_WORD = re.compile(r"[a-z']*[a-z][a-z']*")


def read_dictionary(path: Path) -> Pronunciations:
    """Every word of the letters a to z and the apostrophe, with its pronunciations without stress, each once."""
    found: Pronunciations = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        spelling, *phonemes = line.partition("#")[0].split() or [""]  # after the sign is a comment
        word = _VARIANT.sub("", spelling)
        if _WORD.fullmatch(word) and phonemes:
            said = tuple(phoneme.rstrip("012") for phoneme in phonemes)
            ways = found.setdefault(word, [])
            if said not in ways:
                ways.append(said)
    return found


@dataclass(frozen=True)
class Split:
    """Words to learn from, to choose by, and to judge by: no word is in two of them."""

    train: Pronunciations
    development: Pronunciations
    test: Pronunciations


def split_words(dictionary: Pronunciations, seed: int, share: float = 1.0) -> Split:
    """5% of the words for development, 10% for the test, the rest to learn from; `share` takes a part of each.

    A word is in the same part whatever the share.
    """
    words = sorted(dictionary)
    random.Random(seed).shuffle(words)
    development, test = round(len(words) * 0.05), round(len(words) * 0.1)

    def part(some: list[str]) -> Pronunciations:
        return {word: dictionary[word] for word in some[: round(len(some) * share)]}

    return Split(part(words[development + test :]), part(words[:development]), part(words[development:][:test]))
