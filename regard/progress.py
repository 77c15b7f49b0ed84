"""A bar for long passes: where the command line asked for one, on a terminal, after a second, gone when they end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

DELAY_SECONDS = 1.0
FRAME_SECONDS = 0.1

# Of several calls at the same time, one has the screen.
_screen = threading.Lock()

# A library draws nothing on its own: who owns the terminal asks.
_wanted: ContextVar[bool] = ContextVar("_wanted", default=False)


@contextmanager
def bars_are_drawn() -> Iterator[None]:
    """Passes that are made inside, and take long, show a bar."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


class Progress:
    """How much of some passes is done.

    Whoever does the work calls `advance`, from any thread. While it lasts, a thread draws: the caller's waits.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._shares: list[float] = []  # appending to a list is atomic
        self._active = False

    def advance(self, share: float) -> None:
        """Count a share of one pass as done."""
        self._shares.append(share)

    @contextmanager
    def over(self, n_passes: int) -> Iterator[None]:
        """Show what is done inside, if that is wanted and takes long; inside another such block, leave it to that."""
        if self._active:
            yield
            return
        self._shares.clear()
        if not _wanted.get() or sys.stderr is None or not sys.stderr.isatty():
            yield
            return
        ended = threading.Event()
        drawing = threading.Thread(target=self._draw, args=(n_passes, ended), name="regard_progress", daemon=True)
        self._active = True
        try:
            with suppress(RuntimeError):  # no thread can be started, as when the interpreter ends: no bar, then
                drawing.start()
            yield
        finally:  # also after an error or Ctrl-C: the bar is wiped before anyone else writes
            self._active = False
            ended.set()
            if drawing.is_alive():
                drawing.join()

    def _draw(self, n_passes: int, ended: threading.Event) -> None:
        if ended.wait(DELAY_SECONDS) or not _screen.acquire(blocking=False):
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            display = Bar(
                *columns,
                console=Console(file=sys.stderr),
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,  # it would exchange sys.stdout while others use it
                redirect_stderr=False,
            )
            with suppress(OSError), display as bar:
                task = bar.add_task(self._title, total=n_passes)
                while True:
                    bar.update(task, completed=sum(self._shares), refresh=True)
                    if ended.wait(FRAME_SECONDS):
                        break
        finally:
            _screen.release()
