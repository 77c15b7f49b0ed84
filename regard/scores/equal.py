"""Equal: a(q, k) = 1 where q = k, else 0."""

from __future__ import annotations

from torch import Tensor

from regard.scores.form import ChannelForm, Form
from regard.scores.score import Score, same_dim
from regard.scores.steps import Indicator


class Equal(Score):
    """a(q, k) = 1 where q and k agree in every coordinate, else 0: the true/false similarity of a database.

    Example:
        >>> import torch
        >>> from regard import Equal
        >>> Equal()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]]))
        tensor([[1., 0.]])
    """

    is_kernel = True

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Equal()")
        return ChannelForm(queries, keys, "differ").then(Indicator(0.0))
