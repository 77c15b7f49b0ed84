"""Gaussian: a(q, k) = −‖q − k‖² / (2 · bandwidth²)."""

from __future__ import annotations

from torch import Tensor, nn

from regard.errors import ShapeError
from regard.scores.base import Score, positive_parameter, same_dim
from regard.scores.distance import half_squared_distance
from regard.scores.form import Form


class Gaussian(Score):
    """a(q, k) = −‖q − k‖² / (2 · bandwidth²): the logarithm of a Gaussian kernel.

    Under `Softmax()` this is Nadaraya–Watson kernel regression.

    Args:
        bandwidth: A positive number; a tensor `(dim,)` for one per dimension; an `nn.Parameter` of either shape to
            learn it.

    Example:
        >>> import torch
        >>> from regard import Gaussian, attend
        >>> gpa, salary = torch.tensor([[3.0], [3.5], [4.0]]), torch.tensor([[60.0], [70.0], [80.0]])
        >>> attend(torch.tensor([[3.5]]), gpa, salary, score=Gaussian(0.1))
        tensor([[70.]])
    """

    is_log_kernel = True
    bandwidth: float | Tensor

    def __init__(self, bandwidth: float | Tensor | nn.Parameter) -> None:
        super().__init__()
        positive_parameter(self, "bandwidth", bandwidth)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Gaussian")
        check_bandwidth(self.bandwidth, queries.shape[-1], "Gaussian")
        return half_squared_distance(queries / self.bandwidth, keys / self.bandwidth)

    def extra_repr(self) -> str:
        return describe(self.bandwidth)


def check_bandwidth(bandwidth: float | Tensor, dim: int, owner: str) -> None:
    """Raise unless there is one bandwidth, or one for each dimension."""
    if isinstance(bandwidth, Tensor) and tuple(bandwidth.shape) not in ((), (1,), (dim,)):
        raise ShapeError(
            f"`bandwidth` of {owner} must be one number, or one for each of {dim} dimensions: "
            f"got {tuple(bandwidth.shape)}. Pass a tensor ({dim},)."
        )


def describe(bandwidth: float | Tensor) -> str:
    """A bandwidth in a repr: the number, or the shape of a tensor."""
    return (
        f"bandwidth=tensor of {tuple(bandwidth.shape)}" if isinstance(bandwidth, Tensor) else f"bandwidth={bandwidth:g}"
    )
