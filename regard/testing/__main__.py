"""Runs the contract and counts: `python -m regard.testing --device cuda --dtype float32`; `--help` has the rest."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from regard.engines import ENGINES, Engine, Tiled
from regard.testing.cases import DTYPES, SCORES, Case, every_case
from regard.testing.contract import check

NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def main() -> int:
    """Print a line for each engine and dtype; the exit status says whether all cases passed."""
    parser = argparse.ArgumentParser(prog="python -m regard.testing", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=NAMES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--score", choices=SCORES, action="append", help="repeat it for several; all if left out")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.engine or ENGINES:
        engine = Tiled(tile_elements=256) if name == "tiled" else ENGINES[name]
        for dtype in arguments.dtype or NAMES:
            cases = [
                case for case in every_case(NAMES[dtype], arguments.device) if case.score in (arguments.score or SCORES)
            ]
            failed += run(engine, cases, f"{dtype:8} {arguments.device}")
    return 1 if failed else 0


def run(engine: Engine, cases: list[Case], where: str) -> int:
    """Put an engine through the cases; how many it failed."""
    begun = time.perf_counter()
    counts: Counter[str] = Counter()
    for case in cases:
        try:
            outcome = check(engine, case)
        except Exception as error:
            counts["failed"] += 1
            print(f"  {case}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            counts["matched" if outcome.matched else "refused"] += 1
    seconds = time.perf_counter() - begun
    print(
        f"{engine.name:9} {where}: {counts['matched']} matched, {counts['refused']} refused with reasons, "
        f"{counts['failed']} failed, in {seconds:.0f} s"
    )
    return counts["failed"]


if __name__ == "__main__":
    raise SystemExit(main())
