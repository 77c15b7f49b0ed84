"""Two states of this project beside each other: every row of attention and layers, the newer over the older.

    python -m benchmarks.states OLDER            # a checkout of another commit, its kernels compiled (regard warm-up)
    python -m benchmarks.states OLDER --only dot view

Each state runs in a process of its own, one at a time, turn by turn, and the best of several turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import Load
from benchmarks.results import write

HERE = Path(__file__).resolve().parent.parent
SLOWER = 1.03  # what nothing may be slower by
SECONDS = 4.0  # for each state, row and quantity, beside warming up
TURNS = 40
TURN = 0.05  # seconds that a turn takes at least


class State:
    """A checkout, and a process that runs its rows."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        # By its path alone a script would take the folder that it lies in for the project.
        settings = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            command, cwd=folder, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: Any) -> Any:
        """What the process answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a state's process has ended: its errors are above")
        return json.loads(line)


def serve() -> None:
    """Answer, line by line: ("build", row, quantity) makes a call and warms up, ("run", n) is the time of one of n."""
    from benchmarks.cases import find_row
    from benchmarks.contests import OURS
    from benchmarks.measure import runner

    answers, sys.stdout = sys.stdout, sys.stderr  # what a row prints is no answer
    call: Any = None
    for line in sys.stdin:
        word, *rest = json.loads(line)
        if word == "build":
            row = find_row(rest[0])
            call = runner(row.build(row.size)[OURS], rest[1])
            call(), call()
            start = time.perf_counter()
            call()
            answer = time.perf_counter() - start
        else:
            start = time.perf_counter()
            for _ in range(rest[0]):
                call()
            answer = (time.perf_counter() - start) / rest[0]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def compare(states: Sequence[State], row: str, quantity: str) -> list[float]:
    """The best time of each state, in turns."""
    once = max(state.ask("build", row, quantity) for state in states)
    repeats = max(1, round(TURN / once))
    turns = max(3, min(TURNS, round(SECONDS / (once * repeats))))
    best = [float("inf")] * len(states)
    for turn in range(turns):
        places = list(enumerate(states))
        for place, state in places if turn % 2 == 0 else reversed(places):
            best[place] = min(best[place], state.ask("run", repeats))
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print and keep; 1 if something is slower than before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, help="a checkout of the older state")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows alone")
    options = parser.parse_args(arguments)
    from benchmarks.cases import ROWS

    load, slower, found = Load(), [], {}
    states = State(options.older.resolve()), State(HERE)
    for row in ROWS:
        for quantity in row.quantities if options.only is None or row.name in options.only else ():
            older, newer = compare(states, row.name, quantity)
            found[f"{row.name}, {quantity}"] = {"older": older, "newer": newer, "ratio": newer / older}
            slower += [row.name] if newer > SLOWER * older else []
            print(f"{row.name:20} {quantity:9} {older * 1e3:10.3f} ms, now {newer * 1e3:10.3f}: {newer / older:.3f}")
    if options.only is None:
        write("states", {"rows": found, "taken by others": load.taken_by_others()})
    return 1 if slower else 0


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        sys.exit(main())
