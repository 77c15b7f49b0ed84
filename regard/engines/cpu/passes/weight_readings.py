"""What a view reads, on a CPU: weights computed again from the statistics of their rows, gathered as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.compiled_problem import CpuProblem
from regard.engines.cpu.kernels.row_readings import spread_lists, sum_tile, weigh_rows
from regard.engines.cpu.kernels.tile_readings import read_tile
from regard.engines.cpu.passes.forward import sum_rows
from regard.engines.cpu.passes.heaviest import Heaviest
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_lists import Lists
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import FLOATS, cut
from regard.engines.cpu.traversal.with_progress import Advance, watch
from regard.engines.kernels import codes
from regard.engines.kernels.protocol import Readable
from regard.engines.state import Pooled
from regard.weights import OneHot, OnePass, Statistics

SPREAD_PAIRS = 1 << 19  # that listed weights are spread over at once

_ROW_SUMS = ("least", "total", "most", "count")
_NO_KEYS, _NO_PICTURE, _NO_BINS = np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.int64)


class ReadableCpuProblem(CpuProblem, Readable):
    """A compiled problem whose weights are read.

    Args:
        program: The problem, translated for the kernels.
        advance: Is told which share of a pass each block of rows was.
    """

    def __init__(self, program: Program, advance: Advance) -> None:
        super().__init__(program)
        self.advance = advance

    def undisturbed(self) -> AbstractContextManager[None]:
        return thread_pool.undisturbed()

    def disturbed(self) -> AbstractContextManager[None]:
        return thread_pool.disturbed()

    @cached_property
    def way(self) -> Tiles | Lists:
        return watch(super().way, self._advance_rows)

    def _advance_rows(self, n_rows: float) -> None:
        self.advance(n_rows / (self.program.n_entries * self.program.problem.grid.n_queries))

    def statistics(self) -> Statistics:
        return self._bare().pool().statistics

    def _bare(self) -> ReadableCpuProblem:
        """The same with a column of zeros in place of the values: half of the work."""
        bare = replace(self.program, values=self.program.values.new_zeros(self.program.problem.grid.n_keys, 1))
        return ReadableCpuProblem(bare, self.advance)

    @property
    def finds_heaviest(self) -> bool:
        # Each row is gone through at once, and a larger score weighs more.
        program = self.program
        ordered = not program.choose and program.rule in codes.ORDERED
        return ordered and isinstance(self.way, Tiles) and self.way.parts(program) == 1

    def pool_and_find(self, targets: Mapping[str, Tensor], *, values: bool) -> Pooled:
        if not values:
            return self._bare().pool_and_find(targets, values=True)
        program, way, rule = self.program, self.way, self.program.inner
        assert isinstance(rule, OnePass)
        rows = (program.n_entries, program.problem.grid.n_queries)
        heaviest = Heaviest(program, *(targets[name].view(*rows, -1) for name in ("top_weights", "top_index")))
        pooled = sum_rows(program, way, rule, heaviest).finish(rule, reuse=True)
        if heaviest.is_settled:
            return pooled
        scales = self._scales(pooled.statistics)
        doubtful = heaviest.settle(way.long_blocks(), *scales)
        if bool(doubtful.any()):  # by a way that tells nobody how far it is: these rows are counted already
            way = CpuProblem(program).way
            _Reading(program, way, *scales, targets, doubtful).run()
        return pooled

    def read(self, statistics: Statistics, targets: Mapping[str, Tensor]) -> None:
        way = watch(self._way_of(statistics), self._advance_rows)
        _Reading(self.program, way, *self._scales(statistics), targets).run()

    def weights(self, statistics: Statistics, rows: range, columns: range) -> Tensor:
        # Cut out of the blocks that `read` shows to readings.
        program, way, grid = self.program, self._way_of(statistics), self.program.problem.grid
        offsets, scales = self._scales(statistics)
        found = torch.zeros(program.n_entries, len(rows), len(columns), **FLOATS)

        def work(entry: Entry, block: range) -> None:
            here = (entry.place, slice(block.start, block.stop))
            some = _common(block, rows)
            target = found[entry.place, some.start - rows.start : some.stop - rows.start].numpy()
            facts = offsets[here].numpy(), scales[here].numpy()
            _weigh_block(program, way, entry, block, facts, columns, target, some)

        blocks = [block for block in way.blocks() if _common(block, rows)]
        thread_pool.run([partial(work, entry, block) for entry in program.entries for block in blocks])
        return found.view(*grid.batch_shape, len(rows), len(columns))

    def cuts(self) -> Iterator[tuple[range, range]]:
        for rows in self.way.blocks():
            width = self.way.width(rows) if isinstance(self.way, Tiles) else max(SPREAD_PAIRS // len(rows), 1)
            for columns in cut(self.program.problem.grid.columns, width):
                yield rows, columns

    def _way_of(self, statistics: Statistics) -> Tiles | Lists:
        """The way to weights with these statistics, which tells nobody how far it is."""
        if not self.program.choose:
            return CpuProblem(self.program).way
        return self._chosen(_ascending(statistics[0], self.program.problem.grid.n_keys))

    def _scales(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        """The offset and scale of each row, `(n_entries, n_queries)`: see `row_steps.weigh_row`."""
        program, grid = self.program, self.program.problem.grid
        statistics = statistics[1:] if program.choose else statistics
        if isinstance(program.problem.rule, OneHot):
            statistics = (torch.zeros(1, 1, device="cpu"), torch.ones(1, 1, device="cpu"))
        rows = (program.n_entries, grid.n_queries)
        peak, total = (each.expand(*grid.batch_shape, grid.n_queries, 1).reshape(rows) for each in statistics[:2])
        if program.rule == codes.ENTMAX:
            return peak.float(), total.double()
        # A fully masked row: e^(−inf − 0) · 0.
        return torch.where(peak == -torch.inf, 0, peak).float(), total.double().reciprocal()


def _common(left: range, right: range) -> range:
    """What two ranges have in common."""
    return range(max(left.start, right.start), min(left.stop, right.stop))


def _weigh_block(
    program: Program,
    way: Tiles | Lists,
    entry: Entry,
    block: range,
    facts: tuple[Any, Any],
    columns: range,
    target: Any,
    rows: range,
) -> None:
    """Write the weights of some rows of a block, and of some columns."""
    mine = slice(rows.start - block.start, rows.stop - block.start)
    if isinstance(way, Lists):
        weights, keys = way.scores(program, entry, block)
        weigh_rows(weights, program.rule, entry.alpha, *facts)
        weights, keys = weights[mine], keys[mine]
        listed = np.nonzero((keys >= columns.start) & (keys < columns.stop))
        target[listed[0], keys[listed] - columns.start] = weights[listed]
        return
    for span in way.tiles(program, entry, block):
        thread_pool.check_stopped()
        seen = _common(span.columns, columns)
        if seen:
            weights = way.scores(program, entry, block, span)
            weigh_rows(weights, program.rule, entry.alpha, *facts)
            across = slice(seen.start - span.columns.start, seen.stop - span.columns.start)
            target[:, seen.start - columns.start : seen.stop - columns.start] = weights[mine, across]


def _ascending(index: Tensor, n_keys: int) -> Tensor:
    """Lists of keys in the order of keys, as ties are broken: −1 stays at the end."""
    index = index.masked_fill(index < 0, n_keys).sort(-1).values
    return index.masked_fill(index == n_keys, -1)


@dataclass(frozen=True)
class _Block:
    """Where the readings of a block of rows are gathered: numpy arrays, empty where they are not wanted."""

    rows: range
    facts: tuple[Any, Any]  # offsets and scales
    entropy: Any  # float64 (n_rows,)
    top_weights: Any  # float32 (n_rows, k)
    top_index: Any  # int64 (n_rows, k)
    row_sums: Any  # float64 (4, n_rows)
    received: Any  # float64 (n_keys,), which blocks share, and
    picture: Any  # float64 (height, width)
    row_bins: Any  # the picture's row of each row
    column_bins: Any  # its column of each key


class _Reading:
    """One pass that reads; where only some rows are wanted, over the blocks that have any, from the beginning."""

    def __init__(
        self,
        program: Program,
        way: Tiles | Lists,
        offsets: Tensor,
        scales: Tensor,
        targets: Mapping[str, Tensor],
        wanted: Tensor | None = None,  # (n_entries, n_queries): whether each row is; all, if left out
    ) -> None:
        grid, self.wanted = program.problem.grid, wanted
        self.program, self.way, self.offsets, self.scales, self.targets = program, way, offsets, scales, targets
        self.entries, self.blocks = program.entries, way.blocks()
        n_entries, rows = len(self.entries), (len(self.entries), grid.n_queries)
        # Rows add to one sum for a key: each part has its own, and they are added in order, whoever was done first.
        threads = thread_pool.count()
        whole = n_entries % threads == 0 or n_entries >= 4 * threads
        self.parts = 1 if whole else max(min(threads, len(self.blocks)), 1)
        n_keys = grid.n_keys if "received" in targets else 0
        height, width = targets["picture"].shape[-2:] if "picture" in targets else (0, 0)
        self.received = np.zeros((self.parts, n_entries, n_keys))
        self.pictures = np.zeros((self.parts, n_entries, height, width))
        self.row_bins = np.arange(grid.n_queries) * height // max(grid.n_queries, 1)
        self.column_bins = np.arange(grid.n_keys) * width // max(grid.n_keys, 1)
        # The heaviest are gathered where they are wanted.
        self.top_weights, self.top_index = (
            targets[name].view(*rows, targets[name].shape[-1]).numpy()
            if name in targets
            else np.zeros((*rows, 0), kind)
            for name, kind in (("top_weights", np.float32), ("top_index", np.int64))
        )

    def run(self) -> None:
        """Fill the targets."""
        thread_pool.run([partial(self._work, entry, part) for entry in self.entries for part in range(self.parts)])
        for name, sums in (("received", self.received), ("picture", self.pictures)):
            if name in self.targets:
                target = self.targets[name]
                target.copy_(torch.from_numpy(sums.sum(0)).view(target.shape))

    def _work(self, entry: Entry, part: int) -> None:
        # Every nth block, so that a causal mask gives each part the same work.
        for rows in self.blocks[part :: self.parts]:
            thread_pool.check_stopped()
            block = self._block(entry, part, rows)
            if self.wanted is not None:
                if not bool(self.wanted[entry.place, rows.start : rows.stop].any()):
                    continue
                block.top_weights.fill(0)
                block.top_index.fill(-1)
            if isinstance(self.way, Tiles):
                self._read_tiles(self.way, entry, block)
            else:
                self._read_lists(self.way, entry, block)
            for name, found in (("entropy", block.entropy), *zip(_ROW_SUMS, block.row_sums, strict=True)):
                if name in self.targets:
                    of_entry = self.targets[name].view(self.offsets.shape)[entry.place]
                    of_entry[rows.start : rows.stop] = torch.from_numpy(found)

    def _block(self, entry: Entry, part: int, rows: range) -> _Block:
        block, targets = (entry.place, slice(rows.start, rows.stop)), self.targets
        return _Block(
            rows=rows,
            facts=(self.offsets[block].numpy(), self.scales[block].numpy()),
            entropy=np.zeros(len(rows) if "entropy" in targets else 0),
            top_weights=self.top_weights[block],
            top_index=self.top_index[block],
            row_sums=np.zeros((4, len(rows) if "total" in targets else 0)),
            received=self.received[part, entry.place],
            picture=self.pictures[part, entry.place],
            row_bins=self.row_bins[block[1]],
            column_bins=self.column_bins,
        )

    def _read_tiles(self, way: Tiles, entry: Entry, block: _Block) -> None:
        program = self.program
        for span in way.tiles(program, entry, block.rows):
            thread_pool.check_stopped()
            weights = way.scores(program, entry, block.rows, span)
            weigh_rows(weights, program.rule, entry.alpha, *block.facts)
            columns = slice(span.columns.start, span.columns.stop)
            read_tile(
                weights,
                columns.start,
                block.entropy,
                block.received[columns],
                block.top_weights,
                block.top_index,
                block.picture,
                block.row_bins,
                block.column_bins[columns],
            )
            if block.row_sums.size:
                sum_tile(weights, *block.row_sums)

    def _read_lists(self, way: Lists, entry: Entry, block: _Block) -> None:
        weights, keys = way.scores(self.program, entry, block.rows)
        weigh_rows(weights, self.program.rule, entry.alpha, *block.facts)
        best, places = block.top_weights, block.top_index
        read_tile(weights, 0, block.entropy, _NO_KEYS, best, places, _NO_PICTURE, _NO_BINS, _NO_BINS)
        if keys.size:  # the heaviest are places in lists so far
            places[:] = np.where(places < 0, -1, np.take_along_axis(keys, places.clip(0), 1))
        spread_lists(weights, keys, block.received, block.picture, block.row_bins, block.column_bins)
        if block.row_sums.size:
            sum_tile(weights, *block.row_sums)
