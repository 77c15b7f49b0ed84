"""Attention on a GPU beside what a user would take today: medians of one run, everybody in turns.

python -m benchmarks.cuda                    # every row; writes benchmarks/results/cuda.json
python -m benchmarks.cuda --processes        # the same on many cores: compiled together, timed alone
python -m benchmarks.cuda --only gated
python -m benchmarks.cuda --quick            # small sizes, on a CPU too; writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks import cuda_contests as contests
from benchmarks import cuda_second_contests as second
from benchmarks.measure import Quantity, runner
from benchmarks.peers import Call
from benchmarks.results import write

ROUNDS, WARM_UP = 30, 3
# How long a GPU is kept busy before each timing, in its cycles, about 2 ms: the host is through with its calls by then,
# so that the time is the device's. That of the host is a row of its own.
HEAD_START = 4_000_000
QUANTITIES: tuple[Quantity, ...] = ("forward", "training")
Say = Callable[[str], None]
Prepared = dict[Quantity, dict[str, Callable[[], Any]]]


@dataclass(frozen=True)
class Row:
    """Some work, who does it, and how much of the peer's time may be taken: forward, forward and backward."""

    name: str
    build: Callable[[bool], Mapping[str, Call]]  # quick or not; ours first
    peer: str
    at_most: tuple[float, float | None]  # None: there is no backward pass to compare
    tolerance: float = 3e-2  # of the norm, in half precision: by how much a peer may differ


ROWS = (
    Row("dot", contests.dot, "SDPA", (1.03, 1.03)),
    Row("causal", contests.causal, "SDPA", (1.08, 1.08)),
    Row("gated", contests.gated, "FlexAttention", (1 / 1.4, 1 / 1.6)),
    Row("soft-capped", contests.soft_capped, "FlexAttention", (1 / 1.8, 1 / 1.4)),
    Row("ALiBi", contests.alibi, "FlexAttention", (1 / 1.1, 1.0)),
    Row("causal and gated", contests.causal_and_gated, "FlexAttention", (1 / 1.3, 1 / 1.5)),
    Row("window", contests.window, "FlexAttention", (1 / 1.15, 1.0)),
    Row("selected", contests.selected, "gathered", (1 / 5, 1 / 3), 0.1),  # which sums gradients in bfloat16
    Row("Gaussian", contests.gaussian, "compiled", (1 / 3, 1 / 2)),
    Row("sigmoid", contests.sigmoid, "compiled", (1 / 3, 1 / 2)),
    Row("conic", contests.conic, "compiled", (1 / 3, 1 / 2)),
    Row("decoding", contests.decoding, "a sum", (1 / 0.85, None)),
    Row("decoding, soft-capped", contests.decoding_soft_capped, "a sum", (1 / 0.85, None)),
    Row("one query", contests.one_query, "a sum", (1 / 0.8, None)),
    Row("additive", second.additive, "eager", (0.85 / 29.4, 4.5 / 64.3)),
    Row("additive in bfloat16", second.additive_in_half, "regard in float32", (1.0, 1.0)),
    Row("Laplacian", second.laplacian, "eager", (1 / 20, 1 / 15)),
    Row("sparsemax", second.sparsemax, "compiled", (1 / 8, 1 / 4)),
    Row("entmax", second.entmax, "regard's sparsemax", (1.5, 1.5)),
    Row("top-k", second.top_k, "eager", (1 / 4, 1 / 2.5)),
    Row("all readings", second.all_readings, "regard's forward pass", (3.0, None)),
    Row("heaviest weights", second.heaviest, "regard's forward pass", (1.6, None)),
)


def median_times(calls: Mapping[str, Callable[[], Any]], device: torch.device, rounds: int) -> dict[str, float]:
    """The median time of each, in seconds, in turns."""
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in calls if turn % 2 == 0 else reversed(calls):
            times[name].append(_once(calls[name], device))
    return {name: statistics.median(each) for name, each in times.items()}


