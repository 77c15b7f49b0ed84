"""`python -m mutants`: see the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import mutants
from mutants import coverage_map
from mutants.coverage_map import Map
from mutants.hunt import Mutant, Verdict, hunt
from mutants.promises import PROMISES


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the mutants; 1 if one survives or cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m mutants", description=mutants.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="promises with one of these in their name or file")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--map", nargs="*", metavar="TEST", help="trace the suite, or these tests, for what survives")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: all)")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times as long to wait for tests")
    options = parser.parse_args(arguments)
    chosen = [each for each in PROMISES if _wanted(each, options.only)]
    if options.list:
        for each in chosen:
            print(f"{each.promise}  ({each.file})")
        return 0
    reached = coverage_map.load()
    verdicts = _hunt_all(chosen, reached, options.processes, options.patience)
    survivors = [each for each in verdicts if verdicts[each].outcome != "killed"]
    if survivors and options.map is not None and reached.sources != coverage_map.fingerprint():
        # Tests that an entry does not name may notice as well.
        reached = coverage_map.build(options.processes, options.map)
        verdicts |= _hunt_all(survivors, reached, options.processes, options.patience)
    counts = {name: sum(each.outcome == name for each in verdicts.values()) for name in ("killed", "survived", "error")}
    lines = [f"{len(verdicts)} mutants: " + ", ".join(f"{count} {name}" for name, count in counts.items())]
    print("\n" + lines[0])
    table = ["| promise | file | | by | s |", "|---|---|---|---|---|"]
    for mutant in chosen:
        each = verdicts[mutant]
        table.append(f"| {mutant.promise} | {mutant.file} | {each.outcome} | {each.by} | {each.seconds:.0f} |")
    coverage_map.FOLDER.mkdir(exist_ok=True)
    (coverage_map.FOLDER / "results.md").write_text("\n".join([*lines, "", *table, ""]), encoding="utf-8")
    return int(counts["survived"] + counts["error"] > 0)


def _hunt_all(chosen: Sequence[Mutant], reached: Map, processes: int, patience: float) -> dict[Mutant, Verdict]:
    verdicts = {}
    with ThreadPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(hunt, each, reached, patience) for each in chosen]):
            verdict = done.result()
            verdicts[verdict.mutant] = verdict
            _say(verdict)
    return verdicts


def _wanted(mutant: Mutant, words: Sequence[str] | None) -> bool:
    return words is None or any(word in mutant.promise or word in mutant.file for word in words)


def _say(verdict: Verdict) -> None:
    by = f" by {verdict.by}" if verdict.outcome == "killed" else f": {verdict.by}" if verdict.by else ""
    print(f"{verdict.outcome:8} {verdict.seconds:4.0f} s  {verdict.mutant.promise}{by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
