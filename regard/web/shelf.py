"""The tables that may be asked about: those that the command line names, and those that were dropped on the page."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from starlette.types import Receive

from regard.errors import MissingKey, TableError
from regard.printable import on_one_line
from regard.web.bench import GONE
from regard.web.guard import TooMuch
from regard.web.settings import EXAMPLES, Limits

PACE = 16 << 10  # bytes a second, at least, of a file that arrives
KINDS = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True)
class Listed:
    """A table by the number that the page knows it by. Where its file lies, no page is told."""

    table: str
    name: str


class Shelf:
    """Files by numbers.

    Args:
        named: Files of the command line: they are read where they are, and never written.
        folder: Where files are kept that were dropped on the page; who made it removes it.
        limits: How large they may be, and how many.
    """

    def __init__(self, named: tuple[Path, ...], folder: Path, limits: Limits) -> None:
        self._named = {f"t{place}": path for place, path in enumerate(named, start=1)}
        self._folder, self._limits = folder, limits
        self._dropped: OrderedDict[str, tuple[str, Path]] = OrderedDict()

    def listed(self) -> list[Listed]:
        """Every table, those of the command line first."""
        named = [Listed(table, on_one_line(path.name)) for table, path in self._named.items()]
        return named + [Listed(table, name) for table, (name, _) in self._dropped.items()]

    def file_of(self, table: str) -> Path:
        """The file of a table."""
        if table in self._named:
            return self._named[table]
        if table in EXAMPLES:
            return EXAMPLES[table]
        if table not in self._dropped:
            raise MissingKey(GONE)
        self._dropped.move_to_end(table)
        return self._dropped[table][1]

    async def keep(self, name: str, receive: Receive) -> Listed:
        """Write a file that is dropped on the page, piece by piece as it arrives, and give it a number."""
        name = on_one_line(name)[:200]
        kind = next((each for each in sorted(KINDS, key=len, reverse=True) if name.lower().endswith(each)), None)
        if kind is None:
            raise TableError(f"A table must be a {', '.join(KINDS)} file: got {name!r}.")
        table = f"d{secrets.token_hex(8)}"
        path = self._folder / f"{table}{kind}"  # nothing of the name but a kind that is known
        try:
            await self._write(path, receive)
        except BaseException as error:  # also where the reader has left
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise TooMuch(507, f"This machine cannot keep the file: {error.strerror}.") from None
            raise
        self._dropped[table] = (name, path)
        while len(self._dropped) > self._limits.files:
            _, (_, oldest) = self._dropped.popitem(last=False)
            oldest.unlink(missing_ok=True)
        return Listed(table, name)

    async def _write(self, path: Path, receive: Receive) -> None:
        size, began = 0, monotonic()
        with path.open("xb") as file:
            while True:
                # A drop at a time would keep its place for as long as it likes.
                left = began + self._limits.silence + size / PACE - monotonic()
                try:
                    message = await asyncio.wait_for(receive(), min(left, self._limits.silence))
                except TimeoutError:
                    raise TooMuch(
                        408,
                        f"A file must go on: {PACE >> 10} KiB a second, and within {self._limits.silence:g} seconds.",
                    ) from None
                if message["type"] == "http.disconnect":
                    raise TooMuch(400, "The file ended before it was whole.")
                size += len(message.get("body", b""))
                if size > self._limits.file:
                    raise TooMuch(413, f"A table may have {self._limits.file:,} bytes. Start regard with its path.")
                await asyncio.to_thread(file.write, message.get("body", b""))
                if not message.get("more_body"):
                    return
