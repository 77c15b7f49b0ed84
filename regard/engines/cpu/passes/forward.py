"""The forward pass on a CPU: blocks of rows side by side, in the memory of a tile each."""

from __future__ import annotations

from functools import partial

import torch

from regard.engines.cpu.kernels.records import RowSums
from regard.engines.cpu.passes.batched_calls import finds_heaviest, groups_of, pool_group
from regard.engines.cpu.passes.heaviest import Heaviest
from regard.engines.cpu.program import Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import FLOATS, NO_BEST, NO_BEST_OF_ENTRIES, Way
from regard.engines.state import Sums
from regard.weights import OnePass
from regard.weights.proportional import refuse_negative


def sum_rows(program: Program, way: Way, rule: OnePass, heaviest: Heaviest | None = None) -> Sums:
    """The sums of every row, and its heaviest keys where they are wanted: by tiles, with the keys in one part."""
    grid, parts = program.problem.grid, way.parts(program)
    shape = (parts, program.n_entries, grid.n_queries)
    peaks, totals = torch.full(shape, -torch.inf, **FLOATS), torch.zeros(shape, **FLOATS)
    pooled = torch.empty(*shape, program.values.shape[-1], **FLOATS)

    def work(place: int, rows: range, part: int) -> float:
        block = slice(rows.start, rows.stop)
        arrays = [each[part, place, block].numpy() for each in (peaks, totals, pooled)]
        arrays[-1].fill(0)  # here, where it will be used: fresh memory costs its thread a fault for each page
        best = NO_BEST if heaviest is None else heaviest.of(place, rows)
        return way.pool(program, program.entries[place], rows, RowSums._make([*arrays, *best]), (part, parts))

    def work_together(group: range) -> float:
        places = slice(group.start, group.stop)
        arrays = [each[0, places].numpy() for each in (peaks, totals, pooled)]
        arrays[-1].fill(0)
        assert isinstance(way, Tiles)
        best = NO_BEST_OF_ENTRIES if heaviest is None else heaviest.settled_of(places)
        return pool_group(program, way, group, RowSums._make([*arrays, *best]))

    groups = groups_of(program, way) if heaviest is None or finds_heaviest(program, way) else []
    if heaviest is not None:
        heaviest.is_settled = bool(groups)
    tasks = [partial(work_together, group) for group in groups] or [
        partial(work, place, rows, part)
        for place in range(program.n_entries)
        for rows in way.long_blocks()
        for part in range(parts)
    ]
    refuse_negative(min(thread_pool.run(tasks, way.seconds(program)), default=0.0))
    lead = (*grid.batch_shape, grid.n_queries)
    sums = [
        Sums(peaks[part].reshape(*lead, 1), totals[part].reshape(*lead, 1), pooled[part].reshape(*lead, -1))
        for part in range(parts)
    ]
    whole = sums[0]
    for each in sums[1:]:
        whole = whole.merge(each, rule)
    return whole
