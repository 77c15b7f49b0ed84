"""What the page answers where many read it at once: 50 readers, each of whom asks something every second.

Readers are sockets, not browsers: they send what a browser would, and wait for whole answers. Each keeps to its own
clock whatever the server does, so that a second in which nothing is answered is felt by all who ask in it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

READERS, SECONDS = 50, 60
SHARES = {"table": 0.70, "sentence": 0.25, "map": 0.05}
PATIENCE = 30.0  # seconds until a reader takes a question for lost
ROWS = 50_000
LONG = 200  # words of the text whose map is zoomed, near to the most that MiniLM reads
HEADS = (6, 12)

WHO = ("dog", "cat", "child", "farmer", "teacher", "singer", "doctor", "sailor", "painter", "driver", "baker", "judge")
DID = ("saw", "heard", "met", "followed", "found", "left", "called", "helped", "taught", "warned", "thanked", "chased")
HOW = ("happy", "tired", "old", "young", "quiet", "proud", "hungry", "clever", "brave", "gentle", "lonely", "angry")
WHERE = ("town", "river", "house", "garden", "school", "market", "forest", "station", "bridge", "island", "harbour")


def sentences(seed: int) -> Iterator[str]:
    """Sentences of 12 words that nobody has read before."""
    chance = random.Random(seed)
    while True:
        who, did, whom = chance.choice(WHO), chance.choice(DID), chance.choice(WHO)
        yield (
            f"The {chance.choice(HOW)} {who} {did} the {chance.choice(HOW)} {whom} near the "
            f"{chance.choice(WHERE)} at {chance.randint(1, 12)}:{chance.randint(0, 59):02}"
        )


def save_table(path: Path, rows: int = ROWS) -> Path:
    """A table whose value is a noisy function of its key."""
    chance = random.Random(0)
    lines = ["carat,depth,price"]
    for _ in range(rows):
        carat = chance.gammavariate(4, 0.2) + 0.2
        price = 4000 * carat**1.6 * chance.lognormvariate(0, 0.3)
        lines.append(f"{carat:.3f},{chance.gauss(61.7, 1.4):.1f},{price:.0f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Client:
    """HTTP as a browser speaks it: connections that are kept, and another one where all of them wait."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        (token,) = parse_qs(parts.query)["token"]
        self._place = (parts.hostname, parts.port)
        self._head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Regard-Token: {token}\r\nContent-Type: application/json"
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, room: str, operation: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        content = json.dumps(body).encode()
        head = f"POST /ask/{room}/{operation} {self._head}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        async with asyncio.timeout(PATIENCE):
            reader, writer = await self._connection()
            try:
                writer.write(head + content)
                answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = next(line for line in answer.split("\r\n") if line.startswith("content-length:"))
                found = await reader.readexactly(int(length.partition(":")[2]))
            except BaseException:
                writer.close()
                raise
        self._free.append((reader, writer))
        return int(answer.split(" ", 2)[1]), found

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*self._place)

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


