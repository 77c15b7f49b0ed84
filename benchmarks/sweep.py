"""The planner's sweep: every engine that can, over a grid of sizes × kinds × masks, and the one that `attend` takes.

Regret is how much longer the chosen engine takes than the best one: 0 where it is the best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.contests import Size, make_inputs
from benchmarks.judge import bound
from benchmarks.measure import Quantity, race, runner
from benchmarks.peers import Inputs, regard
from regard import ENGINES, Additive, Causal, Conic, Entmax, Gated, ScaledDot, TopK, Window, plan

WITHIN = 0.1  # the regret that is allowed

SIZES = (
    Size((), 16, 16, 16),
    Size((1, 8), 16, 16),
    Size((1, 8), 64, 64),
    Size((), 256, 256, 32),
    Size((1, 8), 256, 256),
    Size((8, 8), 128, 128),
    Size((), 1024, 1024),
    Size((1, 8), 1024, 1024),
    Size((1, 8), 1, 4096),
    Size((), 4096, 64),
    Size((), 4096, 4096),
)

# What each kind passes to `attend`, for queries and keys of some dim.
KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "dot softmax": lambda dim: {},
    "gated softmax": lambda dim: {"score": Gated(dim, dim, ScaledDot())},
    "additive softmax, hidden 16": lambda dim: {"score": Additive(dim, dim, 16)},
    "dot conic": lambda dim: {"weights": Conic()},
    "dot entmax 1.5": lambda dim: {"weights": Entmax(1.5)},
    "dot top-k 8": lambda dim: {"weights": TopK(8)},
}

MASKS = {"none": None, "causal": Causal(align="end"), "window": Window(before=32, after=31, align="end")}
PASSES: tuple[Quantity, ...] = ("forward", "training")


def measure(*, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Every point, the worst regret and how many are within what is allowed."""
    sizes = SIZES[:3] if quick else SIZES
    points = [measure_point(*place, quick=quick) for place in itertools.product(sizes, KINDS, MASKS, PASSES)]
    for point in sorted(points, key=lambda point: -point["regret"])[:10]:
        say(
            f"{point['size']} {point['kind']}, mask {point['mask']}, {point['pass']}: "
            f"{point['chosen']} chosen, {point['best']} best, regret {point['regret']:.0%}"
        )
    worst = max(point["regret"] for point in points)
    above = sum(point["regret"] > WITHIN for point in points)
    say(f"{len(points)} points, {above} above {WITHIN:.0%}, worst {worst:.0%}")
    return {
        "points": points,
        "demands": [bound(f"worst regret of {len(points)} points", worst, WITHIN)],
    }


def measure_point(size: Size, kind: str, mask: str, quantity: Quantity, *, quick: bool) -> dict[str, Any]:
    """Times of every engine at one point of the grid."""
    torch.manual_seed(1)
    options = KINDS[kind](size.dim) | {"mask": MASKS[mask]}
    score = options.pop("score", None)
    inputs = make_inputs(size, score, **options)
    with torch.set_grad_enabled(quantity == "training"):
        chosen = plan(*inputs.tensors, **_arguments(inputs))
    able = [name for name in ENGINES if name not in chosen.refusals]
    calls = {name: runner(regard(inputs, engine=name), quantity) for name in able}
    calls["attend"] = runner(regard(inputs), quantity)
    timings = race(calls, seconds=0.1 if quick else 1.5, rounds=25)
    failures = {name: timing.failure for name, timing in timings.items() if timing.failure}
    if failures:
        raise RuntimeError(f"{size} {kind}, mask {mask}, {quantity}: {failures}")
    seconds = {name: min(timing.seconds) for name, timing in timings.items()}
    best = min(able, key=seconds.__getitem__)
    return {
        "size": str(size),
        "kind": kind,
        "mask": mask,
        "pass": quantity,
        "chosen": chosen.engine,
        "best": best,
        "regret": seconds[chosen.engine] / seconds[best] - 1,
        "seconds": seconds,
    }


def _arguments(inputs: Inputs) -> dict[str, Any]:
    score = {} if inputs.score is None else {"score": inputs.score}
    return score | (inputs.options or {})
