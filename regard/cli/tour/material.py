"""What the stops are about: the documents' students and sentence, and vectors for its words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

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


def hashed_vector(word: str, dim: int) -> Tensor:
    """A vector for a word from its letters alone, `(dim,)`.

    Each run of one to three letters adds ±1 to a coordinate that a hash picks, so words that share letters get
    similar vectors. Nothing is learned, and nothing is known about meaning. The length is such that a word's scaled dot
    product with itself is 4: rows of softmax with a clear favourite and some left for the others.
    """
    marked = f"<{word.lower()}>"
    vector = torch.zeros(dim)
    for length in (1, 2, 3):
        for start in range(len(marked) - length + 1):
            code = zlib.crc32(marked[start : start + length].encode())
            vector[code % dim] += 1.0 if code >> 16 & 1 else -1.0
    norm: Tensor = torch.linalg.vector_norm(vector)
    return vector / norm * 2 * math.pow(dim, 0.25)


def sentence_vectors(dim: int) -> Tensor:
    """X: a row for each word of the sentence, `(n_words, dim)`."""
    return torch.stack([hashed_vector(word, dim) for word in words()])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers that are the same in every tour, and leave the caller's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
