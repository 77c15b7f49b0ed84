"""How wide should a neighbourhood be? The widths that predict each row best from the other rows.

A bandwidth for each quantity and the weight of a mismatch for each category, such that the mean squared error of
leave-one-out is least. The error is smooth in their logarithms but has several valleys: many starts descend together,
the lowest go on, each column is then tried at every width while the others stay, and the lowest of all is polished.
Among widths that do as well the widest are taken, and a column without which the error is within 1% of the least is
ignored.

Numbers, dates and vectors are compared in standard deviations, categories by their probabilities (the Brier score).
Where the values cannot be predicted (objects, names that are all different), Scott's rule m^(−1/(d+4)) stands in.

Up to 2,048 rows all of them are hidden, one at a time. In larger databases the starts are tried on some rows, and then
some rows are hidden from all others; which ones is drawn with a fixed seed: the same database gives the same widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.database.bfgs import begun, descended
from regard.database.leave_one_out import LeaveOneOut, Places
from regard.engines.torch_internals import use_one_core
from regard.scores import Equal, Gaussian, Score

MOST_ASKED, LEAST_ASKED = 2048, 512
"""How many rows are hidden, one at a time: at most, and of however many rows. All of them are, where they are fewer."""

PAIRS = 2**24
"""How many pairs of a hidden row and another are compared at a time, unless the least number of rows makes more."""

STAGES = ((256, 512), (512, 4096), (512, 32_768))
"""Where the search begins: how many rows are hidden, and among how many."""

ENOUGH = 4
"""With fewer rows than this, leaving one out leaves too little."""

MISMATCH = 0.1
"""What a mismatch weighs unless the data say otherwise."""

LEAST_MISMATCH = 1e-60
"""The least that it may weigh: where rows are far apart in the quantities, a mismatch may have to count for more."""

IGNORED = 0.01
"""A column is ignored where leaving it out costs less than this share of the error."""

SAME = 0.001
"""Errors this share apart are the same: the wider one is taken."""

RANDOM_STARTS = 48
"""Starts beside those that are chosen."""

SCANNED = 24
"""At how many widths a column is tried while the others stay."""

CHEAP = 2**20
"""Up to how many pairs there is time to try each column at every width."""

STEPS, LEAST_STEPS = 40, 4
"""How many steps a descent takes: at most, and of however many pairs."""

WORK = 2**31
"""How many pairs all steps of a descent may compare: seconds, compiled."""


@dataclass(frozen=True)
class Widths:
    """How far each column reaches.

    Args:
        bandwidths: of each quantity, in standard deviations; infinite where it is ignored.
        mismatches: for each category, what a row that differs in it weighs, as a fraction of a row that does not; 1
            where it is ignored.
    """

    bandwidths: tuple[float, ...]
    mismatches: tuple[float, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The widths that the data chose, and how.

    Args:
        widths: the widths.
        method: "leave-one-out" or "Scott's rule".
        typical: the score that a row's nearest other row typically has (at most 0).
        asked: how many rows were hidden, one at a time; all of them in small databases, 0 under Scott's rule.
        error: the mean squared error of their predictions, as a fraction of what their mean would miss by; NaN under
            Scott's rule.
    """

    widths: Widths
    method: str
    typical: float = 0.0
    asked: int = 0
    error: float = math.nan


def mixed_score(places: Places, widths: Widths, dim: int) -> Score:
    """Gaussian over the quantities, plus −log(mismatch) for each category that is equal; for keys `(n_rows, dim)`.

    Under Softmax a constant changes nothing, so a match that adds −log(mismatch) is a mismatch that weighs `mismatch`.
    """
    heard = [each for each in zip(places.quantities, widths.bandwidths, strict=True) if each[1] < math.inf]
    bandwidths = [width for coordinates, width in heard for _ in coordinates]
    parts: list[Score] = []
    if bandwidths:
        shared = bandwidths[0] if len(set(bandwidths)) == 1 else torch.tensor(bandwidths, dtype=torch.float64)
        seen = [coordinate for coordinates, _ in heard for coordinate in coordinates]
        parts.append(Gaussian(shared) if seen == list(range(dim)) else Gaussian(shared).on(seen))
    for category, mismatch in zip(places.categories, widths.mismatches, strict=True):
        if mismatch < 1.0:
            parts.append(-math.log(mismatch) * Equal().on([category]))
    if not parts:  # every column is ignored, so every row scores the same
        return 0.0 * Equal().on([*places.coordinates, *places.categories][:1])
    score = parts[0]
    for each in parts[1:]:
        score = score + each
    return score


