"""Some queries and heads of what a recording is shown: a mask for them, their tensors, their places."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.grid import Grid
from regard.masks import Allowed, Mask
from regard.masks.batch_axes import Axes


def part_of_mask(mask: Mask, rows: Tensor | None, heads: Tensor | None, grid: Grid) -> Mask:
    """A mask for some queries and heads: by its formula; where it has tensors, by the entries that are wanted."""
    part = _PartOfMask(mask, rows, heads, grid)
    if not mask.tensors():
        return part
    places = torch.arange(grid.n_queries, device=grid.device) if rows is None else rows
    columns = torch.arange(grid.n_keys, device=grid.device)
    allowed = mask.allows(places[:, None], columns, grid)
    allowed = allowed if heads is None else of_heads(allowed, heads, grid.batch_shape[-1])
    return Allowed(allowed.expand(*allowed.shape[:-2], len(places), grid.n_keys).clone())


class _PartOfMask(Mask):
    """A mask for some of the queries and heads of a problem."""

    def __init__(self, mask: Mask, rows: Tensor | None, heads: Tensor | None, grid: Grid) -> None:
        self.mask, self.rows, self.heads, self.grid = mask, rows, heads, grid

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        rows = rows if self.rows is None else self.rows[rows]
        allowed = self.mask.allows(rows, columns, self.grid)
        return allowed if self.heads is None else of_heads(allowed, self.heads, self.grid.batch_shape[-1])

    def batch_axes(self) -> Axes:
        return self.mask.batch_axes()

    def __repr__(self) -> str:
        return f"a part of {self.mask!r}"


def of_heads(tensor: Tensor, heads: Tensor, n_heads: int) -> Tensor:
    """Some heads of a tensor that has an axis for them before its last two."""
    return tensor.index_select(-3, heads) if tensor.ndim >= 3 and tensor.shape[-3] == n_heads else tensor


def places_of(rows: Sequence[int] | slice, n_queries: int) -> list[int]:
    if isinstance(rows, slice):
        return list(range(n_queries))[rows]
    outside = [row for row in rows if not -n_queries <= row < n_queries]
    if outside:
        raise OptionError(f"`rows` must be among the {n_queries} queries: got {outside}.")
    return [row % n_queries for row in rows]
