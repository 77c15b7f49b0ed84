"""`regard warm-up`: compile the kernels ahead."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from regard.cli.console import log, out
from regard.errors import OptionError

EXAMPLES = """\
[bold]Examples[/bold]
  regard warm-up                    on every core
  regard warm-up --processes 2      on two
"""


def warm_up(
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-p", min=1, help="How many compile in parallel; one per core if left out."),
    ] = None,
) -> None:
    """Compile the kernels for this machine's processor, so that no first call waits or runs in plain torch."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from regard.engines.cpu import unusable

    reason = unusable()
    if reason is not None:
        raise OptionError(f"There are no kernels to compile here: {reason}.")
    from regard.engines.cpu.runtime import background_compilation, kernel_cache

    n_kernels, n_missing = len(background_compilation.kernels()), len(background_compilation.missing_kernels())
    folder = kernel_cache.writable()
    if not n_missing:
        out.print(
            f"all {n_kernels} kernels are compiled, in {kernel_cache.folders()[-1]}", markup=False, soft_wrap=True
        )
        return
    if folder is None:
        raise OptionError("Kernels must be kept somewhere: no folder can be written. Set NUMBA_CACHE_DIR to one.")
    start = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=log, transient=True) as bar:
        task = bar.add_task("compiling kernels", total=n_missing)
        for name in background_compilation.compile_all(processes or _cores()):
            bar.update(task, advance=1, description=f"compiled {name.rpartition('.')[2].lstrip('_')}")
    seconds = time.perf_counter() - start
    out.print(
        f"compiled {n_missing} of {n_kernels} kernels in {seconds:.0f} s, in {folder}", markup=False, soft_wrap=True
    )


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
