"""PyTorch's masks at the door of the drop-in layers: there True means "may not look", and numbers are added to scores.

Inside regard, True means "may look". This is the one place where the two meet.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import LayerInputError, LayerRuntimeError
from regard.masks import Allowed, Causal, Mask


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
    n_queries: int,
    n_keys: int,
    added_keys: int = 0,
    is_causal: bool = False,
) -> Restriction:
    """Turn PyTorch's masks into regard's.

    Args:
        attn_mask: `(n_queries, n_keys)` or `(batch · heads, n_queries, n_keys)`: bool, True where a query may not look,
            or numbers that are added to scores.
        key_padding_mask: `(batch, n_keys)`: bool, True where a key is padding, or numbers that are added.
        batch, heads, n_queries, n_keys: The sizes that masks must have.
        added_keys: How many keys follow that every query may look at.
        is_causal: Whether to trust that `attn_mask` is the causal one: then it is not read.
    """
    _check_dtypes(attn_mask, key_padding_mask)
    allowed: Tensor | None = None
    bias: Tensor | None = None
    causal: Mask | None = None
    if attn_mask is not None:
        attn_mask = _with_heads(attn_mask, batch, heads, n_queries, n_keys)
        if is_causal and not added_keys:
            causal = Causal(align="start")
        elif attn_mask.dtype == torch.bool:
            allowed = ~pad(attn_mask, (0, added_keys))
        else:
            bias = pad(attn_mask, (0, added_keys))
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, n_keys):
            raise LayerRuntimeError(
                f"`key_padding_mask` must be ({batch}, {n_keys}), one entry for each key of each sequence: "
                f"got {tuple(key_padding_mask.shape)}. Its axes are batch, then keys, also where batch_first=False."
            )
        padding = pad(key_padding_mask, (0, added_keys))[:, None, None, :]
        if padding.dtype == torch.bool:
            allowed = ~padding if allowed is None else allowed & ~padding
        else:
            bias = padding if bias is None else bias + padding
    mask: Mask | None = None if allowed is None else Allowed(allowed)
    if causal is not None:
        mask = causal if mask is None else causal & mask
    return Restriction(mask, bias)


def _check_dtypes(attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> None:
    for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
        if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
            raise LayerInputError(
                f"`{name}` must be bool or floating point: got {mask.dtype}. "
                f"Use {name}.bool(), in which True means that a key is not looked at."
            )
    if attn_mask is not None and key_padding_mask is not None and attn_mask.dtype != key_padding_mask.dtype:
        warnings.warn(
            f"`attn_mask` is {attn_mask.dtype} and `key_padding_mask` {key_padding_mask.dtype}: PyTorch will not take "
            f"both kinds together for long. Make them the same.",
            stacklevel=4,
        )


def _with_heads(attn_mask: Tensor, batch: int, heads: int, n_queries: int, n_keys: int) -> Tensor:
    """The mask with axes that line up with `(batch, heads, n_queries, n_keys)` from the right."""
    if attn_mask.ndim == 2 and attn_mask.shape == (n_queries, n_keys):
        return attn_mask
    if attn_mask.ndim == 3 and attn_mask.shape == (batch * heads, n_queries, n_keys):
        return attn_mask.reshape(batch, heads, n_queries, n_keys)
    raise LayerRuntimeError(
        f"`attn_mask` must be ({n_queries}, {n_keys}) or ({batch * heads}, {n_queries}, {n_keys}) for {batch} "
        f"sequences and {heads} heads: got {tuple(attn_mask.shape)}. Its last axes are queries, then keys."
    )
