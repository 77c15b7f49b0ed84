"""Which tiles of a problem a mask allows: all, none or some of each, as a tensor that kernels read on their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.grid import Grid

if TYPE_CHECKING:
    from regard.masks.mask import Mask

NONE, SOME, ALL = 0, 1, 2  # what a tile's entry says


def from_bounds(first: Tensor, stop: Tensor, grid: Grid, height: int, width: int) -> Tensor:
    """The table of a mask whose rows see the columns first ≤ column < stop: nothing is looked at on the host.

    Args:
        first, stop: `(..., n_queries)`, as `Mask.bounds` gives them.
        grid: The size of the problem.
        height, width: Of a tile.
    """
    empty = stop <= first
    first, stop = torch.where(empty, grid.n_keys, first), torch.where(empty, 0, stop)
    # The last tile may be lower: its last row stands for those that are missing.
    rows = torch.arange(_tiles(grid.n_queries, height) * height, device=grid.device).clamp_(max=grid.n_queries - 1)
    first, stop = (each[..., rows].unflatten(-1, (-1, height)).unsqueeze(-2) for each in (first, stop))
    start = torch.arange(0, grid.n_keys, width, device=grid.device)
    end = (start + width).clamp_(max=grid.n_keys)
    allowed = (first.amax(-1) <= start) & (stop.amin(-1) >= end)
    blocked = (first.amin(-1) >= end) | (stop.amax(-1) <= start)
    return torch.where(allowed, ALL, torch.where(blocked, NONE, SOME)).to(torch.int8)


def by_cover(mask: Mask, grid: Grid, height: int, width: int) -> Tensor:
    """The table of any mask, by what it says of each tile that is live: for all batch entries together."""
    from regard.masks.mask import Cover

    codes = {Cover.NONE: NONE, Cover.SOME: SOME, Cover.ALL: ALL}
    table = torch.zeros(_tiles(grid.n_queries, height), _tiles(grid.n_keys, width), dtype=torch.int8)
    for i in range(len(table)):
        rows = range(i * height, min((i + 1) * height, grid.n_queries))
        live = {
            j for columns in mask.live(rows, grid) for j in range(columns.start // width, -(-columns.stop // width))
        }
        for j in live:
            columns = range(j * width, min((j + 1) * width, grid.n_keys))
            table[i, j] = codes[mask.cover(rows, columns, grid)]
    return table.to(grid.device)


def _tiles(count: int, size: int) -> int:
    return -(-count // size)
