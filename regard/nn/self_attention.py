"""Self-attention: every token of a sequence attends to the others."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.masks import Mask
from regard.nn.base_layer import AttentionLayer
from regard.nn.input_checks import check_dtype, refuse_nested
from regard.scores import Score
from regard.scores.score import check_sizes
from regard.view.weights_view import WeightsView
from regard.weights import Weights


class SelfAttention(AttentionLayer):
    """Q = X·W_Q, K = X·W_K, V = X·W_V; the output is attention of Q over the pairs of K and V, n × d_V.

    The matrices are kept as the documents write them: W_Q is d × d_Q. With a score that multiplies queries and keys,
    d_Q = d_K; `query_dim` is for scores that take other sizes, such as `Additive`.

    Args:
        dim: d, the size of a token.
        key_dim: d_K; d if left out.
        value_dim: d_V; d_K if left out.
        query_dim: d_Q; d_K if left out.
        score: a(q, k); qᵀk/√d_K if left out.
        weights: How scores become weights; softmax if left out.
        mask: Which tokens each token may attend to, in every call.
        dropout: The share of weights that are dropped in training.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.SelfAttention(8, key_dim=4, value_dim=6)
        >>> layer.W_Q.shape, layer.W_V.shape
        (torch.Size([8, 4]), torch.Size([8, 6]))
        >>> layer(torch.rand(10, 8)).shape
        torch.Size([10, 6])
    """

    def __init__(
        self,
        dim: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        *,
        query_dim: int | None = None,
        score: Score | None = None,
        weights: Weights | None = None,
        mask: Mask | None = None,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(score=score, weights=weights, mask=mask, dropout=dropout)
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        query_dim = key_dim if query_dim is None else query_dim
        check_sizes("SelfAttention", dim=dim, key_dim=key_dim, value_dim=value_dim, query_dim=query_dim)
        if query_dim != key_dim and score is None:
            raise ShapeError(
                f"`query_dim` and `key_dim` must be the same, since qᵀk multiplies them number by number: got "
                f"{query_dim} and {key_dim}. Make them equal, or pass a score that takes both, such as "
                f"score=Additive({query_dim}, {key_dim}, hidden)."
            )
        kind = {"device": device, "dtype": dtype}
        self.W_Q = nn.Parameter(torch.empty(dim, query_dim, **kind))  # type: ignore[arg-type]
        self.W_K = nn.Parameter(torch.empty(dim, key_dim, **kind))  # type: ignore[arg-type]
        self.W_V = nn.Parameter(torch.empty(dim, value_dim, **kind))  # type: ignore[arg-type]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices anew: uniform in ±1/√d, as `nn.Linear` does."""
        bound = 1 / math.sqrt(self.W_Q.shape[0])
        for matrix in (self.W_Q, self.W_K, self.W_V):
            nn.init.uniform_(matrix, -bound, bound)

    def forward(self, tokens: Tensor, mask: Mask | None = None) -> Tensor:
        """The tokens pooled by attention: `(..., n, dim)` to `(..., n, value_dim)`."""
        return self.pool(*self.project(tokens), mask=mask)

    def weigh(self, tokens: Tensor, mask: Mask | None = None) -> WeightsView:
        """The weights, read without storing them."""
        return self.view(*self.project(tokens), mask=mask)

    def project(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of some tokens."""
        refuse_nested(tokens=tokens)
        if tokens.ndim < 2 or tokens.shape[-1] != self.W_Q.shape[0]:
            raise ShapeError(
                f"Tokens must be (..., n, {self.W_Q.shape[0]}): got {tuple(tokens.shape)}. "
                f"The last axis is a token's own numbers."
            )
        check_dtype(tokens, self.W_Q.dtype)
        return tokens @ self.W_Q, tokens @ self.W_K, tokens @ self.W_V

    def blanks(self, batch: int, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
        zero = self.W_Q.new_zeros(())
        return zero.expand(batch, n_queries, self.W_Q.shape[1]), zero.expand(batch, n_keys, self.W_K.shape[1])

    def extra_repr(self) -> str:
        own = f"{self.W_Q.shape[0]}, key_dim={self.W_K.shape[1]}, value_dim={self.W_V.shape[1]}"
        return ", ".join(filter(None, (own, super().extra_repr())))
