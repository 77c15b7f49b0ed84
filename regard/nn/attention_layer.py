"""Attention as a layer: nothing is projected."""

from __future__ import annotations

from torch import Tensor

from regard.masks import Mask
from regard.nn.base_layer import AttentionLayer
from regard.scores import Score
from regard.view.weights_view import WeightsView
from regard.weights import Weights


class Attention(AttentionLayer):
    """Attention(q, D) = Σ α(q, kᵢ)·vᵢ of queries, keys and values as they come.

    Args:
        score: a(q, k); qᵀk/√d if left out.
        weights: How scores become weights; softmax if left out.
        mask: Which keys each query may attend to, in every call.
        dropout: The share of weights that are dropped in training.

    Example:
        >>> import torch
        >>> from regard import Additive, nn
        >>> layer = nn.Attention(Additive(4, 6, 8))
        >>> layer(torch.rand(2, 3, 4), torch.rand(2, 5, 6), torch.rand(2, 5, 7)).shape
        torch.Size([2, 3, 7])
    """

    def __init__(
        self,
        score: Score | None = None,
        weights: Weights | None = None,
        mask: Mask | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(score=score, weights=weights, mask=mask, dropout=dropout)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask | None = None) -> Tensor:
        """The values pooled by attention, `(..., n_queries, value_dim)`; `mask` narrows the layer's own."""
        return self.pool(queries, keys, values, mask=mask)

    def weigh(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask | None = None) -> WeightsView:
        """The weights, read without storing them."""
        return self.view(queries, keys, values, mask=mask)
