"""A yes or no for each block of pairs."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.masks.axes import Axes
from regard.masks.base import Cover, Mask
from regard.masks.checks import bool_tensor, check_broadcasts, described, whole_number
from regard.masks.index import pack, pick, positions
from regard.positions import Grid


class BlockLayout(Mask):
    """Each block of queries sees whole blocks of keys: layout[row // block_rows, column // block_columns].

    Args:
        layout: bool, `(..., ⌈n_queries / block_rows⌉, ⌈n_keys / block_columns⌉)`, True where the block is allowed.
            Its batch axes broadcast from the right, so `(heads, ., .)` serves `(batch, heads)`.
        block_size: the size of a block, one integer or (rows, columns).

    Example:
        >>> import torch
        >>> layout = torch.tensor([[True, False, True], [False, True, True]])
        >>> print(BlockLayout(layout, block_size=2).picture(4, 6))
        ##··##
        ##··##
        ··####
        ··####
    """

    def __init__(self, layout: Tensor, block_size: int | tuple[int, int]) -> None:
        layout = bool_tensor(layout, "BlockLayout", "layout", "Pass layout.bool().")
        if layout.ndim < 2:
            raise ShapeError(
                f"`layout` of BlockLayout must be (..., row blocks, column blocks): got {tuple(layout.shape)}. "
                f"Pass one entry for each block of queries and block of keys."
            )
        self.layout = layout.detach().clone()
        sizes = tuple(block_size) if isinstance(block_size, (tuple, list)) else (block_size, block_size)
        if len(sizes) != 2:
            raise ShapeError(
                f"`block_size` of BlockLayout must be one integer or (rows, columns): got {block_size!r}. Pass two."
            )
        self.block_rows, self.block_columns = (whole_number(size, "BlockLayout", "block_size", 1) for size in sizes)

    def check(self, grid: Grid) -> None:
        super().check(grid)
        wanted = -(-grid.n_queries // self.block_rows), -(-grid.n_keys // self.block_columns)
        if tuple(self.layout.shape[-2:]) != wanted:
            raise ShapeError(
                f"`layout` of BlockLayout must be (..., {wanted[0]}, {wanted[1]}) for {grid.n_queries} queries and "
                f"{grid.n_keys} keys in blocks of {self.block_rows} × {self.block_columns}: "
                f"got {tuple(self.layout.shape)}. Pass one entry for each block."
            )
        check_broadcasts(self.layout.shape[:-2], grid, self.layout, "BlockLayout", "layout")

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return pick(self.layout, rows // self.block_rows, columns // self.block_columns)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        top, bottom = rows[0] // self.block_rows, rows[-1] // self.block_rows + 1
        left, right = columns[0] // self.block_columns, columns[-1] // self.block_columns + 1
        everywhere, somewhere = self._seen_before
        if _in_rectangle(somewhere, top, bottom, left, right) == 0:
            return Cover.NONE
        whole = _in_rectangle(everywhere, top, bottom, left, right) == (bottom - top) * (right - left)
        return Cover.ALL if whole else Cover.SOME

    def indices(self, rows: range, grid: Grid) -> Tensor:
        if not rows:
            return super().indices(rows, grid)
        first = rows[0] // self.block_rows
        strip = pack(self.layout[..., first : rows[-1] // self.block_rows + 1, :])  # (..., row blocks, blocks seen)
        within = torch.arange(self.block_columns, device=grid.device)
        columns = (strip[..., None] * self.block_columns + within).flatten(-2)
        # The last block may reach beyond the last key.
        columns = columns.masked_fill((columns < 0) | (columns >= grid.n_keys), -1)
        return columns[..., positions(rows, grid.device) // self.block_rows - first, :]

    def count_bound(self, grid: Grid) -> int:
        return min(self._most_blocks * self.block_columns, grid.n_keys)

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        # The last block may reach beyond the last key.
        beyond = self.layout.shape[-1] * self.block_columns - grid.n_keys
        counts = self.layout.sum(-1) * self.block_columns - self.layout[..., -1:].sum(-1) * beyond
        return counts[..., positions(rows, grid.device) // self.block_rows]

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.layout,)

    def batch_axes(self) -> Axes:
        return Axes(right=tuple(self.layout.shape[:-2]))

    def _moved(self, device: torch.device) -> Mask:
        return BlockLayout(self.layout.to(device), (self.block_rows, self.block_columns))

    @cached_property
    def _seen_before(self) -> tuple[Tensor, Tensor]:
        """Summed-area tables on the host: how many blocks above and left of each corner every entry sees, and any does.

        With them `cover` is four readings, whatever the size of the tile.
        """
        n_rows, n_columns = self.layout.shape[-2:]
        entries = self.layout.reshape(-1, n_rows, n_columns) if self.layout.numel() else self.layout.new_zeros(1, 0, 0)
        tables = []
        for seen in (entries.all(0), entries.any(0)):
            table = torch.zeros(n_rows + 1, n_columns + 1, dtype=torch.int64)
            table[1 : seen.shape[0] + 1, 1 : seen.shape[1] + 1] = seen.cpu().cumsum(0).cumsum(1)
            tables.append(table)
        return tables[0], tables[1]

    @cached_property
    def _most_blocks(self) -> int:
        return int(self.layout.sum(-1).max()) if self.layout.numel() else 0

    def __repr__(self) -> str:
        return f"BlockLayout({described(self.layout)}, block_size={(self.block_rows, self.block_columns)})"


def _in_rectangle(table: Tensor, top: int, bottom: int, left: int, right: int) -> int:
    return int(table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left])
