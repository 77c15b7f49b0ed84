"""Laplacian: a(q, k) = −‖q − k‖₁ / bandwidth."""

from __future__ import annotations

from torch import Tensor, nn

from regard.scores.base import Score, positive_parameter, same_dim
from regard.scores.form import ChannelForm, Form
from regard.scores.gaussian import check_bandwidth, describe


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
        positive_parameter(self, "bandwidth", bandwidth)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Laplacian")
        check_bandwidth(self.bandwidth, queries.shape[-1], "Laplacian")
        width = max(queries.shape[-1], 1)
        return ChannelForm(queries / self.bandwidth, keys / self.bandwidth, "absolute", scale=-1.0, width=width)

    def extra_repr(self) -> str:
        return describe(self.bandwidth)
