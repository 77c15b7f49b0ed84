"""The decoder of a Transformer: every token attends to those before it, and to a memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import OptionError
from regard.masks import Causal, Mask
from regard.nn.cache import KeyValueCache, LayerCache
from regard.nn.feed_forward import Activation, WithFeedForward
from regard.nn.input_checks import refuse_nested
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.positional_encoding import Rotary
from regard.nn.pytorch_layers import besides
from regard.nn.residual_blocks import attention_block, residual
from regard.nn.torch_masks import looks_causal
from regard.scores import Score
from regard.weights import Weights


class DecoderLayer(WithFeedForward):
    """A drop-in for `torch.nn.TransformerDecoderLayer`, for every score, rule and mask.

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
        score, weights: Of both attentions, as `MultiHeadAttention`; the second gets copies. A score of positions, such
            as `Alibi`, has no place in the second, between two sequences: give that one `multihead_attn.score = ...`.
        mask, rotary: Of the attention among the tokens.
        num_kv_heads: Of both.

    Example:
        >>> import torch
        >>> from regard import Causal, nn
        >>> layer = nn.DecoderLayer(16, 4, batch_first=True, mask=Causal())
        >>> layer(torch.rand(2, 5, 16), torch.rand(2, 7, 16)).shape
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
        common: dict[str, Any] = {"bias": bias, "batch_first": batch_first, "num_kv_heads": num_kv_heads, **kind}
        # The order in which parts are made is PyTorch's: a seed gives the same numbers.
        self.self_attn = MultiHeadAttention(
            d_model, nhead, dropout, **common, score=score, weights=weights, mask=mask, rotary=rotary
        )
        self.multihead_attn = MultiHeadAttention(
            d_model, nhead, dropout, **common, score=copy.deepcopy(score), weights=copy.deepcopy(weights)
        )
        self._build(d_model, dim_feedforward, dropout, activation, bias, kind)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (
            nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind) for _ in range(3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        mask: Mask | None = None,
        cache: tuple[LayerCache, LayerCache] | None = None,
    ) -> Tensor:
        """The tokens after this layer, in the layout of `tgt`.

        Args:
            tgt: `(length, batch, dim)`; `(batch, length, dim)` with `batch_first`; `(length, dim)` without a batch.
            memory: The encoder's output, for cross-attention; in the same layout, of its own length.
            tgt_mask, memory_mask: As `attn_mask` of `MultiHeadAttention`: True where a token may not attend.
            tgt_key_padding_mask, memory_key_padding_mask: `(batch, length)`, True where a token is padding.
            tgt_is_causal, memory_is_causal: Promises that these masks are causal.
            mask: One of regard's masks for this call, in which True means "may attend".
            cache: Keys and values of earlier tokens, and of the memory.
        """
        refuse_nested(tgt=tgt, memory=memory)
        of_tokens, of_memory = (None, None) if cache is None else cache
        attend = attention_block(
            self.self_attn,
            memory=None,
            key_padding_mask=tgt_key_padding_mask,
            attn_mask=tgt_mask,
            is_causal=tgt_is_causal,
            mask=mask,
            cache=of_tokens,
        )
        attend_to_memory = attention_block(
            self.multihead_attn,
            memory=memory,
            key_padding_mask=memory_key_padding_mask,
            attn_mask=memory_mask,
            is_causal=memory_is_causal,
            cache=of_memory,
        )
        tgt = residual(tgt, attend, self.norm1, self.dropout1, self.norm_first)
        tgt = residual(tgt, attend_to_memory, self.norm2, self.dropout2, self.norm_first)
        return residual(tgt, self.feed_forward, self.norm3, self.dropout3, self.norm_first)


class Decoder(nn.Module):
    """A drop-in for `torch.nn.TransformerDecoder`: layers one after the other.

    Args:
        decoder_layer: The layer of which each gets a copy: one of these, or PyTorch's.
        num_layers: How many.
        norm: What normalises the result.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> decoder = nn.Decoder(nn.DecoderLayer(16, 4, batch_first=True), 2)
        >>> decoder(torch.rand(3, 5, 16), torch.rand(3, 7, 16)).shape
        torch.Size([3, 5, 16])
    """

    def __init__(self, decoder_layer: nn.Module, num_layers: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | Mask | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """The tokens after all layers; arguments as `DecoderLayer`, and `tgt_mask` may be one of regard's.

        With a `cache`, `tgt` holds the new tokens; each attends to those before it. `tgt_key_padding_mask` is then of
        all tokens so far, and `memory` must be the one of the first call, whose keys and values are kept.
        """
        refuse_nested(tgt=tgt, memory=memory)
        ours = tgt_mask if isinstance(tgt_mask, Mask) else None
        theirs = None if isinstance(tgt_mask, Mask) else tgt_mask
        if cache is not None:
            if tgt_mask is not None or len(cache.layers) != len(self.layers):
                raise OptionError(
                    f"With a cache decoding is causal, so `tgt_mask` must be None, and the cache must be "
                    f"KeyValueCache({len(self.layers)}): got {len(cache.layers)} layers and "
                    f"{'no mask' if tgt_mask is None else 'a mask'}."
                )
            ours = Causal(align="end")
        causal = looks_causal(theirs) if tgt_is_causal is None else tgt_is_causal
        for place, layer in enumerate(self.layers):
            extra = besides(layer, mask=ours, cache=None if cache is None else cache.layers[place])
            tgt = layer(
                tgt,
                memory,
                theirs,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                causal,
                memory_is_causal,
                **extra,
            )
        return tgt if self.norm is None else self.norm(tgt)
