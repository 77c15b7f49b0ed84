"""Leave-one-out: hide a row, attend to the others, compare with what was hidden.

Each key column gives a pair of rows a score of its own, and widths only weigh those scores: a = Σ_c f_c · a_c(q, k).
So the error of a hidden row's prediction is a smooth function of the factors f, and one pass over the pairs gives it
with its gradient, for several candidates at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from regard.engines.cpu import unusable
from regard.scores import Equal, Gaussian, Score

EXACT = 2**18
"""Up to how many numbers the scores of all columns are kept in float64; beyond, float32 tells widths apart."""

KEPT = 2**25
"""Up to how many numbers they are kept at all; beyond, they are computed again when they are needed."""

BLOCK = 2**17
"""How many scores are turned into weights at a time: what stays in cache is far faster."""

TYPICAL = 64
"""How many blocks of hidden rows say how far a nearest row typically is."""

SHARED = 2**20
"""From how many pairs on threads share the work."""

COMPILED = 2**16
"""From how many pairs on a compiled loop is worth what it takes to load."""

COMPILED_BLOCK = 2**22
"""How many pairs it compares in a call: a few thousandths of a second."""

SPREAD = 64.0
"""In how many standard deviations from the mean float32 still tells neighbours apart, where scores are not kept."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Places:
    """Where the key columns stand in a matrix of keys.

    Args:
        quantities: the coordinates of each quantity.
        categories: the coordinate of each category.
    """

    quantities: tuple[tuple[int, ...], ...]
    categories: tuple[int, ...] = ()

    @property
    def coordinates(self) -> list[int]:
        """The coordinates of all quantities."""
        return [coordinate for each in self.quantities for coordinate in each]

    def __len__(self) -> int:
        return len(self.quantities) + len(self.categories)


