"""Where float32 weighs rows as float64 would: there compiled loops answer, many times faster."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.engines.cpu import unusable
from regard.engines.cpu.runtime import thread_pool
from regard.scores import Equal, Gaussian, OnColumns, Scaled, Score, Sum
from regard.weights import Softmax, Weights

WORTHWHILE = 2**16
"""From how many pairs of a query and a row on it matters."""

FARTHEST = 128.0
"""How many bandwidths a coordinate may be from the centre: rounding it moves a score of 1 by 8e-6 then."""

LARGEST = 1e12
"""By how much a bandwidth may be larger or smaller than 1: beyond, its square is no float32."""

FARTHEST_EXACT = 4096.0
"""The same where nothing is rounded: squares still fit, and near rows keep their digits."""

TOGETHER = 4
"""How many queries a thread answers at a time."""


@dataclass(frozen=True)
class Factors:
    """A score as a sum over coordinates c: −distances_c · (q_c − k_c)²/2, plus matches_c where q_c = k_c.

    Both are `(dim,)`, in float64.
    """

    distances: Tensor
    matches: Tensor

    @classmethod
    def of(cls, score: Score, rule: Weights, dim: int) -> Factors | None:
        """The factors of a score; None where it, or the rule, is none of those that the loops know."""
        if type(rule) is not Softmax or rule.sink is not None or not isinstance(rule.temperature, float):
            return None
        return cls._of(score, dim, 1 / rule.temperature)

    @classmethod
    def _of(cls, score: Score, dim: int, factor: float) -> Factors | None:
        nothing = torch.zeros(dim, dtype=torch.float64)
        if type(score) is Gaussian:
            bandwidth = torch.as_tensor(score.bandwidth, dtype=torch.float64).detach()
            distances = factor * bandwidth.expand(dim) ** -2
            fits = (distances > 0) & distances.isfinite()
            return cls(distances, nothing) if bool(fits.all()) else None
        if type(score) is Equal and dim == 1:
            return cls(nothing, nothing + factor)
        if isinstance(score, Scaled) and score.factor >= 0:
            return cls._of(score.score, dim, factor * score.factor)
        if isinstance(score, OnColumns) and not isinstance(score.columns, slice):
            inner, places = cls._of(score.score, len(score.columns), factor), torch.tensor(score.columns)
            if inner is None or len(places.unique()) < len(places):
                return None
            return cls(nothing.index_copy(0, places, inner.distances), nothing.index_copy(0, places, inner.matches))
        if isinstance(score, Sum):
            found = [cls._of(each, dim, factor) if isinstance(each, Score) else None for each in score.scores]
            known = [each for each in found if each is not None]
            if len(known) == len(found):
                return cls(
                    sum((each.distances for each in known), nothing), sum((each.matches for each in known), nothing)
                )
        return None


@dataclass(frozen=True)
class Narrow:
    """Keys in float32, less a centre: a distance does not change.

    Args:
        keys: `(n_rows, dim)`.
        centre: what is taken away from keys and queries alike, `(dim,)`.
        farthest: of each coordinate, the largest number without its sign, `(dim,)`.
        exact: of each coordinate, whether no number of it was rounded, `(dim,)`.
    """

    keys: Tensor
    centre: Tensor
    farthest: Tensor
    exact: Tensor

    @classmethod
    def of(cls, keys: Tensor, matched: Tensor) -> Narrow:
        """The keys; coordinates that are matched stay as they are: codes are whole numbers, which float32 keeps."""
        centre = torch.where(matched, 0, keys.mean(0))
        shifted = keys - centre
        narrow = shifted.float()
        return cls(narrow, centre, shifted.abs().amax(0), (narrow == shifted).all(0))

    def queries(self, queries: Tensor, factors: Factors) -> Tensor | None:
        """The queries in float32; None where the scores would not be exact enough."""
        shifted = queries - self.centre
        narrow = shifted.float()
        exact = self.exact & (narrow == shifted).all(0)
        reach = torch.maximum(self.farthest, shifted.abs().amax(0)) * factors.distances.sqrt()
        good = (exact & (reach <= FARTHEST_EXACT)) | ((reach <= FARTHEST) & (factors.matches == 0))
        size = factors.distances.sqrt()
        good &= (size == 0) | ((size > 1 / LARGEST) & (size < LARGEST))
        return narrow if bool(good.all()) else None

    def pooled(self, queries: Tensor, factors: Factors, values: Tensor) -> Tensor:
        """Σ w, Σ w² and Σ w·v of each query, up to a factor and its square: `(n_queries, 2 + n_values)`, float64."""
        from regard.engines.cpu.kernels.table_rows import pooled_rows

        quantities = factors.distances.nonzero().flatten().tolist()
        categories = factors.matches.nonzero().flatten().tolist()
        order = [*quantities, *categories]
        columns = self.keys[:, order].mT.contiguous()
        each = torch.cat([factors.distances[quantities], factors.matches[categories]]).float()
        asked = queries[:, order].contiguous()
        sums = torch.empty(len(queries), 2 + len(values), dtype=torch.float64)

        def task(start: int) -> None:
            part = slice(start, start + TOGETHER)
            pooled_rows(
                columns.numpy(), len(quantities), values.numpy(), asked[part].numpy(), each.numpy(), sums[part].numpy()
            )

        thread_pool.run([lambda start=start: task(start) for start in range(0, len(queries), TOGETHER)])  # type: ignore[misc]
        return sums


def is_possible() -> bool:
    """Whether there are compiled loops here."""
    return unusable() is None


def in_float32(score: Score) -> Score:
    """A copy of a score for tensors in float32."""
    copy: Score = deepcopy(score).to(torch.float32)
    return copy
