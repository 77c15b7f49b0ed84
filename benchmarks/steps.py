"""How long the way of a call is: Python calls into `regard/`, the files they are in, and microseconds beside SDPA's.

    python -m benchmarks.steps                   # prints, and writes benchmarks/results/steps.json

Steps are calls of Python functions of the package on the third call, as `sys.setprofile` sees them, consecutive repeats
of one function counted once.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

import regard
from benchmarks.load import Load
from benchmarks.results import write
from regard import Additive, Causal, Database, attend, weigh
from regard.cli import app

PACKAGE = str(Path(regard.__file__).parent)
# What was asked of each: (steps, files), and microseconds over SDPA.
MOST_STEPS = {"4-D dot": (10, 6), "2-D dot": (15, 8), "additive": (120, 22), "collect": (224, 25)}
MOST_STEPS |= {"Database.attend": (233, 25), "regard ask": (459, 40)}
MOST_MICROSECONDS = {"4-D": 10.0, "3-D": 10.0, "2-D": 15.0, "4-D causal": 18.0}


def steps_of(call: Callable[[], Any]) -> tuple[int, int]:
    """(steps, files) of the third call."""
    call(), call()
    seen: list[tuple[str, str]] = []

    def notice(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            step = (code.co_filename, code.co_qualname)
            if not seen or seen[-1] != step:
                seen.append(step)

    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(seen), len({file for file, _ in seen})


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is measured: the calls of the table."""
    torch.manual_seed(0)
    four, two = torch.randn(3, 2, 4, 16, 32), torch.randn(3, 64, 32)
    score = Additive(32, 32, 16)
    table = folder / "students.csv"
    table.write_text("gpa,salary\n3.1,50\n3.3,55\n3.5,62\n3.7,66\n3.9,75\n")
    database = Database.from_table(table, key="gpa", value="salary")

    def ask() -> None:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            app(["ask", str(table), "3.5", "--key", "gpa", "--value", "salary"], standalone_mode=False)

    return {
        "4-D dot": lambda: attend(*four),
        "2-D dot": lambda: attend(*two),
        "additive": lambda: attend(*two, score=score),
        "collect": lambda: weigh(*two).collect(top=3, entropy=True, received=True),
        "Database.attend": lambda: database.attend(3.5),
        "regard ask": ask,
    }


def overheads(rounds: int) -> dict[str, float]:
    """Microseconds of a call over SDPA's own on the 4-D shape, at 16 queries: the quickest of many, interleaved."""
    torch.manual_seed(0)
    shapes = {"4-D": (2, 4, 16, 32), "3-D": (8, 16, 32), "2-D": (16, 32)}
    inputs = {name: torch.randn(3, *shape) for name, shape in shapes.items()}
    causal = Causal()
    ours = {name: _with_sdpa(each) for name, each in inputs.items()}
    queries, keys, values = inputs["4-D"]
    ours["4-D causal"] = (
        lambda: attend(queries, keys, values, mask=causal),
        lambda: scaled_dot_product_attention(queries, keys, values, is_causal=True),
    )
    best = {name: [float("inf"), float("inf")] for name in ours}
    with torch.no_grad():
        for _ in range(rounds):
            for name, pair in ours.items():
                for place, call in enumerate(pair):
                    best[name][place] = min(best[name][place], _seconds(call))
    return {name: (mine - theirs) * 1e6 for name, (mine, theirs) in best.items()}


def _with_sdpa(tensors: torch.Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    return lambda: attend(*tensors), lambda: scaled_dot_product_attention(*_in_4d(tensors))


def _in_4d(tensors: torch.Tensor) -> torch.Tensor:
    return tensors.reshape(3, *(1,) * (5 - tensors.ndim), *tensors.shape[1:])


def _seconds(call: Callable[[], Any], count: int = 50) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the figures; 1 if something is longer than was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds; nothing is written")
    options = parser.parse_args(arguments)
    load = Load()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: steps_of(call) for name, call in calls(Path(folder)).items()}
    micro = overheads(3 if options.quick else 200)
    short = []
    for name, (steps, files) in found.items():
        most = MOST_STEPS[name]
        short += [name] if steps > most[0] or files > most[1] else []
        print(f"{name:18} {steps:4} steps in {files:3} files; asked {most[0]}, {most[1]}")
    for name, each in micro.items():
        short += [name] if each > MOST_MICROSECONDS[name] else []
        print(f"{name:18} {each:5.1f} µs over SDPA; asked {MOST_MICROSECONDS[name]:.0f}")
    if not options.quick:
        write("steps", {"steps": found, "microseconds": micro, "taken by others": load.taken_by_others()})
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
