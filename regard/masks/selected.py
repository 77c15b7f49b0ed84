"""A list of keys for each query."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from regard import modes
from regard.errors import OptionError, ShapeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import FAR, as_slice, blocks, contains, from_far, pick, sort_unique, spread
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import check_broadcasts, described, whole_tensor
from regard.masks.ranges import marked
from regard.modes import is_hidden


class Selected(Mask):
    """Each query attends to the keys that are listed for it: column ∈ indices[row].

    Args:
        indices: integers, `(..., n_queries, k)`: up to k keys for each query. −1 is an empty slot; a key that is
            listed twice counts once. Its batch axes broadcast from the right, so `(heads, n_queries, k)` serves
            `(batch, heads)`.

    Example:
        >>> print(Selected([[0, 3], [2, -1], [1, 1]]).picture(3, 4))
        #··#
        ··#·
        ·#··
    """

    def __init__(self, indices: Tensor | list[list[int]]) -> None:
        given = whole_tensor(indices, "Selected", "indices")
        if given.ndim < 2:
            raise ShapeError(
                f"`indices` of Selected must be (..., n_queries, k): got {tuple(given.shape)}. "
                f"Pass a row of keys for each query; GlobalKeys(positions) gives every query the same."
            )
        self.ordered = sort_unique(given)
        self._limits = torch.stack(given.aminmax()) if given.numel() else None

    def check(self, grid: Grid) -> None:
        super().check(grid)
        shape = tuple(self.ordered.shape)
        if shape[-2] != grid.n_queries:
            raise ShapeError(
                f"`indices` of Selected must have one row for each of the {grid.n_queries} queries: got {shape}. "
                f"Pass (..., {grid.n_queries}, {shape[-1]})."
            )
        check_broadcasts(shape[:-2], grid, self.ordered, "Selected", "indices")
        if is_hidden(self.ordered) or modes.waits(self.ordered):  # kernels take what is beyond the keys for empty
            return
        least, greatest = self._extremes
        if least < -1 or greatest >= grid.n_keys:
            raise OptionError(
                f"`indices` of Selected must be in range({grid.n_keys}) for {grid.n_keys} keys, or −1 for an empty "
                f"slot: got {least if least < -1 else greatest}. Pass the positions of keys that are there."
            )

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        slots = torch.arange(self.ordered.shape[-1], device=rows.device)
        return contains(pick(self.ordered, rows, slots), columns)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return spread(self.ordered[..., as_slice(rows), :], columns)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns or self.ordered.numel() == 0:
            return Cover.NONE
        ends = torch.tensor([columns[0], columns[-1] + 1])
        width = columns[-1] + 1 - columns[0]
        least, greatest = width, 0
        # A few rows at a time: most masks show within the first that a large tile is neither.
        for part in blocks(rows, 1 << 12):
            listed = self._on_host[..., as_slice(part), :].contiguous()
            slots = torch.searchsorted(listed, ends.expand(*listed.shape[:-1], 2).contiguous())
            n_seen = (slots[..., 1] - slots[..., 0]).aminmax()
            least, greatest = min(least, int(n_seen.min)), max(greatest, int(n_seen.max))
            if greatest > 0 and least < width:
                return Cover.SOME
        return Cover.NONE if greatest == 0 else Cover.ALL

    def live(self, rows: range, grid: Grid) -> list[range]:
        # By sixteens: fewer columns are not worth a range of their own.
        n_groups = -(-grid.n_keys // 16)
        groups = self._on_host[..., as_slice(rows), :].flatten() >> 4
        flags = torch.zeros(n_groups + 1, dtype=torch.bool)
        flags.index_fill_(0, groups.clamp_(max=n_groups), True)  # Empty slots land in one spare group.
        return marked(flags[:-1], 16, grid.n_keys)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        listed = self.ordered[..., as_slice(rows), :]
        if modes.waits(listed):  # nobody has checked them: what is not there is an empty slot
            return torch.where((listed >= 0) & (listed < grid.n_keys), listed, -1)
        return from_far(listed)

    def count_bound(self, grid: Grid) -> int:
        return min(self.ordered.shape[-1], grid.n_keys)

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        return (self.ordered[..., as_slice(rows), :] != FAR).sum(-1)

    def arguments(self) -> tuple[object, ...]:
        return (from_far(self.ordered),)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.ordered,)

    def batch_axes(self) -> Axes:
        return Axes(right=tuple(self.ordered.shape[:-2]))

    def _moved(self, device: torch.device) -> Mask:
        return Selected(from_far(self.ordered).to(device))

    @cached_property
    def _on_host(self) -> Tensor:
        # `cover` is asked once for each tile; on a GPU each answer would wait for the device.
        return self.ordered.cpu()

    @cached_property
    def _extremes(self) -> tuple[int, int]:
        """The least and the greatest that was listed, −1 where nothing was."""
        if self._limits is None:
            return -1, -1
        least, greatest = self._limits.tolist()
        return least, greatest

    def __repr__(self) -> str:
        return f"Selected({described(self.ordered)})"
