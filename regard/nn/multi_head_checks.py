"""What multi-head attention checks at its door: what PyTorch checks, with errors of the types that it raises."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from regard.errors import DtypeError, LayerInputError, LayerRuntimeError, OptionError, ShapeError
from regard.scores import Alibi, RelativeBias, Score


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


def check_tokens(query: Tensor, key: Tensor, value: Tensor, *, sizes: tuple[int, int, int], batch_first: bool) -> None:
    """Refuse tokens that do not fit the layer, or each other.

    Args:
        query, key, value: As the layer is given them.
        sizes: How many numbers a token of each must have.
        batch_first: Which axis is the batch.
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
                f"`{name}` must have {size} numbers a token: got {tuple(each.shape)}. "
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


def check_masks(key_padding_mask: Tensor | None, attn_mask: Tensor | None, *, axes: int, is_causal: bool) -> None:
    """Refuse masks that are no tensors or have too many axes or too few, and a hint about a mask that is not there.

    Args:
        key_padding_mask, attn_mask, is_causal: As the layer is given them; `torch_masks.py` reads them.
        axes: How many axes the queries have: 3 with a batch, 2 without.
    """
    for name, each in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if each is not None and not isinstance(each, Tensor):
            raise DtypeError(
                f"`{name}` must be a tensor, as in PyTorch: got {each!r}. "
                f"Pass one of regard's masks as mask=, or build the layer with it."
            )
    if key_padding_mask is not None and key_padding_mask.ndim != axes - 1:
        raise LayerInputError(
            f"`key_padding_mask` must be {'(batch, n_keys)' if axes == 3 else '(n_keys,)'}: "
            f"got {tuple(key_padding_mask.shape)}."
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise LayerInputError(
            f"`attn_mask` must be (n_queries, n_keys), or have an axis of batch · heads before: "
            f"got {tuple(attn_mask.shape)}."
        )
    if is_causal and attn_mask is None:
        raise LayerRuntimeError(
            "`is_causal=True` is a hint about `attn_mask`, which must be given too: got None. "
            "Pass attn_mask=Transformer.generate_square_subsequent_mask(n), or build the layer with mask=Causal()."
        )
