"""Masks for the kernels: bounds of rows, or a number for each pair; and which blocks of rows see a block of columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.batch import Batch
from regard.grid import Grid
from regard.masks import Mask

NO_MASK, BOUNDS, PAIRS = 0, 1, 2  # as `kernels/tile_weights.py` has them


class MaskTensors(NamedTuple):
    """A mask on the device."""

    code: int
    tensors: tuple[Tensor, ...]  # first and stop of every row, or a byte for each pair

    @property
    def n_axes(self) -> int:
        """How many axes of a tensor are its own, not those of the batch."""
        return 1 if self.code == BOUNDS else 2

    def of_every_entry(self, grid: Grid) -> MaskTensors:
        """The same with every batch axis, one entry after the other."""
        own = -self.n_axes
        return MaskTensors(
            self.code, tuple(each.expand(*grid.batch_shape, *each.shape[own:]).contiguous() for each in self.tensors)
        )

    def spelled(self, batch: Batch) -> tuple[Any, ...]:
        """Pointers and strides, as kernels take them."""
        return tuple(part for each in self.tensors for part in (each, batch.strides(each, self.n_axes)))


def mask_tensors(mask: Mask | None, grid: Grid) -> MaskTensors:
    """What the kernels compare with or read."""
    if mask is None:
        return MaskTensors(NO_MASK, ())
    bounds = mask.bounds(grid.rows, grid)
    if bounds is not None:
        return MaskTensors(BOUNDS, bounds)
    return MaskTensors(PAIRS, (mask.tile(grid.rows, grid.columns, grid).view(torch.uint8),))


def row_blocks(bounds: tuple[Tensor, ...], grid: Grid, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """The first block of rows that sees anything of each block of columns, and the one after the last: `(..., n)`.

    Args:
        bounds: First and stop of every row.
        grid: The size of the problem.
        rows, columns: Of a block.
    """
    from regard.masks.block_table import from_bounds

    live = from_bounds(bounds[0], bounds[1], grid, rows, columns) > 0  # (..., row blocks, column blocks)
    places = torch.arange(live.shape[-2], device=grid.device, dtype=torch.int32)[:, None]
    first = torch.where(live, places, live.shape[-2]).amin(-2)
    stop = torch.where(live, places + 1, 0).amax(-2)
    return first, stop
