"""Measure regard beside its peers.

    python -m benchmarks                     # every row; writes benchmarks/results/
    python -m benchmarks --only gated view   # some of them
    python -m benchmarks --quick             # everything at small sizes, in a few minutes; writes nothing
    python -m benchmarks --figures           # draw docs/*.svg and the tables of docs/performance.md from the results

On a machine with a GPU the rows of `benchmarks/cuda.py` follow.

Everybody runs in the same process, in turns, and the best of several rounds counts. A row that fails says so, and the
others go on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from rich.console import Console

from benchmarks import cuda, cuda_report, growth, report, sweep
from benchmarks.cases import ROWS
from benchmarks.judge import measure_row
from benchmarks.load import Load

BUSY = 0.05  # the share of the cores that others may take before figures are doubtful

Work = Callable[..., dict[str, Any]]

WORK: dict[str, Work] = {
    **{row.name: partial(measure_row, row) for row in ROWS},
    "growth": growth.measure,
    "sweep": sweep.measure,
}
ABOUT = {
    **{row.name: f"{row.work} {row.size}" for row in ROWS},
    "growth": "time a pair from 2k to 64k keys, memory against n",
    "sweep": "every engine over a grid of sizes, kinds and masks, and the planner's regret",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if something failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=WORK, metavar="NAME", help="these rows alone")
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is written")
    parser.add_argument(
        "--figures", action="store_true", help="draw figures and tables from the results, measure nothing"
    )
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if options.list:
        for name, about in ABOUT.items():
            console.print(f"{name:16} {about}")
        return 0
    if options.figures:
        from benchmarks import figures, tables

        tables.write_times()
        cuda_report.write_table()
        for path in figures.draw_all():
            console.print(str(path))
        return 0
    found: dict[str, dict[str, Any]] = {}
    for name in options.only or WORK:
        found[name] = attempt(name, quick=options.quick, console=console)
        if not options.quick:
            report.keep({name: found[name]})  # as it goes: an hour's figures must not hang on the last row
    width = None if console.is_terminal else 140
    report.print_table(found, Console(highlight=False, width=width), judged=not options.quick)
    failed = any("error" in row for row in found.values())
    if torch.cuda.is_available() and not options.only:
        failed |= bool(cuda.main(["--quick"] if options.quick else []))
    return 1 if failed else 0


def attempt(name: str, *, quick: bool, console: Console) -> dict[str, Any]:
    """What a row found, or the error that stopped it."""
    start, load = time.perf_counter(), Load()
    console.print(f"[bold]{name}[/bold] {ABOUT[name]}")
    try:
        result = WORK[name](quick=quick, say=lambda line: console.print(f"  {line}", markup=False))
    except Exception as error:  # the others go on
        result = {"error": f"{type(error).__name__}: {error}"}
        console.print(f"  failed: {result['error']}", style="red", markup=False)
    others = load.taken_by_others()
    result["taken by others"] = others
    console.print(f"  [dim]{time.perf_counter() - start:.0f} s[/dim]")
    if others is not None and others > BUSY:
        console.print(f"  other processes took {others:.0%} of the cores: measure again when they rest", style="yellow")
    return result


if __name__ == "__main__":
    raise SystemExit(main())
