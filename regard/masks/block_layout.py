"""A boolean for each block of pairs."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import pack, pick, positions
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import bool_tensor, check_broadcasts, described, whole_number
from regard.masks.ranges import marked


class BlockLayout(Mask):
    """Each block of queries attends to whole blocks of keys: layout[row // block_rows, column // block_columns].

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

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        if not rows:
            return super().tile(rows, columns, grid)
        # Columns first, while there are few rows: copying whole rows afterwards is quick.
        first = rows[0] // self.block_rows
        strip = self.layout[..., first : rows[-1] // self.block_rows + 1, :]
        strip = strip.index_select(-1, positions(columns, grid.device) // self.block_columns)
        return strip.index_select(-2, positions(rows, grid.device) // self.block_rows - first)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        top, bottom = rows[0] // self.block_rows, rows[-1] // self.block_rows + 1
        left, right = columns[0] // self.block_columns, columns[-1] // self.block_columns + 1
        seen = self._seen_before
        inside = seen[bottom, right] - seen[top, right] - seen[bottom, left] + seen[top, left]
        everywhere, somewhere = inside.tolist()
        if somewhere == 0:
            return Cover.NONE
        return Cover.ALL if everywhere == (bottom - top) * (right - left) else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        if not rows:
            return []
        top, bottom = rows[0] // self.block_rows, rows[-1] // self.block_rows + 1
        seen = self._seen_before[..., 1]
        return marked((seen[bottom] - seen[top]).diff() > 0, self.block_columns, grid.n_keys)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        if not rows:
            return super().indices(rows, grid)
        first = rows[0] // self.block_rows
        strip = pack(self.layout[..., first : rows[-1] // self.block_rows + 1, :])  # (..., row blocks, blocks seen)
        within = torch.arange(min(self.block_columns, grid.n_keys), device=grid.device)
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

    def arguments(self) -> tuple[object, ...]:
        return self.layout, (self.block_rows, self.block_columns)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.layout,)

    def batch_axes(self) -> Axes:
        return Axes(right=tuple(self.layout.shape[:-2]))

    def _moved(self, device: torch.device) -> Mask:
        return BlockLayout(self.layout.to(device), (self.block_rows, self.block_columns))

    @cached_property
    def _seen_before(self) -> Tensor:
        """How many blocks above and left of each corner every batch entry sees, and how many any does; on the host.

        With these summed-area tables, `(row blocks + 1, column blocks + 1, 2)`, `cover` is four readings, whatever the
        size of the tile.
        """
        n_rows, n_columns = self.layout.shape[-2:]
        before = torch.zeros(n_rows + 1, n_columns + 1, 2, dtype=torch.int32)
        if self.layout.numel():
            entries = self.layout.reshape(-1, n_rows, n_columns)
            before[1:, 1:, 0] = entries.all(0).cpu().cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)
            before[1:, 1:, 1] = entries.any(0).cpu().cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)
        return before

    @cached_property
    def _most_blocks(self) -> int:
        return int(self.layout.sum(-1).max()) if self.layout.numel() else 0

    def __repr__(self) -> str:
        return f"BlockLayout({described(self.layout)}, block_size={(self.block_rows, self.block_columns)})"
