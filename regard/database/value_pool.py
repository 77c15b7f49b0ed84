"""What weights can make of values: a mean and a spread, a date, the probability of each category."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.database.columns import CategoryColumn, Column, Quantity
from regard.database.key_matrix import safe_unit
from regard.view.readings import Top
from regard.view.weights_view import WeightsView
from regard.weights import Kind

LIKELIEST = 1000
"""How many categories an answer keeps; a column of names may have a million."""

CLASSES = 32
"""How many categories the choice of a bandwidth tells apart."""

BUDGET = 2**22
"""How many elements of a block of queries × rows are held at a time."""


SUM_TO_ONE = ("convex", "one-hot", "uniform")
"""The kinds of weights that make a mean, a spread and probabilities."""


class Weighed(NamedTuple):
    """The weights α of the rows for some queries.

    Attributes:
        kind: what the rule promises of them.
        tiles: called for each walk over all of them: which rows, and α of all queries and those rows,
            `(n_queries, rows)`.
        top: the heaviest of each query.
        sums: Σ w, Σ w² and Σ w · `ValuePool.narrow` of each query, where they are known, up to a factor and its square.
    """

    kind: Kind
    tiles: Callable[[], Iterable[tuple[slice | Tensor, Tensor]]]
    top: Top
    sums: Tensor | None = None


def weights_of_blocks(view: WeightsView) -> Iterator[tuple[slice, Tensor]]:
    """The weights of a view, a block of rows at a time, so that queries × rows stay within the budget."""
    n_queries, n_rows = view.shape[-2:]
    step = max(1, BUDGET // max(n_queries, 1))
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        yield rows, view.tile(slice(n_queries), rows)


class Summary(NamedTuple):
    """What one query makes of one value column."""

    value: Any
    std: Any = None
    probabilities: dict[Any, float] | None = None


class WeightSums(NamedTuple):
    """What the weights of one query add up to, and their squares."""

    total: float
    squares: float

    @property
    def effective_rows(self) -> float:
        """How many rows of equal weight would say as much: (Σα)² / Σα² (Kish)."""
        return self.total**2 / self.squares if self.squares > 0 else 0.0


class ValuePool:
    """The values of the rows that are complete, ready to be pooled: in float64, whatever the keys are in.

    Args:
        columns: the value columns.
        rows: which rows are complete.
    """

    def __init__(self, columns: Sequence[Column], rows: Tensor) -> None:
        self.columns = tuple(columns)
        self.rows = rows

    @cached_property
    def _centred(self) -> dict[int, tuple[Tensor, Tensor, float, Tensor]]:
        """For each quantity: its numbers in deviations from the median, that deviation, a unit, the median in it.

        The unit is 1, but for numbers so large or small that their sums or squares do not fit.

        Squares of what is far from 0 (a year, a timestamp) would lose the digits that the spread is made of. And one
        entry of 999999999 moves the mean far from all others, not the median.
        """
        centred = {}
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                numbers = column.numbers[self.rows].double()
                unit = safe_unit(numbers)
                numbers = numbers / unit
                centre = numbers.median(0).values if len(numbers) else torch.zeros(column.dim, dtype=torch.float64)
                scale = numbers.std(0, correction=0) if len(numbers) else torch.ones_like(centre)
                scale = torch.where(scale > 0, scale, 1)
                centred[place] = ((numbers - centre) / scale, scale * unit, unit, centre)
        return centred

    @cached_property
    def matrix(self) -> Tensor:
        """Ones for the total weight, then v − median, z and z² of each quantity: `(n_rows, 1 + 3 · dims)`."""
        parts = [torch.ones(len(self.rows), 1, dtype=torch.float64)]
        for place, (centred, _, unit, centre) in self._centred.items():
            column = self.columns[place]
            assert isinstance(column, Quantity)
            parts += [column.numbers[self.rows].double() / unit - centre, centred, centred.square()]
        return torch.cat(parts, dim=-1)

    @cached_property
    def narrow(self) -> Tensor:
        """What compiled loops pool: z and z² of each quantity, `(2 · dims, n_rows)`."""
        parts = [torch.empty(0, len(self.rows), dtype=torch.float64)]
        for centred, *_ in self._centred.values():
            parts += [centred.mT, centred.square().mT]
        return torch.cat(parts)

    def _pooled(self, weighed: Weighed) -> tuple[Tensor, Tensor]:
        """Σ α v, `(n_queries, 1 + 3 · dims)`, and Σ α², `(n_queries,)`: in float64, whatever the weights are in."""
        if weighed.sums is not None:
            return self._from_narrow(weighed.sums)
        n_queries = len(weighed.top.indices)
        pooled = torch.zeros(n_queries, self.matrix.shape[-1], dtype=torch.float64)
        squares = torch.zeros(n_queries, dtype=torch.float64)
        for rows, tile in weighed.tiles():
            pooled += tile.double() @ self.matrix[rows]
            squares += tile.double().square().sum(-1)
        if weighed.kind in SUM_TO_ONE:
            total = torch.where(pooled[:, :1] > 0, pooled[:, :1], 1)
            pooled, squares = pooled / total, squares / total.squeeze(-1).square()
        return pooled, squares

    def _from_narrow(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """What `_pooled` gives, from Σ w, Σ w² and Σ w · `narrow`."""
        total = sums[:, :1]
        squares, sums = sums[:, 1] / total.squeeze(-1).square(), sums[:, 2:] / total
        parts = [torch.ones_like(total)]
        for centred, scale, unit, _ in self._centred.values():
            first, second, sums = sums.tensor_split((centred.shape[-1], 2 * centred.shape[-1]), dim=-1)
            parts += [first * (scale / unit), first, second]
        return torch.cat(parts, dim=-1), squares

    def targets(self, rows: Tensor) -> Tensor | None:
        """What there is to predict about some rows: `(n_rows, n_targets)`, or None."""
        parts = []
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                numbers = self._centred[place][0][rows]
                parts.append((numbers - numbers.mean(0)) / numbers.shape[-1] ** 0.5)
            elif isinstance(column, CategoryColumn):
                codes = column.codes[self.rows[rows]]
                distinct, counts = torch.unique(codes, return_counts=True)
                # Names that are all different cannot be predicted from other rows.
                if len(distinct) <= len(rows) / 2:
                    frequent = distinct[counts.sort(descending=True, stable=True).indices[:CLASSES]]
                    parts.append((codes.unsqueeze(-1) == frequent).double())
        return torch.cat(parts, dim=-1) if parts else None

    @property
    def deviation(self) -> float:
        """The standard deviation of the first value column, in its own units; 1 where it is no quantity."""
        return float(self._centred[0][1].square().mean().sqrt()) if 0 in self._centred else 1.0

    @cached_property
    def block_size(self) -> int:
        """How many queries are pooled at a time."""
        widest = max([len(column.categories) for column in self.columns if isinstance(column, CategoryColumn)] or [1])
        return max(1, min(256, BUDGET // max(widest, 1)))

    def summaries(self, weighed: Weighed) -> Iterable[tuple[WeightSums, tuple[Summary, ...]]]:
        """For each query: sums of its weights, and a summary for each value column."""
        pooled, squares = self._pooled(weighed)  # (n_queries, 1 + 3 · dims), (n_queries,)
        by_column: list[list[Summary]] = []
        start = 1
        for place, column in enumerate(self.columns):
            if isinstance(column, Quantity):
                stop = start + 3 * column.dim
                by_column.append(self._quantity(place, column, pooled[:, :1], pooled[:, start:stop], weighed.kind))
                start = stop
            elif isinstance(column, CategoryColumn):
                by_column.append(self._category(column, weighed))
            else:
                best = weighed.top.indices[:, 0].clamp(min=0).tolist()
                by_column.append([Summary(column.entries[int(self.rows[row])]) for row in best])
        return zip(map(WeightSums, pooled[:, 0].tolist(), squares.tolist()), zip(*by_column, strict=True), strict=True)

    def _quantity(self, place: int, column: Quantity, total: Tensor, pooled: Tensor, kind: Kind) -> list[Summary]:
        apart, first, second = pooled.tensor_split(3, dim=-1)
        _, scale, unit, centre = self._centred[place]
        # A sum of large values would lose digits that their differences have.
        means = (apart + centre * total) * unit
        if kind not in SUM_TO_ONE:
            return [Summary(column.mean(mean)) for mean in means]
        variance = second - first.square()
        noise = 64 * torch.finfo(torch.float64).eps * second
        deviations = torch.where(variance > noise, variance, 0).sqrt() * scale
        return [Summary(column.mean(mean), column.spread(each)) for mean, each in zip(means, deviations, strict=True)]

    def _category(self, column: CategoryColumn, weighed: Weighed) -> list[Summary]:
        codes = column.codes[self.rows]
        mass = torch.zeros(len(weighed.top.indices), len(column.categories), dtype=torch.float64)
        for rows, tile in weighed.tiles():
            mass.index_add_(1, codes[rows], tile.double())
        mass = mass / mass.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
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
