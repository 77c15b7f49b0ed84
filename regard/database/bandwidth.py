"""How wide should a neighbourhood be? The widths that predict each row best from the other rows.

Leave-one-out: hide a row, attend to the others, compare with what was hidden. First one bandwidth for all quantities,
then the weight of a mismatch in each category, then each quantity's own bandwidth, then all of them once more. The
widest candidate wins whose squared errors cannot be told from the best one's: with few rows, the best one is luck.
Numbers, dates and vectors are compared in standard deviations, categories by their probabilities (the Brier score).
Where the values cannot be predicted (objects, names that are all different), Scott's rule m^(−1/(d+4)) stands in.

On large databases the search runs on a sample of the rows, and its result is narrowed at the rate at which the best
bandwidth shrinks with the number of rows, m^(−1/(d+4)). The sample is drawn with a fixed seed: the same database gives
the same bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.scores import Equal, Gaussian, Score

SAMPLE = 2048
"""How many rows the search attends to at most."""

ASKED = 256
"""How many of them it hides, one at a time."""

ENOUGH = 4
"""With fewer rows than this, leaving one out leaves too little."""

TOGETHER = 8
"""How many candidates are compared at a time."""

HALVINGS = 40
"""How often the widest bandwidth is halved at most: by then neighbours are 1e-12 deviations apart."""

MISMATCH = 0.1
"""What a mismatch weighs unless the data say otherwise; the other candidates follow, nearest first."""

MISMATCHES = (MISMATCH, 0.2, 0.05, 0.5, 0.02, 1.0, 0.005, 0.001)


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


@dataclass(frozen=True)
class Widths:
    """How far each column reaches.

    Args:
        bandwidths: of each quantity, in standard deviations.
        mismatches: for each category, what a row that differs in it weighs, as a fraction of a row that does not.
    """

    bandwidths: tuple[float, ...]
    mismatches: tuple[float, ...] = ()

    def times(self, factor: float) -> Widths:
        """Every bandwidth multiplied."""
        return replace(self, bandwidths=tuple(each * factor for each in self.bandwidths))


@dataclass(frozen=True)
class Choice:
    """The widths that the data chose, how, and the score that a row's nearest other row typically has (at most 0)."""

    widths: Widths
    method: str
    typical: float = 0.0


def mixed_score(places: Places, widths: Widths) -> Score:
    """Gaussian over the quantities, plus −log(mismatch) for each category that is equal.

    Under Softmax a constant changes nothing, so a match that adds −log(mismatch) is a mismatch that weighs `mismatch`.
    """
    bandwidths = [width for width, each in zip(widths.bandwidths, places.quantities, strict=True) for _ in each]
    shared = bandwidths[0] if len(set(bandwidths)) == 1 else torch.tensor(bandwidths, dtype=torch.float64)
    score: Score = Gaussian(shared).on(places.coordinates)
    for category, mismatch in zip(places.categories, widths.mismatches, strict=True):
        if mismatch < 1.0:
            score = score + -math.log(mismatch) * Equal().on([category])
    return score


def choose(keys: Tensor, places: Places, targets: Callable[[Tensor], Tensor | None]) -> Choice:
    """The widths for some keys.

    Args:
        keys: scaled, `(n_rows, dim)`.
        places: which coordinate is what.
        targets: given row numbers, what is to be predicted of them: `(n_rows, n_targets)`, or None.
    """
    n_rows = len(keys)
    rate = -1 / (len(places.coordinates) + 4)
    sample = _sample(n_rows)
    predicted = targets(sample) if n_rows >= ENOUGH else None
    if predicted is None or predicted.shape[-1] == 0:
        return Choice(_alike(max(n_rows, 1) ** rate, places), "Scott's rule")
    search = Search(keys[sample], places, predicted)
    widths = search.run(len(sample) ** rate)
    narrowing = (n_rows / len(sample)) ** rate
    if search.repeated:
        # Steps stay as far apart as they are, however many rows stand on each.
        narrowing = min(max(narrowing, search.floor / min(widths.bandwidths)), 1.0)
    return Choice(widths.times(narrowing), "leave-one-out", search.typical(widths))


def _alike(bandwidth: float, places: Places) -> Widths:
    return Widths((bandwidth,) * len(places.quantities), (MISMATCH,) * len(places.categories))


