"""Runs the contract and counts: `python -m regard.testing --device cuda --dtype float32`; `--help` has the rest."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from regard.engines import ENGINES, Engine, Tiled
from regard.testing.cases import DTYPES, SCORES, Case, every_case
from regard.testing.contract import check

NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each engine and dtype; the exit status says whether all cases passed."""
    parser = argparse.ArgumentParser(prog="python -m regard.testing", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=NAMES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--score", choices=SCORES, action="append", help="repeat it for several; all if left out")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th case alone")
    parser.add_argument("--offset", type=int, default=0, metavar="K", help="which of each N: 0 to N - 1")
    parser.add_argument("--minutes", type=float, help="stop after that long; with --resume, to go on another time")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="leave out what FILE says was done, and add to it")
    options = parser.parse_args(arguments)
    stop = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    done = _Done(options.resume)
    failed, unfinished = 0, 0
    for name in options.engine or ENGINES:
        engine = Tiled(tile_elements=256) if name == "tiled" else ENGINES[name]
        for dtype in options.dtype or NAMES:
            cases = [
                case for case in every_case(NAMES[dtype], options.device) if case.score in (options.score or SCORES)
            ][options.offset :: options.every]
            counts = run(engine, cases, f"{dtype:8} {options.device}", done, stop)
            failed += counts["failed"]
            unfinished += counts["not run"]
    if unfinished:
        print(f"{unfinished} cases were not run in the time given")
    return 1 if failed else 0


class _Done:
    """What became of each case in earlier runs, and in this one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a run may have been ended within a line
        if path is not None and whole != text:
            path.write_text(whole, encoding="utf-8")
        self._outcomes: dict[str, str] = dict(map(json.loads, whole.splitlines()))

    def outcome(self, name: str, find: Callable[[], str]) -> str:
        """What became of a case; found now, unless it was before."""
        if name not in self._outcomes:
            self._outcomes[name] = find()
            if self._path is not None and self._outcomes[name] != "failed":  # those are tried again
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, self._outcomes[name]]) + "\n")
        return self._outcomes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._outcomes


def run(engine: Engine, cases: list[Case], where: str, done: _Done, stop: float | None) -> Counter[str]:
    """Put an engine through the cases, as long as there is time; how many matched, were refused, failed, or not run."""
    begun = time.perf_counter()
    counts: Counter[str] = Counter()
    for case in cases:
        name = f"{engine.name}: {case} on {case.device}"
        if name not in done and stop is not None and time.monotonic() > stop:
            counts["not run"] += 1
        else:
            counts[done.outcome(name, partial(_outcome, engine, case))] += 1
    seconds = time.perf_counter() - begun
    print(
        f"{engine.name:9} {where}: {counts['matched']} matched, {counts['refused']} refused with reasons, "
        f"{counts['failed']} failed, in {seconds:.0f} s",
        flush=True,
    )
    return counts


def _outcome(engine: Engine, case: Case) -> str:
    try:
        return "matched" if check(engine, case).matched else "refused"
    except Exception as error:
        print(f"  {case}: {type(error).__name__}: {error}", file=sys.stderr)
        return "failed"


if __name__ == "__main__":
    raise SystemExit(main())
