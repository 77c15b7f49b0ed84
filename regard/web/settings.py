"""What a page is started with, and what one request may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = {"example": Path(__file__).parent / "tables" / "graduates.csv"}  # tables that come with the page


@dataclass(frozen=True)
class Limits:
    """What a reader may ask for. All of it is refused in words, and none of it stops another reader."""

    seconds: float = 60.0  # that a request may compute
    memory: int = 4 << 30  # bytes that computing may add to what a worker has loaded
    question: int = 1 << 20  # bytes of a request that is no file
    file: int = 512 << 20  # bytes of a table that is dropped on the page
    files: int = 8  # tables that are dropped on the page and kept; the oldest goes first
    arrival: float = 20.0  # seconds until all of a question is there
    silence: float = 20.0  # seconds until more of a file is there
    waiting: int = 128  # requests that wait for one worker
    grace: float = 2.0  # seconds that work may go on for a reader who has left


@dataclass(frozen=True)
class Settings:
    """What a page is started with.

    Args:
        tables: Files that the command line names, which the page offers.
        model: The folder of a model of transformers; MiniLM where it is None.
        hosts: Names that a browser may call the page by, besides this machine's own.
        workers: How many processes compute.
    """

    tables: tuple[Path, ...] = ()
    model: Path | None = None
    hosts: tuple[str, ...] = ()
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
