"""A mask that a function says."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.errors import DtypeError, ShapeError
from regard.grid import Grid
from regard.masks.mask import Mask
from regard.masks.mask_checks import broadcasts_to
from regard.tensors import broadcast_shapes


class Where(Mask):
    """Each query attends to the keys for which the function is True: function(row, column).

    The function is called with tensors of positions that broadcast, never with all pairs at once, and must answer for
    each pair from its two positions. No tile is known to be full or empty, so every pair is computed: where one of the
    other masks says the same, it is faster.

    Args:
        function: takes int64 tensors, rows `(..., r, 1)` and columns `(..., 1 or r, c)`, and returns a bool tensor that
            broadcasts to `(*batch_shape, r, c)`. Tensors that it closes over must be on the device of the problem.

    Example:
        >>> print(Where(lambda row, column: (row + column) % 3 == 0).picture(4))
        #··#
        ··#·
        ·#··
        #··#
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        if not callable(function):
            raise DtypeError(
                f"`function` of Where must be a function of row and column: got {type(function).__name__}. "
                f"For a tensor use Allowed(tensor)."
            )
        self.function = function

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        allowed = self.function(rows, columns)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            got = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
            raise DtypeError(
                f"`function` of Where must return a bool tensor: got {got}. Compare with tensor operations, such as "
                f"`row >= column`, and join with & and |."
            )
        tile = broadcast_shapes(rows.shape, columns.shape)[-2:]
        wanted = broadcast_shapes((*grid.batch_shape, *tile), rows.shape, columns.shape)
        shape = tuple(allowed.shape)
        if not broadcasts_to(shape, wanted):
            raise ShapeError(
                f"`function` of Where must return what broadcasts to {wanted} for rows {tuple(rows.shape)} and columns "
                f"{tuple(columns.shape)}: got {shape}. Return one answer for each pair."
            )
        return allowed if allowed.ndim >= 2 else allowed.reshape((1,) * (2 - allowed.ndim) + shape)

    def __repr__(self) -> str:
        return f"Where({getattr(self.function, '__name__', type(self.function).__name__)})"
