"""Runs cases in processes of their own, so that a case that kills its process is a failure and not the end."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

CASE_SECONDS = 120.0  # a kernel that is compiled on first use takes tens of seconds

Outcome = tuple[str, str, str]  # (check, "held" | "refused" | "skipped" | "broken", what was seen)
Judge = Callable[[int], list[Outcome]]


@dataclass
class Failure:
    """A case that broke a promise."""

    case: str  # "attention:12345"
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.case}  {self.check}: {self.text}\n    python -m fuzz --replay {self.case}"


@dataclass
class Tally:
    """What was seen so far."""

    cases: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, case: str, outcomes: Iterable[Outcome]) -> None:
        """Count a case."""
        self.cases += 1
        for check, outcome, text in outcomes:
            self.counts[check, outcome] += 1
            if outcome == "broken":
                self.failures.append(Failure(case, check, text))


def judge(kind: str, seed: int, every: bool = False) -> list[Outcome]:
    """What becomes of one case; of attention under every check, if asked."""
    if kind == "attention":
        from fuzz.attention import judge_attention

        return judge_attention(seed, every)
    from fuzz.command import judge_command

    return judge_command(seed)


def run(
    kind: str, seeds: Iterable[int], seconds: float, processes: int = 1, say: Callable[[str], None] | None = None
) -> Tally:
    """Cases of a kind, as many as there are seeds or for as long as was asked; a line a minute and a failure."""
    following = iter(seeds)
    tally, until, minute = Tally(), time.monotonic() + seconds, time.monotonic() + 60
    workers = [worker for _ in range(processes) if (worker := _Worker(kind, following)).give()]
    while workers:
        ready = wait([each.connection for each in workers], timeout=1.0)
        now = time.monotonic()
        for worker in list(workers):
            if worker.connection in ready or now - worker.since > CASE_SECONDS:
                told = len(tally.failures)
                worker.collect(tally)
                for failure in tally.failures[told:] if say is not None else ():
                    say(str(failure))
                if now > until or not worker.give():
                    worker.stop()
                    workers.remove(worker)
        if say is not None and now > minute:
            minute += 60
            say(f"{kind}: {tally.cases:,} cases, {len(tally.failures):,} broken promises")
    return tally


class _Worker:
    """A process that judges one case after the other."""

    def __init__(self, kind: str, seeds: Iterator[int]) -> None:
        self.kind, self.seeds = kind, seeds
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(self.kind, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def give(self) -> bool:
        """Send the next seed; returns whether there was one."""
        following = next(self.seeds, None)
        if following is None:
            return False
        self.seed, self.since = following, time.monotonic()
        self.connection.send(following)
        return True

    def collect(self, tally: Tally) -> None:
        """What became of the seed that it was given; a new process, if this one died of it or does not end."""
        case = f"{self.kind}:{self.seed}"
        try:
            outcomes = self.connection.recv() if self.connection.poll() else None
        except EOFError:
            outcomes = None
        if outcomes is None:
            alive = self.process.is_alive()
            self.process.kill()
            self.process.join()
            died = f"no answer in {CASE_SECONDS:.0f} s" if alive else f"the process died, code {self.process.exitcode}"
            outcomes = [("answers", "broken", died)]
            self.connection.close()
            self._start()
        tally.add(case, outcomes)

    def stop(self) -> None:
        """End the process."""
        self.connection.send(None)
        self.process.join(5)
        self.process.kill()


def _work(kind: str, connection: Connection) -> None:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    import torch

    torch.set_num_threads(1)
    while (seed := connection.recv()) is not None:
        connection.send(judge(kind, seed))


def outcome_of(check: str, function: Callable[[Any], Any], case: Any, refusals: type[BaseException]) -> Outcome:
    """What one check says of a case. An exception that is neither a refusal nor a broken promise is one, too."""
    try:
        skipped = function(case)
    except refusals as error:
        return check, "refused", str(error)
    except Exception as error:  # whatever it is, it is a finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = "" if isinstance(error, AssertionError) and str(error) else f"{type(error).__name__} "
        text = str(error).replace("\n", " ")[:300]
        where = "" if isinstance(error, AssertionError) else f" ({os.path.basename(place.filename)}:{place.lineno})"
        return check, "broken", f"{kind}{text}{where}"
    return check, "skipped" if skipped == "skipped" else "held", ""