def choose_widths(keys: Tensor, places: Places, targets: Callable[[Tensor], Tensor | None]) -> Choice:
    """The widths for some keys.

    Args:
        keys: scaled, `(n_rows, dim)`.
        places: which coordinate is what.
        targets: given row numbers, what is to be predicted of them: `(n_rows, n_targets)`, or None.
    """
    n_rows = len(keys)
    predicted = targets(torch.arange(n_rows)) if n_rows >= ENOUGH else None
    if predicted is None or predicted.shape[-1] == 0:
        width = max(n_rows, 1) ** (-1 / (len(places.coordinates) + 4))
        return Choice(Widths((width,) * len(places.quantities), (MISMATCH,) * len(places.categories)), "Scott's rule")
    # In threads that use one core each: torch's own would wait for each other thousands of times.
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads + 1, "regard", initializer=use_one_core) as pool:
        return pool.submit(_searched, keys, places, predicted, pool).result()


def _searched(keys: Tensor, places: Places, predicted: Tensor, pool: Executor) -> Choice:
    """The widths with the least error of leave-one-out."""
    n_rows, n_quantities = len(keys), len(places.quantities)
    order = _shuffled(n_rows)
    whole = hidden(keys, places, predicted, pool)
    stages = [
        LeaveOneOut(keys[heard], places, predicted[heard], torch.arange(n_asked), pool)
        for n_asked, n_heard in STAGES
        if n_rows > (n_asked if n_heard == STAGES[0][1] else n_heard)
        for heard in [order[:n_heard]]
    ]
    factors, error = Search([*stages, whole]).run()
    widths = Widths(
        tuple(factor**-0.5 if factor > 0 else math.inf for factor in factors[:n_quantities].tolist()),
        tuple(math.exp(-factor) for factor in factors[n_quantities:].tolist()),
    )
    typical = whole.nearest(factors[:n_quantities])
    alike = float((predicted[whole.asked] - predicted.mean(0)).square().sum(-1).mean())
    return Choice(widths, "leave-one-out", typical, len(whole.asked), error / alike if alike > 0 else math.nan)


