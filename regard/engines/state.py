"""What passes over tiles leave: sums of rows, and the pooled output with the statistics of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.weights import OnePass, Statistics
from regard.weights.onepass import shift


@dataclass(frozen=True)
class Sums:
    """What one pass over some keys leaves for a rule of one pass: a monoid, so that shards can be merged.

    Each is `(*batch_shape, n_queries, width)`. The identity is (−inf, 0, 0).
    """

    peak: Tensor  # the largest score
    total: Tensor  # the sum of numerators, relative to the peak
    pooled: Tensor  # the sum of numerators times values, relative to the peak

    def merge(self, other: Sums, rule: OnePass) -> Sums:
        """The sums over both sets of keys."""
        if not rule.shifted:
            peak = torch.maximum(self.peak, other.peak)
            return Sums(peak, self.total + other.total, self.pooled + other.pooled)
        peak, mine, others = rule.merge_factors(self.peak, other.peak)
        return Sums(peak, self.total * mine + other.total * others, self.pooled * mine + other.pooled * others)

    def finish(self, rule: OnePass, *, reuse: bool = False) -> Pooled:
        """The end of one pass: the only division. With `reuse` it is done in place, and these sums are lost."""
        peak, total = statistics = rule.finish(self.peak, self.total)
        if not rule.normalized:
            return Pooled(self.pooled, statistics, None)
        pooled = self.pooled
        if rule.shifted and peak is not self.peak:  # a sink may have moved it
            pooled = pooled * shift(self.peak, peak)
        return Pooled(pooled.div_(total) if reuse else pooled / total, statistics, None)


@dataclass(frozen=True)
class Pooled:
    """The result of attention with what is needed to compute any weight again."""

    output: Tensor  # (*batch_shape, n_queries, value_dim), in the dtype of computation
    statistics: Statistics
    slope_mean: Tensor | None  # the values averaged by slope, for rules whose gradient is centred there
