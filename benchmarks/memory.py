"""How far the resident memory of a process grows during one call.

    python -m benchmarks.memory gated regard --sides 4096 4096 --pass training

A process of its own: what was freed before, by whomever, cannot hide what the call takes. Imports, inputs, compiled
kernels and pools of threads are there before: the same call ran at a small size. Outputs and gradients count.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import Row, find_row
from benchmarks.contests import Size
from benchmarks.measure import Quantity, runner

SMALL_SIDE = 1024  # at which kernels are warmed up: enough that the planner takes the engine of large problems


def growth(row: Row, call: str, size: Size, quantity: Quantity, timeout: float = 900) -> int:
    """The bytes by which a call of a row grows a fresh process.

    Raises:
        RuntimeError: The process failed; the text is the last line that it wrote.
    """
    command = [sys.executable, "-m", "benchmarks.memory", row.name, call, "--pass", quantity]
    command += ["--sides", str(size.n_queries), str(size.n_keys)]
    if size.lead:
        command += ["--lead", *map(str, size.lead)]
    root = Path(__file__).parent.parent
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=root, check=False)
    if run.returncode:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        raise RuntimeError(lines[-1])
    return int(json.loads(run.stdout.splitlines()[-1])["bytes"])


def measure_here(row: Row, call: str, size: Size, quantity: Quantity) -> int:
    """The bytes by which a call grows this process."""
    small = replace(size, n_queries=min(SMALL_SIDE, size.n_queries), n_keys=min(SMALL_SIDE, size.n_keys))
    for _ in range(2):
        runner(row.build(small)[call], quantity)()
    run = runner(row.build(size)[call], quantity)
    before = _forget_peak()
    results = run()
    grown = _peak() - before
    del results
    return grown


def _forget_peak() -> int:
    """Set the high-water mark to what is resident now, and return it in bytes."""
    # Not on Linux, or not allowed: then what the warm-up took hides as much of the call.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """The high-water mark of the resident memory, in bytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row")
    parser.add_argument("call")
    parser.add_argument("--lead", type=int, nargs="*", default=[])
    parser.add_argument("--sides", type=int, nargs=2, required=True)
    parser.add_argument("--pass", dest="quantity", choices=["forward", "training"], default="training")
    arguments = parser.parse_args()
    size = Size(tuple(arguments.lead), *arguments.sides)
    print(json.dumps({"bytes": measure_here(find_row(arguments.row), arguments.call, size, arguments.quantity)}))