@dataclass
class Seen:
    """What readers met: of each question its kind and its seconds, and what went wrong."""

    took: list[tuple[str, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def seconds(self, kind: str | None = None) -> list[float]:
        """How long questions of a kind took, or all, from the fastest on."""
        return sorted(seconds for each, seconds in self.took if kind in (None, each))


class Reader:
    """One reader: sliding over a table, typing sentences, zooming a map."""

    def __init__(self, address: str, number: int, seen: Seen, long: str) -> None:
        self._client, self._seen, self._long = Client(address), seen, long
        self._chance = random.Random(number)
        self._sentences = sentences(number)

    async def read(self, begin: float, seconds: int) -> None:
        """Do something every second; what takes longer than that does not keep the next from being asked."""
        kinds: Mapping[str, Callable[[float], Awaitable[None]]] = {
            "table": self.slide,
            "sentence": self.type,
            "map": self.zoom,
        }
        offset, under_way = self._chance.random(), []
        for second in range(seconds):
            at = begin + offset + second
            await asyncio.sleep(at - perf_counter())
            (kind,) = self._chance.choices([*SHARES], [*SHARES.values()])
            under_way.append(asyncio.ensure_future(kinds[kind](at)))
        await asyncio.gather(*under_way)
        self.close()

    def close(self) -> None:
        """Leave."""
        self._client.close()

    async def slide(self, at: float) -> None:
        """Another query of the table."""
        query = round(self._chance.uniform(0.3, 2.5), 3)
        await self._asked("table answer", at, "table", "answer", about_table(query))

    async def type(self, at: float) -> None:
        """A new sentence, with what a browser asks for to draw it."""
        about = {"text": next(self._sentences)}
        found = await self._asked("sentence look", at, "sentence", "look", about)
        if found is None:
            return
        layer, head = found["telling"]
        drawn = {**about, "layer": layer, "head": head, "size": [40, 40]}
        await self._asked("sentence map", perf_counter(), "sentence", "map", drawn)
        await self._asked("sentence heads", perf_counter(), "sentence", "heads", about)

    async def zoom(self, at: float) -> None:
        """A part of a head's map of the long text."""
        start, size = self._chance.randrange(LONG // 2), self._chance.randrange(12, LONG // 2)
        part = [start, start + size]
        layer, head = map(self._chance.randrange, HEADS)
        about = {"text": self._long, "layer": layer, "head": head, "rows": part, "columns": part, "size": [512, 512]}
        await self._asked("part of a map", at, "sentence", "map", about)

    async def _asked(self, kind: str, since: float, room: str, operation: str, body: Mapping[str, Any]) -> Any:
        try:
            status, answer = await self._client.ask(room, operation, body)
        except (OSError, EOFError, TimeoutError) as error:
            self._seen.errors.append(f"{kind}: {error!r}")
            return None
        self._seen.took.append((kind, perf_counter() - since))
        if status != 200:
            self._seen.errors.append(f"{kind}: {status} {answer[:200]!r}")
            return None
        return json.loads(answer)


def about_table(query: float) -> dict[str, Any]:
    """A question to the table that the command line names, as its room asks while the query slides."""
    return {"table": "t1", "keys": [0], "value": 2, "query": [query]}


def long_words(count: int = LONG) -> str:
    """A text of so many words."""
    words = [word for _, text in zip(range(count), sentences(-1), strict=False) for word in text.split()]
    return " ".join([word for word in words if word.isalpha()][:count])


async def warm(address: str) -> None:
    """Ask once for everything, as readers have who have been there for a while."""
    client, long = Client(address), long_words()
    for room, operation, body in (
        ("table", "open", {"table": "t1"}),
        ("table", "answer", about_table(1.0)),
        ("sentence", "look", {"text": long}),
        ("sentence", "look", {"text": "The dog wagged its tail"}),
    ):
        status, answer = await client.ask(room, operation, body)
        if status != 200:
            raise RuntimeError(f"{room}, {operation}: {answer!r}")
    client.close()


async def crowd(address: str, readers: int = READERS, seconds: int = SECONDS) -> Seen:
    """What so many readers meet in so many seconds."""
    seen, long = Seen(), long_words()
    begin = perf_counter() + 0.5
    await asyncio.gather(*(Reader(address, number, seen, long).read(begin, seconds) for number in range(readers)))
    return seen


def quantile(ordered: list[float], share: float) -> float:
    """The least of some numbers, from the smallest on, that such a share of them does not exceed."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def told(seen: Seen) -> dict[str, Any]:
    """How many questions there were of each kind, and within how many seconds they were answered."""
    names = sorted({kind for kind, _ in seen.took})
    kinds = {"all": seen.seconds(), **{kind: seen.seconds(kind) for kind in names}}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        kind: {"n": len(took), **{name: quantile(took, share) for name, share in shares.items()}}
        for kind, took in kinds.items()
    }
