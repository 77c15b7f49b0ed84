"""Elementwise rules: Conic, Raw and Sigmoid."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.weights.onepass import OnePass


class Conic(OnePass):
    """α = max(a, 0): not negative, not normalised. The output lies in the convex cone spanned by the values.

    Example:
        >>> import torch
        >>> from regard import Conic
        >>> Conic()(torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2.]])
    """

    kind = "conic"

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return torch.relu(scores)  # whose gradient at 0 is 0; clamp's is 1

    def numerator_slope(self, scores: Tensor) -> Tensor:
        return (scores > 0).to(scores.dtype)


class Raw(OnePass):
    """α = a: the scores themselves, so that the output is any linear combination of the values.

    Example:
        >>> import torch
        >>> from regard import Raw
        >>> Raw()(torch.tensor([[-1.0, 2.0]]))
        tensor([[-1.,  2.]])
    """

    kind = "linear"

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return torch.where(scores == -torch.inf, 0, scores)

    def numerator_slope(self, scores: Tensor) -> Tensor:
        return torch.ones_like(scores)


class Sigmoid(OnePass):
    """α = σ(a): each key is weighed on its own, between 0 and 1.

    Example:
        >>> import torch
        >>> from regard import Sigmoid
        >>> Sigmoid()(torch.tensor([[0.0]]))
        tensor([[0.5000]])
    """

    kind = "conic"

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return torch.sigmoid(scores)

    def numerator_slope(self, scores: Tensor) -> Tensor:
        gate = torch.sigmoid(scores)
        return gate * (1 - gate)
