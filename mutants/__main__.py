"""`python -m mutants`: see the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import mutants
from mutants import coverage_map
from mutants.hunt import Mutant, Verdict, hunt
from mutants.promises import PROMISES


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the mutants; 1 if one survives or cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m mutants", description=mutants.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="promises with one of these in their name or file")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--map", nargs="*", metavar="TEST", help="trace the suite, or these tests, first if need be")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: all)")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times as long to wait for tests")
    options = parser.parse_args(arguments)
    chosen = [each for each in PROMISES if _wanted(each, options.only)]
    if options.list:
        for each in chosen:
            print(f"{each.promise}  ({each.file})")
        return 0
    reached = coverage_map.load()
    if options.map is not None and reached.sources != coverage_map.fingerprint():
        reached = coverage_map.build(options.processes, options.map)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(options.processes) as pool:
        running = [pool.submit(hunt, each, reached, options.patience) for each in chosen]
        for done in as_completed(running):
            verdicts.append(done.result())
            _say(verdicts[-1])
    counts = {name: sum(each.outcome == name for each in verdicts) for name in ("killed", "survived", "error")}
    lines = [f"{len(verdicts)} mutants: " + ", ".join(f"{count} {name}" for name, count in counts.items())]
    print("\n" + lines[0])
    order = {each: place for place, each in enumerate(chosen)}
    table = ["| promise | file | | by | s |", "|---|---|---|---|---|"]
    for each in sorted(verdicts, key=lambda verdict: order[verdict.mutant]):
        mutant = each.mutant
        table.append(f"| {mutant.promise} | {mutant.file} | {each.outcome} | {each.by} | {each.seconds:.0f} |")
    coverage_map.FOLDER.mkdir(exist_ok=True)
    (coverage_map.FOLDER / "results.md").write_text("\n".join([*lines, "", *table, ""]), encoding="utf-8")
    return int(counts["survived"] + counts["error"] > 0)


def _wanted(mutant: Mutant, words: Sequence[str] | None) -> bool:
    return words is None or any(word in mutant.promise or word in mutant.file for word in words)


def _say(verdict: Verdict) -> None:
    by = f" by {verdict.by}" if verdict.outcome == "killed" else f": {verdict.by}" if verdict.by else ""
    print(f"{verdict.outcome:8} {verdict.seconds:4.0f} s  {verdict.mutant.promise}{by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
