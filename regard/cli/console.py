"""Where the commands write: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

# Emoji are off: a cell that says :smile: is that text, not a picture.
out = Console(highlight=False, emoji=False)
log = Console(stderr=True, highlight=False, emoji=False)

CLOSED_PIPE = 141  # What a shell reports for a program that SIGPIPE ended.


def write(text: str) -> None:
    """Write `text` to stdout as it is, for the next program."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(data: Any) -> None:
    """Write `data` to stdout as indented JSON, in the order given and without colour."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    with ends_with_its_reader():
        write(f"{text}\n")


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End as Unix programs do when the reader of stdout has left: silently, with SIGPIPE's status."""
    try:
        yield
    except BrokenPipeError:
        _leave()
    except SystemExit as leaving:
        # A rich console, that of --help too, has caught the closed pipe itself and calls it a failure.
        if isinstance(leaving.__context__, BrokenPipeError):
            _leave()
        raise


def _leave() -> None:
    # Python flushes stdout once more at exit, and would complain there about the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(CLOSED_PIPE)
