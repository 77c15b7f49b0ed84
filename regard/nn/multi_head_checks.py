"""Checks of the inputs of multi-head attention: what PyTorch checks, with errors of the types that it raises."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import DtypeError, LayerInputError, LayerRuntimeError, OptionError, ShapeError
from regard.masks import Mask
from regard.nn.input_checks import refuse_nested
from regard.scores import Alibi, RelativeBias, Score
from regard.tensors import is_autocast_on


def check_heads(embed_dim: int, num_heads: int, num_kv_heads: int) -> None:
    """Refuse numbers of heads that do not fit the size of a token, or each other."""
    if embed_dim <= 0 or num_heads <= 0:
        raise OptionError(
            f"`embed_dim` and `num_heads` must be positive: got {embed_dim} and {num_heads}. "
            f"A token has embed_dim numbers, which the heads share."
        )
    if embed_dim % num_heads:
        fitting = [heads for heads in range(1, embed_dim + 1) if embed_dim % heads == 0]
        nearest = min(fitting, key=lambda heads: abs(heads - num_heads))
        raise LayerInputError(
            f"`embed_dim` must be divisible by `num_heads`: got {embed_dim} and {num_heads}. "
            f"The nearest number of heads that fits is {nearest}."
        )
    if num_kv_heads <= 0 or num_heads % num_kv_heads:
        raise OptionError(
            f"`num_heads` must be a multiple of `num_kv_heads`: got {num_heads} and {num_kv_heads}. "
            f"Each head of keys is shared by as many heads of queries."
        )


def check_added_keys(score: Score, n_added: int) -> None:
    """Refuse a score of positions where keys are added: those stand nowhere, and would count as the next ones."""
    found = [type(each).__name__ for each in score.modules() if isinstance(each, Alibi | RelativeBias)]
    if n_added and found:
        raise OptionError(
            f"A score with {found[0]} must not stand with add_bias_kv or add_zero_attn: it adds by distance, and "
            f"the keys that they add have no position. Leave them out, or take rotary= for "
            f"positions, which turns the keys of the sequence alone."
        )


def check_tokens(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    sizes: tuple[int, int, int],
    batch_first: bool,
    dtype: torch.dtype,
) -> None:
    """Refuse tokens that do not fit the layer, or each other.

    Args:
        query, key, value: As the layer is given them.
        sizes: How many numbers per token of each must have.
        batch_first: Which axis is the batch.
        dtype: Of the layer's parameters.
    """
    axes = query.ndim
    if axes not in (2, 3):
        raise LayerInputError(
            f"`query` must be (length, {sizes[0]}), or have a batch axis besides: got {tuple(query.shape)}. "
            f"Flatten other axes into the batch."
        )
    for name, each in (("key", key), ("value", value)):
        if each.ndim != axes:
            raise LayerInputError(
                f"`{name}` must have as many axes as `query`, {axes}: got {tuple(each.shape)}. "
                f"Give all three a batch axis, or none."
            )
    for name, each, size in zip(("query", "key", "value"), (query, key, value), sizes, strict=True):
        if each.shape[-1] != size:
            raise LayerInputError(
                f"`{name}` must have {size} numbers per token: got {tuple(each.shape)}. "
                f"Build the layer with {'embed_dim' if name == 'query' else name[0] + 'dim'}={each.shape[-1]}."
            )
    if key.shape[:-1] != value.shape[:-1]:
        raise LayerInputError(
            f"`key` and `value` must have the same length and batch: got {tuple(key.shape)} and "
            f"{tuple(value.shape)}. Every key has its value."
        )
    batch_axis = 0 if batch_first else 1
    if axes == 3 and query.shape[batch_axis] != key.shape[batch_axis]:
        raise LayerRuntimeError(
            f"`query` and `key` must have the same batch: got {query.shape[batch_axis]} and "
            f"{key.shape[batch_axis]} sequences, read with batch_first={batch_first}."
        )

    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.dtype != dtype and not is_autocast_on(each.device.type):
            raise LayerRuntimeError(
                f"`{name}` must have the dtype of the layer's parameters, {dtype}: got {each.dtype}. "
                f"Use {name}.to({dtype})" + (f", or layer.to({each.dtype})." if each.is_floating_point() else ".")
            )


def check_result(result: Sequence[int], queries: Sequence[int]) -> None:
    """Refuse a result with other batch axes than the heads' queries have: a score or a rule brought its own.

    Args:
        result, queries: Shapes, `(batch, heads, n_queries, ...)`.
    """
    if tuple(result[:-2]) != tuple(queries[:-2]):
        batch, heads = queries[0], math.prod(queries[1:-2])
        raise ShapeError(
            f"What a score or a rule has for each head must be ({heads},), or ({batch}, {heads}) with sequences: "
            f"got batch axes that make it {tuple(result[:-2])}. Give it one entry for each head, or one for all."
        )


def check_masks(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    batch: int | None,
    heads: int,
    n_queries: int,
    n_keys: int,
    is_causal: bool,
) -> None:
    """Refuse masks that are no tensors or of the wrong kind or size, and a hint about a mask that is not there.

    Args:
        key_padding_mask, attn_mask, is_causal: As the layer is given them; `torch_masks.py` reads them.
        batch: How many sequences; None where tokens came without an axis for them, and masks must too.
        heads, n_queries, n_keys: The sizes that masks must have.
    """
    for name, each in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if each is None:
            continue
        if not isinstance(each, Tensor):
            got = repr(each) if isinstance(each, Mask) else type(each).__name__
            raise DtypeError(
                f"`{name}` must be a tensor, as in PyTorch: got {got}. Use torch.tensor(...), in which "
                f"True means that a key is not attended to. One of regard's masks goes to mask=, here or in the layer."
            )
        refuse_nested(**{name: each})
        if each.dtype != torch.bool and not each.is_floating_point():
            raise LayerInputError(
                f"`{name}` must be bool or floating point: got {each.dtype}. "
                f"Use {name}.bool(), in which True means that a key is not attended to."
            )
    if key_padding_mask is not None:
        _check_padding(key_padding_mask, batch, n_keys)
    if attn_mask is not None:
        _check_pairs(attn_mask, batch, heads, (n_queries, n_keys))
    elif is_causal:
        raise LayerRuntimeError(
            "`is_causal=True` is a hint about `attn_mask`, which must be given too: got None. "
            "Pass attn_mask=Transformer.generate_square_subsequent_mask(n), or build the layer with mask=Causal()."
        )


def _check_padding(mask: Tensor, batch: int | None, n_keys: int) -> None:
    if batch is None:
        wanted: tuple[int, ...] = (n_keys,)
        what, advice = "each key", "Tokens came without a batch axis: it must, too."
    else:
        wanted = (batch, n_keys)
        what, advice = "each key of each sequence", "Its axes are batch, then keys, also where batch_first=False."
    if tuple(mask.shape) != wanted:
        raise LayerInputError(
            f"`key_padding_mask` must be {wanted}, one entry for {what}: got {tuple(mask.shape)}. {advice}"
        )


def _check_pairs(mask: Tensor, batch: int | None, heads: int, pairs: tuple[int, int]) -> None:
    count = heads if batch is None else batch * heads
    shape = tuple(mask.shape)
    if shape == pairs or shape == (count, *pairs):
        return
    whose = f"{heads} heads" if batch is None else f"{heads} heads in {batch} sequences"
    # PyTorch: an assertion where the number of axes is wrong, and for one sequence with an axis of heads.
    is_asserted = mask.ndim not in (2, 3) or (batch is None and mask.ndim == 3)
    raise (LayerInputError if is_asserted else LayerRuntimeError)(
        f"`attn_mask` must be {pairs}, or {(count, *pairs)} for {whose}: got {shape}. "
        f"Its last axes are queries, then keys."
    )
