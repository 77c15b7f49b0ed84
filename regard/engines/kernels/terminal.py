"""What is said of kernels that are being compiled: one line, to who sits at a terminal, and to nobody else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def has_reader() -> bool:
    """Whether stderr is a terminal."""
    with suppress(OSError, ValueError):  # it is closed
        return sys.stderr is not None and sys.stderr.isatty()
    return False


def say(text: str) -> None:
    """Write a line to stderr, if it is a terminal."""
    if has_reader():
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


class Notice:
    """A line about something that may take long: said when it does, once in a process, by whichever thread is first.

    Args:
        text: The line.
        after: How many seconds something may take before it is said.
    """

    def __init__(self, text: str, after: float) -> None:
        self.text, self.after = text, after
        self._said, self._lock = False, threading.Lock()

    @contextmanager
    def if_slow(self) -> Iterator[None]:
        """Say it while the body runs, if that takes longer."""
        if self._said or not has_reader():
            yield
            return
        timer = threading.Timer(self.after, self._say)
        timer.daemon = True  # at the end of the process nobody waits for it
        with suppress(RuntimeError):  # no thread can be started
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _say(self) -> None:
        with self._lock:
            first, self._said = not self._said, True
        if first:
            say(self.text)