class Search:
    """Leave-one-out on a sample: the first rows of it are the ones that are hidden, one at a time.

    Each column is scored once. Widths only weigh those scores, so many candidates are compared in one go: a few large
    operations are far faster than many small ones, above all where other programs keep the cores busy.
    """

    def __init__(self, keys: Tensor, places: Places, targets: Tensor) -> None:
        self.places = places
        self.targets = targets.float()
        self.asked = self.targets[:ASKED]
        # Scores in the keys' own precision (neighbours may be 1e-7 deviations apart); float32 tells widths apart.
        parts: list[tuple[Score, list[int]]] = [(Gaussian(1.0), list(each)) for each in places.quantities]
        parts += [(Equal(), [each]) for each in places.categories]
        scores = [score(keys[:ASKED, each], keys[:, each]).float() for score, each in parts]
        self.scores = torch.stack(scores)  # (n_columns, n_asked, n_rows)
        # The row that is hidden is not there: −inf in each quantity, and so in every sum.
        self.scores[: len(places.quantities)].diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
        distances = (-2 * self._quantity_scores(_alike(1.0, places))).sqrt()
        self.repeated = bool((distances.amin(-1) == 0).double().mean() > 0.5)
        self.floor = self._floor(distances)

    def run(self, start: float) -> Widths:
        """The widths, one after the other; `start` is a first guess at the bandwidth."""
        widths = self._best([_alike(each, self.places) for each in self._grid(start)])
        for place in range(len(widths.mismatches)):
            widths = self._best([_with_mismatch(widths, place, each) for each in MISMATCHES])
        n_quantities = len(widths.bandwidths)
        # Twice: what the first column gave up may be worth having once the others have made room.
        for place in list(range(n_quantities)) * (2 if n_quantities > 1 else 0):
            widths = self._best([_with_factor(widths, place, factor) for factor in (8.0, 4.0, 2.0, 1.0, 0.5)])
        least = self.floor / min(widths.bandwidths)
        return self._best([widths.times(max(factor, least)) for factor in (2.0, 2**0.5, 1.0, 2**-0.5, 0.5)])

    def _best(self, candidates: Sequence[Widths]) -> Widths:
        blocks = [candidates[start : start + TOGETHER] for start in range(0, len(candidates), TOGETHER)]
        return first_good(candidates, torch.cat([self.errors(block) for block in blocks]))

    def errors(self, candidates: Sequence[Widths]) -> Tensor:
        """The squared error of each hidden row's prediction from the other rows: `(n_candidates, n_asked)`."""
        factors = torch.tensor([_factors(each) for each in candidates])  # (n_candidates, n_columns)
        scores = (factors @ self.scores.flatten(1)).unflatten(-1, self.scores.shape[1:])
        # The softmax of regard, in one operation: no hidden row is without another to look at.
        predicted: Tensor = scores.softmax(-1) @ self.targets
        return (predicted - self.asked).square().sum(-1)

    def typical(self, widths: Widths) -> float:
        """The score of a typical row's nearest other row."""
        return float(self._quantity_scores(widths).amax(-1).median())

    def _quantity_scores(self, widths: Widths) -> Tensor:
        """The score of each hidden row with every other row, −inf with itself: `(n_asked, n_rows)`."""
        factors = torch.tensor(_factors(widths)[: len(widths.bandwidths)])
        return (factors.view(-1, 1, 1) * self.scores[: len(factors)]).sum(0)

    def _floor(self, distances: Tensor) -> float:
        """The least bandwidth that may be chosen.

        It is the typical distance between neighbouring keys, a coordinate's share of it: a query then hears its
        neighbours. Where most keys have twins (years, steps of 0.1), the twins can speak for their key: an eighth of
        the step keeps the next step out, and a query between two steps still finds both.
        """
        apart = torch.where(distances > 0, distances, torch.inf).amin(-1)
        apart = apart[torch.isfinite(apart)]
        share = float(apart.median()) / math.sqrt(len(self.places.coordinates)) if len(apart) else 0.0
        return share / 8 if self.repeated else share

    def _grid(self, start: float) -> list[float]:
        """Bandwidths a factor 2 apart, widest first, down to the floor: an outlier makes all other keys neighbours."""
        widest = start * 4 * math.sqrt(len(self.places.coordinates))
        steps = HALVINGS if self.floor else math.ceil(math.log2(widest / (start / 32)))
        grid = [widest * 2.0**-step for step in range(steps + 1)]
        return [each for each in grid if each > self.floor] or [max(self.floor, start)]


def _factors(widths: Widths) -> list[float]:
    """What each column's score is multiplied by: 1/bandwidth² of a Gaussian, −log(mismatch) of an equality."""
    return [1 / width**2 for width in widths.bandwidths] + [-math.log(each) for each in widths.mismatches]


def _with_mismatch(widths: Widths, place: int, mismatch: float) -> Widths:
    return replace(widths, mismatches=(*widths.mismatches[:place], mismatch, *widths.mismatches[place + 1 :]))


def _with_factor(widths: Widths, place: int, factor: float) -> Widths:
    bandwidth = widths.bandwidths[place] * factor
    return replace(widths, bandwidths=(*widths.bandwidths[:place], bandwidth, *widths.bandwidths[place + 1 :]))


def first_good(candidates: Sequence[Widths], errors: Sequence[Tensor] | Tensor) -> Widths:
    """The first candidate whose mean error is within one standard error of the least.

    The standard error is that of the difference from the best candidate, row by row: hard rows are hard for both.
    """
    table = torch.stack(list(errors)).double()  # (n_candidates, n_asked)
    excess = table - table[table.mean(-1).argmin()]
    good = excess.mean(-1) <= excess.std(-1) / math.sqrt(table.shape[-1])
    return candidates[int(good.double().argmax())]  # the first of the largest


def _sample(n_rows: int) -> Tensor:
    if n_rows <= SAMPLE:
        # Shuffled as well: the rows that are asked for must not be the first ones of a sorted table.
        return torch.randperm(n_rows, generator=torch.Generator().manual_seed(0))
    # Far cheaper than a permutation of a million rows, and as fair.
    generator = torch.Generator().manual_seed(0)
    drawn: list[int] = torch.randint(n_rows, (2 * SAMPLE,), generator=generator).tolist()
    return torch.tensor(list(dict.fromkeys(drawn))[:SAMPLE])
