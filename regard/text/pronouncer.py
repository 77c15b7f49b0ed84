"""From spelling to sound: a trained model that says a word, and shows which letters each sound attends to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError, MissingDependency, OptionError, ShapeError
from regard.nn import Seq2Seq, Seq2SeqTransformer, generate
from regard.text.checkpoints import build_empty, load_strictly
from regard.text.packing import unpack
from regard.text.spelling import (
    N_LETTERS,
    N_PHONEMES,
    START,
    STOP,
    letter_tokens,
    padded,
    phoneme_names,
    plain_letters,
)

MODEL = Path(__file__).parent / "data" / "pronouncer.safetensors"
KINDS: dict[str, type[Seq2Seq] | type[Seq2SeqTransformer]] = {"seq2seq": Seq2Seq, "transformer": Seq2SeqTransformer}

LONGEST_WORD = 64  # letters: more than any word that the model has learned from
LONGEST_SOUND = 80  # phonemes
TOGETHER = 256  # words of a batch, so that memory does not grow with a list


@dataclass(frozen=True, eq=False)
class Pronunciation:
    """How a word is said, in the phonemes of ARPAbet: AH as in *a*bout, EH as in b*e*d, SH as in *sh*e."""

    word: str
    letters: str  # the word as the model read it: in lower case, without accents
    phonemes: list[str]
    probability: float  # as the model gives it, which was trained with label smoothing
    alignment: Tensor  # (phonemes, letters): the weight of each letter for each sound

    @property
    def certainty(self) -> float:
        """The geometric mean of the sounds' probabilities, end included; near 0.9 is confident, by label smoothing."""
        return math.pow(self.probability, 1 / (len(self.phonemes) + 1))

    def __str__(self) -> str:
        return " ".join(self.phonemes)


class Pronouncer:
    """Says English words, in the 39 phonemes of the CMU Pronouncing Dictionary.

    Args:
        model: A `Seq2Seq` or `Seq2SeqTransformer` from letters to phonemes (`regard.text.spelling`).
    """

    def __init__(self, model: Seq2Seq | Seq2SeqTransformer) -> None:
        self.model = model.eval()

    @classmethod
    def load(cls, path: str | Path = MODEL) -> Pronouncer:
        """The model in a file that `examples/pronounce` wrote; the one that comes with regard if left out."""
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError:
            raise MissingDependency(
                "The pronouncer's weights need safetensors. Install it with: pip install 'regard[text]'"
            ) from None
        try:
            with safe_open(str(path), framework="pt") as file:
                described = file.metadata() or {}
                weights = unpack({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, RuntimeError) as error:  # a scale that does not fit its matrix is the latter
            raise CheckpointError(
                f"A pronouncer must be a file that examples/pronounce wrote: {Path(path).name} is no whole "
                f"safetensors file ({error}). Get it again."
            ) from None
        model = _described_model(described, Path(path).name, weights)
        load_strictly(model, weights, assign=True, source=f"The weights in {Path(path).name}")
        return cls(model)

    def say(self, words: str | Iterable[str], beams: int = 5) -> list[Pronunciation]:
        """How words are said, the likeliest way of each.

        Example:
            >>> from regard.text import Pronouncer
            >>> said = Pronouncer.load().say("attention")[0]
            >>> print(said)
            AH T EH N SH AH N
            >>> "attention"[int(said.alignment[4].argmax())]  # what SH attends to
            't'
        """
        if not isinstance(words, Iterable):
            raise OptionError(f"Words must be a string, or several in a list: got {type(words).__name__}.")
        given = [words] if isinstance(words, str) else list(words)
        letters = [plain_letters(word) for word in given]
        for word in letters:
            if len(word) > LONGEST_WORD:
                raise ShapeError(
                    f"A word may have {LONGEST_WORD} letters: {word[:20]!r}… has {len(word)}. Say its parts one by one."
                )
        said = []
        for begin in range(0, len(given), TOGETHER):
            some = slice(begin, begin + TOGETHER)
            said += self._say_together(given[some], letters[some], beams)
        return said

    def _say_together(self, given: Sequence[str], letters: Sequence[str], beams: int) -> list[Pronunciation]:
        """How words are said that were read as these letters, in one batch."""
        source, padding = padded([letter_tokens(word) for word in letters])
        written = generate(
            self.model,
            source,
            start=START,
            stop=STOP,
            max_length=LONGEST_SOUND,
            method="beam" if beams > 1 else "greedy",
            beams=beams,
            source_padding=padding,
            attention=True,
        )
        said = []
        for word, plain, each in zip(given, letters, written, strict=True):
            assert each.attention is not None
            looks = each.attention.mean((0, 1))[:, : len(plain)]
            probability = float(torch.tensor(each.score).exp())
            said.append(Pronunciation(word, plain, phoneme_names(each.tokens), probability, looks))
        return said


def _described_model(described: dict[str, str], file: str, weights: dict[str, Tensor]) -> Seq2Seq | Seq2SeqTransformer:
    """The model that a file's metadata describes, without weights."""
    if described.get("format") != "regard pronouncer":
        raise CheckpointError(f"{file} is no pronouncer: examples/pronounce/train.py trains one.")
    try:
        kind, settings = json.loads(described["model"]), dict(json.loads(described["settings"]))
        return build_empty(lambda: build_model(kind, settings), file, settings.get("layers", 1), weights)
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{file} must describe a model of the kind {' or '.join(KINDS)}, and its settings: got "
            f"model={described.get('model')}, settings={described.get('settings')} ({error})."
        ) from None


def build_model(kind: str, settings: dict[str, Any]) -> Seq2Seq | Seq2SeqTransformer:
    """A model from letters to phonemes, of a kind in `KINDS`."""
    return KINDS[kind](N_LETTERS, N_PHONEMES, **settings)
