"""Several batch entries in one compiled call, where they are plain: at a few hundred queries each, calls cost time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels import tile_gradients, tile_loops
from regard.engines.cpu.kernels.records import Gradients, Products, RowSums, Steps
from regard.engines.cpu.program import Program, addresses, pick
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import ALL_SEEN, NO_DROPOUT, Facts, WayBack, cut
from regard.engines.torch_internals import sgemm_address
from regard.weights import Softmax

GROUP_PAIRS = 1 << 20  # pairs of a group: some 3 ms forward
SHARES = 2  # groups that every thread has at least

_F = np.float32


def groups_of(program: Program, way: WayBack) -> list[range]:
    """The batch entries in groups that one call serves; none where entries are large, masked or have steps."""
    problem = program.problem
    plain = (
        isinstance(way, Tiles)
        and problem.mask is None
        and not problem.dropout
        and not program.instructions
        and program.channel is None
        and not isinstance(getattr(program.inner, "alpha", None), Tensor)  # one for each head: entries differ
    )
    dims = program.left.shape[-1] + program.values.shape[-1]
    size = GROUP_PAIRS * 128 // (problem.grid.n_queries * problem.grid.n_keys * dims)
    size = min(size, program.n_entries // (SHARES * thread_pool.count()))
    return list(cut(range(program.n_entries), size)) if plain and size > 1 else []


class _Matrices:
    """The addresses of a group's matrices; what they point to is kept as long as this is."""

    def __init__(self, program: Program, group: range) -> None:
        places = slice(group.start, group.stop)
        left, left_stride = program.left_addresses
        right, right_stride = program.right_addresses
        values, values_stride = program.values_addresses
        self.values = values[places], values_stride
        n_queries, dim = program.left.shape[-2:]
        left = left[places]
        if program.scale != 1.0:
            self.scaled = torch.from_numpy(thread_pool.scratch("scaled", len(group) * n_queries, dim))
            for target, index in zip(self.scaled.split(n_queries), program.indices[places], strict=True):
                torch.mul(pick(program.left, index, 2), program.scale, out=target)
            left, left_stride = addresses(self.scaled.view(len(group), n_queries, dim), (len(group),))
        self.products = Products(sgemm_address(), left, left_stride, right[places], right_stride, dim)


def _no_steps(n_queries: int) -> Steps:
    """The steps of entries that have none."""
    numbers = np.zeros(0, _F)
    return Steps(
        codes=np.zeros(0, np.int64),
        by_row=np.zeros((0, n_queries), _F),
        by_column=np.zeros((0, 0), _F),
        numbers=numbers,
        pairs=np.zeros((1, 0), _F),
        table=numbers,
    )


def finds_heaviest(program: Program, way: WayBack) -> bool:
    """Whether `pool_group` finds the heaviest weights: under softmax, where a tile has room for all keys."""
    grid = program.problem.grid
    return (
        isinstance(way, Tiles)
        and isinstance(program.inner, Softmax)
        and program.inner.sink is None  # which would take its share of the weights in the end
        and grid.n_keys <= way.width(grid.rows)
    )


def pool_group(program: Program, way: Tiles, group: range, sums: RowSums) -> float:
    """Take every pair of a group of entries into their sums, `(entries, n_queries, ...)`; gives the least numerator.

    The heaviest weights of each row and their keys are written to the `best` and `best_keys` of the sums, if there is
    room for any.
    """
    thread_pool.check_stopped()
    matrices = _Matrices(program, group)
    n_queries, n_keys = sums.pooled.shape[1], program.problem.grid.n_keys
    least = tile_loops.pool_entries(
        *matrices.products,
        *matrices.values,
        thread_pool.scratch("tile", min(way.height, n_queries), way.width(range(n_queries))),
        n_keys,
        *_no_steps(n_queries),
        *ALL_SEEN,
        program.rule,
        *NO_DROPOUT,
        *sums,
    )
    way.passed(len(group) * n_queries)
    return float(least)


def differentiate_group(
    program: Program, way: Tiles, group: range, facts: Facts, to_left: Any, to_right: Any, to_values: Any
) -> None:
    """Write the gradients of a group of entries, `(entries, n, dim)` each."""
    thread_pool.check_stopped()
    matrices = _Matrices(program, group)
    grid, dim, value_dim = program.problem.grid, program.right.shape[-1], program.values.shape[-1]
    n_queries, n_keys = grid.n_queries, grid.n_keys
    height, width = min(way.height, n_queries), way.width(range(n_queries))
    places = slice(group.start, group.stop)
    to_steps = np.zeros((0, n_queries), _F), np.zeros((0, n_keys), _F), np.zeros(0), np.zeros(0)
    tile_gradients.differentiate_entries(
        *matrices.products,
        _F(program.scale),
        *matrices.values,
        *addresses(facts.gradient[places], (len(group),)),
        value_dim,
        thread_pool.scratch("tile", height, width),
        thread_pool.scratch("second", height, width),
        n_keys,
        *_no_steps(n_queries),
        *ALL_SEEN,
        program.rule,
        program.alpha(()),
        *(each[places].numpy() for each in (facts.offsets, facts.scales, facts.deltas)),
        *NO_DROPOUT,
        thread_pool.scratch("kept", 1, width),
        *Gradients(to_left, to_right, to_values, *to_steps),
        thread_pool.scratch("right", dim, n_keys),
        thread_pool.scratch("values", value_dim, n_keys),
    )
