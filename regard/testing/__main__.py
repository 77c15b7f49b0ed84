"""Runs the contract and counts: `python -m regard.testing [--device cuda] [--dtype float32] [--engine tiled]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch

from regard.engines import ENGINES, Engine, Tiled
from regard.testing.cases import DTYPES, every_case
from regard.testing.contract import check

NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def main() -> int:
    """Print a line for each engine and dtype; the exit status says whether all cases passed."""
    parser = argparse.ArgumentParser(prog="python -m regard.testing", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=NAMES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="repeat it for several; all if left out")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.engine or ENGINES:
        engine = Tiled(tile_elements=256) if name == "tiled" else ENGINES[name]
        for dtype in arguments.dtype or NAMES:
            failed += run(engine, NAMES[dtype], arguments.device)
    return 1 if failed else 0


def run(engine: Engine, dtype: torch.dtype, device: str) -> int:
    """Put an engine through every case; how many it failed."""
    begun = time.perf_counter()
    counts: Counter[str] = Counter()
    for case in every_case(dtype, device):
        try:
            outcome = check(engine, case)
        except Exception as error:
            counts["failed"] += 1
            print(f"  {case}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            counts["matched" if outcome.matched else "refused"] += 1
    seconds = time.perf_counter() - begun
    print(
        f"{engine.name:9} {str(dtype).removeprefix('torch.'):8} {device}: {counts['matched']} matched, "
        f"{counts['refused']} refused with reasons, {counts['failed']} failed, in {seconds:.0f} s"
    )
    return counts["failed"]


if __name__ == "__main__":
    raise SystemExit(main())
