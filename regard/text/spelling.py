"""Letters and phonemes as token ids."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.errors import OptionError

PAD, START, STOP = 0, 1, 2  # tokens of their own, in spellings and in pronunciations

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
# ARPAbet, as the CMU Pronouncing Dictionary writes it, without stress.
# fmt: off
PHONEMES = [
    "AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY", "JH", "K",
    "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH",
]
# fmt: on

N_LETTERS, N_PHONEMES = len(LETTERS) + 3, len(PHONEMES) + 3

_LETTER_NUMBERS = {letter: place + 3 for place, letter in enumerate(LETTERS)}
_PHONEME_NUMBERS = {phoneme: place + 3 for place, phoneme in enumerate(PHONEMES)}


def plain_letters(word: str) -> str:
    """A word in the letters a to z and the apostrophe: in lower case, without accents.

    Raises:
        OptionError: There is a character in it for which there is no such letter.

    Example:
        >>> plain_letters("Café")
        'cafe'
    """
    if not isinstance(word, str):
        raise OptionError(f"A word must be a string: got {type(word).__name__}. Pass one, or a list of them.")
    plain = {each: _plain_letter(each) for each in unicodedata.normalize("NFC", word.strip())}
    bare = "".join(plain[each] for each in unicodedata.normalize("NFC", word.strip()))
    unknown = sorted(given for given, letters in plain.items() if any(each not in _LETTER_NUMBERS for each in letters))
    if unknown or not bare.strip("'"):
        got = f"{word!r} has {', '.join(map(repr, unknown))}" if unknown else f"{word!r} has no letter"
        raise OptionError(
            f"A word must be spelled in the letters a to z and the apostrophe: {got}. "
            f"Spell it so, or say its parts one by one."
        )
    return bare


def _plain_letter(letter: str) -> str:
    """A letter in lower case and without its accents; quotation marks as an apostrophe."""
    parts = unicodedata.normalize("NFKD", letter.lower())
    return "".join("'" if each in "‘’" else each for each in parts if not unicodedata.combining(each))


def letter_tokens(word: str) -> list[int]:
    """The token ids of a word in plain letters, and a stop."""
    return [*(_LETTER_NUMBERS[letter] for letter in word), STOP]


def phoneme_tokens(phonemes: Iterable[str]) -> list[int]:
    """The token ids of a pronunciation."""
    return [_PHONEME_NUMBERS[phoneme] for phoneme in phonemes]


def phoneme_names(tokens: Iterable[int]) -> list[str]:
    """The phonemes of token ids."""
    return [PHONEMES[token - 3] for token in tokens if token >= 3]


def padded(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sequences in one tensor, `(batch, longest)`, and where there is none, True."""
    longest = max(map(len, sequences), default=0)
    tokens = torch.tensor([[*each, *[PAD] * (longest - len(each))] for each in sequences])
    return tokens, tokens == PAD
