"""Models of transformers on a GPU, on regard and on transformers' own attention: `python -m benchmarks.cuda_models`.

Random weights in bfloat16, in the shapes of known models; medians, everybody in turns, until the device is done. Writes
benchmarks/results/cuda_models.json; `--quick` takes small sizes, on a CPU too, and writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

import regard.integrations.transformers  # noqa: F401
from benchmarks.results import write
from regard import nn

ROUNDS = 7
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Found = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    layers: int = 8
    fewer_layers: int = 4  # where a peer takes long
    hidden: int = 4096
    heads: int = 32
    shared: int = 8  # heads of keys
    prefill: int = 16_384
    long: int = 32_768
    window: int = 4_096


QUICK = Sizes(2, 2, 64, 4, 2, 64, 128, 16)


def model_of(config: Any) -> Any:
    """A model without weights of anybody's, on the device."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16)
    return model.to(DEVICE).eval()


def llama(sizes: Sizes) -> Any:
    return transformers.LlamaConfig(
        vocab_size=1_000,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.hidden * 7 // 2,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.shared,
        max_position_embeddings=2 * sizes.long,
    )


def mistral(sizes: Sizes) -> Any:
    return transformers.MistralConfig(
        vocab_size=1_000,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.hidden * 7 // 2,
        num_hidden_layers=sizes.fewer_layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.shared,
        max_position_embeddings=2 * sizes.long,
        sliding_window=sizes.window,
    )


def gemma(sizes: Sizes) -> Any:
    """Gemma 2 of two billion: every other layer has a window, all are soft-capped; heads of 256."""
    return transformers.Gemma2Config(
        vocab_size=1_000,
        hidden_size=sizes.hidden * 9 // 16,
        intermediate_size=sizes.hidden * 9 // 4,
        num_hidden_layers=sizes.fewer_layers,
        num_attention_heads=sizes.heads // 4,
        num_key_value_heads=max(sizes.heads // 8, 1),
        head_dim=sizes.hidden // 16,
        query_pre_attn_scalar=sizes.hidden // 16,
        max_position_embeddings=2 * sizes.long,
        sliding_window=sizes.window,
    )


def median_times(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each, in seconds, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name in calls if turn % 2 else reversed(calls):
            _wait()
            start = time.perf_counter()
            calls[name]()
            _wait()
            if turn > 1:  # the first two are warm-ups
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def _wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def forward(model: Any, attention: str, tokens: torch.Tensor) -> Callable[[], object]:
    def call() -> object:
        model.set_attn_implementation(attention)
        return model(tokens, use_cache=False).last_hidden_state

    return call


def recorded(model: Any, tokens: torch.Tensor) -> Callable[[], nn.Recording]:
    def call() -> nn.Recording:
        model.set_attn_implementation("regard")
        with nn.record(model, budget=None) as seen:
            model(tokens, use_cache=False)
        return seen

    return call


def check(name: str, calls: dict[str, Callable[[], Any]], peer: str) -> None:
    """Both compute the same, as far as bfloat16 shows it.

    Raises:
        AssertionError: They do not.
    """
    ours, theirs = (calls[each]().float() for each in ("regard", peer))
    off = float((ours - theirs).norm() / theirs.norm())
    if not off <= 3e-2:
        raise AssertionError(f"{name}: regard and {peer} disagree by {off:.1e} of the norm")


def prefill(sizes: Sizes, rounds: int) -> Found:
    """A decoder reads a long text at once; a recording of all its layers, and what that keeps."""
    model, tokens = model_of(llama(sizes)), torch.randint(1_000, (1, sizes.prefill), device=DEVICE)
    calls = {name: forward(model, name, tokens) for name in ("regard", "sdpa")}
    check("prefill", calls, "sdpa")
    found: Found = {"seconds": median_times(calls | {"regard, recording": recorded(model, tokens)}, rounds)}
    eager = sizes.layers * sizes.heads * sizes.prefill**2 * 2  # every weight, in bfloat16
    found["kept"] = {"bytes": recorded(model, tokens)().bytes, "eager's weights": eager}
    return found


def decoding(sizes: Sizes, rounds: int) -> Found:
    """One token after a long cache."""
    model, token = model_of(llama(sizes)), torch.randint(1_000, (1, 1), device=DEVICE)
    dim = sizes.hidden // sizes.heads
    cache = transformers.DynamicCache(config=model.config)
    for layer in range(sizes.layers):
        keys, values = torch.randn(2, 1, sizes.shared, sizes.long, dim, device=DEVICE, dtype=torch.bfloat16)
        cache.update(keys, values, layer)
    positions = torch.tensor([[sizes.long]], device=DEVICE)

    def step(attention: str) -> Callable[[], Any]:
        def call() -> Any:
            model.set_attn_implementation(attention)
            output = model(token, past_key_values=cache, position_ids=positions).last_hidden_state
            cache.crop(-1)  # the token that was just added
            return output

        return call

    calls = {name: step(name) for name in ("regard", "sdpa")}
    check("decoding", calls, "sdpa")
    return {"seconds": median_times(calls, 4 * rounds)}


def windowed(sizes: Sizes, rounds: int) -> Found:
    """A decoder with a window in every layer."""
    model, tokens = model_of(mistral(sizes)), torch.randint(1_000, (1, sizes.long), device=DEVICE)
    calls = {name: forward(model, name, tokens) for name in ("regard", "sdpa")}
    check("windowed", calls, "sdpa")
    return {"seconds": median_times(calls, rounds)}


def soft_capped(sizes: Sizes, rounds: int) -> Found:
    """A decoder whose scores are capped, with a window in every other layer."""
    model, tokens = model_of(gemma(sizes)), torch.randint(1_000, (1, sizes.long), device=DEVICE)
    calls = {name: forward(model, name, tokens) for name in ("regard", "flex_attention")}
    check("soft-capped", calls, "flex_attention")
    return {"seconds": median_times(calls, rounds)}


ROWS = {"prefill": prefill, "decoding": decoding, "windowed": windowed, "soft-capped": soft_capped}


@torch.no_grad()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_models", description=__doc__)
    parser.add_argument("--only", choices=ROWS, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    options = parser.parse_args(arguments)
    found = {}
    for name in options.only or ROWS:
        try:
            found[name] = ROWS[name](QUICK if options.quick else Sizes(), 1 if options.quick else ROUNDS)
        except (RuntimeError, AssertionError) as error:  # of one row: others go on, and it is not written
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        times = ", ".join(f"{who} {1e3 * seconds:.2f} ms" for who, seconds in found[name]["seconds"].items())
        print(f"{name}: {times} {found[name].get('kept', '')}", flush=True)
        if not options.quick:
            write("cuda_models", {"rows": found})
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
