"""Laplacian: a(q, k) = −‖q − k‖₁ / bandwidth."""

from __future__ import annotations

from torch import Tensor

from regard.scores.distance import DistanceScore, rescaled, summed
from regard.scores.form import Form


class Laplacian(DistanceScore):
    """a(q, k) = −‖q − k‖₁ / bandwidth: the logarithm of a Laplacian kernel.

    Args:
        bandwidth: A positive number; a tensor `(dim,)` for one per dimension; an `nn.Parameter` of either shape to
            learn it.

    Example:
        >>> import torch
        >>> from regard import Laplacian
        >>> Laplacian(2.0)(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 3.0]]))
        tensor([[-2.]])
    """

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        self.check(queries, keys)
        queries, keys, bandwidth = rescaled(queries, keys, self.bandwidth)
        return summed(queries, keys, "absolute", 1 / bandwidth)
