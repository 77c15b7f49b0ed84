"""By tiles: blocks of rows against spans of columns in which something is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from regard.engines.cpu import spans, workers
from regard.engines.cpu.blas import sgemm_address
from regard.engines.cpu.programs import Entry, Program, pick
from regard.engines.cpu.ways import (
    NO_BOUNDS,
    NO_MASK,
    KeySums,
    RowFacts,
    RowSums,
    by_row_of,
    cut,
    dropout_arguments,
    pairs_of,
    place,
)
from regard.masks import Cover
from regard.problem import AttentionProblem

ROWS, COLUMNS = 256, 512  # a tile of scores fills half of a second-level cache of 1 MiB
HEIGHTS = (256, 128, 64)
PAIR_SECONDS, BLOCK_SECONDS = 3.3e-9, 50e-6  # what a pair and a block cost, about: where to trade one for the other
MOST_COLUMNS = 1 << 13  # of a tile with few rows: one row of it fits the first-level cache

# Pairs that one compiled call may take in, so that Ctrl-C is heard: some 50 ms.
CALL_PAIRS = 1 << 24


@dataclass(frozen=True)
class LiveSpan:
    """Columns that follow each other, for a block of rows."""

    columns: range
    bounds: tuple[Tensor, Tensor] | None  # of each row, the first column that it sees and the one after the last
    whole: bool  # whether every pair is allowed


@dataclass(frozen=True)
class Tiles:
    """The way by tiles."""

    problem: AttentionProblem
    transposed = True

    def blocks(self) -> list[range]:
        return self._blocks

    @cached_property
    def _blocks(self) -> list[range]:
        """Blocks so high that what is computed in vain, where rows see different columns, costs less than blocks do."""
        heights = HEIGHTS if self.problem.mask is not None and self.problem.grid.n_queries > HEIGHTS[-1] else (ROWS,)
        best = min(heights, key=lambda height: self.visited(height) * PAIR_SECONDS + BLOCK_SECONDS / height)
        return list(cut(self.problem.grid.rows, best))

    def visited(self, height: int = ROWS) -> float:
        """How many columns a row visits in blocks of that height, by the look of a few."""
        blocks = list(cut(self.problem.grid.rows, height))
        some = blocks[:: max(len(blocks) // 4, 1)]
        return sum(len(span.columns) for rows in some for span in self.spans(rows)) / max(len(some), 1)

    def width(self, rows: range) -> int:
        """How many columns of a tile are worked on together."""
        return min(max(ROWS * COLUMNS // max(len(rows), 1), COLUMNS), MOST_COLUMNS)

    def spans(self, rows: range, part: tuple[int, int] = (0, 1)) -> Iterator[LiveSpan]:
        """The columns of a block in which something is allowed."""
        mask, grid = self.problem.mask, self.problem.grid
        which, parts = part
        columns = range(grid.n_keys * which // parts, grid.n_keys * (which + 1) // parts)
        most = max(CALL_PAIRS // max(len(rows), 1), COLUMNS)
        if mask is None:
            for piece in cut(columns, most):
                yield LiveSpan(piece, None, True)
            return
        block = slice(rows.start, rows.stop)
        bounds = None if self._bounds is None else (self._bounds[0][..., block], self._bounds[1][..., block])
        for live in mask.live(rows, grid):
            mine = range(max(live.start, columns.start), min(live.stop, columns.stop))
            for piece in cut(mine, self.width(rows) if bounds is None else most):
                cover = mask.cover(rows, piece, grid)
                if cover is not Cover.NONE:
                    yield LiveSpan(piece, bounds, cover is Cover.ALL)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        """The one run of columns that each row sees, where the mask has one for every row."""
        mask, grid = self.problem.mask, self.problem.grid
        return None if mask is None else mask.bounds(grid.rows, grid)

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        left = entry.left[rows.start : rows.stop]
        by_row = by_row_of(entry, rows)
        dropout = dropout_arguments(program, entry, rows)
        tile = workers.scratch("tile", len(rows), self.width(rows))
        least = 0.0
        for span in self.spans(rows, part):
            workers.check_stopped()
            lowest = spans.pool_span(
                sgemm_address(),
                *place(left),
                *place(entry.right),
                left.shape[1],
                *place(entry.values),
                tile,
                span.columns.start,
                len(span.columns),
                entry.codes,
                by_row,
                entry.by_column,
                entry.numbers,
                pairs_of(entry, rows, span.columns),
                entry.table,
                *self._mask(entry, rows, span),
                program.rule,
                *dropout,
                sums.peaks,
                sums.totals,
                sums.pooled,
            )
            least = min(least, lowest)
        return least

    def differentiate(self, program: Program, entry: Entry, rows: range, facts: RowFacts, sums: KeySums) -> None:
        left = entry.left[rows.start : rows.stop]
        dim, value_dim, n_steps = left.shape[1], entry.values.shape[1], len(entry.codes)
        by_row, dropout = by_row_of(entry, rows), dropout_arguments(program, entry, rows)
        width = self.width(rows)
        tile, second = workers.scratch("tile", len(rows), width), workers.scratch("second", len(rows), width)
        to_by_row, to_left = np.zeros((n_steps, len(rows)), np.float32), sums.left[rows.start : rows.stop]
        to_left.fill(0)
        for span in self.spans(rows):
            workers.check_stopped()
            spans.differentiate_span(
                sgemm_address(),
                *place(left),
                *place(entry.right),
                dim,
                np.float32(program.scale),
                *place(entry.values),
                *place(facts.gradient),
                value_dim,
                tile,
                second,
                span.columns.start,
                len(span.columns),
                entry.codes,
                by_row,
                entry.by_column,
                entry.numbers,
                pairs_of(entry, rows, span.columns),
                entry.table,
                *self._mask(entry, rows, span),
                program.rule,
                np.float32(program.rate),
                facts.offsets,
                facts.scales,
                facts.deltas,
                *dropout,
                workers.scratch("kept", n_steps, width),
                to_left,
                sums.right,
                sums.values,
                to_by_row,
                sums.by_column,
                sums.numbers,
                sums.table,
            )
        sums.by_row[:, rows.start : rows.stop] += to_by_row

    def scores(self, program: Program, entry: Entry, rows: range, strip: Any) -> list[range]:
        """Write the scores of a block against all keys, −inf where not allowed; returns the live columns."""
        columns, by_row = [], by_row_of(entry, rows)
        nothing = np.zeros(len(rows), np.float32)
        left = entry.left[rows.start : rows.stop]
        if program.problem.mask is not None:
            strip.fill(-np.inf)
        for span in self.spans(rows):
            for piece in cut(span.columns, self.width(rows)):
                workers.check_stopped()
                tile = workers.scratch("tile", len(rows), len(piece))
                spans.score_span(
                    sgemm_address(),
                    *place(left),
                    *place(entry.right),
                    left.shape[1],
                    piece.start,
                    entry.codes,
                    by_row,
                    entry.by_column,
                    entry.numbers,
                    pairs_of(entry, rows, piece),
                    entry.table,
                    *self._mask(entry, rows, LiveSpan(piece, span.bounds, span.whole)),
                    -1,
                    np.float32(0),
                    nothing,
                    nothing,
                    tile,
                )
                strip[:, piece.start : piece.stop] = tile
                columns.append(piece)
        return columns

    def _mask(self, entry: Entry, rows: range, span: LiveSpan) -> tuple[Any, Any, Any]:
        """(first, stop, allowed) for the kernels: empty where every pair of the span is allowed."""
        if span.whole:
            return NO_BOUNDS, NO_BOUNDS, NO_MASK
        if span.bounds is not None:
            first, stop = (pick(each, entry.index, 1).contiguous() for each in span.bounds)
            return first.numpy(), stop.numpy(), NO_MASK
        mask, grid = self.problem.mask, self.problem.grid
        assert mask is not None
        tile = mask.tile(rows, span.columns, grid)
        allowed = pick(tile.expand(*tile.shape[:-2], len(rows), len(span.columns)), entry.index, 2)
        return NO_BOUNDS, NO_BOUNDS, allowed.contiguous().numpy()
