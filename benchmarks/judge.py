"""One row from beginning to end: verify, race, weigh, and judge against what must be reached."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.cases import Demand, Row
from benchmarks.contests import OURS
from benchmarks.measure import agree, race_calls
from benchmarks.memory import growth

Figures = Mapping[str, Mapping[str, float]]  # forward, training (seconds), memory (bytes) -> whose -> how much

PASS_NAMES = {"forward": "forward", "training": "forward + backward", "memory": "memory"}
QUICK = 8  # how many times fewer queries and keys a quick run has


def measure_row(row: Row, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The figures of a row, who was left out and why, and the verdict on each demand."""
    size = row.size.shrunk(QUICK, least=64) if quick else row.size
    if row.verify_at is not None:
        definition = {name: call for name, call in row.build(row.verify_at).items() if name in (OURS, "eager")}
        agree(definition, row.weighed_pass)
    figures: dict[str, dict[str, float]] = {}
    same: list[str] = []
    left_out: dict[str, dict[str, str]] = {}
    for quantity in row.quantities:
        calls = row.build(size)
        same = [name for name, call in calls.items() if call.same]
        timings = race_calls(calls, quantity, seconds=2 if quick else 25 / len(row.quantities))
        figures[quantity] = {name: timing.best for name, timing in timings.items() if timing.best is not None}
        left_out[quantity] = {name: timing.failure for name, timing in timings.items() if timing.failure}
        say(f"{row.name}, {PASS_NAMES[quantity]}: {_beside(figures[quantity], left_out[quantity])}")
        if OURS not in figures[quantity]:
            raise RuntimeError(left_out[quantity][OURS])
        # What was compiled for this row is of no use to the next one.
        del calls
        torch.compiler.reset()
        gc.collect()
    if row.weighed:
        figures["memory"] = {name: growth(row, name, size, row.weighed_pass) for name in row.weighed}
        weights = ", ".join(f"{name} {count / 1e6:,.0f} MB" for name, count in figures["memory"].items())
        say(f"{row.name}, memory of {PASS_NAMES[row.weighed_pass]}: {weights}")
    demands = [judge(demand, figures) for demand in row.demands]
    return {
        "work": row.work,
        "size": str(size),
        "same": same,
        "figures": figures,
        "left out": left_out,
        "demands": demands,
    }


def judge(demand: Demand, figures: Figures) -> dict[str, Any]:
    """What was asked, what was got, and whether that is enough; not reached where a figure is missing."""
    whose = figures.get(demand.quantity, {})
    ours = whose.get(demand.ours)
    peer = None if demand.peer is None else whose.get(demand.peer)
    got: float | None
    if ours is None or (demand.peer is not None and not peer):
        got = None
    elif peer is None:
        got = ours
    else:
        got = ours - peer if demand.difference else ours / peer
    subject = PASS_NAMES[demand.quantity] + ("" if demand.ours == OURS else f" of {demand.ours}")
    return {
        "what": f"{subject}{_against(demand)}",
        "asked": f"{'at least' if _inverted(demand) else 'at most'} {_shown(demand, demand.at_most)}",
        "shown": "none" if got is None else _shown(demand, got),
        "got": got,
        "at most": demand.at_most,
        "reached": got is not None and got <= demand.at_most,
    }


def bound(what: str, got: float, at_most: float) -> dict[str, Any]:
    """The verdict on a plain number."""
    return {
        "what": what,
        "asked": f"at most {at_most:.3g}",
        "shown": f"{got:.3g}",
        "got": got,
        "at most": at_most,
        "reached": got <= at_most,
    }


def _inverted(demand: Demand) -> bool:
    """Whether people would rather say how many times faster, or smaller, than a peer."""
    return demand.peer is not None and not demand.difference and demand.at_most < 1


def _against(demand: Demand) -> str:
    if demand.peer is None:
        return ""
    if demand.difference:
        return f", over {demand.peer}"
    if _inverted(demand):
        return f", times {'smaller' if demand.quantity == 'memory' else 'faster'} than {demand.peer}"
    return f", times {demand.peer}"


def _shown(demand: Demand, value: float) -> str:
    if demand.peer is None:
        return f"{value / 1e6:,.0f} MB"
    if demand.difference:
        return f"{1e6 * value:.1f} µs"
    return f"{1 / value:.3g} ×" if _inverted(demand) else f"{value:.3g} ×"


def _beside(figures: Mapping[str, float], left_out: Mapping[str, str]) -> str:
    """Everybody's time, and its ratio to ours."""
    ours = figures.get(OURS)
    parts = []
    for name, seconds in figures.items():
        ratio = "" if ours is None or name == OURS else f" ({seconds / ours:.2f} × ours)"
        parts.append(f"{name} {readable_seconds(seconds)}{ratio}")
    return "; ".join(parts + [f"{name} {reason}" for name, reason in left_out.items()])


def readable_seconds(seconds: float) -> str:
    """A time for people: "1.2 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
