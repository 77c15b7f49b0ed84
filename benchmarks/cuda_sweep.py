"""The planner's sweep on a GPU: every engine that can, over sizes × kinds × masks, and the one that `attend` takes.

python -m benchmarks.cuda_sweep              # writes benchmarks/results/cuda_sweep.json
python -m benchmarks.cuda_sweep --kind gated --mask causal     # these alone; nothing is written

Times are until the device is done, the way in included: the best of several.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.results import write
from regard import ENGINES, Causal, Conic, ScaledDot, SoftCap, Window, attend, plan

# Batch, heads, queries, keys, dim.
SIZES = (
    (1, 8, 16, 16, 64),
    (1, 8, 128, 128, 64),
    (1, 8, 512, 512, 64),
    (2, 8, 2048, 2048, 64),
    (1, 8, 1, 4096, 64),
    (1, 8, 64, 16384, 64),
)
KINDS: dict[str, dict[str, Any]] = {
    "dot": {},
    "soft-capped": {"score": SoftCap(ScaledDot(), 20.0)},
    "conic": {"weights": Conic()},
}
MASKS = {"none": None, "causal": Causal(align="end"), "window": Window(before=64, after=0, align="end")}
PASSES = ("forward", "training")
ROUNDS = 7
WITHIN = 0.15  # the regret that is allowed


def seconds_of(call: Callable[[], object]) -> float:
    """The best of some calls."""
    found = []
    for _ in range(ROUNDS + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return min(found[2:])


def measure_point(size: tuple[int, ...], kind: str, mask: str, quantity: str) -> dict[str, Any]:
    """Times of every engine at one point."""
    batch, heads, n_queries, n_keys, dim = size
    q = torch.randn(batch, heads, n_queries, dim, device="cuda", dtype=torch.bfloat16)
    k, v = torch.randn(2, batch, heads, n_keys, dim, device="cuda", dtype=torch.bfloat16)
    training = quantity == "training"
    leaves = [each.requires_grad_(training) for each in (q, k, v)]
    options = KINDS[kind] | {"mask": MASKS[mask]}
    chosen = plan(*leaves, **options)
    able = [name for name in ENGINES if name not in chosen.refusals]

    def run(engine: str | None) -> object:
        output = attend(*leaves, engine=engine, **options)
        return torch.autograd.grad(output.sum(), leaves) if training else output

    seconds = {name: seconds_of(lambda name=name: run(name)) for name in able}
    best = min(seconds, key=seconds.__getitem__)
    return {
        "size": " × ".join(map(str, size)),
        "kind": kind,
        "mask": mask,
        "pass": quantity,
        "chosen": chosen.engine,
        "best": best,
        "regret": seconds[chosen.engine] / seconds[best] - 1,
        "seconds": seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the worst, and keep all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--mask", choices=MASKS, action="append")
    options = parser.parse_args(arguments)
    places = itertools.product(SIZES, options.kind or KINDS, options.mask or MASKS, PASSES)
    points = [measure_point(*place) for place in places]
    for point in sorted(points, key=lambda point: -point["regret"])[:12]:
        times = ", ".join(f"{name} {1e6 * taken:.0f} µs" for name, taken in point["seconds"].items())
        print(f"{point['size']} {point['kind']}, {point['mask']}, {point['pass']}: {point['chosen']} chosen of {times}")
    above = sum(point["regret"] > WITHIN for point in points)
    print(f"{len(points)} points, {above} above {WITHIN:.0%}, worst {max(point['regret'] for point in points):.0%}")
    if options.kind is None and options.mask is None:
        write("cuda_sweep", {"gpu": torch.cuda.get_device_name(), "points": points})
    return 0


if __name__ == "__main__":
    sys.exit(main())
