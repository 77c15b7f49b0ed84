"""Rules that need one pass: α = numerator(a), or numerator(a) / Σ numerator(a).

The weighted sum of values can be gathered in the same pass as the normaliser, because numerators never change
afterwards except by a factor that a row shares (softmax's, when its maximum moves).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from regard.weights.rule import Fold, Statistics, Weights


class OnePass(Weights):
    """A rule whose weights are numerators, divided by their sum or not.

    To write a rule of your own, give `kind`, `normalized` and `numerators`; a gradient comes by itself. Numerators are
    computed a tile at a time, before the rest of a row is known, and so are functions of their own score alone. The one
    exception is `shifted`: numerators that are a constant times e^(a − peak), which stay in range wherever the scores
    are; those of earlier tiles are multiplied by e^(old peak − new peak) when a larger score comes.

    Example:
        >>> import torch
        >>> from regard import attend
        >>> from regard.weights import OnePass
        >>> class Softplus(OnePass):
        ...     kind, normalized = "convex", True
        ...     def numerators(self, scores, peak):
        ...         return torch.nn.functional.softplus(scores)
        >>> output = attend(torch.rand(2, 3), torch.rand(4, 3), torch.ones(4, 1), weights=Softplus())
        >>> torch.allclose(output, torch.ones(2, 1))  # an average of ones
        True
    """

    normalized: ClassVar[bool] = False  # divide by the sum of the row's numerators
    shifted: ClassVar[bool] = False  # numerators are relative to the largest score so far: they get a `peak`

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        """The numerators of a tile. What a rule learns may be used here: its gradient comes by autograd.

        Args:
            scores: `(..., n_queries, n_keys)`, finite, unless the rule is `shifted` or the inputs were not.
            peak: The largest score of each row so far, `(..., n_queries, 1)`, if the rule is `shifted` and there is a
                key. None otherwise: a tile does not know the largest score of its row, and numerators that went by it
                would not add up with those of other tiles.
        """
        raise NotImplementedError(f"{type(self).__name__} must define numerators(scores, peak).")

    def numerator_slope(self, scores: Tensor) -> Tensor | None:
        """d numerator / d score of a tile; None where no gradient flows. By autograd, unless a rule knows better.

        It is not asked of a `shifted` rule, whose slope is its weight.
        """
        with torch.enable_grad():
            leaves = scores.detach().requires_grad_()
            numerators = self.numerators(leaves, None)
            if not numerators.requires_grad:
                return torch.zeros_like(scores)
            (slope,) = torch.autograd.grad(numerators.sum(), leaves)
        return slope

    def allowed_numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        """The numerators of a tile, exactly 0 where a pair is not allowed."""
        if self.shifted:
            return self.numerators(scores, peak)  # 0 by itself: e^−inf
        # Blocked scores are replaced before, not only after: 0 · NaN in a derivative would be NaN.
        blocked = scores == -torch.inf
        return torch.where(blocked, 0, self.numerators(torch.where(blocked, 0, scores), None))

    def learned(self) -> tuple[Tensor, ...]:
        if not self._parameters and not self._modules:  # most have none: no walk through a module
            return ()
        return tuple(each for each in self.parameters() if each.requires_grad)

    def learned_gradients(
        self,
        scores: Tensor,
        weights: Tensor,
        statistics: Statistics,
        columns: Tensor,
        to_weights: Tensor,
        delta: Tensor,
    ) -> tuple[Tensor, ...]:
        # α = numerator / Σ numerator, so that the gradient of a numerator is (dP − δ) / Σ.
        to_numerators = (to_weights - delta) / statistics[1] if self.normalized else to_weights
        learned = self.learned()
        with torch.enable_grad():
            numerators = self.allowed_numerators(scores, statistics[0] if self.shifted else None)
            if not numerators.requires_grad:
                return tuple(torch.zeros_like(each) for each in learned)
            found = torch.autograd.grad(numerators, learned, to_numerators, allow_unused=True)
        return tuple(torch.zeros_like(a) if b is None else b for a, b in zip(learned, found, strict=True))

    @property
    def centre(self) -> str:  # type: ignore[override]
        return "output" if self.normalized else "none"

    def define(self, scores: Tensor) -> Tensor:
        peak = scores.detach().amax(-1, keepdim=True) if self.shifted and scores.shape[-1] else None
        numerators = self.allowed_numerators(scores, peak)
        if not self.normalized:
            return numerators
        total = numerators.sum(-1, keepdim=True)
        # Where the total is NaN, 0 / NaN must not be the weight of a key that is not allowed.
        nothing = (total == 0) | (total.isnan() & (scores == -torch.inf))
        return torch.where(nothing, 0, numerators / torch.where(total == 0, 1, total))

    def solve(self, fold: Fold) -> Statistics:
        return self.finish(*fold(_PeakAndTotal(self)))

    def layout(self) -> tuple[tuple[int, torch.dtype | None], ...]:
        return (1, None), (1, None)

    def finish(self, peak: Tensor, total: Tensor) -> Statistics:
        """The statistics of rows, from their largest score and the sum of their numerators."""
        # A fully masked row divides by infinity, so that every weight is exactly 0.
        return peak, torch.where(total == 0, torch.inf, total)

    def weights(self, scores: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        peak, total = statistics
        numerators = self.allowed_numerators(scores, peak if self.shifted else None)
        return numerators / total if self.normalized else numerators

    def slope(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> Tensor | None:
        if self.shifted:
            return weights
        blocked = scores == -torch.inf
        slope = self.numerator_slope(torch.where(blocked, 0, scores))
        if slope is None:
            return None
        slope = torch.where(blocked, 0, slope)
        return slope / statistics[1] if self.normalized else slope

    def merge_factors(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The common peak of two parts, and what each part's sums are multiplied by to be relative to it."""
        peak = torch.maximum(left, right)
        return peak, shift(left, peak), shift(right, peak)


class _PeakAndTotal:
    """(largest score, sum of numerators) of each row."""

    def __init__(self, rule: OnePass) -> None:
        self.rule = rule

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        peak = scores.amax(-1, keepdim=True)
        return peak, self.rule.allowed_numerators(scores, peak).sum(-1, keepdim=True)

    def merge(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if not self.rule.shifted:
            return torch.maximum(left[0], right[0]), left[1] + right[1]
        peak, for_left, for_right = self.rule.merge_factors(left[0], right[0])
        return peak, left[1] * for_left + right[1] * for_right


def shift(scores: Tensor, peak: Tensor | None) -> Tensor:
    """e^(scores − peak), exactly 0 where a score is −inf, whatever the peak; gradients there are 0 too."""
    if peak is None:
        return torch.zeros_like(scores)
    blocked = scores == -torch.inf
    # Blocked scores are replaced before the exponential, not only after: 0 · NaN in its derivative would be NaN.
    peak = torch.where(peak == -torch.inf, 0, peak)
    return torch.where(blocked, 0, (torch.where(blocked, peak, scores) - peak).exp())
