"""Multiplicative: a(q, k) = qᵀWk."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.scores.form import DotForm, Form
from regard.scores.score import Score, check_sizes, expect_dims, heads_shape, project


class Multiplicative(Score):
    """a(q, k) = qᵀWk, with W learned.

    W starts as a random matrix whose scores have the spread of a scaled dot product.

    Args:
        query_dim: The length of a query.
        key_dim: The length of a key.
        heads: One W for each entry of the last batch axis; one for all if left out.

    Example:
        >>> import torch
        >>> from regard import Multiplicative
        >>> score = Multiplicative(query_dim=3, key_dim=5)
        >>> score.W.shape
        torch.Size([3, 5])
        >>> score(torch.ones(2, 3), torch.ones(4, 5)).shape
        torch.Size([2, 4])
    """

    def __init__(self, query_dim: int, key_dim: int, *, heads: int | None = None) -> None:
        super().__init__()
        check_sizes("Multiplicative", query_dim=query_dim, key_dim=key_dim)
        self.query_dim, self.key_dim, self.heads = query_dim, key_dim, heads
        self.W = nn.Parameter(torch.empty(*heads_shape(heads), query_dim, key_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W anew."""
        nn.init.normal_(self.W, std=1 / math.sqrt(self.query_dim * self.key_dim))

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        expect_dims(queries, keys, self.query_dim, self.key_dim, "Multiplicative")
        return DotForm(project(queries, self.W, "Multiplicative"), keys)

    def extra_repr(self) -> str:
        return f"{self.query_dim}, {self.key_dim}" + (f", heads={self.heads}" if self.heads else "")
