"""A mask function of transformers that is not known: evaluated by tiles, never for all pairs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.grid import Grid
from regard.masks import Mask
from regard.masks.batch_axes import Axes


class Evaluated(Mask):
    """Each query attends to the keys for which the function is True: function(batch, head, query, key).

    As with transformers' own masks the head is always 0. No tile is known to be full or empty.

    Args:
        function: A mask function of transformers.
        query_start: The position of the first query, as the function counts.
        key_start: That of the first key.
        n_sequences: How many sequences there are.
        use_vmap: Whether the function takes one pair at a time, as those do that users write.
    """

    def __init__(
        self,
        function: Callable[[Any, Any, Any, Any], Any],
        query_start: int | Tensor,
        key_start: int | Tensor,
        n_sequences: int,
        use_vmap: bool,
    ) -> None:
        self.function, self.query_start, self.key_start = function, query_start, key_start
        self.n_sequences, self.use_vmap = n_sequences, use_vmap

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        n_axes = len(grid.batch_shape) + 2
        sequences = torch.arange(self.n_sequences, device=rows.device).reshape(-1, *(1,) * (n_axes - 1))
        heads = rows.new_zeros((1,) * n_axes)
        places = sequences, heads, rows + self.query_start, columns + self.key_start
        return (self._one_by_one if self.use_vmap else self.function)(*places).to(torch.bool)

    def _one_by_one(self, *places: Tensor) -> Tensor:
        from transformers.masking_utils import TransformGetItemToIndex  # type: ignore[attr-defined]

        places = torch.broadcast_tensors(*places)
        with TransformGetItemToIndex():  # without it, vmap does not index a tensor by a number
            allowed: Tensor = torch.vmap(self.function)(*(each.flatten() for each in places))
        return allowed.reshape(places[0].shape)

    def batch_axes(self) -> Axes:
        return Axes(left=(self.n_sequences,))

    def __repr__(self) -> str:
        return f"Evaluated({getattr(self.function, '__qualname__', type(self.function).__name__)})"
