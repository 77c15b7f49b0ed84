"""Readers: what a view gathers from tiles of weights that it sees once and forgets."""

from __future__ import annotations

import operator
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.grid import Grid
from regard.weights.topk import best_k

Pool: TypeAlias = Literal["sum", "mean", "max"]
Result = TypeVar("Result")


def as_integer(value: object) -> int | None:
    """An integer of any library as Python's own; None for what is none, a bool among them."""
    several = getattr(value, "ndim", None) not in (None, 0)  # torch takes a matrix of one number for a number
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool") or several:
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


class Top(NamedTuple):
    """The heaviest weights of each query, `(*batch_shape, n_queries, k)`, and the keys that they belong to."""

    weights: Tensor
    indices: Tensor


class Reader(Generic[Result]):
    """Sees the tiles of a problem one after the other; tiles in which nothing is allowed are left out."""

    grid: Grid
    dtype: torch.dtype

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        """Begin a pass."""
        self.grid, self.dtype = grid, dtype

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        """See a tile, `(*batch_shape, rows, columns)`."""
        raise NotImplementedError  # pragma: no cover

    def targets(self) -> dict[str, Tensor]:
        """Where a compiled pass may write what this gathers in place of showing tiles, by name; none if it may not."""
        return {}

    def result(self) -> Result:
        """What was gathered."""
        raise NotImplementedError  # pragma: no cover

    def full(self, *shape: int, value: float = 0.0) -> Tensor:
        """A tensor `(*batch_shape, *shape)` to gather in."""
        return torch.full((*self.grid.batch_shape, *shape), value, dtype=self.dtype, device=self.grid.device)


class TopWeights(Reader[Top]):
    """The k heaviest weights of each row, by running merge."""

    def __init__(self, k: int) -> None:
        number = as_integer(k)
        if number is None or number < 1:
            raise OptionError(f"`k` of top() must be an integer of at least 1: got {k!r}. It is a number of keys.")
        self.k = number

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.weights = self.full(grid.n_queries, self.k)
        self.indices = torch.full(self.weights.shape, -1, device=grid.device)

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        block = slice(rows.start, rows.stop)
        places = torch.arange(columns.start, columns.stop, device=weights.device).expand(weights.shape)
        # A weight of zero has no place among the heaviest; a negative one (Raw) may, so compare with −inf for "none".
        before = self.indices[..., block, :]
        known = torch.where(before < 0, -torch.inf, self.weights[..., block, :])
        weights = torch.cat([known, torch.where(weights == 0, -torch.inf, weights)], -1)
        places = torch.cat([before, places], -1)
        best, order = best_k(weights, self.k)
        places = places.gather(-1, order)
        nothing = best == -torch.inf
        self.weights[..., block, :] = torch.where(nothing, 0, best)
        self.indices[..., block, :] = torch.where(nothing, -1, places)

    def targets(self) -> dict[str, Tensor]:
        return {"top_weights": self.weights, "top_index": self.indices}

    def result(self) -> Top:
        return Top(self.weights, self.indices)


class Entropy(Reader[Tensor]):
    """−Σ α ln α of each row."""

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.total = self.full(grid.n_queries)

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        self.total[..., rows.start : rows.stop] -= torch.xlogy(weights, weights).sum(-1)

    def targets(self) -> dict[str, Tensor]:
        return {"entropy": self.total}

    def result(self) -> Tensor:
        return self.total


class Received(Reader[Tensor]):
    """Σ α over the queries, for each key."""

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.total = self.full(grid.n_keys)

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        self.total[..., columns.start : columns.stop] += weights.sum(-2)

    def targets(self) -> dict[str, Tensor]:
        return {"received": self.total}

    def result(self) -> Tensor:
        return self.total


class Map(Reader[Tensor]):
    """The weights pooled to a picture."""

    def __init__(self, height: int, width: int, pool: Pool) -> None:
        sides = [as_integer(side) for side in (height, width)]
        if not all(side is not None and side >= 1 for side in sides):
            raise OptionError(
                f"The sides of map() must be integers of at least 1: got {height} × {width}. Pass pixels."
            )
        if pool not in ("sum", "mean", "max"):
            raise OptionError(f'`pool` of map() must be "sum", "mean" or "max": got {pool!r}. Leave it out for sums.')
        self.wanted, self.pool = [side for side in sides if side is not None], pool

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.height = min(self.wanted[0], grid.n_queries)
        self.width = min(self.wanted[1], grid.n_keys)
        self.picture = self.full(self.height, self.width, value=-torch.inf if self.pool == "max" else 0.0)
        self.shown = torch.zeros(self.height, self.width, device=grid.device)  # pairs seen of each place

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        across = self._bins(columns, self.width, self.grid.n_keys)
        down = self._bins(rows, self.height, self.grid.n_queries)
        if self.pool == "max":
            narrow = weights.new_full((*weights.shape[:-1], self.width), -torch.inf)
            narrow.scatter_reduce_(-1, across.expand(weights.shape), weights, "amax")
            self.picture.scatter_reduce_(-2, down[:, None].expand(narrow.shape), narrow, "amax")
            self.shown += torch.outer(self._counts(down, self.height), self._counts(across, self.width))
        else:
            narrow = weights.new_zeros(*weights.shape[:-1], self.width).index_add_(-1, across, weights)
            self.picture.index_add_(-2, down, narrow)

    def targets(self) -> dict[str, Tensor]:
        return {} if self.pool == "max" else {"picture": self.picture}

    def result(self) -> Tensor:
        if self.pool == "sum":
            return self.picture
        rows = self._counts(self._bins(self.grid.rows, self.height, self.grid.n_queries), self.height)
        columns = self._counts(self._bins(self.grid.columns, self.width, self.grid.n_keys), self.width)
        pairs = torch.outer(rows, columns).to(self.dtype)
        if self.pool == "mean":
            return self.picture / pairs
        # A pair that was not shown is masked and weighs 0, which is more than a negative weight (Raw).
        return torch.where(self.shown < pairs, self.picture.clamp(min=0), self.picture)

    def _counts(self, bins: Tensor, size: int) -> Tensor:
        return torch.bincount(bins, minlength=size).float()

    def _bins(self, span: range, size: int, of: int) -> Tensor:
        return torch.arange(span.start, span.stop, device=self.grid.device) * size // max(of, 1)


class WeightTotals(Reader[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """(least, total, most, how many are not zero) of each row's weights."""

    def start(self, grid: Grid, dtype: torch.dtype) -> None:
        super().start(grid, dtype)
        self.least, self.total, self.most, self.count = (self.full(grid.n_queries) for _ in range(4))

    def absorb(self, weights: Tensor, rows: range, columns: range) -> None:
        block = slice(rows.start, rows.stop)
        self.least[..., block] = torch.minimum(self.least[..., block], weights.amin(-1))
        self.most[..., block] = torch.maximum(self.most[..., block], weights.amax(-1))
        self.total[..., block] += weights.sum(-1)
        self.count[..., block] += (weights != 0).sum(-1)

    def targets(self) -> dict[str, Tensor]:
        return {"least": self.least, "total": self.total, "most": self.most, "count": self.count}

    def result(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.least, self.total, self.most, self.count