def hidden(keys: Tensor, places: Places, predicted: Tensor, pool: Executor | None) -> LeaveOneOut:
    """The error that the search minimises in the end: of rows that are hidden from all others."""
    n_rows = len(keys)
    asked = _shuffled(n_rows)[: min(max(PAIRS // n_rows, LEAST_ASKED), MOST_ASKED)]
    return LeaveOneOut(keys, places, predicted, asked, pool)


class Search:
    """The least error; candidates are the logarithms of factors, −inf where a column is ignored.

    Args:
        stages: the same error, of ever more rows; the last one is of all.
    """

    def __init__(self, stages: Sequence[LeaveOneOut]) -> None:
        self.stages = stages
        first, last = stages[0], stages[-1]
        least, near, far = first.reaches()
        one = torch.ones(len(first.places.categories), dtype=torch.float64)
        # Factors at which only the rows next to a row are heard, and at which all are heard alike.
        closer = last.n_rows / first.n_rows
        self.high = torch.cat([16 * (closer / least).square(), -math.log(LEAST_MISMATCH) * one]).log()
        self.low = torch.cat([1e-4 / far.square(), 1e-3 * one]).log()
        self.narrow = torch.cat([1 / near.square(), 30.0 * one]).log()
        self.wide = torch.cat([0.25 / far.square(), 0.5 * one]).log()
        # An error that no longer matters.
        self.negligible = 1e-9 * float(first.errors(torch.zeros(1, len(self.low))))

    def run(self) -> tuple[Tensor, float]:
        """The factors, 0 where a column is ignored, `(n_columns,)`, and the error."""
        first, last = self.stages[0], self.stages[-1]
        candidates = self._scanned(first, self._descended(first, self._starts(), rounds=2)[:6])
        for stage in self.stages[1:]:
            candidates = self._descended(stage, candidates[: 2 if stage.n_pairs <= CHEAP else 1])
        if first is not last and last.n_pairs <= CHEAP:
            candidates = self._scanned(last, candidates)
        best = self._widened(last, self._simplified(last, candidates[0]))
        return best.exp(), self._error(last, best)

    def _starts(self) -> Tensor:
        """From wide to narrow; each column alone, and each left out, at several widths; and a few at random."""
        between = self.narrow - self.wide
        dim = len(between)
        starts = [self.wide + level * between for level in (0.0, 0.15, 0.3, 0.5, 0.75, 1.0)]
        for column in range(dim if dim > 1 else 0):
            only, off = torch.arange(dim) == column, self.low + 2.0
            starts += [torch.where(only, self.wide + level * between, off) for level in (0.1, 0.4, 0.8)]
            starts += [torch.where(only, off, self.wide + level * between) for level in (0.1, 0.4)]
        # Where quantities are narrow, a category has to outweigh them.
        must_match = torch.arange(dim) >= len(self.stages[0].places.quantities)
        if bool(must_match.any()):
            starts += [
                torch.where(must_match, self.high, self.wide + level * between) for level in (0.1, 0.4, 0.7, 1.0)
            ]
        generator = torch.Generator().manual_seed(1)
        levels = torch.rand(RANDOM_STARTS, dim, generator=generator, dtype=torch.float64)
        starts += list(self.wide + (1.3 * levels - 0.3) * between)
        return torch.minimum(torch.maximum(torch.stack(starts), self.low), self.high)

    def _descended(self, stage: LeaveOneOut, places: Tensor, *, rounds: int = 0) -> Tensor:
        """Candidates at the end of their descent, lowest first; each round of a few steps keeps the lower half."""

        def objective(places: Tensor) -> tuple[Tensor, Tensor]:
            factors = places.exp()
            errors, slopes = stage.with_gradient(factors)
            return errors, slopes * factors

        points = begun(objective, places)
        for _ in range(rounds):
            points = descended(objective, points, self.low, self.high, 5)
            points = points.best(-(-len(points) // 2))
        affordable = WORK // (stage.n_pairs * len(points)) // (1 if stage.compiled or stage.n_pairs <= CHEAP else 16)
        points = descended(objective, points, self.low, self.high, min(max(affordable, LEAST_STEPS), STEPS))
        return points.best(len(points)).places

    def _scanned(self, stage: LeaveOneOut, candidates: Tensor) -> Tensor:
        """The candidates, lowest first, after each column of the lowest was tried at every width."""
        levels = torch.linspace(0, 1, SCANNED, dtype=torch.float64).unsqueeze(-1)
        grid = torch.cat(
            [torch.full_like(self.low, -torch.inf).unsqueeze(0), self.low + levels * (self.high - self.low)]
        )
        for _ in range(3):
            best, error = candidates[0], self._error(stage, candidates[0])
            tried = best.repeat(len(best), len(grid), 1)  # (n_columns, n_widths, n_columns)
            for column in range(len(best)):
                tried[column, :, column] = grid[:, column]
            lowest = stage.errors(tried.flatten(0, 1).exp()).view(len(best), -1).argmin(-1)
            candidates = torch.cat([candidates, tried[torch.arange(len(best)), lowest]])
            candidates = self._descended(stage, candidates)[:6]
            if self._error(stage, candidates[0]) > (1 - SAME) * error:
                break
        return candidates

    def _simplified(self, stage: LeaveOneOut, best: Tensor) -> Tensor:
        """Without the columns that are not worth their place, one after the other."""
        limit = (1 + IGNORED) * self._error(stage, best) + self.negligible
        while bool(torch.isfinite(best).any()):
            heard = torch.isfinite(best).nonzero().flatten()
            tried = best.repeat(len(heard), 1)
            tried[torch.arange(len(heard)), heard] = -torch.inf
            if stage.n_pairs <= CHEAP:
                tried = self._descended(stage, tried)
            errors = stage.errors(tried.exp())
            if float(errors.min()) > limit:
                break
            best = tried[errors.argmin()]
        return best

    def _widened(self, stage: LeaveOneOut, best: Tensor) -> Tensor:
        """As wide as can be at the same error: a query that lies between the rows then still finds them."""
        if stage.n_pairs > CHEAP:
            return best
        limit = (1 + SAME) * self._error(stage, best) + self.negligible
        steps = torch.arange(17, dtype=torch.float64) * math.log(2) / 2  # the bandwidth grows by 19% a step
        for column in torch.isfinite(best).nonzero().flatten().tolist():
            tried = best.repeat(len(steps), 1)
            tried[:, column] -= steps
            good = (stage.errors(tried.exp()) <= limit).cumprod(0)
            best = tried[max(int(good.sum()) - 1, 0)]
        return best

    def _error(self, stage: LeaveOneOut, place: Tensor) -> float:
        return float(stage.errors(place.exp().unsqueeze(0)))


def _shuffled(n_rows: int) -> Tensor:
    """Row numbers to take some from: the first rows of a sorted table are not like the others."""
    generator = torch.Generator().manual_seed(0)
    if n_rows <= 2**16:
        return torch.randperm(n_rows, generator=generator)
    # Far cheaper than a permutation of a million rows, and as fair: of those drawn twice enough remain.
    drawn: list[int] = torch.randint(n_rows, (2 * STAGES[-1][1],), generator=generator).tolist()
    return torch.tensor(list(dict.fromkeys(drawn)))
