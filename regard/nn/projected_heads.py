"""The parameters of multi-head attention, in PyTorch's names and order, and what they project tokens to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.nn.base_layer import AttentionLayer
from regard.nn.multi_head_checks import check_heads


class ProjectedHeads(AttentionLayer):
    """The base of `MultiHeadAttention`: tokens to queries, keys and values of every head.

    Args:
        embed_dim, num_heads, num_kv_heads, kdim, vdim, bias, add_bias_kv: As `MultiHeadAttention`.
        kind: Device and dtype of the parameters.
        attention: What every attention layer has: score, rule, mask, dropout.
    """

    # PyTorch's encoder layers ask for this before they compute an attention from its parameters alone, in eval mode
    # without gradients: that would leave out the score, the rule and the mask. False makes them call the layer.
    _qkv_same_embed_dim = False

    in_proj_weight: nn.Parameter | None
    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None,
        kdim: int | None,
        vdim: int | None,
        bias: bool,
        add_bias_kv: bool,
        kind: dict[str, Any],
        **attention: Any,
    ) -> None:
        super().__init__(**attention)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_heads(embed_dim, num_heads, num_kv_heads)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        shared = num_kv_heads * self.head_dim  # how many numbers the keys of all heads have
        # The order in which parameters are made is PyTorch's: a seed gives the same numbers.
        if self.kdim == embed_dim and self.vdim == embed_dim:
            self.in_proj_weight = nn.Parameter(torch.empty(embed_dim + 2 * shared, embed_dim, **kind))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = nn.Parameter(torch.empty(embed_dim, embed_dim, **kind))
            self.k_proj_weight = nn.Parameter(torch.empty(shared, self.kdim, **kind))
            self.v_proj_weight = nn.Parameter(torch.empty(shared, self.vdim, **kind))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter(
            "in_proj_bias", nn.Parameter(torch.empty(embed_dim + 2 * shared, **kind)) if bias else None
        )
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **kind)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, nn.Parameter(torch.empty(1, 1, shared, **kind)) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for matrix in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if matrix is not None:
                nn.init.xavier_uniform_(matrix)
        if self.in_proj_bias is not None:
            nn.init.constant_(self.in_proj_bias, 0.0)
            nn.init.constant_(self.out_proj.bias, 0.0)
        for vector in (self.bias_k, self.bias_v):
            if vector is not None:
                nn.init.xavier_normal_(vector)

    # What each head projects with, in the documents' orientation ---------------------------------------------------

    @property
    def W_Q(self) -> Tensor:
        """W_Q⁽ⁱ⁾ of every head, `(num_heads, embed_dim, head_dim)`: Q⁽ⁱ⁾ = X·W_Q⁽ⁱ⁾ (and the bias, if there is one)."""
        return self._per_head(self._matrices()[0], self.num_heads)

    @property
    def W_K(self) -> Tensor:
        """W_K⁽ⁱ⁾ of every head of keys, `(num_kv_heads, kdim, head_dim)`."""
        return self._per_head(self._matrices()[1], self.num_kv_heads)

    @property
    def W_V(self) -> Tensor:
        """W_V⁽ⁱ⁾ of every head of values, `(num_kv_heads, vdim, head_dim)`."""
        return self._per_head(self._matrices()[2], self.num_kv_heads)

    @property
    def W_O(self) -> Tensor:
        """W_O, `(embed_dim, embed_dim)`: the outputs of all heads, side by side, times it."""
        return self.out_proj.weight.T

    def _per_head(self, matrix: Tensor, heads: int) -> Tensor:
        split: Tensor = matrix.unflatten(0, (heads, self.head_dim))
        return split.transpose(-2, -1)

    def _sizes(self) -> list[int]:
        shared = self.num_kv_heads * self.head_dim
        return [self.embed_dim, shared, shared]

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.in_proj_weight is not None:
            query, key, value = self.in_proj_weight.split(self._sizes())
            return query, key, value
        assert self.q_proj_weight is not None
        assert self.k_proj_weight is not None
        assert self.v_proj_weight is not None
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight

    @property
    def _dtype(self) -> torch.dtype:
        """What tokens must come in."""
        packed = self.in_proj_weight  # read once: finding a parameter takes as long as a small check
        matrix = self.q_proj_weight if packed is None else packed
        assert matrix is not None
        return matrix.dtype

    # What tokens become --------------------------------------------------------------------------------------------

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, `(batch, heads, n, head_dim)`."""
        weight, bias, shared = self.in_proj_weight, self.in_proj_bias, self.num_kv_heads
        if weight is None or key is not value:
            projections = zip((query, key, value), self._matrices(), self._biases(self._sizes()), strict=True)
            return tuple([self._heads(linear(*each)) for each in projections])
        # One product, or two, and heads before parts: every operation is one more on the way of a small call, and a
        # part of a parameter costs its gradient room for all of it.
        if query is key:
            packed = self._heads(linear(query, weight, bias))
            return packed.split_with_sizes((self.num_heads, shared, shared), 1)
        sizes = [self.embed_dim, 2 * shared * self.head_dim]
        (of_query, of_both), (query_bias, both_bias) = weight.split_with_sizes(sizes), self._biases(sizes)
        packed = self._heads(linear(key, of_both, both_bias))
        return self._heads(linear(query, of_query, query_bias)), *packed.split_with_sizes((shared, shared), 1)

    def _projected_query(self, query: Tensor) -> Tensor:
        """Queries alone, as `_project`."""
        return self._heads(linear(query, self._matrices()[0], self._biases(self._sizes())[0]))

    def _biases(self, sizes: list[int]) -> Sequence[Tensor | None]:
        """The parts of the bias, of so many numbers each."""
        return (None,) * len(sizes) if self.in_proj_bias is None else self.in_proj_bias.split_with_sizes(sizes)

    def _heads(self, tokens: Tensor) -> Tensor:
        """`(batch, n, heads · head_dim)` as `(batch, heads, n, head_dim)`."""
        batch, n, size = tokens.shape
        return tokens.view(batch, n, size // self.head_dim, self.head_dim).transpose(1, 2)
