"""The encoder of a Transformer: every token attends to every other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.masks import Mask
from regard.nn.feed_forward import Activation, WithFeedForward
from regard.nn.input_checks import check_tensors, refuse_nested
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.positional_encoding import Rotary
from regard.nn.pytorch_layers import besides
from regard.nn.recording import record
from regard.nn.residual_blocks import attention_block, residual
from regard.nn.torch_masks import looks_causal
from regard.scores import Score
from regard.view.weights_view import WeightsView
from regard.weights import Weights


class EncoderLayer(WithFeedForward):
    """A drop-in for `torch.nn.TransformerEncoderLayer`, for every score, rule and mask.

    Constructor, parameters and `forward` are PyTorch's. In eval mode nothing else is computed than in training: the
    attention that was given is the one that runs.

    Args:
        d_model: The size of a token.
        nhead: How many heads.
        dim_feedforward: The hidden size of the feed-forward part.
        dropout: The share that is dropped in training, of weights and after each part.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: ε of the normalisations.
        batch_first: Whether tensors are `(batch, length, dim)`, not `(length, batch, dim)`.
        norm_first: Whether each part is normalised before, not after.
        bias: Whether linear layers and normalisations add a bias.
        device, dtype: Of the parameters.
        score, weights, mask, num_kv_heads, rotary: Of the attention, as `MultiHeadAttention`.

    Example:
        >>> import torch
        >>> from regard import Sparsemax, nn
        >>> layer = nn.EncoderLayer(16, 4, batch_first=True, weights=Sparsemax())
        >>> layer(torch.rand(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Score | None = None,
        weights: Weights | None = None,
        mask: Mask | Sequence[Mask | None] | None = None,
        num_kv_heads: int | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        # The order in which parts are made is PyTorch's: a seed gives the same numbers.
        self.self_attn = MultiHeadAttention(
            d_model,
            nhead,
            dropout,
            bias=bias,
            batch_first=batch_first,
            **kind,
            score=score,
            weights=weights,
            mask=mask,
            num_kv_heads=num_kv_heads,
            rotary=rotary,
        )
        self._build(d_model, dim_feedforward, dropout, activation, bias, kind)
        self.norm_first = norm_first
        self.norm1, self.norm2 = (nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind) for _ in range(2))
        self.dropout1, self.dropout2 = (nn.Dropout(dropout) for _ in range(2))

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Mask | None = None,
    ) -> Tensor:
        """The tokens after this layer, in the layout of `src`.

        Args:
            src: `(length, batch, dim)`; `(batch, length, dim)` with `batch_first`; `(length, dim)` without a batch.
            src_mask: As `attn_mask` of `MultiHeadAttention`: True where a token may not attend.
            src_key_padding_mask: `(batch, length)`, True where a token is padding.
            is_causal: A promise that `src_mask` is the causal one.
            mask: One of regard's masks for this call, in which True means "may attend".
        """
        check_tensors(src=src)
        attend = attention_block(
            self.self_attn,
            memory=None,
            key_padding_mask=src_key_padding_mask,
            attn_mask=src_mask,
            is_causal=is_causal,
            mask=mask,
        )
        src = residual(src, attend, self.norm1, self.dropout1, self.norm_first)
        return residual(src, self.feed_forward, self.norm2, self.dropout2, self.norm_first)


class Encoder(nn.Module):
    """A drop-in for `torch.nn.TransformerEncoder`: layers one after the other.

    Args:
        encoder_layer: The layer of which each gets a copy: one of these, or PyTorch's.
        num_layers: How many.
        norm: What normalises the result.
        enable_nested_tensor, mask_check: Taken as PyTorch's are; they choose among its fast paths, and there are none
            here.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> encoder = nn.Encoder(nn.EncoderLayer(16, 4, batch_first=True), 2)
        >>> x = torch.rand(3, 5, 16)
        >>> encoder(x).shape
        torch.Size([3, 5, 16])
        >>> [view.shape for view in encoder.weigh(x)]
        [(3, 4, 5, 5), (3, 4, 5, 5)]
    """

    def __init__(
        self,
        encoder_layer: nn.Module,
        num_layers: int,
        norm: nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | Mask | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The tokens after all layers; arguments as `EncoderLayer`, and `mask` may be one of regard's."""
        refuse_nested(src=src)
        ours = mask if isinstance(mask, Mask) else None
        theirs = None if isinstance(mask, Mask) else mask
        causal = looks_causal(theirs) if is_causal is None else is_causal
        for layer in self.layers:
            src = layer(src, theirs, src_key_padding_mask, is_causal=causal, **besides(layer, mask=ours))
        return src if self.norm is None else self.norm(src)

    def weigh(
        self, src: Tensor, mask: Tensor | Mask | None = None, src_key_padding_mask: Tensor | None = None
    ) -> list[WeightsView]:
        """The weights of every layer, read without storing them: `(batch, heads, length, length)` each."""
        with record(self, budget=None) as recording:
            self(src, mask, src_key_padding_mask)
        return recording.views()
