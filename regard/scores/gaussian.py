"""Gaussian: a(q, k) = −‖q − k‖² / (2 · bandwidth²)."""

from __future__ import annotations

from torch import Tensor

from regard.scores.distance import DistanceScore, folded, rescaled, summed
from regard.scores.form import Form


class Gaussian(DistanceScore):
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

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        self.check(queries, keys)
        # The squares of half precision would lose their digits, and a GPU would have to be waited for to know.
        never = queries.itemsize < 4 or (queries.is_cuda and queries.itemsize == 4)
        queries, keys, bandwidth = rescaled(queries, keys, self.bandwidth)
        form = None if never else folded(queries / bandwidth, keys / bandwidth)
        return summed(queries, keys, "square", bandwidth**-2, scale=-0.5) if form is None else form
