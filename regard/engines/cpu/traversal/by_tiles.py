"""By tiles: blocks of rows against spans of columns in which something is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from regard.engines.cpu.kernels import tile_gradients, tile_loops
from regard.engines.cpu.kernels.records import Gradients, RowSums, Seen
from regard.engines.cpu.program import Entry, Program, pick
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.raw_scores import products_of, step_of
from regard.engines.cpu.traversal.traversal import (
    ALL_SEEN,
    Answers,
    BlockFacts,
    KeySums,
    by_row_of,
    cut,
    dropout_of,
    place,
    steps_of,
)
from regard.masks import Cover
from regard.problem import AttentionProblem

ROWS, COLUMNS = 256, 512  # a tile of scores fills half of a second-level cache of 1 MiB
HEIGHTS = {256: 1.0, 128: 1.05, 64: 1.12}  # how many rows a tile may have, and what its products then cost
CHANNEL_ROWS, CHANNEL_COLUMNS = 256, 1024  # of a tile of scores that are sums over channels
TASK_PAIRS = 1 << 22  # pairs that a thread takes at once: some 15 ms
# What a pair costs, a block of rows from Python, and one that a compiled loop cuts: where to trade one for the other.
PAIR_SECONDS, BLOCK_SECONDS, CUT_SECONDS = 3.3e-9, 50e-6, 3e-6
CHANNEL_SECONDS = 0.13e-9  # what a channel of a pair costs
READ = 14e9  # bytes that a core reads in a second
MOST_COLUMNS = 1 << 13  # of a tile with few rows: one row of it fits the first-level cache

# Pairs that one compiled call may take in, so that Ctrl-C is heard: some 50 ms forward and 100 backward, where vectors
# have 64 numbers. Longer ones are more work; where rows are few, columns are what it takes time to read.
CALL_PAIRS = 14 << 20
FEWEST_ROWS = 32
CHANNEL_ELEMENTS = 1 << 19  # rows times channels of a block of channel scores

_NONE = np.zeros((0, 0), np.float32)


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
    by_channels: bool = False  # whether scores are sums over channels, whose keys come in blocks
    _answers: Answers = field(default_factory=Answers, repr=False, compare=False)
    transposed = True

    def blocks(self) -> list[range]:
        return self._blocks

    @cached_property
    def _blocks(self) -> list[range]:
        return list(cut(self.problem.grid.rows, self.height))

    @cached_property
    def height(self) -> int:
        """Rows that are worked on together.

        So many that what is computed in vain, where they see different columns, costs less than more blocks would.
        """
        grid = self.problem.grid
        if self.by_channels:
            # A mask makes more of a tile vain: half as many rows are the middle way.
            most = CHANNEL_ROWS if self.problem.mask is None else max(CHANNEL_ROWS // 2, 1)
            return min(max(CHANNEL_ELEMENTS // max(self.problem.form.width, 1), 8), most)
        if self.problem.mask is None or grid.n_queries <= min(HEIGHTS):
            return ROWS
        per_block = BLOCK_SECONDS if self._bounds is None else CUT_SECONDS
        return min(
            HEIGHTS,
            key=lambda height: self.visited(height) * PAIR_SECONDS * HEIGHTS[height] + per_block / height,
        )

    def long_blocks(self) -> list[range]:
        grid = self.problem.grid
        if self.by_channels or (self.problem.mask is not None and self._bounds is None):
            return self._blocks
        # The compiled loops cut such rows by themselves: few calls, but enough for every thread to have some.
        shares = 2 if self.problem.mask is None else 4  # a mask gives blocks more work or less
        n_entries, visited = max(math.prod(grid.batch_shape), 1), max(self._visited, 1)
        height = min(int(TASK_PAIRS / visited), n_entries * grid.n_queries // (shares * thread_pool.count()))
        return list(cut(grid.rows, max(height // self.height, 1) * self.height))

    def parts(self, program: Program) -> int:
        """In how many parts the keys are shared out: with fewer blocks than threads, as for a single query."""
        return thread_pool.count() if program.n_entries * len(self.long_blocks()) < thread_pool.count() else 1

    def seconds(self, program: Program) -> float:
        """About how long one core computes on all live pairs; where rows are few, how long it reads keys and values."""
        grid = self.problem.grid
        per_pair = PAIR_SECONDS * self._dims / 128 + self.problem.form.width * CHANNEL_SECONDS
        rows = max(grid.n_queries * per_pair, 4 * self._dims / READ)
        return program.n_entries * self._visited * rows

    @cached_property
    def _visited(self) -> float:
        return self.visited(self.height)

    def visited(self, height: int) -> float:
        """How many columns a row visits in blocks of that height, estimated from a few."""
        mask, grid = self.problem.mask, self.problem.grid
        if mask is None:
            return grid.n_keys
        blocks = list(cut(grid.rows, height))
        some = blocks[:: max(len(blocks) // 4, 1)]
        return sum(len(live) for rows in some for live in mask.live(rows, grid)) / max(len(some), 1)

    def width(self, rows: range) -> int:
        """How many columns of a tile are worked on together."""
        height = max(min(len(rows), self.height), 1)
        return min(max(ROWS * COLUMNS // height, COLUMNS), max(MOST_COLUMNS, COLUMNS))

    def most(self, rows: range) -> int:
        """How many columns one compiled call takes in."""
        work = (self._dims + 64 * (1 + len(self.problem.form.steps))) / 192  # of a pair, as a multiple of the usual
        columns, width = max(int(CALL_PAIRS / (max(len(rows), FEWEST_ROWS) * work)), 1), self.width(rows)
        return columns - columns % width if columns > width else columns

    def widest(self, program: Program, entry: Entry, rows: range) -> int:
        """The most columns that a tile of scores has."""
        step = step_of(program, entry)
        return self.width(rows) if step == 1 else self._widest(rows, step)

    def _widest(self, rows: range, step: int) -> int:
        """The most columns for which scores are summed over channels at once, in whole steps."""
        return max(min(CHANNEL_COLUMNS, self.most(rows)) // step, 1) * step

    @cached_property
    def _dims(self) -> int:
        left = self.problem.form.tensors()[0]
        return int(left.shape[-1] + self.problem.values.shape[-1])

    def spans(self, rows: range, part: tuple[int, int] = (0, 1), step: int = 1) -> Iterator[LiveSpan]:
        """The columns of a block in which something is allowed, in whole steps."""
        mask, grid = self.problem.mask, self.problem.grid
        which, parts = part
        n_steps = -(-grid.n_keys // step)
        columns = range(n_steps * which // parts * step, min(n_steps * (which + 1) // parts * step, grid.n_keys))
        most = self.most(rows) if step == 1 else self._widest(rows, step)
        if mask is None:
            for piece in cut(columns, most):
                yield LiveSpan(piece, None, True)
            return
        block = slice(rows.start, rows.stop)
        bounds = None if self._bounds is None else (self._bounds[0][..., block], self._bounds[1][..., block])
        done = columns.start
        for live in mask.live(rows, grid):
            first, stop = live.start // step * step, -(-live.stop // step) * step
            mine = range(max(first, done), min(stop, columns.stop))
            done = max(done, mine.stop)
            for piece in cut(mine, min(self.width(rows), most) if bounds is None and step == 1 else most):
                cover = mask.cover(rows, piece, grid)
                if cover is not Cover.NONE:
                    yield LiveSpan(piece, bounds, cover is Cover.ALL)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        """The one run of columns that each row sees, where the mask has one for every row."""
        mask, grid = self.problem.mask, self.problem.grid
        return None if mask is None else mask.bounds(grid.rows, grid)

    def passed(self, n_rows: int) -> None:
        """Is told how many rows of batch entries were pooled together, without `pool`."""

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        products = products_of(program, entry, rows)
        by_row, dropout = by_row_of(entry, rows), dropout_of(program, entry, rows)
        least = 0.0
        for span in self.spans(rows, part, products.step):
            thread_pool.check_stopped()
            lowest = tile_loops.pool_span(
                *products.record,
                *place(entry.values),
                products.tile(span.columns, self.height, self.width(rows)),
                span.columns.start,
                len(span.columns),
                *steps_of(entry, rows, span.columns, by_row),
                *self._seen(entry, rows, span),
                program.rule,
                *dropout,
                *sums,
            )
            least = min(least, lowest)
        return least

    def differentiate(self, program: Program, entry: Entry, rows: range, facts: BlockFacts, sums: KeySums) -> None:
        products = products_of(program, entry, rows)
        n_steps, width = len(entry.codes), self.width(rows)
        by_row, dropout = by_row_of(entry, rows), dropout_of(program, entry, rows)
        to_by_row, to_left = np.zeros((n_steps, len(rows)), np.float32), sums.left[rows.start : rows.stop]
        to_left.fill(0)
        gradients = Gradients(to_left, sums.right, sums.values, to_by_row, sums.by_column, sums.numbers, sums.table)
        if products.step > 1:  # by channels, afterwards
            gradients = gradients._replace(to_left=_NONE, to_right=_NONE)
        # In the parts of the forward pass, whose peaks these are: products of another width may be rounded otherwise.
        parts = self.parts(program)
        for span in (span for part in range(parts) for span in self.spans(rows, (part, parts), products.step)):
            thread_pool.check_stopped()
            tile = products.tile(span.columns, self.height, width)
            second = thread_pool.scratch("second", *tile.shape)
            tile_gradients.differentiate_span(
                *products.record,
                np.float32(program.scale),
                *place(entry.values),
                *place(facts.gradient),
                entry.values.shape[1],
                tile,
                second,
                span.columns.start,
                len(span.columns),
                *steps_of(entry, rows, span.columns, by_row),
                *self._seen(entry, rows, span),
                program.rule,
                entry.alpha,
                *facts.known,
                *dropout,
                thread_pool.scratch("kept", n_steps + 1, tile.shape[1]),
                *gradients,
            )
            products.differentiate(span.columns, second, to_left, sums)
        sums.by_row[:, rows.start : rows.stop] += to_by_row

    def tiles(self, program: Program, entry: Entry, rows: range) -> Iterator[LiveSpan]:
        """The spans of a block, none wider than a tile."""
        step = step_of(program, entry)
        width = max(self.width(rows) // step, 1) * step
        for span in self.spans(rows, step=step):
            for piece in cut(span.columns, width):
                yield LiveSpan(piece, span.bounds, span.whole)

    def scores(self, program: Program, entry: Entry, rows: range, span: LiveSpan) -> Any:
        """The scores of a span, −inf where not allowed, on scratch that the next call overwrites."""
        products = products_of(program, entry, rows)
        tile = products.whole(span.columns)
        tile_loops.score_span(
            *products.record,
            span.columns.start,
            *steps_of(entry, rows, span.columns, by_row_of(entry, rows)),
            *self._seen(entry, rows, span),
            tile,
        )
        return tile

    def gather(self, program: Program, entry: Entry, rows: range, most: int, candidates: tuple[Any, ...]) -> bool:
        """Add the keys of a block that may have a weight to its candidates; whether all rows had room."""
        for columns, arguments in self._score_arguments(program, entry, rows):
            done = 0
            while done < len(columns):
                thread_pool.check_stopped()
                done = tile_loops.gather_span(*arguments, done, entry.alpha, most, candidates)
                if done < 0:
                    return False
        return True

    def list_support(
        self, program: Program, entry: Entry, rows: range, facts: BlockFacts, lists: tuple[Any, Any, Any]
    ) -> Iterator[None]:
        """List the keys of a block that have a weight; stops at the end and wherever the lists have no more room.

        Args:
            program, entry, rows: Which block.
            facts: The peaks and thresholds of its rows.
            lists: (how many keys, the keys, their scores) of each row; −1 follows the last key. Who takes the lists
                puts their lengths back to 0.
        """
        for columns, arguments in self._score_arguments(program, entry, rows):
            done = 0
            while done < len(columns):
                done = tile_loops.list_span(*arguments, done, entry.alpha, *facts.known[:2], *lists)
                if done < len(columns):
                    yield
        yield

    def _score_arguments(self, program: Program, entry: Entry, rows: range) -> Iterator[tuple[range, tuple[Any, ...]]]:
        """The spans of a block, with what the kernels need to compute their scores tile by tile."""
        products, by_row = products_of(program, entry, rows), by_row_of(entry, rows)
        for span in self.spans(rows, step=products.step):
            thread_pool.check_stopped()
            yield (
                span.columns,
                (
                    *products.record,
                    products.tile(span.columns, self.height, self.width(rows)),
                    span.columns.start,
                    len(span.columns),
                    *steps_of(entry, rows, span.columns, by_row),
                    *self._seen(entry, rows, span),
                ),
            )

    def _seen(self, entry: Entry, rows: range, span: LiveSpan) -> Seen:
        """What the rows of a block see of a span."""
        if span.whole:
            return ALL_SEEN
        if span.bounds is not None:
            first, stop = (pick(each, entry.index, 1).contiguous() for each in span.bounds)
            return ALL_SEEN._replace(first=first.numpy(), stop=stop.numpy())
        mask, grid = self.problem.mask, self.problem.grid
        assert mask is not None
        tile = self._answers.get((rows, span.columns), lambda: mask.tile(rows, span.columns, grid))
        allowed = pick(tile.expand(*tile.shape[:-2], len(rows), len(span.columns)), entry.index, 2)
        return ALL_SEEN._replace(allowed=allowed.contiguous().numpy())
