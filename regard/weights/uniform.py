"""Uniform: α = 1 / (number of allowed keys)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.weights.onepass import OnePass


class Uniform(OnePass):
    """α = 1/m over the m allowed keys, whatever their scores: average pooling.

    Scores are not computed, so that none can overflow: a mask says who is allowed, a bias by an entry of −inf, and a
    function of your own by returning −inf.

    Example:
        >>> import torch
        >>> from regard import Uniform
        >>> Uniform()(torch.tensor([[5.0, -3.0]]))
        tensor([[0.5000, 0.5000]])
    """

    kind = "uniform"
    normalized = True
    scored = False

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return (scores != -torch.inf).to(scores.dtype)

    def numerator_slope(self, scores: Tensor) -> None:
        return None
