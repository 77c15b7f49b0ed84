"""Proportional: α = a / Σ a."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import ScoreError
from regard.modes import is_tracing
from regard.weights.onepass import OnePass
from regard.weights.rule import Statistics, masked

if TYPE_CHECKING:
    from regard.scores.score import Score


def proportional(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """a / Σ a over the allowed keys, row by row; zeros where the sum is 0.

    Example:
        >>> import torch
        >>> from regard.weights import proportional
        >>> proportional(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])
    """
    scores = masked(scores, allowed)
    numerators = torch.where(scores == -torch.inf, 0, scores)
    total = numerators.sum(-1, keepdim=True)
    return torch.where(total == 0, 0, numerators / torch.where(total == 0, 1, total))


def refuse_negative(least: float) -> None:
    """Raise if the least score is negative."""
    if least < 0:
        raise ScoreError(
            f"Proportional() must have scores that are not negative: got {least:.4g}. "
            f"Use Softmax() for scores of any sign."
        )


class Proportional(OnePass):
    """α = a / Σ a, for scores that cannot be negative: Boxcar, Epanechnikov, Triangular, Equal.

    Example:
        >>> import torch
        >>> from regard import Proportional
        >>> Proportional()(torch.tensor([[1.0, 1.0, 2.0]]))
        tensor([[0.2500, 0.2500, 0.5000]])
    """

    kind = "convex"
    normalized = True

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        numerators = torch.where(scores == -torch.inf, 0, scores)
        if not is_tracing() and bool((numerators < 0).any()):
            refuse_negative(float(numerators.detach().min()))
        return numerators

    def numerator_slope(self, scores: Tensor) -> Tensor:
        return torch.ones_like(scores)

    def log_normalizer(self, statistics: Statistics) -> Tensor:
        total = statistics[1]
        return torch.where(total == torch.inf, -torch.inf, total.log()).squeeze(-1)

    def check_score(self, score: Score) -> None:
        if score.is_log_kernel:
            raise ScoreError(
                f"Proportional() must have scores that are not negative: {type(score).__name__} is the logarithm of a "
                f"kernel. "
                f"Use Softmax(), which takes its exponential."
            )
