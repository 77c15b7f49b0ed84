"""How long the first call takes where no kernel is compiled, and how long it takes until kernels answer.

    python -m benchmarks.cold                      # the median of three, each with an empty folder and a new process
    python -m benchmarks.cold --repeats 1 --wait 0

The seconds of a first call begin after `import regard`, with what else must be imported. Beside them stands the same
call in plain torch, in the same process: what is more than that is the price of a cold start; and the seconds that the
process had a core for, which matter where others share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cold.json"

SHAPE = (1, 4, 512, 64)

# The options of a call, and whether it is a forward pass, a training step or a view's readings.
CASES = {
    "sigmoid, forward": ("weights=regard.Sigmoid()", "forward"),
    "sigmoid, training": ("weights=regard.Sigmoid()", "training"),
    "gated, training": ("score=regard.Gated(64, 64)", "training"),
    "additive, forward": ("score=regard.Additive(64, 64, 64)", "forward"),
    "additive, training": ("score=regard.Additive(64, 64, 64)", "training"),
    "Laplacian, training": ("score=regard.Laplacian(1.0)", "training"),
    "entmax, training": ("weights=regard.Entmax(1.5)", "training"),
    "top-k 32, training": ("weights=regard.TopK(32)", "training"),
    "selected keys, training": ("mask=regard.Selected(torch.arange(512)[:, None])", "training"),
    "readings of a view": ("score=regard.Gaussian(4.0)", "readings"),
    "readings under entmax": ("weights=regard.Entmax(1.5)", "readings"),
}

_SCRIPT = """
import glob, os, time, json, torch
import regard
from regard.engines import Tiled

torch.manual_seed(0)
kind, wait = {kind!r}, {wait!r}
q, k, v = (torch.randn(*{shape!r}, requires_grad=kind == "training") for _ in range(3))
options = dict({options})

def call(engine=None):
    start = time.perf_counter()
    with torch.set_grad_enabled(kind == "training"):
        if kind == "readings":
            regard.weigh(q, k, v, engine=engine, **options).collect(top=8, entropy=True, received=True)
        else:
            output = regard.attend(q, k, v, engine=engine, **options)
            if kind == "training":
                output.sum().backward()
    return time.perf_counter() - start

begin = time.perf_counter()
used = time.process_time()
first = call()
used, kernels = time.process_time() - used, None
plain = call(Tiled(kernels=False))
while time.perf_counter() - begin < wait:
    with torch.set_grad_enabled(kind == "training"):
        if "(compiled kernels)" in regard.plan(q, k, v, **options).reason:
            kernels = time.perf_counter() - begin
            break
    time.sleep(0.1)
for children in glob.glob("/proc/self/task/*/children"):  # who compiles on would slow the next case down
    for child in open(children).read().split():
        os.kill(int(child), 9)
print(json.dumps({{"first": first, "used": used, "plain": plain, "kernels": kernels}}))
"""


def measure(name: str, wait: float) -> dict[str, float | None]:
    """Seconds of the first call, of the same in plain torch afterwards, and until kernels answer (None: too long)."""
    options, kind = CASES[name]
    script = _SCRIPT.format(kind=kind, wait=wait, shape=SHAPE, options=options)
    with tempfile.TemporaryDirectory() as folder:
        # Threads that sleep where they wait for each other, as in the command `regard`: the machine may be busy.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "NUMBA_CACHE_DIR": folder}
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
    found: dict[str, float | None] = json.loads(run.stdout)
    return found


def main() -> None:
    """Measure every case, print it, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for kernels, the first time")
    arguments = parser.parse_args()
    rows = {}
    for name in CASES:
        runs = [measure(name, 0 if repeat else arguments.wait) for repeat in range(arguments.repeats)]
        firsts, used, plains = ([each[key] for each in runs] for key in ("first", "used", "plain"))
        rows[name] = {
            "first call, s": round(statistics.median(firsts), 3),
            "of a core in it, s": round(statistics.median(used), 3),
            "the same in plain torch, s": round(statistics.median(plains), 3),
            "until kernels answer, s": None if runs[0]["kernels"] is None else round(runs[0]["kernels"], 1),
        }
        print(name, rows[name], flush=True)
    result = {"shape": SHAPE, "threads": os.cpu_count(), "load": os.getloadavg()[0], "repeats": arguments.repeats}
    RESULTS.write_text(json.dumps({**result, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
