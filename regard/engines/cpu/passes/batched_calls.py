"""Several batch entries in one compiled call, where they are plain: at a few hundred queries each, calls cost time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels import tile_gradients, tile_loops
from regard.engines.cpu.kernels.records import Gradients, Products, RowSums, Steps
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import ALL_SEEN, Facts, WayBack, dropout_of, place
from regard.engines.torch_internals import sgemm_address

GROUP_PAIRS = 1 << 20  # pairs of a group: some 3 ms forward

_F = np.float32


def groups_of(program: Program, way: WayBack) -> list[list[Entry]]:
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
    entries = program.entries
    dims = program.left.shape[-1] + program.values.shape[-1]
    size = GROUP_PAIRS * 128 // (problem.grid.n_queries * problem.grid.n_keys * dims)
    # Enough for every thread to have some.
    size = min(size, len(entries) // (4 * thread_pool.count()))
    if not plain or size < 2:
        return []
    return [entries[start : start + size] for start in range(0, len(entries), size)]


class _Matrices:
    """The addresses of a group's matrices; what they point to is kept as long as this is."""

    def __init__(self, program: Program, group: list[Entry]) -> None:
        first = group[0]
        n_queries, dim = first.left.shape
        lefts = [each.left for each in group]
        if program.scale != 1.0:
            scaled = torch.from_numpy(thread_pool.scratch("scaled", len(group) * n_queries, dim)).view(
                -1, n_queries, dim
            )
            lefts = [torch.mul(each, program.scale, out=scaled[at]) for at, each in enumerate(lefts)]
        self.lefts = lefts
        rights = [each.right for each in group]
        self.products = Products(sgemm_address(), *_addresses(lefts), *_addresses(rights), dim)
        self.values = _addresses([each.values for each in group])


def _addresses(matrices: list[Tensor]) -> tuple[Any, int]:
    """Where matrices of one layout are, and how far apart their rows."""
    places = [place(each) for each in matrices]
    assert all(stride == places[0][1] for _, stride in places)
    return np.array([address for address, _ in places], np.int64), places[0][1]


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


def pool_group(program: Program, way: Tiles, group: list[Entry], sums: RowSums) -> float:
    """Take every pair of a group of entries into their sums, `(entries, n_queries, ...)`; gives the least numerator."""
    thread_pool.check_stopped()
    matrices = _Matrices(program, group)
    n_queries, n_keys = sums.pooled.shape[1], group[0].right.shape[0]
    least = tile_loops.pool_entries(
        *matrices.products,
        *matrices.values,
        thread_pool.scratch("tile", min(way.height, n_queries), way.width(range(n_queries))),
        n_keys,
        *_no_steps(n_queries),
        *ALL_SEEN,
        program.rule,
        *dropout_of(program, group[0], range(0)),
        *sums,
    )
    return float(least)


def differentiate_group(
    program: Program, way: Tiles, group: list[Entry], facts: Facts, to_left: Any, to_right: Any, to_values: Any
) -> None:
    """Write the gradients of a group of entries, `(entries, n, dim)` each."""
    thread_pool.check_stopped()
    matrices = _Matrices(program, group)
    (n_queries, _), (n_keys, dim), value_dim = group[0].left.shape, group[0].right.shape, group[0].values.shape[1]
    height, width = min(way.height, n_queries), way.width(range(n_queries))
    places = slice(group[0].place, group[0].place + len(group))
    to_steps = np.zeros((0, n_queries), _F), np.zeros((0, n_keys), _F), np.zeros(0), np.zeros(0)
    tile_gradients.differentiate_entries(
        *matrices.products,
        _F(program.scale),
        *matrices.values,
        *_addresses(list(facts.gradient[places])),
        value_dim,
        thread_pool.scratch("tile", height, width),
        thread_pool.scratch("second", height, width),
        n_keys,
        *_no_steps(n_queries),
        *ALL_SEEN,
        program.rule,
        group[0].alpha,
        *(each[places].numpy() for each in (facts.offsets, facts.scales, facts.deltas)),
        *dropout_of(program, group[0], range(0)),
        thread_pool.scratch("kept", 1, width),
        *Gradients(to_left, to_right, to_values, *to_steps),
        thread_pool.scratch("right", dim, n_keys),
        thread_pool.scratch("values", value_dim, n_keys),
    )
