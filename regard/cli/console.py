"""Where the commands write: data to stdout, everything else to stderr.

What is printed may come from a table, a file or a name. `out`, `log`, `write` and `print_json` are the only ways to a
terminal, and each of them lets through no character that would steer it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.segment import Segment

from regard.printable import escaped, printable
from regard.view.drawing import BAR_COLOUR

CLOSED_PIPE = 141  # What a shell reports for a program that SIGPIPE ended.
WIDTH = 80
HEADING = f"bold {BAR_COLOUR}"

UNWRITTEN = {errno.EAGAIN, errno.EBADF, errno.ECONNRESET, errno.EDQUOT, errno.EFBIG}
UNWRITTEN |= {errno.EINVAL, errno.EIO, errno.ENOSPC}
"""Why a stream takes no more; a lack of memory or of files to open is not its fault."""


class PrintableConsole(Console):
    """A console whose own colours reach the terminal, and no command that is hidden in a text."""

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        segments = list(super().render(*arguments, **options))
        return [each if each.control else each._replace(text=printable(each.text)) for each in segments]


def usable_width() -> int | None:
    """The width to print in where $COLUMNS cannot be meant, such as 0; None where rich finds it by itself."""
    columns = os.environ.get("COLUMNS")
    return None if columns is None or (columns.isdecimal() and int(columns) > 0) else WIDTH


# Emoji are off: a cell that says :smile: is that text, not a picture.
out = PrintableConsole(highlight=False, emoji=False, width=usable_width())
log = PrintableConsole(stderr=True, highlight=False, emoji=False, width=usable_width())


def has_colour(console: Console) -> bool:
    """Whether what is printed there may be coloured."""
    return console.color_system is not None and not console.no_color


def write(text: str) -> None:
    """Write `text` to stdout, for the next program: rich would turn tabs into spaces."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def print_json(data: Any) -> None:
    """Write `data` to stdout as indented JSON, in the order given and without colour."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    with ends_with_its_reader():
        write(f"{escaped(text)}\n")


def print_error(message: str) -> None:
    """One line on stderr about what went wrong."""
    with suppress(OSError):  # There is nowhere left to say it.
        log.print(f"error: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True)


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End as Unix programs do when stdout takes no more: silently if its reader has left, else with the reason."""
    try:
        yield
    except BrokenPipeError:
        _leave(CLOSED_PIPE)
    except OSError as error:
        # Tables and files that cannot be read or saved are told by name, where that is tried.
        if error.filename is not None or error.errno not in UNWRITTEN:
            raise
        print_error(f"standard output could not be written ({error.strerror or error}).")
        _leave(1)
    except SystemExit as leaving:
        # A rich console, that of --help too, has caught the closed pipe itself and calls it a failure.
        if isinstance(leaving.__context__, BrokenPipeError):
            _leave(CLOSED_PIPE)
        raise


def _leave(status: int) -> None:
    # Python flushes stdout once more at exit, and would complain there about what it could not write.
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(status)
