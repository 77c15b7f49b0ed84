"""Masks for the kernels: bounds of rows, lists of keys, or a number for each pair; and all of it seen from the keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.batch import Batch
from regard.engines.kernels.codes import BOUNDS, LISTS, NO_MASK, PAIRS
from regard.grid import Grid
from regard.masks import Mask, RandomKeys, Selected, Strided
from regard.masks.boolean import And
from regard.masks.index_arithmetic import positions

# Masks whose lists are a formula or a tensor, so that nobody looks at the device for how long they are.
LISTING = (Selected, RandomKeys, Strided)
SPARSE = 8  # how many keys there are for each that a row lists, at least: gathered pairs make no use of matrix units


class MaskTensors(NamedTuple):
    """A mask on the device."""

    code: int
    tensors: tuple[Tensor, ...]  # first and stop of every row; its keys, then or between them −1; a byte for each pair

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

    def strided(self) -> list[tuple[Tensor, int]]:
        """Each tensor with the number of its own axes."""
        return [(each, self.n_axes) for each in self.tensors]

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
    lists = lists_of(mask, grid)
    if lists is not None:
        return MaskTensors(LISTS, (lists.contiguous(),))
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


def lists_of(mask: Mask, grid: Grid) -> Tensor | None:
    """The keys that each row attends to, −1 for an empty slot: `(..., n_queries, width)`; None where not so few."""
    if longest_list(mask, grid) is None:
        return None
    if not isinstance(mask, And):
        found = mask.indices(grid.rows, grid)
        return found.expand(*found.shape[:-2], grid.n_queries, -1)
    lengths = {each: length for each in mask.masks if (length := longest_list(each, grid)) is not None}
    shortest = min(lengths, key=lengths.__getitem__)
    lists = lists_of(shortest, grid)
    assert lists is not None
    found = lists
    rows = positions(grid.rows, grid.device)[:, None]
    for each in mask.masks:
        if each is not shortest:
            allowed = each.allows(rows, lists.clamp(min=0), grid)
            found = torch.where(allowed, found, -1)
    return found.expand(*found.shape[:-2], grid.n_queries, -1)


def longest_list(mask: Mask, grid: Grid) -> int | None:
    """How many keys a row of a mask lists at most, without a look at the device; None where that is not few."""
    if type(mask) is And:
        return min((each for part in mask.masks if (each := longest_list(part, grid)) is not None), default=None)
    # By type, not isinstance: a user's subclass may allow something else.
    bound = mask.count_bound(grid) if type(mask) in LISTING else None
    return None if bound is None or SPARSE * bound > grid.n_keys else bound


def listing_of(lists: Tensor, n_keys: int) -> tuple[Tensor, Tensor]:
    """The rows that list each key, ascending, key after key: `(..., pairs)`, and where those of each key begin.

    Args:
        lists: `(..., n_queries, width)`, −1 for an empty slot.
        n_keys: How many keys there are: `(..., n_keys + 1)` of those places.
    """
    keys = lists.flatten(-2)
    keys = torch.where(keys < 0, n_keys, keys)
    ordered, place = keys.sort(stable=True, dim=-1)
    wanted = torch.arange(n_keys + 1, device=lists.device).expand(*keys.shape[:-1], -1).contiguous()
    return place // max(lists.shape[-1], 1), torch.searchsorted(ordered, wanted)
