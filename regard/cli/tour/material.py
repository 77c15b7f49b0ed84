"""What the stops are about: the documents' students and sentence, and vectors for its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from regard.text import WordVectors

MAJORS = {
    "Ada Bell": "engineering",
    "John Doe": "psychology",
    "Mei Lin": "history",
    "Omar Aziz": "physics",
    "Jane Roe": "biology",
}

# Engineering students: GPA and projected starting salary. Invented, with the correlation that the article assumes.
GPAS = [2.6, 2.8, 3.0, 3.2, 3.4, 3.5, 3.6, 3.8, 4.0]
SALARIES = [54_000, 56_500, 59_000, 63_500, 67_000, 70_500, 71_000, 77_000, 84_000]

SENTENCE = "When he saw his owner, the dog was happy, so he wagged his tail"


def words() -> list[str]:
    """The words of the sentence, in order, without its commas."""
    return SENTENCE.replace(",", "").split()


@cache
def word_vectors() -> WordVectors:
    """GloVe's vectors of common words, which come with regard."""
    return WordVectors.load()


def sentence_vectors() -> Tensor:
    """X: a row for each word of the sentence, `(n_words, dim)`.

    The mean of all words is taken away: it says only that a word is a word, and would make all of them look alike.
    """
    known = word_vectors()
    return known[[word.lower() for word in words()]] - known.vectors.mean(dim=0)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers that are the same in every tour, and leave the caller's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors so small that threads would only wait for each other, and on a busy machine for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
