"""Readings that weigh queries and distances: what a few mixtures of rows come to, and how far away weights are."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from regard.grid import Grid
from regard.view.readings import Reader
from regard.view.weights_view import WeightsView

Result = TypeVar("Result")


def gather(view: WeightsView, reader: Reader[Result]) -> Result:
    """What a reader gathers from every weight of a view, seen once, by tiles."""
    passes = view._passes
    with passes.undisturbed():
        passes.read([reader])
    return reader.result()


class Mixtures(Reader[Tensor]):
    """Σ_q w(q) α(q, k) for several w: products of row vectors and the matrix of weights, `(*batch_shape, t, n_keys)`.

    Args:
        vectors: `(..., t, n_queries)`, over the batch axes of the weights.
    """

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.total = self.full(self.vectors.shape[-2], grid.n_keys)

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        some = self.vectors[..., rows.start : rows.stop].to(weights.dtype)
        self.total[..., columns.start : columns.stop] += some @ weights

    def result(self) -> Tensor:
        return self.total


class Distances(Reader[tuple[Tensor, Tensor]]):
    """(Σ α(q, k) |q − k|, Σ α(q, k)) over the queries that count, each `(*batch_shape,)`.

    Args:
        counted: `(..., n_queries)`, 1 where a query counts, over the batch axes of the weights; all if left out.
    """

    def __init__(self, counted: Tensor | None) -> None:
        self.counted = counted

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        # In double precision: each is a sum of n numbers up to n.
        self.far, self.all = (torch.zeros(grid.batch_shape, dtype=torch.float64, device=grid.device) for _ in range(2))

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        far, mass = _far_and_all(weights, rows, columns)
        if self.counted is not None:
            counted = self.counted[..., rows.start : rows.stop].to(weights.dtype)
            far, mass = far * counted, mass * counted
        self.far += far.sum(-1, dtype=torch.float64)
        self.all += mass.sum(-1, dtype=torch.float64)

    def result(self) -> tuple[Tensor, Tensor]:
        return self.far, self.all


def _far_and_all(weights: Tensor, rows: range, columns: range) -> tuple[Tensor, Tensor]:
    """(Σ α |q − k|, Σ α) over the keys of a tile, each `(*batch_shape, rows)`."""
    queries, keys = (torch.arange(each.start, each.stop, device=weights.device) for each in (rows, columns))
    before, behind = columns.stop - 1 <= rows.start, columns.start >= rows.stop - 1
    if not before and not behind:
        return (weights * (queries[:, None] - keys).abs().to(weights.dtype)).sum(-1), weights.sum(-1)
    # All keys are on one side: to the nearest of them, and from there on; neither is below 0, so that nothing cancels.
    nearest = columns.stop - 1 if before else columns.start
    from_there = torch.stack([(keys - nearest).abs(), torch.ones_like(keys)], -1).to(weights.dtype)
    far, mass = (weights @ from_there).unbind(-1)
    return far + (queries - nearest).abs().to(weights.dtype) * mass, mass
