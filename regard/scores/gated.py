"""Gated: a(q, k) = σ(W_g[q; k]) · score(q, k)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.scores.dot import Dot
from regard.scores.form import Form
from regard.scores.score import Score, check_is_score, check_sizes, expect_dims, heads_shape, project
from regard.scores.steps import Gate


class Gated(Score):
    """a(q, k) = g · score(q, k), with the gate g = σ(W_g[q; k]).

    W_g has one row of length query_dim + key_dim. Its two halves act on queries and keys alone, so a pair costs one
    sum and one sigmoid.

    Args:
        query_dim: The length of a query.
        key_dim: The length of a key.
        score: What is gated; qᵀk if left out.
        heads: One W_g for each entry of the last batch axis; one for all if left out.

    Example:
        >>> import torch
        >>> from regard import Gated
        >>> score = Gated(query_dim=4, key_dim=4)
        >>> score.W_g.shape
        torch.Size([1, 8])
        >>> score(torch.ones(2, 4), torch.ones(3, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, query_dim: int, key_dim: int, score: Score | None = None, *, heads: int | None = None) -> None:
        super().__init__()
        check_sizes("Gated", query_dim=query_dim, key_dim=key_dim)
        self.query_dim, self.key_dim, self.heads = query_dim, key_dim, heads
        self.score = Dot() if score is None else score
        check_is_score(self.score, "Gated")
        self.W_g = nn.Parameter(torch.empty(*heads_shape(heads), 1, query_dim + key_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W_g anew, so that gates start near one half."""
        nn.init.normal_(self.W_g, std=1 / math.sqrt(self.query_dim + self.key_dim))

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        expect_dims(queries, keys, self.query_dim, self.key_dim, "Gated")
        columns = self.W_g.mT  # ([heads,] query_dim + key_dim, 1)
        for_query, for_key = columns[..., : self.query_dim, :], columns[..., self.query_dim :, :]
        gate = Gate(project(queries, for_query, "Gated"), project(keys, for_key, "Gated"))
        return self.score.form(queries, keys).then(gate)

    def extra_repr(self) -> str:
        return f"{self.query_dim}, {self.key_dim}" + (f", heads={self.heads}" if self.heads else "")
