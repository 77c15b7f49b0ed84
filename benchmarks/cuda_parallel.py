"""Rows of `benchmarks/cuda.py`, each prepared in a process of its own, all at the same time, and then timed alone.

Compiling takes a hundred times as long as timing, and keeps a core busy, not the GPU. `--processes` chooses this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from time import monotonic
from typing import Any

import torch

from benchmarks import cuda

LARGE = {"additive", "additive in bfloat16", "Laplacian"}  # whose peers take half of the GPU's memory
PATIENCE = 240.0  # seconds until a row must be timed, once it is its turn


def measure(
    rows: Sequence[cuda.Row],
    *,
    quick: bool,
    patience: float,
    say: cuda.Say,
    done: Callable[[str, dict[str, Any]], None],
) -> None:
    """Prepare rows together, then time one after another; `done` is told each as it comes.

    Args:
        patience: After how many seconds in all those that are prepared are timed, and the others given up.
    """
    context = get_context("spawn")
    large = context.Lock()
    running = {}
    for row in rows:
        own, theirs = context.Pipe()
        process = context.Process(
            target=_measure_one, args=(row.name, quick, large if row.name in LARGE else None, theirs), daemon=True
        )
        process.start()
        theirs.close()
        running[row.name] = (process, own)
    until = monotonic() + patience
    problems = {name: _received(pipe, until - monotonic()) for name, (_, pipe) in running.items()}
    for name, (process, _) in running.items():
        if problems[name] is not None:
            process.kill()  # nothing else runs while others are timed
    for name, (process, pipe) in running.items():
        if (found := problems[name]) is None:
            pipe.send(None)  # its turn
            found = _received(pipe, PATIENCE)
        say(name)
        for line in found.pop("said", [f"failed: {found.get('error')}"]):
            say(f"  {line}")
        done(name, found)
        process.kill()
        process.join()


def _received(pipe: Connection, seconds: float) -> Any:
    try:
        return pipe.recv() if pipe.poll(max(seconds, 0.0)) else {"error": "it took longer than there was time"}
    except EOFError:
        return {"error": "its process ended"}


def _measure_one(name: str, quick: bool, large: Lock | None, pipe: Connection) -> None:
    """Prepare a row, wait for its turn, time it."""
    (row,) = (each for each in cuda.ROWS if each.name == name)
    said: list[str] = []
    try:
        with large or nullcontext():
            calls = cuda.prepared(row, quick=quick)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
        pipe.send(None)
        pipe.recv()
        pipe.send(cuda.timed(row, calls, quick=quick, say=said.append) | {"said": said})
    except Exception as error:  # the others go on
        pipe.send({"error": f"{type(error).__name__}: {error}"[:300]})
