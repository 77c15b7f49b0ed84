"""From the tokens of a tokenizer to the words that people read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.errors import OptionError, ShapeError
from regard.printable import on_one_line


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
    unknown_piece: str = "[UNK]"  # what the model reads for it
    unknown_number: int | None = None  # of that piece in the vocabulary
    surfaces: list[str] = field(default_factory=list)  # of the pieces: what each stands for in the text

    def __len__(self) -> int:
        return len(self.numbers)

    def apart(self) -> Pieces:
        """The same text with each piece as a word of its own."""
        own = [surface or name for surface, name in zip(self.surfaces, self.names, strict=True)]
        unknown = [
            own[place] if number == self.unknown_number and self.unknown[word] else ""
            for place, (number, word) in enumerate(zip(self.numbers, self.word_of, strict=True))
        ]
        special = [self.special[word] for word in self.word_of]
        return replace(self, words=own, word_of=list(range(len(self))), special=special, unknown=unknown)


JOIN_LETTERS = "'’-‐‑"  # apostrophes and hyphens
JOIN_DIGITS = ".,"
BLANKS = ("▁", "Ġ")  # pieces that stand for a blank alone, and may be said to begin where the next one does


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


def join_pieces(
    text: str,
    numbers: Sequence[int],
    names: Sequence[str],
    spans: Sequence[tuple[int, int]],
    added: Sequence[object],
    groups: Sequence[int | None] | None = None,
    unknown: tuple[str, int] | None = None,
) -> Pieces:
    """The pieces of a text, joined to what a reader takes for words: don't, e-mail and 3.50 are one word each.

    A word ends at a blank, where the tokenizer's own groups end, and where letters meet other signs.

    Args:
        text: What was tokenized.
        numbers: Of the pieces in the vocabulary.
        names: Of the pieces.
        spans: Where each piece begins and ends in the text.
        added: Whether the model added a piece.
        groups: Which pieces the tokenizer itself takes for one word, by a number for each; one, if left out.
        unknown: The name and number of the piece that stands for what the model does not know.

    Example:
        >>> spans = [(0, 3), (3, 7), (7, 10), (10, 11)]
        >>> join_pieces("the dogged,", [5, 6, 7, 8], ["the", "▁dog", "ged", ","], spans, [0] * 4).words
        ['the', 'dogged', ',']
    """
    words: list[str] = []
    word_of: list[int] = []
    special: list[bool] = []
    lost_text: list[str] = []
    surfaces: list[str] = []
    joined = joints(text)
    groups = [0] * len(names) if groups is None else groups
    unknown_piece, unknown_number = ("[UNK]", None) if unknown is None else unknown
    before: object = object()  # a group; of no piece yet
    start = end = lost = 0  # where the word begins and ends, and what the model does not know in it
    is_blank = False  # whether the word has but blanks so far: it goes on with what follows
    for number, name, group, (opening, stop), is_added in zip(numbers, names, groups, spans, added, strict=True):
        surface = "" if name in BLANKS else text[opening:stop]
        first = opening + len(surface) - len(surface.lstrip())
        goes_on = is_blank or first < end or first in joined or first - 1 in joined
        if group == before and not goes_on:
            goes_on = not _is_boundary(text, end, first)
        if is_added or before is None or not goes_on:
            words.append("")
            special.append(bool(is_added))
            lost_text.append("")
            start, end = first, 0
            is_blank = not is_added
        stop = with_marks(text, stop)
        if is_blank and surface.strip():
            start, is_blank = first, False
        end = max(end, stop)
        words[-1] = on_one_line(name) if is_added else text[start:end].strip() or "␣"
        if number == unknown_number and not is_added:
            lost = lost if lost_text[-1] else first
            lost_text[-1] = text[lost:stop]
        before = None if is_added else group
        is_blank = is_blank and not is_added
        word_of.append(len(words) - 1)
        surfaces.append("" if is_added else surface.strip())
    cleaned, unknown_piece = [on_one_line(name) for name in names], on_one_line(unknown_piece)
    return Pieces(
        text, list(numbers), cleaned, words, word_of, special, lost_text, unknown_piece, unknown_number, surfaces
    )


def _is_boundary(text: str, end: int, first: int) -> bool:
    """Whether a word ends between two places: at a blank, or where letters meet other signs."""
    end = len(text[:end].rstrip())
    if not 0 < end <= first < len(text):
        return False
    return any(map(str.isspace, text[end:first])) or (first == end and _in_words(text[end - 1]) != _in_words(text[end]))


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
