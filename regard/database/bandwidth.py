"""How wide should a neighbourhood be? The bandwidth that predicts each row best from the other rows.

Leave-one-out: hide a row, attend to the others, compare with what was hidden. The widest bandwidth wins whose squared
errors cannot be told from the best one's: with few rows, the best one is luck. Numbers, dates and vectors are compared
in standard deviations, categories by their probabilities (the Brier score). Where the values cannot be predicted
(objects, names that are all different), Scott's rule m^(−1/(d+4)) stands in.

On large databases the search runs on a sample of the rows, and its result is narrowed at the rate at which the best
bandwidth shrinks with the number of rows, m^(−1/(d+4)). The sample is drawn with a fixed seed: the same database gives
the same bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import attend
from regard.masks import NotSelf
from regard.scores import Equal, Gaussian, Score
from regard.weights import Softmax

SAMPLE = 4096
"""How many rows the search attends to at most."""

ASKED = 256
"""How many of them it hides, one at a time."""

ENOUGH = 4
"""With fewer rows than this, leaving one out leaves too little."""

MISMATCHES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.005, 0.001)


@dataclass(frozen=True)
class Choice:
    """The similarity that the data chose.

    Args:
        bandwidth: of the Gaussian over all quantities, in standard deviations.
        mismatch: the weight of a row whose category differs, as a fraction of what it would be.
        method: how they were chosen.
        typical: the score that a row's nearest other row typically has (at most 0).
    """

    bandwidth: float
    mismatch: float
    method: str
    typical: float = 0.0


def mixed_score(quantities: Sequence[int], bandwidth: float, categories: Sequence[int], mismatch: float) -> Score:
    """Gaussian over the quantities, plus −log(mismatch) for each category that is equal.

    Under Softmax a constant changes nothing, so a match that adds −log(mismatch) is a mismatch that weighs `mismatch`.
    """
    score: Score = Gaussian(bandwidth).on(quantities)
    if mismatch < 1.0:
        for category in categories:
            score = score + -math.log(mismatch) * Equal().on([category])
    return score


def choose(
    keys: Tensor, quantities: Sequence[int], categories: Sequence[int], targets: Callable[[Tensor], Tensor | None]
) -> Choice:
    """The bandwidth and the weight of a mismatch.

    Args:
        keys: scaled, `(n_rows, dim)`.
        quantities, categories: their coordinates.
        targets: given row numbers, what is to be predicted of them: `(n_rows, n_targets)`, or None.
    """
    n_rows = len(keys)
    rate = -1 / (len(quantities) + 4)
    sample = _sample(n_rows)
    predicted = targets(sample) if n_rows >= ENOUGH else None
    if predicted is None or predicted.shape[-1] == 0:
        return Choice(max(n_rows, 1) ** rate, 0.05, "Scott's rule")
    # float32 is plenty to tell bandwidths apart, but holds codes only up to 2²⁴.
    dtype = torch.float32 if bool((keys[sample].abs() < 2**24).all()) else keys.dtype
    search = Search(keys[sample].to(dtype), list(quantities), list(categories), predicted.to(dtype))
    bandwidth, mismatch = search.run(len(sample) ** rate)
    narrowed = bandwidth * (n_rows / len(sample)) ** rate
    return Choice(narrowed, mismatch, "leave-one-out", search.typical(bandwidth))


class Search:
    """Leave-one-out on a sample: the first rows of it are the ones that are hidden, one at a time."""

    def __init__(self, keys: Tensor, quantities: list[int], categories: list[int], targets: Tensor) -> None:
        self.keys, self.targets = keys, targets
        self.quantities, self.categories = quantities, categories
        self.asked = keys[:ASKED]
        own = torch.arange(len(self.asked))
        self.distance = torch.cdist(
            self.asked[:, quantities], keys[:, quantities], compute_mode="donot_use_mm_for_euclid_dist"
        )
        self.distance[own, own] = torch.inf

    def run(self, start: float) -> tuple[float, float]:
        """The bandwidth and the mismatch, one after the other: the bandwidth to a factor 2, then to a factor √2."""
        mismatch = 0.1
        floor = self._floor()
        grid = self._grid(start, floor)
        bandwidth = smoothest(grid, [self.errors(each, mismatch) for each in grid])
        if self.categories:
            mismatch = smoothest(MISMATCHES, [self.errors(bandwidth, each) for each in MISMATCHES])
        near = [max(bandwidth * factor, floor) for factor in (2.0, 2**0.5, 1.0, 2**-0.5, 0.5)]
        return smoothest(near, [self.errors(each, mismatch) for each in near]), mismatch

    def errors(self, bandwidth: float, mismatch: float) -> Tensor:
        """The squared error of each hidden row's prediction from the other rows: `(n_asked,)`."""
        score = mixed_score(self.quantities, bandwidth, self.categories, mismatch)
        others = NotSelf(align="start")
        predicted = attend(self.asked, self.keys, self.targets, score=score, weights=Softmax(), mask=others)
        return (predicted - self.targets[: len(self.asked)]).square().sum(-1)

    def typical(self, bandwidth: float) -> float:
        """The score of a typical row's nearest other row."""
        return float((-0.5 * (self.distance.amin(-1) / bandwidth).square()).median())

    def _floor(self) -> float:
        """The typical distance between neighbouring keys, a coordinate's share of it: no bandwidth may be below.

        Where keys are steps (3.4, 3.5, …), a query then hears its neighbours, and one between two of them finds both.
        """
        apart = torch.where(self.distance > 0, self.distance, torch.inf).amin(-1)
        apart = apart[torch.isfinite(apart)]
        return float(apart.median()) / math.sqrt(len(self.quantities)) if len(apart) else 0.0

    def _grid(self, start: float, floor: float) -> list[float]:
        """Bandwidths around Scott's, a factor 2 apart, widest first."""
        widest = start * 4 * math.sqrt(len(self.quantities))
        steps = math.ceil(math.log2(widest / (start / 32)))
        grid = [widest * 2.0**-step for step in range(steps + 1)]
        return [each for each in grid if each > floor] or [max(floor, start)]


def smoothest(candidates: Sequence[float], errors: Sequence[Tensor]) -> float:
    """The first candidate whose mean error is within one standard error of the least.

    The standard error is that of the difference from the best candidate, row by row: hard rows are hard for both.
    """
    least = min(errors, key=lambda each: float(each.mean()))
    for candidate, each in zip(candidates, errors, strict=True):
        excess = each - least
        if excess.mean() <= excess.std() / math.sqrt(len(excess)):
            return candidate
    raise AssertionError("the best candidate is within its own error")  # pragma: no cover


def _sample(n_rows: int) -> Tensor:
    if n_rows <= SAMPLE:
        # Shuffled as well: the rows that are asked for must not be the first ones of a sorted table.
        return torch.randperm(n_rows, generator=torch.Generator().manual_seed(0))
    # Far cheaper than a permutation of a million rows, and as fair.
    generator = torch.Generator().manual_seed(0)
    drawn: list[int] = torch.randint(n_rows, (2 * SAMPLE,), generator=generator).tolist()
    return torch.tensor(list(dict.fromkeys(drawn))[:SAMPLE])
