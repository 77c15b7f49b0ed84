"""What NaN and infinity cost: the time of a call with some among its inputs, beside the same call with finite numbers.

    python -m benchmarks.nonfinite               # every row; writes benchmarks/results/nonfinite.json
    python -m benchmarks.nonfinite --only dot    # some of them; writes nothing
    python -m benchmarks.nonfinite --quick       # small and short; writes nothing

A run that has diverged must not look hung: at most 3 × is asked for.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.contests import Size
from benchmarks.load import Load
from benchmarks.measure import Quantity, race, runner
from benchmarks.peers import Call
from benchmarks.results import write
from regard import Additive, Causal, Entmax, Gated, KeyMask, Mask, TopK, attend

AT_MOST = 3.0
FINITE = "finite"
QUANTITIES: tuple[Quantity, ...] = ("forward", "training")


@dataclass(frozen=True)
class Work:
    """A kind of attention at a size."""

    size: Size
    options: Callable[[], dict[str, Any]] = dict


WORKS: Mapping[str, Work] = {
    "dot": Work(Size((1, 8), 1024, 1024)),
    "additive": Work(Size((1, 4), 1024, 1024), lambda: {"score": Additive(64, 64, 64)}),
    "gated": Work(Size((1, 8), 1024, 1024), lambda: {"score": Gated(64, 64)}),
    "entmax 1.5": Work(Size((1, 8), 1024, 1024), lambda: {"weights": Entmax(1.5)}),
    "top-k 32": Work(Size((1, 8), 1024, 1024), lambda: {"weights": TopK(32)}),
}
MASKS: Mapping[str, Callable[[Size], Mask | None]] = {
    "no mask": lambda size: None,
    "causal": lambda size: Causal(),
    "key padding": lambda size: KeyMask(torch.arange(size.n_keys) < size.n_keys * 7 // 8),
}


def _one(place: int, number: float) -> Callable[[list[Tensor]], None]:
    """Breaks one vector of queries (0), keys (1) or values (2), in the middle, where most masks let it be seen."""

    def change(inputs: list[Tensor]) -> None:
        inputs[place][..., inputs[place].shape[-2] // 2, :] = number

    return change


def _all(inputs: list[Tensor]) -> None:
    for each in inputs:
        each.fill_(math.nan)


CHANGES: Mapping[str, Callable[[list[Tensor]], None]] = {
    FINITE: lambda inputs: None,
    "all NaN": _all,
    "one NaN query": _one(0, math.nan),
    "one NaN key": _one(1, math.nan),
    "one NaN value": _one(2, math.nan),
    "one inf value": _one(2, math.inf),
}


def calls(work: Work, mask: str) -> dict[str, Call]:
    """The same call with each change of its inputs, the finite one first."""
    size = work.size
    torch.manual_seed(0)
    options = work.options() | {"mask": MASKS[mask](size)}
    shapes = [(*size.lead, count, size.dim) for count in (size.n_queries, size.n_keys, size.n_keys)]
    numbers = [torch.randn(shape) for shape in shapes]
    found = {}
    for name, change in CHANGES.items():
        inputs = [each.clone() for each in numbers]
        change(inputs)
        leaves = [each.requires_grad_() for each in inputs]
        learned = [each for part in ("score", "weights") if part in options for each in options[part].parameters()]
        found[name] = Call(lambda leaves=leaves: attend(*leaves, **options), leaves=(*leaves, *learned))  # type: ignore[misc]
    return found


def measure(only: Sequence[str], *, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each work, mask and pass: seconds of the finite call, and how many times as long the others take."""
    for name in only or WORKS:
        work = WORKS[name]
        work = replace(work, size=work.size.shrunk(8)) if quick else work
        for mask in MASKS:
            for quantity in QUANTITIES:
                runners = {change: runner(call, quantity) for change, call in calls(work, mask).items()}
                timings = race(runners, seconds=0.1 if quick else 8.0, rounds=2 if quick else 20)
                broken = [f"{change}: {timing.failure}" for change, timing in timings.items() if timing.failure]
                if broken:
                    raise RuntimeError(f"{name}, {mask}, {quantity}: {broken[0]}")
                best = {change: timing.best or math.nan for change, timing in timings.items()}
                ratios = {change: best[change] / best[FINITE] for change in CHANGES if change != FINITE}
                yield {"work": name, "mask": mask, "pass": quantity, "seconds": best[FINITE], "ratios": ratios}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the figures of a whole run; 1 if more than is asked for was taken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORKS, default=[], metavar="NAME", help="these kinds alone")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is written")
    options = parser.parse_args(arguments)
    load, rows = Load(), []
    print(" " * 40 + "finite  " + "  ".join(change for change in CHANGES if change != FINITE))
    for row in measure(options.only, quick=options.quick):
        rows.append(row)
        figures = "  ".join(f"{ratio:>{len(change)}.2f}" for change, ratio in row["ratios"].items())
        print(
            f"{row['work']:12} {row['mask']:12} {row['pass']:9} {1e3 * row['seconds']:7.1f} ms  {figures}", flush=True
        )
    worst = max(ratio for row in rows for ratio in row["ratios"].values())
    print(f"worst: {worst:.2f} × (at most {AT_MOST:g} × is asked for)")
    if not options.quick and not options.only:
        around = {"threads": torch.get_num_threads(), "taken by others": load.taken_by_others()}
        write("nonfinite", {"rows": rows, "worst": worst, "at most": AT_MOST, **around})
    return int(worst > AT_MOST and not options.quick)


if __name__ == "__main__":
    raise SystemExit(main())
