"""Uniform: α = 1 / (number of allowed keys)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.weights.onepass import OnePass


class Uniform(OnePass):
    """α = 1/m over the m allowed keys, whatever their scores: average pooling.

    Example:
        >>> import torch
        >>> from regard import Uniform
        >>> Uniform()(torch.tensor([[5.0, -3.0]]))
        tensor([[0.5000, 0.5000]])
    """

    kind = "uniform"
    normalized = True

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return (scores != -torch.inf).to(scores.dtype)

    def numerator_slope(self, scores: Tensor) -> None:
        return None
