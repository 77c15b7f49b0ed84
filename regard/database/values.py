"""What weights can make of values: a mean and a spread, a date, the probability of each category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.database.columns import CategoryColumn, Column, Quantity
from regard.view import WeightsView

LIKELIEST = 1000
"""How many categories an answer keeps; a column of names may have a million."""

CLASSES = 32
"""How many categories the choice of a bandwidth tells apart."""

BUDGET = 2**22
"""How many elements of a block of queries × rows are held at a time."""


@dataclass(frozen=True)
class Summary:
    """What one query makes of one value column."""

    value: Any
    std: Any = None
    probabilities: dict[Any, float] | None = None


class ValuePool:
    """The values of the rows that are complete, ready to be pooled.

    Args:
        columns: the value columns.
        rows: which rows are complete.
        dtype: of the keys that they are pooled with.
    """

    def __init__(self, columns: Sequence[Column], rows: Tensor, dtype: torch.dtype) -> None:
        self.columns = tuple(columns)
        self.rows = rows
        self.dtype = dtype

    @cached_property
    def _centred(self) -> dict[int, tuple[Tensor, Tensor]]:
        """For each quantity: its numbers in standard deviations from the mean, and that deviation.

        Squares of what is far from 0 (a year, a timestamp) would lose the digits that the spread is made of.
        """
        centred = {}
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                numbers = column.numbers[self.rows].double()
                centre = numbers.mean(0) if len(numbers) else torch.zeros(column.dim, dtype=torch.float64)
                scale = (numbers - centre).square().mean(0).sqrt() if len(numbers) else torch.ones_like(centre)
                scale = torch.where(scale > 0, scale, 1)
                centred[place] = (((numbers - centre) / scale).to(self.dtype), scale)
        return centred

    @cached_property
    def matrix(self) -> Tensor:
        """A column of ones for the total weight, then v, z and z² of each quantity: `(n_rows, 1 + 3 · dims)`."""
        parts = [torch.ones(len(self.rows), 1, dtype=self.dtype)]
        for place, (centred, _) in self._centred.items():
            column = self.columns[place]
            assert isinstance(column, Quantity)
            parts += [column.numbers[self.rows].to(self.dtype), centred, centred.square()]
        return torch.cat(parts, dim=-1)

    def targets(self, rows: Tensor) -> Tensor | None:
        """What there is to predict about some rows: `(n_rows, n_targets)`, or None."""
        parts = []
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                numbers = self._centred[place][0][rows]
                parts.append(numbers / numbers.shape[-1] ** 0.5)
            elif isinstance(column, CategoryColumn):
                codes = column.codes[self.rows[rows]]
                distinct, counts = torch.unique(codes, return_counts=True)
                # Names that are all different cannot be predicted from other rows.
                if len(distinct) <= len(rows) / 2:
                    frequent = distinct[counts.sort(descending=True, stable=True).indices[:CLASSES]]
                    parts.append((codes.unsqueeze(-1) == frequent).to(self.dtype))
        return torch.cat(parts, dim=-1) if parts else None

    def block_size(self) -> int:
        """How many queries are pooled at a time."""
        widest = max(
            (len(column.categories) for column in self.columns if isinstance(column, CategoryColumn)), default=1
        )
        return max(1, min(256, BUDGET // max(widest, 1)))

    def summaries(self, view: WeightsView) -> list[tuple[float, list[Summary]]]:
        """For each query of a view: its total weight, and a summary for each value column."""
        pooled = view.output.double()  # (n_queries, 1 + 3 · dims)
        total = pooled[:, 0]
        by_column: list[list[Summary]] = []
        start = 1
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                stop = start + 3 * column.dim
                by_column.append(self._quantity(place, column, pooled[:, start:stop], view.kind))
                start = stop
            elif isinstance(column, CategoryColumn):
                by_column.append(self._category(column, view))
            else:
                best = view.top(1).indices.flatten().clamp(min=0).tolist()
                by_column.append([Summary(column.entries[int(self.rows[row])]) for row in best])
        return [(float(total[query]), [each[query] for each in by_column]) for query in range(len(total))]

    def _quantity(self, place: int, column: Quantity, pooled: Tensor, kind: str) -> list[Summary]:
        values, first, second = (pooled[:, part * column.dim : (part + 1) * column.dim] for part in range(3))
        spreads: list[Any] = [None] * len(pooled)
        if kind in ("convex", "one-hot", "uniform"):
            variance = second - first.square()
            noise = 64 * torch.finfo(self.dtype).eps * second
            deviations = torch.where(variance > noise, variance, 0).sqrt() * self._centred[place][1]
            spreads = [column.spread(each) for each in deviations]
        return [Summary(column.mean(value), spread) for value, spread in zip(values, spreads, strict=True)]

    def _category(self, column: CategoryColumn, view: WeightsView) -> list[Summary]:
        codes = column.codes[self.rows]
        n_queries, n_rows = view.shape[-2:]
        mass = torch.zeros(n_queries, len(column.categories), dtype=self.dtype)
        step = max(1, BUDGET // max(n_queries, 1))
        for start in range(0, n_rows, step):
            columns = range(start, min(start + step, n_rows))
            mass.index_add_(1, codes[columns.start : columns.stop], view.tile(range(n_queries), columns))
        mass = mass / mass.sum(-1, keepdim=True).clamp(min=torch.finfo(self.dtype).tiny)
        # Stable, so that ties go to the category that comes first.
        order = mass.sort(dim=-1, descending=True, stable=True)
        summaries = []
        for weights, places in zip(
            order.values[:, :LIKELIEST].tolist(), order.indices[:, :LIKELIEST].tolist(), strict=True
        ):
            likely = {
                column.categories[code]: weight for code, weight in zip(places, weights, strict=True) if weight > 0
            }
            summaries.append(Summary(next(iter(likely), None), probabilities=likely))
        return summaries
