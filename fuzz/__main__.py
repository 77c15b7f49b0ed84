"""`python -m fuzz`: see the package."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence

import fuzz

# oneDNN reads this when torch is imported: some virtual machines announce AMX and do not let a process use it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

KINDS = ("attention", "command")
OUTCOMES = ("held", "refused", "skipped", "broken")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, or replay a case; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description=fuzz.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, in all (default 10)")
    parser.add_argument("--seed", type=int, help="the first case's number; drawn, if left out")
    parser.add_argument("--only", choices=KINDS, help="attention, or command lines and files")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: all)")
    parser.add_argument("--replay", metavar="KIND:SEED", nargs="+", help="cases to run again, with all their checks")
    options = parser.parse_args(arguments)
    if options.replay:
        return max(replay(case) for case in options.replay)
    from fuzz.runner import run

    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    kinds = (options.only,) if options.only else KINDS
    failed = False
    for kind in kinds:
        tally = run(kind, range(seed, 2**62), options.minutes * 60 / len(kinds), options.processes, _say)
        _say(f"\n{kind}: {tally.cases:,} cases from seed {seed} on")
        checks = sorted({check for check, _ in tally.counts})
        width = max(map(len, checks), default=0)
        _say(f"{'':{width}}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
        for check in checks:
            _say(f"{check:{width}}" + "".join(f"{tally.counts[check, outcome]:>10,}" for outcome in OUTCOMES))
        failed = failed or bool(tally.failures)
    return int(failed)


def replay(case: str) -> int:
    """One case again, all its checks; 1 if one is broken."""
    kind, _, seed = case.partition(":")
    if kind == "attention":
        import torch

        from fuzz.attention import judge_attention
        from fuzz.cases import make_case

        torch.set_num_threads(1)
        _say(f"{case}: {make_case(int(seed))}")
        outcomes = judge_attention(int(seed), every=True)
    else:
        from fuzz.command import describe_command, judge_command

        _say(f"{case}: {describe_command(int(seed))}")
        outcomes = judge_command(int(seed))
    for check, outcome, text in outcomes:
        _say(f"  {check}: {outcome}{f', {text}' if text else ''}")
    return int(any(outcome == "broken" for _, outcome, _ in outcomes))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
