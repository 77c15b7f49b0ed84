"""Laplacian: a(q, k) = −‖q − k‖₁ / bandwidth."""

from __future__ import annotations

from torch import Tensor, nn

from regard.learned import keep_positive, shown
from regard.scores.base import Score, same_dim
from regard.scores.distance import check_bandwidth, summed
from regard.scores.form import Form


class Laplacian(Score):
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

    is_log_kernel = True
    bandwidth: float | Tensor

    def __init__(self, bandwidth: float | Tensor | nn.Parameter) -> None:
        super().__init__()
        keep_positive(self, "bandwidth", bandwidth)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Laplacian")
        check_bandwidth(self.bandwidth, queries.shape[-1], "Laplacian")
        return summed(queries, keys, "absolute", 1 / self.bandwidth)

    def extra_repr(self) -> str:
        return f"bandwidth={shown(self.bandwidth)}"
