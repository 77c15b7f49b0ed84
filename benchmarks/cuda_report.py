"""The table of docs/performance.md for GPUs, from `benchmarks/results/cuda.json`: python -m benchmarks.cuda_report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import results
from benchmarks.cuda import ROWS, Row
from benchmarks.cuda_contests import OURS


def table() -> str:
    """Every row in Markdown: milliseconds of both, forward and forward + backward, and how many times faster we are."""
    rows = results.read("cuda")["rows"]
    lines = ["| work | regard, ms | peer, ms | times faster | asked |", "|---|---|---|---|---|"]
    lines += [_line(row, rows[row.name]) for row in ROWS if row.name in rows]
    return "\n".join(lines)


def _line(row: Row, found: Mapping[str, Any]) -> str:
    seconds = [found[each]["seconds"] for each in ("forward", "training") if each in found]
    ours, theirs = ([f"{1e3 * each[name]:.3g}" for each in seconds] for name in (OURS, row.peer))
    faster = [f"{each[row.peer] / each[OURS]:.2f}" for each in seconds]
    asked = [f"{1 / most:.2f}" for most in row.at_most if most is not None]
    shown = ("; ".join(each) for each in (ours, [f"{row.peer} {theirs[0]}", *theirs[1:]], faster, asked))
    return f"| {row.name} | {' | '.join(shown)} |"


if __name__ == "__main__":
    print(table())
