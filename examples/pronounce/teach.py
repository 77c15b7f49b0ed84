"""Trained models say words that the dictionary lacks, together, so that others can learn from them.

    python examples/pronounce/teach.py --dictionary cmudict.dict --words words.txt --models runs/*.safetensors \\
        --out said.dict

Reads a word a line and writes the dictionary's format; beside it, in `said.json`, who said how many. Words that the
dictionary has are left out, whichever part of it they are in: nothing is learned about a word by which a model is
judged. So is what few would say: words that have no vowel, fewer than three signs of a to z and the apostrophe, or more
than sixteen. And so is what the models are unsure of.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from dictionary import read_dictionary
from keeping import say
from torch import Tensor

from regard.nn import Writer
from regard.nn.decoding_step import State
from regard.text import Pronouncer
from regard.text.spelling import phoneme_names

_SAYABLE = re.compile(r"(?=.*[aeiouy])[a-z']{3,16}")


@dataclass
class _Together:
    """Where each of several models stands."""

    states: list[State]

    def reorder(self, index: Tensor) -> None:
        for state in self.states:
            state.reorder(index)


class Ensemble:
    """Several models that write one sequence: the next token's probability is the mean of theirs."""

    def __init__(self, models: Sequence[Writer]) -> None:
        self.models = models

    @property
    def alignment(self) -> list[str]:
        """None: the models look in ways of their own."""
        return []

    def start(self, source: Tensor, source_padding: Tensor | None = None) -> _Together:
        return _Together([model.start(source, source_padding) for model in self.models])

    def step(self, tokens: Tensor, state: State) -> Tensor:
        assert isinstance(state, _Together)
        scores = [model.step(tokens, each) for model, each in zip(self.models, state.states, strict=True)]
        return torch.stack(scores).log_softmax(-1).logsumexp(0)


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--dictionary", type=Path, required=True, help="cmudict.dict, whose words are left out")
    reads.add_argument("--words", type=Path, required=True, help="a word a line; others than of a to z are left out")
    reads.add_argument("--models", type=Path, nargs="+", required=True, help="files that train.py wrote")
    reads.add_argument("--out", type=Path, required=True, help="the words with what was said")
    reads.add_argument("--least", type=float, default=0.8, help="how likely a phoneme must be on average")
    reads.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = reads.parse_args()

    known = read_dictionary(asked.dictionary)
    given = dict.fromkeys(asked.words.read_text(encoding="utf-8").split())
    words = [word for word in given if _SAYABLE.fullmatch(word) and word not in known]
    together = Ensemble([Pronouncer.load(path).model.to(asked.device) for path in asked.models])
    kept = 0
    with asked.out.open("w", encoding="utf-8") as out:
        for count, (word, written) in enumerate(say(together, words, asked.device, size=4096), 1):
            likely = round(math.exp(written.score / (len(written.tokens) + 1)), 3)
            if likely >= asked.least and written.complete and written.tokens:
                kept += 1
                out.write(f"{word} {' '.join(phoneme_names(written.tokens))} # {likely}\n")
            if count % 10_000 == 0:
                print(f"{count:,} of {len(words):,} words said, {kept:,} kept", flush=True)
    record = {
        "models": [f"{path.absolute().parent.name}/{path.name}" for path in asked.models],
        "least": asked.least,
        "offered": len(words),
        "kept": kept,
    }
    asked.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{kept:,} of {len(words):,} words kept")


if __name__ == "__main__":
    main()
