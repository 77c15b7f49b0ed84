"""How time and memory grow: seconds a pair from 2k to 64k keys, and bytes against n."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import find_row
from benchmarks.contests import OURS, TILED, Size
from benchmarks.judge import bound
from benchmarks.measure import Quantity, race, runner
from benchmarks.memory import growth as grown
from benchmarks.peers import MEMORY_LIMIT

# Time: so many queries against more and more keys, two heads. (row, whose call)
TIMED = (("dot", TILED), ("gated", OURS), ("additive", OURS), ("entmax", OURS))
N_QUERIES = 1024
N_KEYS = tuple(1 << power for power in range(11, 17))  # 2k to 64k
FLAT = 1.2  # the most that a pair may cost at one size, over the least at another

# Memory: n queries and n keys, one head, forward + backward. (row, whose call, the largest n)
WEIGHED = (
    ("gated", OURS, 32_768),
    ("gated", "eager", 65_536),
    ("additive", OURS, 16_384),
    ("additive", "eager", 65_536),
    ("dot", "SDPA", 32_768),
)
SIDES = tuple(1 << power for power in range(10, 17))  # 1k to 64k
LINEAR = 1.1  # the greatest exponent of n that counts as linear


@dataclass(frozen=True)
class Point:
    """The memory of one call at one n; computed where it was too much to be run."""

    row: str
    call: str
    side: int
    bytes: int
    computed: bool


def measure(*, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Both, as data for the results."""
    times = list(_times(quick, say))
    points = list(_memory(quick, say))
    return {
        "machine bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "time": times,
        "memory": [vars(point) for point in points],
        "demands": [
            *(
                bound(f"{each['row']}, {each['pass']}: time a pair, most over least", each["most over least"], FLAT)
                for each in times
            ),
            *(
                bound(f"{row}: memory grows as n to the power", exponent(points, row), LINEAR)
                for row, call, _ in WEIGHED
                if call == OURS
            ),
        ],
    }


def exponent(points: list[Point], row: str) -> float:
    """The p of memory ~ nᵖ, over the last two doublings of n."""
    ours = [point for point in points if (point.row, point.call) == (row, OURS)]
    first, last = ours[-min(3, len(ours))], ours[-1]
    return math.log(max(last.bytes, 1) / max(first.bytes, 1)) / math.log(last.side / first.side)


def _times(quick: bool, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    counts, n_queries = (N_KEYS[:3], N_QUERIES // 8) if quick else (N_KEYS, N_QUERIES)
    for name, call in TIMED:
        quantities: tuple[Quantity, ...] = ("forward", "training")
        for quantity in quantities:
            # Sizes take turns, as rivals do elsewhere: a slow minute then hurts them all.
            calls = {
                str(count): runner(find_row(name).build(Size((1, 2), n_queries, count))[call], quantity)
                for count in counts
            }
            timings = race(calls, seconds=3 if quick else 30, rounds=12)
            best = {count: timing.best for count, timing in timings.items()}
            broken = [timing.failure for timing in timings.values() if timing.failure]
            if broken:
                raise RuntimeError(f"{name}: {broken[0]}")
            pair = {count: seconds / (2 * n_queries * int(count)) for count, seconds in best.items() if seconds}
            ratio = max(pair.values()) / min(pair.values())
            nanoseconds = ", ".join(f"{1e9 * each:.2f}" for each in pair.values())
            say(f"{name} {quantity}: {nanoseconds} ns a pair at {', '.join(pair)} keys")
            yield {"row": name, "call": call, "pass": quantity, "seconds a pair": pair, "most over least": ratio}


def _memory(quick: bool, say: Callable[[str], None]) -> Iterator[Point]:
    sides = SIDES[:3] if quick else SIDES
    for name, call, largest in WEIGHED:
        row = find_row(name)
        measured: tuple[int, int] | None = None
        for side in (each for each in sides if each <= largest):
            size = Size((1, 1), side, side)
            if row.build(Size((1, 1), 1, 1))[call].needs * side**2 > MEMORY_LIMIT:
                assert measured is not None
                # All that an eager formula keeps is n × m: four times as much for twice the n.
                point = Point(name, call, side, measured[1] * (side // measured[0]) ** 2, computed=True)
            else:
                point = Point(name, call, side, grown(row, call, size, "training"), computed=False)
                measured = side, point.bytes
            say(f"{name}, {call}, n = {side}: {point.bytes / 2**20:,.0f} MiB{' (computed)' if point.computed else ''}")
            yield point
