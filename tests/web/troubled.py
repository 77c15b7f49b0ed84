"""The page with short limits, and a room whose questions take long, take much, fail or die: run as a program."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import OptionError
from regard.web.asked import AboutTable, Asked
from regard.web.settings import Limits, Settings

LIMITS = Limits(
    seconds=2.0,
    memory=400 << 20,
    question=1 << 16,
    file=1 << 20,
    files=2,
    arrival=1.5,
    silence=1.5,
    waiting=150,
    grace=0.2,
)


class Said(Asked):
    """Something that is said again."""

    text: str = ""
    number: float = 0.0
    numbers: tuple[int, ...] = ()


class Long(Asked):
    """Something that takes so many seconds."""

    seconds: float = 0.0
    about: str = ""
    mark: str = ""  # what it says of itself when it begins

    def subject(self) -> str:
        return self.about


class File(AboutTable):
    """The size of a file."""


class TroubledRoom:
    """Answers, refuses, waits, takes memory and dies, as it is asked."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {
        "echo": Said,
        "refuse": Said,
        "fail": Said,
        "die": Said,
        "fill": Said,
        "wait": Long,
        "who": Long,
        "size": File,
    }

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def echo(self, asked: Said) -> Any:
        return asked

    def refuse(self, asked: Said) -> Any:
        raise OptionError(asked.text)

    def fail(self, asked: Said) -> Any:
        raise ZeroDivisionError("a secret of the server")

    def die(self, asked: Said) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def fill(self, asked: Said) -> Any:
        import torch

        return torch.ones(1 << 32).sum().item()

    def wait(self, asked: Long) -> Any:
        if asked.mark:
            (Path(os.environ["TMPDIR"]) / f"began {asked.mark}").touch()
        time.sleep(asked.seconds)
        return {"process": os.getpid()}

    def who(self, asked: Long) -> Any:
        return {"process": os.getpid()}

    def size(self, asked: File, file: Path) -> Any:
        return {"bytes": file.stat().st_size}


def main() -> None:
    """Serve the page; tables are named on the command line."""
    from regard.web.server import serve

    settings = Settings(tuple(map(Path, sys.argv[1:])), limits=LIMITS)
    serve(settings, port=0, browse=False, announce=lambda address, _: print(address, flush=True))


if __name__ in ("__main__", "__mp_main__"):  # the latter in its workers
    from regard.web import rooms

    rooms.ROOMS["trouble"] = TroubledRoom  # type: ignore[index]

if __name__ == "__main__":
    main()
