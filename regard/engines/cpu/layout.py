"""Which tiles of a problem are computed: blocks of rows, and for each the columns in which something is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from regard.engines.cpu.programs import pick
from regard.masks import Cover
from regard.problem import AttentionProblem

ROWS, COLUMNS = 256, 512  # a tile of scores fills half of a second-level cache of 1 MiB

_NO_PAIRS = np.zeros((1, 0), np.bool_)
_NO_BOUNDS = np.zeros(0, np.int64)


# Pairs that one compiled call may take in, so that Ctrl-C is heard: some 50 ms.
CALL_PAIRS = 1 << 24


@dataclass(frozen=True)
class Span:
    """Columns that follow each other, for a block of rows."""

    columns: range
    bounds: tuple[Tensor, Tensor] | None = None  # of each row, the first column that it sees and the one after the last
    whole: bool = True  # whether every pair is allowed


@dataclass(frozen=True)
class Block:
    """Some rows and the columns that they may see."""

    rows: range
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Layout:
    """The live part of a problem."""

    problem: AttentionProblem
    height: int = ROWS
    width: int = COLUMNS

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every block of rows."""
        n_queries = self.problem.grid.n_queries
        blocks = (range(start, min(start + self.height, n_queries)) for start in range(0, n_queries, self.height))
        return tuple(Block(rows, tuple(self._spans(rows))) for rows in blocks)

    def _spans(self, rows: range) -> Iterator[Span]:
        mask, grid = self.problem.mask, self.problem.grid
        most = max(CALL_PAIRS // max(len(rows), 1), self.width)
        if mask is None:
            for columns in _cut(grid.columns, most):
                yield Span(columns)
            return
        block = slice(rows.start, rows.stop)
        bounds = None if self._bounds is None else (self._bounds[0][..., block], self._bounds[1][..., block])
        for live in mask.live(rows, grid):
            for columns in _cut(live, self.width if bounds is None else most):
                cover = mask.cover(rows, columns, grid)
                if cover is not Cover.NONE:
                    yield Span(columns, bounds, cover is Cover.ALL)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        """The one run of columns that each row sees, where the mask has one for every row."""
        mask, grid = self.problem.mask, self.problem.grid
        return None if mask is None else mask.bounds(grid.rows, grid)


def _cut(columns: range, size: int) -> Iterator[range]:
    for start in range(columns.start, columns.stop, size):
        yield range(start, min(start + size, columns.stop))


def mask_arguments(problem: AttentionProblem, index: tuple[int, ...], rows: range, span: Span) -> tuple[Any, Any, Any]:
    """(first, stop, allowed) for the kernels: empty where every pair of the span is allowed."""
    if span.whole:
        return _NO_BOUNDS, _NO_BOUNDS, _NO_PAIRS
    if span.bounds is not None:
        first, stop = (pick(each, index, 1).expand(len(rows)).contiguous() for each in span.bounds)
        return first.numpy(), stop.numpy(), _NO_PAIRS
    assert problem.mask is not None
    tile = problem.mask.tile(rows, span.columns, problem.grid)
    allowed = pick(tile.expand(*tile.shape[:-2], len(rows), len(span.columns)), index, 2)
    return _NO_BOUNDS, _NO_BOUNDS, allowed.contiguous().numpy()
