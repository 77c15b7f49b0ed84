"""Everything but oneself."""

from __future__ import annotations

from torch import Tensor

from regard.grid import Grid
from regard.masks.index_arithmetic import positions
from regard.masks.mask import Cover
from regard.masks.positional import Positional


class NotSelf(Positional):
    """Each query attends to every key but the one at its own position: column ≠ row + offset. For leave-one-out.

    Args:
        align: where queries stand among keys, as for `Causal`; it must be given when their numbers differ.

    Example:
        >>> print(NotSelf().picture(4))
        ·###
        #·##
        ##·#
        ###·
    """

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return columns != rows + self._near_offset(grid)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        least, greatest = self.distances(rows, columns, grid)
        if least > 0 or greatest < 0:
            return Cover.ALL
        return Cover.NONE if least == greatest else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        return [grid.columns] if rows and grid.n_keys else []

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        stands = positions(rows, grid.device)[:, None] + self._near_offset(grid)
        return grid.n_keys - ((stands >= 0) & (stands < grid.n_keys)).squeeze(-1).long()

    def _near_offset(self, grid: Grid) -> int | Tensor:
        """The offset; one that puts every row beyond the keys, but no further than that, in place of a larger one."""
        offset = self.offset(grid)
        return offset if isinstance(offset, Tensor) else min(max(offset, -grid.n_queries), grid.n_keys)
