"""Masks for the kernels: lines, bounds of rows, documents, bytes of pairs, lists of keys; also seen from the keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor

from regard.grid import Grid
from regard.masks import Causal, Mask, RandomKeys, SameDocument, Selected, Strided, Window
from regard.masks.boolean import And
from regard.masks.index_arithmetic import positions

# Masks whose lists are a formula or a tensor, so that nobody looks at the device for how long they are.
LISTING = (Selected, RandomKeys, Strided)
SPARSE = 8  # how many keys there are for each that a row lists, at least: gathered pairs make no use of matrix units


@dataclass(frozen=True)
class MaskTensors:
    """A mask on the device. What it has of these must all allow a pair."""

    bounds: tuple[Tensor, ...] = ()  # first column of each row, and the one after its last, (..., n_queries)
    pairs: tuple[Tensor, ...] = ()  # a byte for each pair
    documents: tuple[Tensor, ...] = ()  # of each row and of each column, (..., n)
    lists: tuple[Tensor, ...] = ()  # the keys of each row, −1 for an empty slot; alone
    line: tuple[int, int] | None = None  # in place of bounds: those of row 0, which go on by one from row to row

    @property
    def kinds(self) -> tuple[int, int, int, int]:
        """Of which it has any, 1 for yes: a line, bounds, pairs, documents; as `codes.py` has their places."""
        return int(self.line is not None), int(bool(self.bounds)), int(bool(self.pairs)), int(bool(self.documents))

    def strided(self) -> list[tuple[Tensor, int]]:
        """Each tensor with the number of its own axes, those that are not the batch's."""
        narrow, wide = (*self.bounds, *self.documents), (*self.pairs, *self.lists)
        return [*((each, 1) for each in narrow), *((each, 2) for each in wide)]

    def of_every_entry(self, grid: Grid) -> MaskTensors:
        """The same with every batch axis, one entry after the other."""

        def whole(tensors: tuple[Tensor, ...], own: int) -> tuple[Tensor, ...]:
            return tuple(each.expand(*grid.batch_shape, *each.shape[-own:]).contiguous() for each in tensors)

        return MaskTensors(
            whole(self.bounds, 1), whole(self.pairs, 2), whole(self.documents, 1), whole(self.lists, 2), self.line
        )

    def spelled(self, strides: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
        """Pointers and strides, as kernels take them: of lists, or of bounds, pairs and documents.

        Args:
            strides: Of each tensor, in the order of `strided`.
        """
        if not strides:
            return (), (), ()
        places = {id(each): place for (each, _), place in zip(self.strided(), strides, strict=True)}

        def parts(tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
            return tuple([part for each in tensors for part in (each, places[id(each)])])

        return parts(self.lists) if self.lists else (parts(self.bounds), parts(self.pairs), parts(self.documents))


def mask_tensors(mask: Mask | None, grid: Grid, *, may_list: bool = True) -> MaskTensors:
    """What the kernels compare with or read; lists of keys only where they may be."""
    if mask is None:
        return MaskTensors()
    line = line_of(mask, grid)
    if line is not None:
        return MaskTensors(line=line)
    lists = lists_of(mask, grid) if may_list and mask.bounds(range(min(grid.n_queries, 1)), grid) is None else None
    if lists is not None:
        return MaskTensors(lists=(lists.contiguous(),))
    bounded, documents, others = split(mask, grid.rows, grid)
    bounds: tuple[Tensor, ...] = ()
    if bounded:
        bounds = reduce(torch.maximum, (each[0] for each in bounded)), reduce(torch.minimum, (e[1] for e in bounded))
    pairs = (reduce(and_, others).tile(grid.rows, grid.columns, grid).view(torch.uint8),) if others else ()
    lines = _together(bounds, grid.n_queries), pairs
    if documents is None:
        return MaskTensors(*lines)
    of_rows, of_columns = documents.ids(grid)
    return MaskTensors(*lines, (*_together((of_rows,), grid.n_queries), *_together((of_columns,), grid.n_keys)))


def _together(lines: tuple[Tensor, ...], length: int) -> tuple[Tensor, ...]:
    """A number for each row or column, lying together."""
    return tuple(each.expand(*each.shape[:-1], length).contiguous() for each in lines)


def line_of(mask: Mask, grid: Grid) -> tuple[int, int] | None:
    """The bounds of row 0 of a mask whose bounds go on by one column from row to row; None for others."""
    if type(mask) is And:
        lines = [line_of(each, grid) for each in mask.masks]
        if None in lines:
            return None
        firsts, stops = zip(*(each for each in lines if each is not None), strict=True)
        return max(firsts), min(stops)
    # By type, not isinstance: a user's subclass may allow something else.
    if not isinstance(mask, Causal | Window) or type(mask) not in (Causal, Window) or mask.tensors():
        return None
    return mask.line(grid)


Bounds = tuple[Tensor, Tensor]


def split(mask: Mask, rows: range, grid: Grid) -> tuple[list[Bounds], SameDocument | None, list[Mask]]:
    """A mask as bounds of some rows, documents that are compared, and others that must be asked for each pair."""
    bounded: list[Bounds] = []
    documents: SameDocument | None = None
    others: list[Mask] = []
    # By type, not isinstance: a user's subclass may allow something else.
    for part in mask.masks if type(mask) is And else (mask,):
        bounds = part.bounds(rows, grid)
        if bounds is not None:
            bounded.append(bounds)
        elif type(part) is SameDocument and documents is None:
            documents = part
            bounded.append(part.spans(rows, grid))
        else:
            others.append(part)
    return bounded, documents, others


def row_blocks(bounds: tuple[Tensor, ...], grid: Grid, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """The first row that may see anything of each block of columns, and the one after the last: `(..., n)`.

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
    return first * rows, stop * rows


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
    *batch, n_queries, width = lists.shape
    n_entries, pairs = math.prod(batch), n_queries * width
    # All batch entries are sorted at once, by as few bits as numbers take: empty slots first, then each key's.
    n_numbers = n_entries * (n_keys + 1)
    dtype = next(each for each in (torch.int16, torch.int32, torch.int64) if n_numbers <= 2 * torch.iinfo(each).max)
    entries = torch.arange(n_entries, device=lists.device)[:, None]
    first = entries * (n_keys + 1) + (torch.iinfo(dtype).min + 1)
    keys = torch.empty(n_entries, pairs, dtype=dtype, device=lists.device)
    torch.add(lists.reshape(n_entries, pairs).clamp(min=-1), first, out=keys)
    ordered, place = keys.flatten().sort(stable=True)
    wanted = (first + torch.arange(n_keys + 1, device=lists.device)).to(dtype)
    begins = torch.searchsorted(ordered, wanted) - entries * pairs
    rows = place % max(pairs, 1) // max(width, 1)
    return rows.reshape(*batch, pairs), begins.reshape(*batch, n_keys + 1)
