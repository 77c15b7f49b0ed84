"""Every so many keys."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.grid import Align, Grid
from regard.masks.index_arithmetic import positions
from regard.masks.mask import Cover
from regard.masks.mask_checks import whole_number
from regard.masks.positional import Positional
from regard.masks.ranges import joined


class Strided(Positional):
    """Each query attends to every key a multiple of `stride` away: (row + offset − column) mod stride = 0.

    Args:
        stride: the distance from one such key to the next.
        align: where queries stand among keys, as for `Causal`; it must be given when their numbers differ.

    Example:
        >>> print(Strided(2).picture(5))
        #·#·#
        ·#·#·
        #·#·#
        ·#·#·
        #·#·#
    """

    def __init__(self, stride: int, align: Align = None) -> None:
        super().__init__(align)
        self.stride = whole_number(stride, "Strided", "stride", 1)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return (rows + self.offset(grid) % self.stride - columns) % self.stride == 0

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        least, greatest = self.distances(rows, columns, grid)
        if greatest - greatest % self.stride < least:
            return Cover.NONE  # No multiple of the stride lies between.
        return Cover.ALL if self.stride == 1 or least == greatest else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        if not rows or not grid.n_keys:
            return []
        least, greatest = self.offsets(grid)
        width = rows[-1] + greatest - (rows[0] + least) + 1
        if width >= self.stride:
            return [grid.columns]
        # The keys of these rows come in clusters, one a stride; the first may begin before the first key.
        first = (rows[0] + least) % self.stride - self.stride
        starts = range(first, grid.n_keys, self.stride)
        return joined(range(max(start, 0), min(start + width, grid.n_keys)) for start in starts)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        columns = self._first(rows, grid) + torch.arange(0, grid.n_keys, self.stride, device=grid.device)
        return torch.where(columns < grid.n_keys, columns, -1)

    def count_bound(self, grid: Grid) -> int:
        return -(-grid.n_keys // self.stride)

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        # ⌈(n_keys − first) / stride⌉
        return ((grid.n_keys - 1 - self._first(rows, grid)) // self.stride + 1).squeeze(-1)

    def _first(self, rows: range, grid: Grid) -> Tensor:
        """The first column at or after 0 that is on each row's stride, `(..., r, 1)`."""
        return (positions(rows, grid.device)[:, None] + self.offset(grid) % self.stride) % self.stride

    def arguments(self) -> tuple[object, ...]:
        return self.stride, self.align

    def __repr__(self) -> str:
        return self._shown(f"stride={self.stride}")
