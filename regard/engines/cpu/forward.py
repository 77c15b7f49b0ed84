"""The forward pass on a CPU: blocks of rows side by side, a tile at a time, in the memory of a tile."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu import spans, workers
from regard.engines.cpu.blas import sgemm_address
from regard.engines.cpu.layout import Block, Layout, mask_arguments
from regard.engines.cpu.programs import Entry, Program
from regard.engines.dropout import hashes
from regard.weights.proportional import refuse_negative

_NO_PAIRS = np.zeros((1, 0), np.float32)
_NO_HASHES = np.zeros(0, np.uint32)


def sum_rows(program: Program, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """(peak, total, pooled) of every row, as `engines.tiled.Sums` holds them."""
    grid, values = program.problem.grid, program.values
    shape = (program.n_entries, grid.n_queries)
    peaks = torch.full(shape, -torch.inf)
    totals = torch.zeros(shape)
    pooled = torch.zeros(*shape, values.shape[-1])
    entries = program.entries()

    def work(place: int, block: Block) -> float:
        rows = slice(block.rows.start, block.rows.stop)
        return _sum_block(
            program, layout, entries[place], block, peaks[place, rows], totals[place, rows], pooled[place, rows]
        )

    tasks = [partial(work, place, block) for place in range(len(entries)) for block in layout.blocks]
    least = min(workers.run(tasks), default=0.0)
    refuse_negative(least)
    batch = grid.batch_shape
    return (
        peaks.reshape(*batch, grid.n_queries, 1),
        totals.reshape(*batch, grid.n_queries, 1),
        pooled.reshape(*batch, grid.n_queries, values.shape[-1]),
    )


def _sum_block(
    program: Program, layout: Layout, entry: Entry, block: Block, peaks: Tensor, totals: Tensor, pooled: Tensor
) -> float:
    """Take in every span of a block of rows; returns the least numerator."""
    rows = block.rows
    left = entry.left[rows.start : rows.stop]
    by_row = np.ascontiguousarray(entry.by_row[:, rows.start : rows.stop])
    tile = workers.scratch("tile", len(rows), layout.width)
    statistics = peaks.numpy(), totals.numpy(), pooled.numpy()
    least = 0.0
    for span in block.spans:
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
            *mask_arguments(program.problem, entry.index, rows, span),
            program.rule,
            *dropout_arguments(program, entry, rows),
            *statistics,
        )
        least = min(least, lowest)
    return least


def place(matrix: Tensor) -> tuple[int, int]:
    """The address of a matrix and how far apart its rows are."""
    return matrix.data_ptr(), max(matrix.stride(0), matrix.shape[1], 1)


def pairs_of(entry: Entry, rows: range, columns: range) -> Any:
    """The part of a bias for each pair that a tile needs."""
    if entry.pairs is None:
        return _NO_PAIRS
    return entry.pairs[rows.start : rows.stop, columns.start : columns.stop].contiguous().numpy()


def dropout_arguments(program: Program, entry: Entry, rows: range) -> tuple[Any, Any, Any, Any]:
    """(hash of each row, hash of each column, limit, factor) for the kernels: empty without dropout."""
    problem = program.problem
    if not problem.dropout:
        return _NO_HASHES, _NO_HASHES, np.uint32(0), np.float32(1)
    grid = problem.grid
    of_rows, of_columns = hashes(
        problem.seed, entry.place, torch.arange(rows.start, rows.stop), torch.arange(grid.n_keys)
    )
    limit, factor = np.uint32(int(problem.dropout * 2**32)), np.float32(1 / (1 - problem.dropout))
    return of_rows.numpy().astype(np.uint32), of_columns.numpy().astype(np.uint32), limit, factor
