"""Additive: a(q, k) = vᵀ tanh(W₁q + W₂k + b)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.scores.form import ChannelForm, Form
from regard.scores.score import Score, check_sizes, expect_dims, heads_shape, project


class Additive(Score):
    """a(q, k) = vᵀ tanh(W₁q + W₂k + b): a network with one hidden layer (Bahdanau).

    Args:
        query_dim: The length of a query.
        key_dim: The length of a key.
        hidden_dim: The number of hidden units.
        heads: One set of parameters for each entry of the last batch axis; one for all if left out.

    Example:
        >>> import torch
        >>> from regard import Additive, attend
        >>> score = Additive(query_dim=3, key_dim=5, hidden_dim=8)
        >>> [(name, tuple(each.shape)) for name, each in score.named_parameters()]
        [('W1', (8, 3)), ('W2', (8, 5)), ('b', (8,)), ('v', (8,))]
        >>> attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 7), score=score).shape
        torch.Size([2, 7])
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, *, heads: int | None = None) -> None:
        super().__init__()
        check_sizes("Additive", query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim)
        self.query_dim, self.key_dim, self.hidden_dim, self.heads = query_dim, key_dim, hidden_dim, heads
        lead = heads_shape(heads)
        self.W1 = nn.Parameter(torch.empty(*lead, hidden_dim, query_dim))
        self.W2 = nn.Parameter(torch.empty(*lead, hidden_dim, key_dim))
        self.b = nn.Parameter(torch.empty(*lead, hidden_dim))
        self.v = nn.Parameter(torch.empty(*lead, hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew: W₁ and W₂ so that tanh is not saturated, v as a linear layer would, b zero."""
        nn.init.normal_(self.W1, std=1 / math.sqrt(2 * self.query_dim))
        nn.init.normal_(self.W2, std=1 / math.sqrt(2 * self.key_dim))
        nn.init.zeros_(self.b)
        nn.init.normal_(self.v, std=1 / math.sqrt(self.hidden_dim))

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        expect_dims(queries, keys, self.query_dim, self.key_dim, "Additive")
        left = project(queries, self.W1.mT, "Additive")
        right = project(keys, self.W2.mT, "Additive") + self.b.unsqueeze(-2)
        return ChannelForm(left, right, "tanh", self.v.unsqueeze(-2))

    def extra_repr(self) -> str:
        return f"{self.query_dim}, {self.key_dim}, {self.hidden_dim}" + (f", heads={self.heads}" if self.heads else "")
