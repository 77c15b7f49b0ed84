"""The blocks of a Transformer layer: residual connections around attention and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from regard.nn.pytorch_layers import besides

Block = Callable[[Tensor], Tensor]


def residual(tokens: Tensor, block: Block, norm: nn.Module, dropout: nn.Module, norm_first: bool) -> Tensor:
    """x + dropout(block(norm(x))), or norm(x + dropout(block(x)))."""
    if norm_first:
        return tokens + dropout(block(norm(tokens)))  # type: ignore[no-any-return]
    return norm(tokens + dropout(block(tokens)))  # type: ignore[no-any-return]


def attention_block(
    attention: nn.Module,
    *,
    memory: Tensor | None,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    **ours: Any,
) -> Block:
    """Attention of tokens to a memory, or to themselves if it is None; `ours` are arguments that PyTorch lacks."""
    given = besides(attention, **ours)

    def block(tokens: Tensor) -> Tensor:
        source = tokens if memory is None else memory
        pooled: Tensor
        pooled, _ = attention(
            tokens,
            source,
            source,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            attn_mask=attn_mask,
            is_causal=is_causal,
            **given,
        )
        return pooled

    return block
