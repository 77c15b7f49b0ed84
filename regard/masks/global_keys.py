"""Keys that every query attends to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import OptionError, ShapeError
from regard.grid import Grid
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import integer, whole_tensor
from regard.masks.ranges import joined
from regard.modes import is_capturing, is_tracing


class GlobalKeys(Mask):
    """Every query attends to the keys at these positions: column ∈ positions.

    Args:
        positions: integers, a sequence or a tensor of one axis; a negative one counts from the last key. They are read
            once and follow the problem to its device.

    Example:
        >>> print(GlobalKeys([0, -1]).picture(3, 5))
        #···#
        #···#
        #···#
    """

    def __init__(self, positions: Sequence[int] | Tensor) -> None:
        if is_tracing() and not isinstance(positions, Tensor):
            self.positions: tuple[int, ...] = tuple([integer(each, "GlobalKeys", "positions") for each in positions])
            self._resolved: _Resolved | None = None
            return
        tensor = whole_tensor(positions, "GlobalKeys", "positions")
        if tensor.ndim != 1:
            raise ShapeError(
                f"`positions` of GlobalKeys must have one axis: got {tuple(tensor.shape)}. "
                f"Pass the list of the keys that every query attends to."
            )
        self.positions = tuple(tensor.tolist())
        self._resolved = None

    def check(self, grid: Grid) -> None:
        super().check(grid)
        for position in self.positions:
            if not -grid.n_keys <= position < grid.n_keys:
                raise OptionError(
                    f"`positions` of GlobalKeys must be in range({-grid.n_keys}, {grid.n_keys}) for "
                    f"{grid.n_keys} keys: got {position}. Pass the positions of keys that are there."
                )

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        if is_tracing():
            return torch.isin(columns, torch.tensor(self.positions, device=grid.device) % grid.n_keys)
        if columns.is_cuda:  # isin looks for what is there more than once, and waits for it
            row = torch.zeros(grid.n_keys, dtype=torch.bool, device=grid.device)
            return row.index_fill_(0, self._columns_tensor(grid), True)[columns]
        return torch.isin(columns, self._columns_tensor(grid))

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        resolved = self._columns(grid)
        n_seen = bisect_left(resolved, columns[-1] + 1) - bisect_left(resolved, columns[0])
        if n_seen == 0:
            return Cover.NONE
        return Cover.ALL if n_seen == columns[-1] + 1 - columns[0] else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        return list(self._resolve(grid).live) if rows else []

    def indices(self, rows: range, grid: Grid) -> Tensor:
        return self._columns_tensor(grid).expand(len(rows), -1)

    def count_bound(self, grid: Grid) -> int:
        return len(self._columns(grid))

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        return torch.full((len(rows),), self.count_bound(grid), device=grid.device)

    def _columns(self, grid: Grid) -> list[int]:
        return self._resolve(grid).columns

    def _columns_tensor(self, grid: Grid) -> Tensor:
        return self._resolve(grid).tensor

    def _resolve(self, grid: Grid) -> _Resolved:
        # Kept: the tiles of one problem follow each other, and on a GPU each new tensor is a copy to the device.
        kept = self._resolved
        if kept is None or kept.n_keys != grid.n_keys or kept.tensor.device != grid.device:
            columns = sorted({position % grid.n_keys for position in self.positions})
            live = joined(range(column, column + 1) for column in columns)
            tensor = torch.tensor(columns, dtype=torch.int64)
            if grid.device.type == "cuda":  # from pinned memory, which nobody waits for
                tensor = tensor.pin_memory().to(grid.device, non_blocking=True)
            else:
                tensor = tensor.to(grid.device)
            kept = _Resolved(grid.n_keys, columns, live, tensor)
            if not is_capturing(grid.device):  # what a graph captures is filled by its replays
                self._resolved = kept
        return kept

    def arguments(self) -> tuple[object, ...]:
        return (self.positions,)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.positions[:8]))
        return f"GlobalKeys([{shown}{', …' if len(self.positions) > 8 else ''}])"


class _Resolved(NamedTuple):
    """The positions among so many keys, ascending, each once; the ranges that hold them; and a tensor of them."""

    n_keys: int
    columns: list[int]
    live: list[range]
    tensor: Tensor
