"""Where the commands write: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from rich.console import Console


class DataConsole(Console):
    """A console for stdout that ends as Unix programs do when its reader has left: silently, with SIGPIPE's status."""

    def on_broken_pipe(self) -> NoReturn:
        # Python flushes stdout once more at exit, and would complain there about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141)


out = DataConsole(highlight=False)
log = Console(stderr=True, highlight=False)


def print_json(data: Any) -> None:
    """Write `data` to stdout as indented JSON, in the order given and without colour."""
    out.print(json.dumps(data, indent=2, ensure_ascii=False), markup=False, soft_wrap=True)
