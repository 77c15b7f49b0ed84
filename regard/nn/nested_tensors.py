"""Nested tensors: batches of sequences without padding, which PyTorch's own encoder makes of those with padding.

Its TransformerEncoder does so in eval mode without gradients, and asks nobody. What it makes is padded here again;
nested tensors that come in any other way are refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import LayerInputError
from regard.masks import Causal, Mask, NotSelf, PerHead, Strided, Where, Window
from regard.masks.boolean import And, Not, Or

# Masks that go by positions alone: the same pairs, however many padded tokens follow.
_POSITIONAL = (Causal, Window, Strided, NotSelf, Where)


def check_nested(
    query: Tensor, key: Tensor, value: Tensor, *, alone: bool, learning: bool, batch_first: bool, mask: Mask | None
) -> None:
    """Refuse nested tokens, unless they are such as PyTorch's TransformerEncoder makes for a layer in eval mode.

    Args:
        query, key, value: As multi-head attention is given them.
        alone: Whether nothing else is given or wanted: no masks, no cache, no weights.
        learning: Whether the layer is in training mode and gradients are on.
        batch_first, mask: The layer's.
    """
    if not (query is key is value and query.layout == torch.strided and alone and batch_first and not learning):
        raise LayerInputError(
            "`query`, `key` and `value` must be ordinary tensors: got nested ones. Pad them, "
            "torch.nested.to_padded_tensor(tokens, 0.0), and pass key_padding_mask=. Only what PyTorch's "
            "TransformerEncoder makes is taken: one for all three, batch_first=True, in eval mode, need_weights=False "
            "and no masks."
        )
    if mask is not None and not _is_positional(mask):
        raise LayerInputError(
            f"A layer with mask {mask!r} must know how many tokens there are with padding: got nested tensors, which "
            f"do not tell. Build PyTorch's TransformerEncoder with enable_nested_tensor=False, or set its "
            f"use_nested_tensor = False."
        )


def _is_positional(mask: Mask) -> bool:
    if isinstance(mask, And | Or | PerHead):
        return all(map(_is_positional, mask.masks))
    if isinstance(mask, Not):
        return _is_positional(mask.mask)
    return type(mask) in _POSITIONAL  # by type, not isinstance: a user's subclass may be something else


def pad_nested(tokens: Tensor) -> tuple[Tensor, list[int]]:
    """`(batch, longest, dim)` tokens with zeros where there are none, and the length of each sequence."""
    lengths = [len(each) for each in tokens.unbind()]
    return torch.nested.to_padded_tensor(tokens, 0.0), lengths


def nest(tokens: Tensor, lengths: list[int]) -> Tensor:
    """The sequences without what follows their lengths, as a nested tensor."""
    return torch.nested.as_nested_tensor([each[:length] for each, length in zip(tokens, lengths, strict=True)])