class LeaveOneOut:
    """The mean squared error with which some rows are predicted from all other rows.

    Args:
        keys: scaled, `(n_rows, dim)`.
        places: which coordinate is what.
        targets: what is to be predicted, `(n_rows, n_targets)`.
        asked: the rows that are hidden, one at a time: `(n_asked,)`.
        pool: threads that share the work where it is large, of one core each.
    """

    def __init__(
        self, keys: Tensor, places: Places, targets: Tensor, asked: Tensor, pool: Executor | None = None
    ) -> None:
        self._pool = pool
        self.compiled = False
        self.places = places
        self.asked = asked
        self.n_rows = len(keys)
        size = len(places) * len(asked) * self.n_rows
        self.dtype = torch.float64 if size <= EXACT else torch.float32
        self._targets = targets.to(self.dtype)
        wide = bool((keys[:, places.coordinates].abs() > SPREAD).any())
        self._keys = keys if size <= KEPT or wide or keys.dtype != torch.float64 else keys.float()
        self._kept: Tensor | None = None
        self.compiled = (
            self.n_pairs > COMPILED
            and not wide
            and len(places.coordinates) == len(places.quantities)
            and unusable() is None
        )
        if self.compiled:
            order = [*places.coordinates, *places.categories]
            self._lists = keys[:, order].float().mT.contiguous(), targets.float().mT.contiguous()
        elif size <= KEPT:
            self._kept = torch.cat(self._each(self._computed), dim=1)

    @property
    def n_pairs(self) -> int:
        """How many pairs of a hidden row and a row there are."""
        return len(self.asked) * self.n_rows

    def errors(self, factors: Tensor) -> Tensor:
        """The mean squared error for each candidate `(n_candidates, n_columns)`: `(n_candidates,)`."""
        return self._evaluated(factors, gradient=False)[0]

    def with_gradient(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and its gradient by the factors: `(n_candidates, n_columns)`."""
        return self._evaluated(factors, gradient=True)

    def _evaluated(self, factors: Tensor, *, gradient: bool) -> tuple[Tensor, Tensor]:
        block = self._compiled if self.compiled else self._block
        found = self._each(
            lambda start, stop: block(factors, start, stop, gradient=gradient), 1 if self.compiled else len(factors)
        )
        # Added in order, whichever thread was the first: the same rows give the same widths.
        errors = torch.stack([error for error, _ in found]).sum(0)
        slopes = torch.stack([slope for _, slope in found]).sum(0)
        return errors / len(self.asked), slopes / len(self.asked)

    def _compiled(self, factors: Tensor, start: int, stop: int, *, gradient: bool) -> tuple[Tensor, Tensor]:
        """As `_block`, by a compiled loop, which has the gradient anyway."""
        from regard.engines.cpu.kernels.table_rows import hidden_rows

        columns, targets = (each.numpy() for each in self._lists)
        n_columns, n_targets = len(columns), len(targets)
        errors = torch.empty(len(factors), stop - start, dtype=torch.float64)
        slopes = torch.empty(len(factors), stop - start, n_columns, dtype=torch.float64)
        sums = torch.empty(n_columns + 1, n_targets + 1, dtype=torch.float64).numpy()
        asked, each = self.asked[start:stop].numpy(), factors.float().numpy()
        for place in range(len(factors)):
            hidden_rows(
                columns,
                len(self.places.quantities),
                targets,
                asked,
                each[place],
                errors[place].numpy(),
                slopes[place].numpy(),
                sums,
            )
        return errors.sum(-1), slopes.sum(-2)

    def _block(self, factors: Tensor, start: int, stop: int, *, gradient: bool) -> tuple[Tensor, Tensor]:
        """The squared errors of some hidden rows, summed, and the gradient of that."""
        factors, targets, hidden = factors.to(self.dtype), self._targets, self.asked[start:stop]
        columns = self._columns(start, stop).flatten(1)  # (n_columns, n_asked · n_rows)
        scores = (factors @ columns).unflatten(-1, (stop - start, self.n_rows))
        scores[:, torch.arange(stop - start), hidden] = -torch.inf
        weights = scores.softmax(-1)  # the softmax of regard, in one operation: no row is without another
        predicted = weights @ targets  # (n_candidates, n_asked, n_targets)
        missed = predicted - targets[hidden]
        errors = missed.square().sum((-2, -1)).double()
        if not gradient:
            return errors, torch.zeros(factors.shape, dtype=torch.float64)
        # d error / d score = weight · 2 missed·(target − predicted)
        pull = missed @ targets.mT
        pull -= (missed * predicted).sum(-1, keepdim=True)
        return errors, 2 * (pull.mul_(weights).flatten(1) @ columns.mT).double()

    def _each(self, work: Callable[[int, int], Result], n_candidates: int = 1) -> list[Result]:
        """What the work returns for each block of hidden rows, in order; shared out where blocks are large."""
        spans = list(self._spans(n_candidates, COMPILED_BLOCK if self.compiled else BLOCK))
        if self._pool is None or self.n_pairs <= SHARED:
            return [work(*span) for span in spans]
        return list(self._pool.map(lambda span: work(*span), spans))

    def nearest(self, factors: Tensor) -> float:
        """The score that a hidden row's nearest other row typically has, by some factors of the quantities."""
        found = []
        for start, stop in islice(self._spans(1), TYPICAL):
            scores = (factors.to(self._keys.dtype).view(-1, 1, 1) * self._quantities(start, stop)).sum(0)
            scores[torch.arange(stop - start), self.asked[start:stop]] = -torch.inf
            found.append(scores.amax(-1))
        return float(torch.cat(found).median())

    def reaches(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each quantity, distances from a hidden row: the least to another key, a typical one to the nearest other
        key, and a typical one to any row. Each `(n_quantities,)`; 1 where all keys are the same."""
        least, near, far = [], [], []
        for place in range(len(self.places.quantities)):
            blocks = [self._quantities(start, stop)[place] for start, stop in self._spans(1)]
            distances = (-2 * torch.cat(blocks)).clamp(min=0).sqrt().double()
            apart = torch.where(distances > 0, distances, torch.inf).amin(-1)
            apart = apart[torch.isfinite(apart)]
            positive = distances[distances > 0]
            least.append(float(apart.min()) if len(apart) else 1.0)
            near.append(float(apart.median()) if len(apart) else 1.0)
            far.append(float(positive.median()) if len(positive) else 1.0)
        return torch.tensor(least).double(), torch.tensor(near).double(), torch.tensor(far).double()

    def _spans(self, n_candidates: int, block: int = BLOCK) -> Iterator[tuple[int, int]]:
        step = max(1, block // max(n_candidates * self.n_rows, 1))
        for start in range(0, len(self.asked), step):
            yield start, min(start + step, len(self.asked))

    def _columns(self, start: int, stop: int) -> Tensor:
        return self._computed(start, stop) if self._kept is None else self._kept[:, start:stop]

    def _computed(self, start: int, stop: int) -> Tensor:
        """The score of each column for some hidden rows, 0 at its best: `(n_columns, n_asked, n_rows)`.

        A constant changes no weight, and near 0 are the digits that the weights are made of.
        """
        columns = self._quantities(start, stop)
        hidden = torch.arange(stop - start), self.asked[start:stop]
        itself = columns[:, *hidden].clone()
        columns[:, *hidden] = -torch.inf
        columns -= columns.amax(-1, keepdim=True)
        columns[:, *hidden] = itself
        equal = [self._scored(Equal(), [each], start, stop) - 1 for each in self.places.categories]
        return torch.cat([columns, *(each.unsqueeze(0) for each in equal)]).to(self.dtype)

    def _quantities(self, start: int, stop: int) -> Tensor:
        """−‖q − k‖²/2 in each quantity: `(n_quantities, n_asked, n_rows)`."""
        found = self._keys.new_empty(len(self.places.quantities), stop - start, self.n_rows)
        for place, coordinates in enumerate(self.places.quantities):
            if len(coordinates) == 1:
                column = self._keys[:, coordinates[0]]
                torch.sub(column[self.asked[start:stop]].unsqueeze(-1), column, out=found[place])
                found[place].square_().mul_(-0.5)
            else:
                found[place] = self._scored(Gaussian(1.0), list(coordinates), start, stop)
        return found

    def _scored(self, score: Score, coordinates: list[int], start: int, stop: int) -> Tensor:
        keys = self._keys[:, coordinates]
        scores: Tensor = score(keys[self.asked[start:stop]], keys)
        return scores
