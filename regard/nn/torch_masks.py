"""PyTorch's masks for the drop-in layers: in them True means "may not attend", and floats are added to scores.

In regard's masks, True means "may attend". This module alone converts one to the other.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.masks import Allowed, Causal, Mask
from regard.modes import is_hidden


@dataclass(frozen=True)
class Restriction:
    """What a call's masks come to."""

    mask: Mask | None = None  # which pairs are allowed
    bias: Tensor | None = None  # what is added to scores, −inf where not allowed


def read_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    *,
    batch: int,
    heads: int,
    added_keys: int = 0,
    is_causal: bool = False,
) -> Restriction:
    """Turn PyTorch's masks, once they were checked, into regard's.

    Args:
        attn_mask: `(n_queries, n_keys)` or `(batch · heads, n_queries, n_keys)`: bool, True where a query may not look,
            or numbers that are added to scores.
        key_padding_mask: `(batch, n_keys)`: bool, True where a key is padding, or numbers that are added; `(n_keys,)`
            for one sequence.
        batch, heads: How many there are.
        added_keys: How many keys follow that every query may attend to.
        is_causal: Whether to trust that `attn_mask` is the causal one: then it is not read.
    """
    _warn_of_two_kinds(attn_mask, key_padding_mask)
    allowed: Tensor | None = None
    bias: Tensor | None = None
    causal: Mask | None = None
    if attn_mask is not None:
        if attn_mask.ndim == 3:
            attn_mask = attn_mask.unflatten(0, (batch, heads))
        if is_causal and not added_keys:
            causal = Causal(align="start")
        elif attn_mask.dtype == torch.bool:
            allowed = ~_padded(attn_mask, added_keys)
        else:
            bias = _padded(attn_mask, added_keys)
    if key_padding_mask is not None:
        padding = _padded(key_padding_mask, added_keys)[..., None, None, :]
        if padding.dtype == torch.bool:
            allowed = ~padding if allowed is None else allowed & ~padding
        else:
            bias = padding if bias is None else bias + padding
    mask: Mask | None = None if allowed is None else Allowed(allowed)
    if causal is not None:
        mask = causal if mask is None else causal & mask
    return Restriction(mask, bias)


def _padded(mask: Tensor, added_keys: int) -> Tensor:
    """A mask over keys that follow too, which every query may attend to."""
    return pad(mask, (0, added_keys)) if added_keys else mask


def _warn_of_two_kinds(attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> None:
    if attn_mask is not None and key_padding_mask is not None and attn_mask.dtype != key_padding_mask.dtype:
        warnings.warn(
            f"`attn_mask` is {attn_mask.dtype} and `key_padding_mask` {key_padding_mask.dtype}: PyTorch will not take "
            f"both kinds together for long. Make them the same.",
            stacklevel=4,
        )


def causal_mask(size: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """`(size, size)`: 0 where a query may attend, −inf at the keys after it; in bool, True there."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    later = torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
    return (
        later
        if dtype == torch.bool
        else torch.zeros(size, size, dtype=dtype, device=device).masked_fill(later, -torch.inf)
    )


def looks_causal(mask: Tensor | None) -> bool:
    """Whether a mask is the causal one, by comparing every entry; False while it cannot be read."""
    if not isinstance(mask, Tensor) or is_hidden(mask) or mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        return False
    return bool(torch.equal(mask, causal_mask(len(mask), mask.device, mask.dtype)))
