"""One entry of a batch, as a view of its own: one head is read without computing all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.grid import Grid
from regard.masks import Cover, Mask
from regard.planner import choose
from regard.view.levels import Levels

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView


def levels_of(view: WeightsView, entry: tuple[int, ...], most_read: int | None = None) -> Levels:
    """The weights of one entry, at any level of detail; alone, where they can be computed without the others."""
    alone = one_entry(view, entry)
    return Levels(view, entry, most_read) if alone is None else Levels(alone, None, most_read)


@torch.no_grad()
def one_entry(view: WeightsView, entry: tuple[int, ...]) -> WeightsView | None:
    """A view of one entry, with every axis of the batch, of size 1; None where it is computed with the others alone."""
    problem = view._problem
    grid = problem.grid
    # What a user's function and a rule know of heads, and NaN among the inputs, is not taken apart.
    whole = problem.form.captures or problem.rule.batch_shape or problem.may_leak or problem.form.has_offsets
    if whole or math.prod(grid.batch_shape) == 1:
        return None
    form = problem.form.rebuilt(iter([_of(each.detach(), entry) for each in problem.form.tensors()]))
    queries, keys, values = (_of(each.detach(), entry) for each in (problem.queries, problem.keys, problem.values))
    values = values.expand(*(1,) * len(entry), *values.shape[-2:])
    mask = None if problem.mask is None else _OfEntry(problem.mask, entry, grid)
    part = replace(problem, queries=queries, keys=keys, values=values, mask=mask).around(form)
    return type(view)(part, choose(part, None))  # what was recorded stays a recording


def _of(tensor: Tensor, entry: tuple[int, ...]) -> Tensor:
    """The entry of a tensor whose batch axes broadcast with all of them; every axis stays, of size 1."""
    for axis, place in enumerate(reversed(entry), 3):
        if tensor.ndim >= axis and tensor.shape[-axis] > 1:
            tensor = tensor.narrow(-axis, place, 1)
    return tensor


class _OfEntry(Mask):
    """What a mask lets one entry of the batch see."""

    def __init__(self, mask: Mask, entry: tuple[int, ...], grid: Grid) -> None:
        self.mask, self.entry, self.grid = mask, entry, grid

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return _of(self.mask.allows(rows, columns, self.grid), self.entry)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return _of(self.mask.tile(rows, columns, self.grid), self.entry)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        return self.mask.cover(rows, columns, self.grid)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def __repr__(self) -> str:
        return f"{self.mask!r} of one entry"
