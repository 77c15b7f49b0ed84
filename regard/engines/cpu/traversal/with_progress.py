"""Ways that tell how far they are, for a bar that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from regard.engines.cpu.kernels.records import RowSums
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.traversal.by_lists import Lists
from regard.engines.cpu.traversal.by_tiles import LiveSpan, Tiles

Advance: TypeAlias = Callable[[float], None]


def watch(way: Tiles | Lists, advance: Advance) -> Tiles | Lists:
    """The same way, which says of each block of a batch entry how many rows it was, once a pass is through it."""
    if isinstance(way, Tiles):
        return _WatchedTiles(way.problem, way.by_channels, advance=advance)
    return _WatchedLists(way.problem, way.index, way.longest, advance=advance)


def _ignore(n_rows: float) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class _WatchedTiles(Tiles):
    advance: Advance = _ignore

    def passed(self, n_rows: int) -> None:
        self.advance(n_rows)

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        least = super().pool(program, entry, rows, sums, part)
        self.advance(len(rows) / part[1])
        return least

    def gather(self, program: Program, entry: Entry, rows: range, most: int, candidates: tuple[Any, ...]) -> bool:
        gathered = super().gather(program, entry, rows, most, candidates)
        if gathered:  # otherwise the block is gone through again, tile by tile
            self.advance(len(rows))
        return gathered

    def tiles(self, program: Program, entry: Entry, rows: range) -> Iterator[LiveSpan]:
        yield from super().tiles(program, entry, rows)
        self.advance(len(rows))


@dataclass(frozen=True)
class _WatchedLists(Lists):
    advance: Advance = _ignore

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        least = super().pool(program, entry, rows, sums, part)
        self.advance(len(rows))
        return least

    def scores(self, program: Program, entry: Entry, rows: range) -> tuple[Any, Any]:
        found = super().scores(program, entry, rows)
        self.advance(len(rows))
        return found
