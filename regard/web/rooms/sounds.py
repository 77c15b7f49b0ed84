"""The room of sounds: how a word is said, and which letters each sound attends to while it is written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch

from regard.errors import CheckpointError
from regard.text import Pronouncer, Pronunciation
from regard.text.pronouncer import MODEL
from regard.text.spelling import PHONEMES, START, STOP, letter_tokens, phoneme_tokens
from regard.web.asked import Asked
from regard.web.settings import Settings

# A word in which each sound is heard, and the letters that are said so.
HEARD = {
    "AA": "*o*dd", "AE": "*a*t", "AH": "h*u*t", "AO": "c*augh*t", "AW": "c*ow*", "AY": "h*i*de", "B": "*b*e",
    "CH": "*ch*eese", "D": "*d*ay", "DH": "*th*ee", "EH": "b*e*d", "ER": "h*ur*t", "EY": "*a*te", "F": "*f*ee",
    "G": "*g*reen", "HH": "*h*e", "IH": "*i*t", "IY": "*ea*t", "JH": "*j*oy", "K": "*k*ey", "L": "*l*ee", "M": "*m*e",
    "N": "*kn*ee", "NG": "pi*ng*", "OW": "*oa*t", "OY": "t*oy*", "P": "*p*ea", "R": "*r*ead", "S": "*s*ea",
    "SH": "*sh*e", "T": "*t*ea", "TH": "*th*in", "UH": "h*oo*d", "UW": "t*wo*", "V": "*v*ase", "W": "*w*e",
    "Y": "*y*ield", "Z": "*z*ebra", "ZH": "sei*z*ure",
}  # fmt: skip

CONSIDERED = 4  # sounds that are shown as what the model might have written in place of one


class Word(Asked):
    """A word to be said."""

    word: str

    def subject(self) -> str:
        return "sounds"  # the worker that has the pronouncer in memory


class SoundsRoom:
    """Says words, and shows how each was written."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {"say": Word}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _pronouncer(self) -> Pronouncer:
        if not MODEL.is_file():
            raise CheckpointError("This copy of regard has no pronouncer in it. Train one with examples/pronounce.")
        return Pronouncer.load()

    def say(self, asked: Word) -> dict[str, Any]:
        """The sounds of a word in the order in which they were written, with what each of them attended to."""
        (said,) = self._pronouncer.say([asked.word])
        considered = self._considered(said)
        return {
            "word": said.word,
            "letters": said.letters,
            "certainty": said.certainty,
            "sounds": [
                {
                    "name": name,
                    "heard": HEARD[name],
                    "weights": weights,
                    "end": max(1 - sum(weights), 0.0),  # what goes past the last letter
                    "considered": others,
                }
                for name, weights, others in zip(said.phonemes, said.alignment.tolist(), considered, strict=False)
            ],
            "ended": considered[-1],
        }

    @torch.no_grad()
    def _considered(self, said: Pronunciation) -> list[list[dict[str, Any]]]:
        """Before each sound, and before the end: what the model might have written there, the likeliest first.

        The model is told what it wrote before, so that the probabilities of what it did write have the
        pronunciation's own as their product.
        """
        model = self._pronouncer.model
        state = model.start(torch.tensor([letter_tokens(said.letters)]))
        found = []
        for token in [START, *phoneme_tokens(said.phonemes)]:
            shares = model.step(torch.tensor([token]), state)[0].softmax(-1)[STOP:]  # neither padding nor a start
            best = shares.topk(CONSIDERED)
            names = ["", *PHONEMES]  # "" is the end of the word
            found.append(
                [
                    {"name": names[place], "share": share}
                    for place, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ]
            )
        return found
