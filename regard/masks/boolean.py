"""Masks made of masks: `&`, `|` and `~`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from regard.errors import DtypeError, OptionError
from regard.grid import Grid
from regard.masks.batch_axes import Axes, merge
from regard.masks.index_arithmetic import between, keep, positions
from regard.masks.mask import Cover, Mask
from regard.masks.ranges import common, joined
from regard.tensors import broadcast_shapes


class Combined(Mask):
    """A mask of several; nested ones of the same kind are made flat."""

    symbol = ""
    join: Callable[[Tensor, Tensor], Tensor]
    settles: Cover  # One mask that says this of a tile has said it for all,
    agrees: Cover  # and where every mask says this, so do they together.

    def __init__(self, *masks: Mask) -> None:
        name = type(self).__name__
        if not masks:
            raise OptionError(f"{name} must have masks: got none. Pass those to combine, as {name}(first, second).")
        self.masks: tuple[Mask, ...] = tuple(
            part for mask in masks for part in (mask.masks if isinstance(mask, type(self)) else (_checked(mask, name),))
        )

    def check(self, grid: Grid) -> None:
        for mask in self.masks:
            mask.check(grid)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return reduce(self.join, (mask.allows(rows, columns, grid) for mask in self.masks))

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return reduce(self.join, (mask.tile(rows, columns, grid) for mask in self.masks))

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        agreed = True
        for mask in self.masks:
            cover = mask.cover(rows, columns, grid)
            if cover is self.settles:
                return cover
            agreed = agreed and cover is self.agrees
        return self.agrees if agreed else Cover.SOME

    def arguments(self) -> tuple[object, ...]:
        return self.masks

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for mask in self.masks for tensor in mask.tensors())

    def batch_axes(self) -> Axes:
        return merge(*(mask.batch_axes() for mask in self.masks))

    def _moved(self, device: torch.device) -> Mask:
        return type(self)(*(mask.to(device) for mask in self.masks))

    def __repr__(self) -> str:
        return f" {self.symbol} ".join(
            f"({mask!r})" if isinstance(mask, Combined) else repr(mask) for mask in self.masks
        )


class And(Combined):
    """The pairs that every one of the masks allows: `a & b`.

    Example:
        >>> from regard.masks import Causal, Padding
        >>> print((Causal() & Padding(3)).picture(5))
        #····
        ##···
        ###··
        ###··
        ###··
    """

    symbol = "&"
    join = staticmethod(torch.logical_and)
    settles, agrees = Cover.NONE, Cover.ALL

    def live(self, rows: range, grid: Grid) -> list[range]:
        return reduce(common, (mask.live(rows, grid) for mask in self.masks))

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        firsts, stops = [], []
        for mask in self.masks:
            bounds = mask.bounds(rows, grid)
            if bounds is None:
                return None
            firsts.append(bounds[0])
            stops.append(bounds[1])
        return reduce(torch.maximum, firsts), reduce(torch.minimum, stops)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        run = self.bounds(rows, grid)
        if run is not None:
            return between(*run)
        bounds = [mask.count_bound(grid) for mask in self.masks]
        known = [bound for bound in bounds if bound is not None]
        # Sorting what is kept costs more than reading a strip unless the sparsest is sparse.
        # And where there are no keys, there is none to ask the others about.
        if not known or not grid.n_keys or 2 * min(known) > grid.n_keys:
            return super().indices(rows, grid)
        sparsest = bounds.index(min(known))
        indices = self.masks[sparsest].indices(rows, grid)
        kept = indices >= 0
        row, column = positions(rows, grid.device)[:, None], indices.clamp(min=0)
        for place, mask in enumerate(self.masks):
            if place != sparsest:
                kept = kept & mask.allows(row, column, grid)
        return keep(indices, kept)

    def count_bound(self, grid: Grid) -> int | None:
        return min((bound for mask in self.masks if (bound := mask.count_bound(grid)) is not None), default=None)


class Or(Combined):
    """The pairs that any of the masks allows: `a | b`.

    Example:
        >>> from regard.masks import GlobalKeys, Window
        >>> print((Window(before=1, after=0) | GlobalKeys([0])).picture(5))
        #····
        ##···
        ###··
        #·##·
        #··##
    """

    symbol = "|"
    join = staticmethod(torch.logical_or)
    settles, agrees = Cover.ALL, Cover.NONE

    def live(self, rows: range, grid: Grid) -> list[range]:
        return joined(columns for mask in self.masks for columns in mask.live(rows, grid))

    def indices(self, rows: range, grid: Grid) -> Tensor:
        bound = self.count_bound(grid)
        if bound is None or bound >= grid.n_keys:
            return super().indices(rows, grid)
        found = [mask.indices(rows, grid) for mask in self.masks]
        lead = broadcast_shapes(*(indices.shape[:-1] for indices in found))
        merged = torch.cat([indices.expand(*lead, -1) for indices in found], dim=-1).sort(-1).values
        new = merged >= 0
        new[..., 1:] &= merged[..., 1:] != merged[..., :-1]
        return keep(merged, new)

    def count_bound(self, grid: Grid) -> int | None:
        total = 0
        for mask in self.masks:
            bound = mask.count_bound(grid)
            if bound is None:
                return None
            total += bound
        return min(total, grid.n_keys)

    def any_allowed(self, rows: range, grid: Grid) -> Tensor:
        return reduce(torch.logical_or, (mask.any_allowed(rows, grid) for mask in self.masks))


class Not(Mask):
    """The pairs that the mask does not allow: `~a`; `~~a` is `a` itself.

    Example:
        >>> from regard.masks import Causal
        >>> print((~Causal()).picture(4))
        ·###
        ··##
        ···#
        ····
    """

    def __init__(self, mask: Mask) -> None:
        self.mask = _checked(mask, "Not")

    def check(self, grid: Grid) -> None:
        self.mask.check(grid)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return ~self.mask.allows(rows, columns, grid)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return ~self.mask.tile(rows, columns, grid)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        return _OPPOSITE[self.mask.cover(rows, columns, grid)]

    def known_counts(self, rows: range, grid: Grid) -> Tensor | None:
        counts = self.mask.known_counts(rows, grid)
        return None if counts is None else grid.n_keys - counts

    def arguments(self) -> tuple[object, ...]:
        return (self.mask,)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def batch_axes(self) -> Axes:
        return self.mask.batch_axes()

    def _moved(self, device: torch.device) -> Mask:
        return Not(self.mask.to(device))

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~({self.mask!r})" if isinstance(self.mask, Combined) else f"~{self.mask!r}"


_OPPOSITE = {Cover.ALL: Cover.NONE, Cover.NONE: Cover.ALL, Cover.SOME: Cover.SOME}


def _checked(mask: object, owner: str) -> Mask:
    if isinstance(mask, Mask):
        return mask
    fix = "Wrap it in Allowed(tensor)." if isinstance(mask, Tensor) else "Pass a mask, such as Causal()."
    raise DtypeError(f"{owner} must be made of masks: got {type(mask).__name__}. {fix}")
