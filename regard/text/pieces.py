"""From the tokens of a tokenizer to the words that people read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import OptionError, ShapeError


@dataclass(frozen=True)
class Pieces:
    """A tokenized text: its tokens (pieces of words), and the word that each belongs to."""

    text: str
    numbers: list[int]  # of the pieces in the vocabulary
    names: list[str]  # of the pieces, such as "wag" and "##ged"
    words: list[str]  # what people read: words, signs, and what the model adds, such as "[CLS]"
    word_of: list[int]  # for each piece, its place among the words
    special: list[bool]  # for each word, whether the model added it
    unknown: list[str]  # for each word, what of it the model has no piece for and reads as [UNK]; empty if nothing

    def __len__(self) -> int:
        return len(self.numbers)


JOIN_LETTERS = "'’-‐‑"  # apostrophes and hyphens
JOIN_DIGITS = ".,"


def joints(text: str) -> set[int]:
    """The places of signs that make one word of what stands around them: in don't, e-mail and 3.50.

    Example:
        >>> sorted(joints("don't pay 3.50, e-mail."))
        [3, 11, 17]
    """
    return {
        place
        for place, (before, sign, after) in enumerate(zip(text, text[1:], text[2:], strict=False), 1)
        if (sign in JOIN_LETTERS and _in_words(before) and _in_words(after))
        or (sign in JOIN_DIGITS and before.isdigit() and after.isdigit())
    }


def with_marks(text: str, stop: int) -> int:
    """Where a word that ends at `stop` ends with its accents and vowel signs: a tokenizer may leave them out."""
    while stop < len(text) and unicodedata.category(text[stop])[0] == "M":
        stop += 1
    return stop


def _in_words(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LNM"


def by_words(weights: Tensor, word_of_query: Sequence[int], word_of_key: Sequence[int] | None = None) -> Tensor:
    """Weights among tokens as weights among words: summed over the keys of a word, averaged over its queries.

    So a row of words sums to what the rows of its pieces sum to.

    Args:
        weights: `(..., n_queries, n_keys)`.
        word_of_query: For each query, the number of its word: 0, 0, 1, ….
        word_of_key: Likewise for keys; the same if left out.

    Example:
        >>> import torch
        >>> by_words(torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.6, 0.0], [0.1, 0.1, 0.8]]), [0, 1, 1])
        tensor([[0.2000, 0.8000],
                [0.2500, 0.7500]])
    """
    word_of_key = word_of_query if word_of_key is None else word_of_key
    if weights.shape[-2:] != (len(word_of_query), len(word_of_key)):
        raise ShapeError(
            f"There must be a word for each query and key: got {len(word_of_query)} and {len(word_of_key)} for weights "
            f"{tuple(weights.shape)}."
        )
    for words in (word_of_query, word_of_key):
        if set(words) != set(range(len(set(words)))):
            raise OptionError(
                f"Words must be numbered from 0 with none left out: got {sorted(set(words))}. "
                f"Pass the place of each piece's word among the words."
            )
    queries, keys = (_belongs(words, weights) for words in (word_of_query, word_of_key))
    return (queries / queries.sum(-1, keepdim=True)) @ weights @ keys.mT


def _belongs(words: Sequence[int], like: Tensor) -> Tensor:
    """`(n_words, n_pieces)`: 1 where a piece belongs to a word."""
    places = torch.tensor(list(words), device=like.device)
    return (torch.arange(len(set(words)), device=like.device)[:, None] == places).to(like.dtype)
