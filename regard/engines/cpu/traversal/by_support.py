"""By the keys that have a weight under entmax: tiles find them, and what follows is done for those alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels.entmax_candidates import weigh_candidates
from regard.engines.cpu.kernels.list_loops import drop_strip, pool_weights
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_lists import cut_lists, differentiate_lists
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import BlockFacts, Facts, Found, KeySums, cut, dropout_of

# How many times fewer keys must have a weight than there are for going through them one by one to be cheaper.
SPARSE = 5
MOST_CANDIDATES = 512  # that a row keeps
ROOM = 1024  # keys that a row's list takes before it is gone through
LEAST_PAIRS = 1 << 16  # that a block of rows visits, for its lists to be worth the calls that make them
SAMPLES, SAMPLE_ROWS = 4, 16  # the blocks of rows by which it is told how sparse weights are


def pool_candidates(program: Program, way: Tiles, entry: Entry, rows: range, found: Found) -> bool:
    """Find the thresholds of a block and pool the values that have a weight; False, nothing done, if they are many."""
    most = min(int(program.problem.grid.n_keys / SPARSE), MOST_CANDIDATES)
    if most == 0:
        return False
    shape = len(rows), most + way.widest(program, entry, rows) + 1
    scores, slopes = thread_pool.scratch("candidates", *shape), thread_pool.scratch("slopes", *shape)
    keys = thread_pool.scratch("keys", shape[0], 2 * shape[1]).view(np.int64)
    counts, settled = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    cuts, total_slopes = np.full(len(rows), -np.inf, np.float32), np.empty(len(rows))
    if not way.gather(program, entry, rows, most, (scores, keys, counts, settled, cuts)):
        return False
    facts = found.peaks.numpy(), found.thresholds.numpy()
    weigh_candidates(scores, keys, counts, entry.alpha, *facts, slopes, total_slopes)
    values = entry.values.contiguous().numpy()
    for weights, target in ((scores, found.output), (slopes, found.slope_mean)):
        if program.problem.dropout:
            drop_strip(weights, keys, *dropout_of(program, entry, rows))
        pool_weights(values, keys, weights, target.numpy())
    total = torch.from_numpy(total_slopes)[:, None]
    found.slope_mean.div_(torch.where(total == 0, 1, total))
    return True


@dataclass(frozen=True)
class Supports:
    """The way back by the keys that have a weight."""

    tiles: Tiles
    transposed = False

    def seconds(self, program: Program) -> float:
        return self.tiles.seconds(program)

    def long_blocks(self) -> list[range]:
        return self.tiles.blocks()

    def differentiate(self, program: Program, entry: Entry, rows: range, facts: BlockFacts, sums: KeySums) -> None:
        lists = (
            piece for each in self._lists(program, entry, rows, facts) for piece in cut_lists(program.problem, *each)
        )
        differentiate_lists(program, entry, rows, lists, facts, sums)

    def _lists(self, program: Program, entry: Entry, rows: range, facts: BlockFacts) -> Iterator[tuple[Tensor, Tensor]]:
        """The keys of a block that have a weight, then −1, and their scores, in pieces: `(n_rows, width)` each."""
        counts, width = np.zeros(len(rows), np.int64), max(ROOM, self.tiles.width(rows)) + 1
        keys = thread_pool.scratch("keys", len(rows), 2 * width).view(np.int64)
        scores = thread_pool.scratch("candidates", len(rows), width)
        for _ in self.tiles.list_support(program, entry, rows, facts, (counts, keys, scores)):
            longest = counts.max(initial=0)
            lists = keys[:, :longest]
            lists[np.arange(longest) >= counts[:, None]] = -1
            yield torch.from_numpy(lists), torch.from_numpy(scores[:, :longest])
            counts[:] = 0

    def are_few(self, program: Program, facts: Facts) -> bool:
        """Whether few of the keys that tiles visit have a weight, estimated from some rows."""
        return thread_pool.run([partial(self._are_few, program, facts)])[
            0
        ]  # as a task: on one core, with its own scratch

    def _are_few(self, program: Program, facts: Facts) -> bool:
        grid, entries = program.problem.grid, program.entries
        visited = self.tiles.visited(self.tiles.height)
        if visited * self.tiles.height < LEAST_PAIRS:
            return False
        blocks = list(cut(grid.rows, min(SAMPLE_ROWS, self.tiles.height)))
        asked = list(itertools.product(entries, blocks))
        some = asked[:: max(len(asked) // SAMPLES, 1)]
        listed = sum(
            int((keys >= 0).sum())
            for entry, rows in some
            for keys, _ in self._lists(program, entry, rows, facts.of(entry, rows))
        )
        return listed * SPARSE < sum(len(rows) for _, rows in some) * visited
