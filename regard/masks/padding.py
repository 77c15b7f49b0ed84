"""Sequences of different lengths in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard import modes
from regard.errors import OptionError
from regard.grid import Grid, line_up
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import positions
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import described, whole_tensor
from regard.modes import is_hidden


class Padding(Mask):
    """Each query attends to the keys that are there: column < length.

    Args:
        lengths: the number of real keys of each batch entry, a tensor or a list of integers, or one integer for all.
            Its axes line up with the batch axes from the left, so `(batch,)` serves `(batch, heads)`.

    Example:
        >>> print(Padding([2, 4]).picture(2, 4))
        ##··  ####
        ##··  ####
    """

    def __init__(self, lengths: Tensor | Sequence[int] | int) -> None:
        self.lengths = whole_tensor(lengths, "Padding", "lengths")
        # Plain numbers follow the problem to its device; a tensor stays where its owner put it.
        self._plain = not isinstance(lengths, Tensor)

    def check(self, grid: Grid) -> None:
        super().check(grid)
        self._lined_up(grid)
        if is_hidden(self.lengths) or modes.waits(self.lengths):  # longer ones mean all keys, negative ones none
            return
        shortest, longest = self._extremes
        if shortest < 0 or longest > grid.n_keys:
            wrong = shortest if shortest < 0 else longest
            raise OptionError(
                f"`lengths` of Padding must be between 0 and the number of keys, {grid.n_keys}: got {wrong}. "
                f"Pass the number of real keys of each batch entry."
            )

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return columns < self._lined_up(grid)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        shortest, longest = self._extremes
        if columns[0] >= longest:
            return Cover.NONE
        return Cover.ALL if columns[-1] < shortest else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        longest = self._extremes[1]
        return [range(longest)] if rows and longest else []

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor]:
        stop = self.known_counts(rows, grid)
        return torch.zeros_like(stop), stop

    def indices(self, rows: range, grid: Grid) -> Tensor:
        columns = positions(range(self.count_bound(grid)), grid.device)
        shown = torch.where(columns < self._lined_up(grid), columns, -1)  # (..., 1, width)
        return shown.expand(*shown.shape[:-2], len(rows), -1)

    def count_bound(self, grid: Grid) -> int:
        return self._extremes[1]

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        lengths = self._lined_up(grid).squeeze(-1)
        return lengths.expand(*lengths.shape[:-1], len(rows))

    def arguments(self) -> tuple[object, ...]:
        return (self.lengths,)

    def tensors(self) -> tuple[Tensor, ...]:
        return () if self._plain else (self.lengths,)

    def batch_axes(self) -> Axes:
        return Axes(left=tuple(self.lengths.shape))

    def _moved(self, device: torch.device) -> Mask:
        return Padding(self.lengths.to(device))

    def _lined_up(self, grid: Grid) -> Tensor:
        """The lengths, `(*batch, 1, 1)`."""
        lengths = line_up(self.lengths, grid, trailing=0, owner="Padding", name="lengths")
        return lengths.to(grid.device)[..., None, None]

    @cached_property
    def _extremes(self) -> tuple[int, int]:
        # Read once: on a GPU each reading waits for the device.
        if self.lengths.numel() == 0:
            return 0, 0
        shortest, longest = torch.stack(self.lengths.aminmax()).tolist()
        return shortest, longest

    def __repr__(self) -> str:
        return f"Padding(lengths={self.lengths.tolist() if self._plain else described(self.lengths)})"
