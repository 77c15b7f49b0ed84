"""A band of keys around where each query stands: what Causal and Window share."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.grid import Align, Grid
from regard.masks.index_arithmetic import positions
from regard.masks.mask import Cover
from regard.masks.positional import Positional
from regard.masks.ranges import joined

_FAR = 1 << 61  # Further than any key; the sum of two fits an int64.


class Band(Positional):
    """−before ≤ column − (row + offset) ≤ after; None is no limit on that side."""

    def __init__(self, before: int | None, after: int | None, align: Align) -> None:
        super().__init__(align)
        self.before = before
        self.after = after

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        first, last = self._limits(grid)
        early_enough = None if last is None else columns <= rows + last
        if first is None:
            return torch.ones_like(rows, dtype=torch.bool) if early_enough is None else early_enough
        late_enough = columns >= rows + first
        return late_enough if early_enough is None else early_enough & late_enough

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        nearest, farthest = self.distances(rows, columns, grid)
        too_early = self.before is not None and nearest < -self.before
        too_late = self.after is not None and farthest > self.after
        if not too_early and not too_late:
            return Cover.ALL
        if self.before is not None and farthest < -self.before:
            return Cover.NONE
        if self.after is not None and nearest > self.after:
            return Cover.NONE
        return Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        if not rows:
            return []
        least, greatest = self.offsets(grid)
        if least == greatest or self.before is None or self.after is None:
            return joined([self._reach(rows, least, greatest, grid)])
        # Sequences that stand far apart leave gaps between their bands.
        return joined(self._reach(rows, offset, offset, grid) for offset in self._every_offset)

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor]:
        start, stop = self._spans(rows, grid)
        return start.squeeze(-1), stop.squeeze(-1)

    def line(self, grid: Grid) -> tuple[int, int]:
        """The bounds of row 0, unclamped; row i's are i further on. Of a mask with one offset."""
        first, last = self._limits(grid)
        assert not isinstance(first, Tensor)
        assert not isinstance(last, Tensor)
        return -grid.n_queries if first is None else first, grid.n_keys if last is None else last + 1

    def indices(self, rows: range, grid: Grid) -> Tensor:
        start, stop = self._spans(rows, grid)
        width = self._width(rows, grid)
        columns = start + torch.arange(width, device=grid.device)
        return torch.where(columns < stop, columns, -1)

    def count_bound(self, grid: Grid) -> int | None:
        if self.before is None or self.after is None:
            return None
        return min(self.before + self.after + 1, grid.n_keys)

    def _spans(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor]:
        """The first column of each row's band and the one after its last: `(..., r, 1)` each."""
        row = positions(rows, grid.device)[:, None]
        first, last = self._limits(grid)
        start = torch.zeros_like(row) if first is None else (row + first).clamp_(0, grid.n_keys)
        stop = torch.full_like(row, grid.n_keys) if last is None else (row + last + 1).clamp_(0, grid.n_keys)
        return start, stop

    def _limits(self, grid: Grid) -> tuple[int | Tensor | None, int | Tensor | None]:
        """The first and the last column of row 0's band, None where there is no limit; row i's are i further on.

        They may be beyond the keys, but not so far that sums with them overflow.
        """
        offset = self.offset(grid)
        first = None if self.before is None else _within(offset, -self.before, grid)
        return first, None if self.after is None else _within(offset, self.after, grid)

    def _width(self, rows: range, grid: Grid) -> int:
        """As many columns as the widest band of `rows` can have."""
        if not rows:
            return 0
        reach = len(self._reach(rows, *self.offsets(grid), grid))
        bound = self.count_bound(grid)
        return reach if bound is None else min(reach, bound)

    def _reach(self, rows: range, least: int, greatest: int, grid: Grid) -> range:
        """From the first to the last column of any band of `rows` with an offset between `least` and `greatest`."""
        first = 0 if self.before is None else max(rows[0] + least - self.before, 0)
        stop = grid.n_keys if self.after is None else min(rows[-1] + greatest + self.after + 1, grid.n_keys)
        return range(first, stop)


def _within(offset: int | Tensor, step: int, grid: Grid) -> int | Tensor:
    """offset + step, or the nearest to it from where every row's limit is still beyond the same end of the keys."""
    if isinstance(offset, int):
        return min(max(offset + step, -grid.n_queries), grid.n_keys)
    return (offset.clamp(-_FAR, _FAR) + min(max(step, -_FAR), _FAR)).clamp_(-grid.n_queries, grid.n_keys)
