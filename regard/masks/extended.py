"""A mask of a sequence that is followed by keys of everybody's."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import ShapeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes
from regard.masks.mask import Cover, Mask
from regard.masks.ranges import joined


class Followed(Mask):
    """The mask over all keys but the last few, which every query attends to: where a layer adds keys to each sequence.

    Args:
        mask: which of the first keys each query attends to. It is asked about a problem that has those alone.
        added: how many keys follow them.

    Example:
        >>> from regard.masks import Causal
        >>> print(Followed(Causal(), 2).picture(3, 5))
        #··##
        ##·##
        #####
    """

    def __init__(self, mask: Mask, added: int) -> None:
        self.mask, self.added = mask, added

    def check(self, grid: Grid) -> None:
        if grid.n_keys < self.added:
            raise ShapeError(
                f"Keys must be at least the {self.added} that follow every sequence: got {grid.n_keys}. "
                f"Append those to the keys of the sequence."
            )
        self.mask.check(self._before(grid))

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        before = self._before(grid)
        follows = columns >= before.n_keys
        if before.n_keys == 0:
            return follows
        return follows | self.mask.allows(rows, columns.clamp(max=before.n_keys - 1), before)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        before = self._before(grid)
        first = range(columns.start, min(columns.stop, before.n_keys), columns.step)
        if len(first) == len(columns):
            return self.mask.tile(rows, columns, before)
        if not first:
            return torch.ones(len(rows), len(columns), dtype=torch.bool, device=grid.device)
        tile = self.mask.tile(rows, first, before)
        return pad(tile.expand(*tile.shape[:-1], len(first)), (0, len(columns) - len(first)), value=True)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        before = self._before(grid)
        first = range(columns.start, min(columns.stop, before.n_keys), columns.step)
        if not first:
            return Cover.ALL
        cover = self.mask.cover(rows, first, before)
        return cover if len(first) == len(columns) or cover is Cover.ALL else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        before = self._before(grid)
        return joined([*self.mask.live(rows, before), range(before.n_keys, grid.n_keys)]) if rows else []

    def count_bound(self, grid: Grid) -> int | None:
        bound = self.mask.count_bound(self._before(grid))
        return None if bound is None else bound + self.added

    def known_counts(self, rows: range, grid: Grid) -> Tensor | None:
        counts = self.mask.known_counts(rows, self._before(grid))
        return None if counts is None else counts + self.added

    def arguments(self) -> tuple[object, ...]:
        return self.mask, self.added

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def batch_axes(self) -> Axes:
        return self.mask.batch_axes()

    def _moved(self, device: torch.device) -> Mask:
        return Followed(self.mask.to(device), self.added)

    def _before(self, grid: Grid) -> Grid:
        """The problem without the keys that follow."""
        return replace(grid, n_keys=grid.n_keys - self.added)

    def __repr__(self) -> str:
        return f"Followed({self.mask!r}, {self.added})"
