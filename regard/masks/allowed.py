"""A boolean tensor, one entry per pair."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import as_slice, pick
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import bool_tensor, check_broadcasts, described
from regard.masks.ranges import marked
from regard.tensors import stretches


class Allowed(Mask):
    """Each query attends to the keys that the tensor names for it: tensor[row, column].

    The one mask that can be as large as n_queries × n_keys, because you made it so. It is not copied: do not change it
    while the mask is in use.

    Args:
        tensor: bool, `(..., n_queries or 1, n_keys or 1)`, True where attention is allowed. It broadcasts from the
            right, as PyTorch's `attn_mask` does, so `(heads, n_queries, n_keys)` serves `(batch, heads)`.

    Example:
        >>> import torch
        >>> print(Allowed(torch.tensor([[True, False, True], [False, False, True]])).picture(2, 3))
        #·#
        ··#
    """

    def __init__(self, tensor: Tensor) -> None:
        tensor = bool_tensor(
            tensor,
            "Allowed",
            "tensor",
            "For numbers that are added to scores use score + Bias(tensor); otherwise tensor.bool().",
        )
        self.tensor = tensor if tensor.ndim >= 2 else tensor.reshape(1, -1)

    def check(self, grid: Grid) -> None:
        super().check(grid)
        n_rows, n_columns = self.tensor.shape[-2:]
        if not stretches(n_rows, grid.n_queries) or not stretches(n_columns, grid.n_keys):
            raise ShapeError(
                f"`tensor` of Allowed must be (..., {grid.n_queries} or 1, {grid.n_keys} or 1) for "
                f"{grid.n_queries} queries and {grid.n_keys} keys: got {tuple(self.tensor.shape)}. "
                f"Build it for this problem, or cut it to this size."
            )
        check_broadcasts(self.tensor.shape[:-2], grid, self.tensor, "Allowed", "tensor")

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return pick(self.tensor, rows, columns)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        n_rows, n_columns = self.tensor.shape[-2:]
        every = slice(None)
        return self.tensor[
            ..., every if n_rows == 1 else as_slice(rows), every if n_columns == 1 else as_slice(columns)
        ]

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        if 1 not in self.tensor.shape[-2:]:
            return Cover.SOME  # To know, one would have to read the whole tile.
        tile = self.tile(rows, columns, grid)
        if not bool(tile.any()):
            return Cover.NONE
        return Cover.ALL if bool(tile.all()) else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        if not rows or not grid.n_keys:
            return []
        # Every pair is read, which is a small part of what an engine does with it; eight together where they lie so.
        strip = self.tile(rows, grid.columns, grid)
        size = 8 if _in_words(strip) else grid.n_keys // strip.shape[-1]
        words = strip.view(torch.int64) if _in_words(strip) else strip
        return marked(words.any(dim=tuple(range(strip.ndim - 1))).cpu(), size, grid.n_keys)

    def arguments(self) -> tuple[object, ...]:
        return (self.tensor,)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    def batch_axes(self) -> Axes:
        return Axes(right=tuple(self.tensor.shape[:-2]))

    def _moved(self, device: torch.device) -> Mask:
        return Allowed(self.tensor.to(device))

    def __repr__(self) -> str:
        return f"Allowed({described(self.tensor)})"


def _in_words(strip: Tensor) -> bool:
    """Whether eight neighbours of a row can be read as one int64."""
    steps = (strip.shape[-1], strip.storage_offset(), *strip.stride()[:-1])
    return strip.stride(-1) == 1 and all(step % 8 == 0 for step in steps)
