"""A mask of its own for each head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes, merge
from regard.masks.mask import Cover, Mask
from regard.masks.ranges import joined
from regard.masks.window import Window
from regard.tensors import broadcast_shapes


class PerHead(Mask):
    """Each entry of the last batch axis, the heads, has its own mask: masks[head](row, column).

    Args:
        masks: one mask for each head, None for a head that attends to every key. Each is given the problem without
            the axis of heads.

    Example:
        >>> from regard.masks import Causal, Strided, Window
        >>> print(PerHead([Causal(), Window(before=1, after=1), Strided(2), None]).picture(4))
        #···  ##··  #·#·  ####
        ##··  ###·  ·#·#  ####
        ###·  ·###  #·#·  ####
        ####  ··##  ·#·#  ####
    """

    def __init__(self, masks: Sequence[Mask | None]) -> None:
        if not isinstance(masks, Iterable):
            raise DtypeError(
                f"`masks` of PerHead must be a list of masks: got {type(masks).__name__}. Pass one mask for each head."
            )
        # A window without ends is every key, wherever queries stand.
        self.masks = tuple(Window(None, None, align="start") if mask is None else mask for mask in masks)
        if not self.masks:
            raise OptionError("`masks` of PerHead must not be empty: got no masks. Pass one mask for each head.")
        for mask in self.masks:
            if not isinstance(mask, Mask):
                advice = (
                    "Wrap a bool tensor in Allowed(tensor)."
                    if isinstance(mask, Tensor)
                    else "Pass one such as Causal() for each head, or None for a head that attends to every key."
                )
                raise DtypeError(f"`masks` of PerHead must be masks: got {type(mask).__name__}. {advice}")

    def check(self, grid: Grid) -> None:
        if not grid.batch_shape or grid.batch_shape[-1] != len(self.masks):
            raise ShapeError(
                f"`masks` of PerHead must have one mask for each entry of the last batch axis: "
                f"got {len(self.masks)} masks for batch axes {grid.batch_shape}. Pass one mask for each head."
            )
        for mask in self.masks:
            mask.check(_of_one_head(grid))

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        one = _of_one_head(grid)
        return _stack(
            [mask.allows(_of_head(rows, head), _of_head(columns, head), one) for head, mask in enumerate(self.masks)],
            dim=-3,
        )

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        one = _of_one_head(grid)
        return _stack([mask.tile(rows, columns, one) for mask in self.masks], dim=-3)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        one = _of_one_head(grid)
        covers = set()
        for mask in self.masks:
            covers.add(mask.cover(rows, columns, one))
            if len(covers) > 1:
                return Cover.SOME
        return covers.pop()

    def live(self, rows: range, grid: Grid) -> list[range]:
        one = _of_one_head(grid)
        return joined(columns for mask in self.masks for columns in mask.live(rows, one))

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        one = _of_one_head(grid)
        firsts, stops = [], []
        for mask in self.masks:
            bounds = mask.bounds(rows, one)
            if bounds is None:
                return None
            firsts.append(bounds[0])
            stops.append(bounds[1])
        return _stack(firsts, dim=-2), _stack(stops, dim=-2)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        one = _of_one_head(grid)
        found = [mask.indices(rows, one) for mask in self.masks]
        width = max(indices.shape[-1] for indices in found)
        return _stack([pad(indices, (0, width - indices.shape[-1]), value=-1) for indices in found], dim=-3)

    def count_bound(self, grid: Grid) -> int | None:
        one = _of_one_head(grid)
        bounds = [mask.count_bound(one) for mask in self.masks]
        known = [bound for bound in bounds if bound is not None]
        return max(known) if len(known) == len(bounds) else None

    def known_counts(self, rows: range, grid: Grid) -> Tensor | None:
        one = _of_one_head(grid)
        counts = [mask.known_counts(rows, one) for mask in self.masks]
        known = [count for count in counts if count is not None]
        return _stack(known, dim=-2) if len(known) == len(counts) else None

    def any_allowed(self, rows: range, grid: Grid) -> Tensor:
        one = _of_one_head(grid)
        return _stack([mask.any_allowed(rows, one) for mask in self.masks], dim=-2)

    def arguments(self) -> tuple[object, ...]:
        return (self.masks,)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for mask in self.masks for tensor in mask.tensors())

    def batch_axes(self) -> Axes:
        each = merge(*(mask.batch_axes() for mask in self.masks))
        return Axes(each.left, (*each.right, len(self.masks)), each.heads + 1)

    def _moved(self, device: torch.device) -> Mask:
        return PerHead([mask.to(device) for mask in self.masks])

    def __repr__(self) -> str:
        return f"PerHead([{', '.join(map(repr, self.masks))}])"


def _of_one_head(grid: Grid) -> Grid:
    return replace(grid, batch_shape=grid.batch_shape[:-1])


def _of_head(positions: Tensor, head: int) -> Tensor:
    """Rows or columns `(..., heads or 1, r, c)` of one head; without a batch axis they serve every head."""
    if positions.ndim < 3:
        return positions
    return positions.select(-3, head if positions.shape[-3] > 1 else 0)


def _stack(parts: list[Tensor], dim: int) -> Tensor:
    shape = broadcast_shapes(*(part.shape for part in parts))
    return torch.stack([part.expand(shape) for part in parts], dim=dim)