def _once(call: Callable[[], Any], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def measure_row(row: Row, *, quick: bool, say: Say) -> dict[str, Any]:
    """Times, ratios to the peer, and what was asked."""
    return timed(row, prepared(row, quick=quick), quick=quick, say=say)


def prepared(row: Row, *, quick: bool) -> Prepared:
    """Everybody's calls by what is timed, each of them made before, so that it is compiled, and compared."""
    calls, found = row.build(quick), {}
    for quantity, at_most in zip(QUANTITIES, row.at_most, strict=True):
        able = {name: runner(call, quantity) for name, call in calls.items() if quantity == "forward" or call.leaves}
        if at_most is not None and row.peer in able:
            check(calls, able, row.tolerance)
            found[quantity] = able
    return found


def timed(row: Row, calls: Prepared, *, quick: bool, say: Say) -> dict[str, Any]:
    """Times of calls that are prepared."""
    found = {}
    for quantity, able in calls.items():
        at_most = row.at_most[QUANTITIES.index(quantity)]
        times = median_times(able, contests.device(), 3 if quick else ROUNDS)
        ratio = times[contests.OURS] / times[row.peer]
        found[quantity] = {"seconds": times, "ratio": ratio, "at most": at_most}
        say(f"{quantity:9} " + ", ".join(f"{name} {each * 1e3:.3f} ms" for name, each in times.items()))
        if not quick and at_most is not None:
            said = "reached" if ratio <= at_most else "short"
            say(f"{'':9} {ratio:.2f} × {row.peer}, at most {at_most:.2f} asked: {said}")
    return found


def check(calls: Mapping[str, Call], able: Mapping[str, Callable[[], Any]], tolerance: float = 3e-2) -> None:
    """Whoever computes the same gives the same, as far as its dtype shows it.

    Raises:
        AssertionError: Somebody does not.
    """
    same = [name for name in able if calls[name].same]
    wanted = able[same[0]]()
    for name in same[1:]:
        for place, (got, ours) in enumerate(zip(able[name](), wanted, strict=True)):
            off = float((got.float() - ours.float()).norm() / ours.float().norm().clamp_min(1e-12))
            allowed = tolerance if ours.dtype in (torch.bfloat16, torch.float16) else 1e-3
            if not off <= allowed:
                raise AssertionError(f"{name} and {same[0]} disagree by {off:.1e} of the norm, result {place}")


def host_times(*, quick: bool, say: Say) -> dict[str, Any]:
    """How long a call takes until it returns, nobody waiting for the device."""
    found = {}
    for name, calls in contests.small_calls().items():
        times: dict[str, list[float]] = {each: [] for each in calls}
        for turn in range(20 if quick else 2_000):
            for each in calls if turn % 2 == 0 else reversed(calls):
                start = time.perf_counter()
                calls[each]()
                times[each].append(time.perf_counter() - start)
            if turn % 50 == 0 and contests.device().type == "cuda":
                torch.cuda.synchronize()
        found[name] = {each: statistics.median(taken) for each, taken in times.items()}
        say(f"{name}: " + ", ".join(f"{each} {taken * 1e6:.1f} µs" for each, taken in found[name].items()))
    return found


def training_step(*, quick: bool, say: Say) -> dict[str, Any]:
    """How long a step of a small model takes, host and device together."""
    calls = second.training_steps(quick)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(3 if quick else 40):
        for name in calls if turn % 2 == 0 else reversed(calls):
            if contests.device().type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            calls[name]()
            if contests.device().type == "cuda":
                torch.cuda.synchronize()
            if turn >= (0 if quick else WARM_UP):
                times[name].append(time.perf_counter() - start)
    found = {name: statistics.median(each) for name, each in times.items()}
    say(", ".join(f"{name} {each * 1e3:.2f} ms" for name, each in found.items()))
    return {"seconds": found, "ratio": found[contests.OURS] / found["PyTorch"], "at most": 1.1}


def memory(*, quick: bool, say: Say) -> dict[str, Any]:
    """What a forward and backward pass takes beside inputs, outputs and gradients."""
    device = contests.device()
    if device.type != "cuda":
        return {}
    found = {}
    for name, build in (("gated", contests.long_gated), ("additive", second.long_additive)):
        taken = _memory_of(build(quick))
        say(f"{name}: {taken / 2**20:,.0f} MiB beside inputs, outputs and gradients")
        found[name] = {"bytes": taken, "at most": 1 << 30}
    return found


def _memory_of(call: Call) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = runner(call, "training")()
    torch.cuda.synchronize()
    own = sum(each.numel() * each.element_size() for each in results)
    return int(torch.cuda.max_memory_allocated() - before - own)


WHOLE: dict[str, Callable[..., dict[str, Any]]] = {
    "host": host_times,
    "training step": training_step,
    "memory": memory,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and keep; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="+", choices=[*names, *WHOLE], metavar="NAME")
    parser.add_argument("--processes", action="store_true", help="compile all rows at the same time, then time each")
    parser.add_argument(
        "--patience", type=float, default=240.0, help="seconds for all that to be compiled", metavar="S"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is written")
    options = parser.parse_args(arguments)
    if contests.device().type != "cuda" and not options.quick:
        parser.error("there is no GPU here: --quick runs small sizes on a CPU")
    say: Say = partial(print, flush=True)
    found: dict[str, Any] = {}

    def keep(name: str, figures: dict[str, Any]) -> None:
        found[name] = figures
        if not options.quick and options.only is None:  # as they come: a run may be cut off
            write("cuda", {"gpu": torch.cuda.get_device_name(), "rows": found})

    chosen = options.only or [*names, *WHOLE]
    rows = [row for row in ROWS if row.name in chosen]
    if options.processes:
        from benchmarks.cuda_parallel import measure

        measure(rows, quick=options.quick, patience=options.patience, say=say, done=keep)
        rows = []
    work = {row.name: partial(measure_row, row) for row in rows} | WHOLE
    for name in chosen:
        if name in work:
            say(name)
            try:
                keep(name, work[name](quick=options.quick, say=lambda line: say(f"  {line}")))
            except Exception as error:  # the others go on
                keep(name, {"error": f"{type(error).__name__}: {error}"[:300]})
                say(f"  failed: {found[name]['error']}")
    failed = any("error" in each for each in found.values())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
