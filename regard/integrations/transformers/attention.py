"""Attention as transformers calls it: the arguments of a model's layer, read as one call of regard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Align
from regard.integrations.transformers.model_mask import ModelMask
from regard.integrations.transformers.placing import UNKNOWN, Unknown
from regard.integrations.transformers.refusals import refuse_unknown
from regard.integrations.transformers.replacing import Replacement, replacement_of
from regard.masks import Allowed, Causal, KeyMask, Mask, Selected
from regard.modes import is_tracing
from regard.nn.base_layer import pool_and_weigh
from regard.nn.pooled_outputs import show_pooled
from regard.nn.recording import attend_and_tell, is_recorded, note
from regard.scores import Bias, ScaledDot, Score, SoftCap
from regard.tensors import stretches
from regard.weights import Softmax, Weights

_SCALED_DOT, _SOFTMAX = ScaledDot(), Softmax()


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Mask | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    indices: Tensor | None = None,
    output_attentions: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """What a layer's heads pool, `(batch, n_queries, heads, value_dim)`, and the weights if the model gives them back.

    `AttentionInterface.register("regard", attention_forward)` lets models call it.

    Args:
        module: The model's attention layer.
        query: `(batch, heads, n_queries, dim)`.
        key, value: `(batch, heads or fewer, n_keys, dim)`; each is shared by as many heads of queries, without a copy.
        attention_mask: What `make_mask` gave; or a tensor of a user's or of the model's own, `(batch or 1, heads or 1,
            n_queries or 1, n_keys)`: bool, True where a query may attend, or numbers that are added to scores.
        scaling: What qᵀk is multiplied by; 1/√d if left out.
        dropout: The share of weights that are dropped in training.
        is_causal: True where the model leaves causality to whoever attends, and makes no mask.
        softcap: Scores are kept within it by tanh.
        s_aux: The logit of one more key for each head, of value zero: a sink.
        position_bias: Numbers that are added to scores, `(batch or 1, heads or 1, n_queries or 1, n_keys)`.
        indices: The keys that each query selects, `(batch, n_queries, k)`; as the mask, all must allow a pair.
        output_attentions: Whether n × m weights are wanted.
        others: What models hand to every attention. What is not known to be harmless is refused.
    """
    refuse_unknown(type(module).__name__, others)
    if isinstance(scaling, Tensor):
        raise OptionError(
            f"`scaling` of {type(module).__name__} must be a number: got a tensor. Multiply the queries by it."
        )
    if isinstance(attention_mask, Tensor) and not is_tracing():
        _check_mask(type(module).__name__, attention_mask, query, key)
    mask, bias = _read_mask(attention_mask)
    across = getattr(module, "is_causal", None) is False  # as what attends to another sequence, or to all of its own
    align = _align_of(attention_mask, query.shape[-2], key.shape[-2], across)
    if attention_mask is None and is_causal and query.shape[-2] > 1:
        mask = Causal(None if query.shape[-2] == key.shape[-2] else "start")
    replacement = replacement_of(module)
    if replacement is not None:
        replacement.check_align(type(module).__name__, align)
    call = Call(query, key, value, scaling, softcap, mask, bias, position_bias, s_aux, indices, replacement, align)
    dropped = float(dropout) if module.training else 0.0
    wants_weights = output_attentions or _collects_attentions()
    wanting: Sequence[Any] = ()
    if is_recorded(module):
        # What a score of a user's makes of keys that heads share need not be the same for each of them.
        sharing, keys = (call.sharing, key) if replacement is None else (1, call.for_each_head(key))
        wanting = note(module, Recorded(call.own_score(), sharing), query, keys, call.without_gradients())
    if wants_weights:
        keys, values = call.for_each_head(key), call.for_each_head(value)
        pooled, weights = pool_and_weigh(query, keys, values, **call.options(sharing=1), dropout=dropped)
        show_pooled(module, pooled, _as_it_is)
        return pooled.transpose(1, 2).contiguous(), weights
    queries, keys, values, options = call.arguments()
    pooled = attend_and_tell(wanting, queries, keys, values, options, dropped)
    # Heads that share keys have an axis of their own, or are rows: in memory they follow each other in either case.
    pooled = pooled.reshape(*query.shape[:-1], value.shape[-1])
    show_pooled(module, pooled, _as_it_is)
    return pooled.transpose(1, 2).contiguous(), None


@dataclass(frozen=True)
class Recorded:
    """What stands for a model's layer in a recording."""

    score: Score
    sharing: int
    mask: Mask | None = None

    def by_head(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        return queries, _for_each_head(keys, self.sharing)


@dataclass(frozen=True)
class Call:
    """One call of a model's layer; fields as the arguments of `attention_forward`, its mask read."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    scaling: float | None
    softcap: float | None
    mask: Mask | Tensor | None
    bias: Tensor | None
    position_bias: Tensor | None
    sink: Tensor | None
    indices: Tensor | None
    replacement: Replacement | None
    align: Align | Unknown = None  # where queries stand among keys

    def arguments(self) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        """Queries, keys, values, and the other arguments of `regard.attend`: heads share keys without copies.

        Where nothing tells them apart, heads that share keys are further rows of queries, `(batch, heads of keys)`;
        otherwise they have an axis of their own, `(batch, heads of keys, sharing)`.
        """
        queries, shared, sharing = self.queries, self.keys.shape[1], self.sharing
        if sharing == 1:
            return queries, self.keys, self.values, self.options(sharing)
        if self.replacement is not None:
            # A rule or score of a user's may have a number for each head, which lines up with one axis alone.
            return queries, self.for_each_head(self.keys), self.for_each_head(self.values), self.options(sharing=1)
        if self._heads_are_alike:
            batch, _, n_queries, dim = queries.shape
            queries = queries.reshape(batch, shared, sharing * n_queries, dim)
            return queries, self.keys, self.values, self.options(sharing)
        queries = queries.unflatten(1, (shared, sharing))
        return queries, self.keys[:, :, None], self.values[:, :, None], self.options(sharing)

    def for_each_head(self, tensor: Tensor) -> Tensor:
        """Keys or values with a copy for each head of queries, `(batch, heads, n_keys, dim)`."""
        return _for_each_head(tensor, self.sharing)

    def options(self, sharing: int) -> dict[str, Any]:
        """`score`, `weights` and `mask`, for heads on an axis of their own if several share keys."""
        return {"score": self._score(sharing), "weights": self._rule(sharing), "mask": self._masks(sharing)}

    def without_gradients(self) -> dict[str, Any]:
        """The options by head, for whoever keeps them: a sink does not bring along what it was computed from."""
        sink = None if self.sink is None else self.sink.detach()
        return replace(self, sink=sink).options(sharing=1)

    @property
    def sharing(self) -> int:
        """How many heads of queries share the keys of one."""
        heads, shared = self.queries.shape[1], self.keys.shape[1]
        if heads % shared:
            raise ShapeError(
                f"Heads of queries must be a multiple of those of keys: got queries {tuple(self.queries.shape)} and "
                f"keys {tuple(self.keys.shape)}. Check the model's num_attention_heads and num_key_value_heads."
            )
        return heads // shared

    @property
    def _heads_are_alike(self) -> bool:
        """Whether neither masks nor numbers tell heads, or queries, apart: as when one token is decoded."""
        given = (self.bias, self.position_bias, self.sink, self.indices)
        return all(each is None for each in given) and (self.mask is None or type(self.mask) is KeyMask)

    def own_score(self) -> Score:
        """The layer's score, without what the call adds to it."""
        score = None if self.replacement is None else self.replacement.score_at(self.align)
        if score is not None:
            return score
        score = _scaled_dot(self.scaling, self.queries.shape[-1])
        return score if self.softcap is None else SoftCap(score, self.softcap)

    def _score(self, sharing: int) -> Score:
        score = self.own_score()
        for bias in (self.position_bias, self.bias):
            score = score if bias is None else score + Bias(_by_shared_head(bias, sharing))
        return score

    def _rule(self, sharing: int) -> Weights:
        if self.replacement is not None and self.replacement.weights is not None:
            return self.replacement.weights
        if self.sink is None:
            return _SOFTMAX
        rule, sink = Softmax(), self.sink.flatten()
        # Not by the constructor, which reads whether it is a number: on a GPU everybody would wait for that.
        rule.sink = sink if sharing == 1 else sink.unflatten(0, (-1, sharing))
        return rule

    def _masks(self, sharing: int) -> Mask | None:
        mask = self.mask
        parts = [Allowed(_by_shared_head(mask, sharing)) if isinstance(mask, Tensor) else mask]
        if self.indices is not None:
            listed = self.indices.long()[:, None]
            parts.append(Selected(listed if sharing == 1 else listed[:, None]))
        if self.replacement is not None:
            parts.append(self.replacement.mask_on(self.queries.device, self.align))
        masks = [each for each in parts if each is not None]
        return None if not masks else masks[0] if len(masks) == 1 else _all_of(masks)


def _as_it_is(pooled: Tensor) -> Tensor:
    """What heads pool is `(batch, heads, n_queries, value_dim)` already."""
    return pooled


def _align_of(mask: Any, n_queries: int, n_keys: int, across: bool) -> Align | Unknown:
    """Where queries stand among keys; nobody knows under a tensor of the model's, which may hide blanks at the end."""
    offset = mask.align if isinstance(mask, ModelMask) else None
    if offset is not None and offset != n_keys - n_queries:
        return UNKNOWN if across else offset
    if n_queries == n_keys:
        return None
    return UNKNOWN if isinstance(mask, Tensor) or across else "end"


def _all_of(masks: list[Mask]) -> Mask:
    joined = masks[0]
    for each in masks[1:]:
        joined = joined & each
    return joined


def _read_mask(mask: Any) -> tuple[Mask | Tensor | None, Tensor | None]:
    """A model's mask as a mask, or a bool tensor, and numbers that are added to scores."""
    if mask is None:
        return None, None
    if isinstance(mask, ModelMask):
        return mask.mask, None
    if isinstance(mask, Mask):
        return mask, None
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise DtypeError(
            f'The mask of a layer with attn_implementation="regard" must be one of regard\'s, or a tensor of bool, '
            f"True where a query may attend, or of numbers that are added to scores: got {got}. "
            f"Let the model make it, or pass mask.bool()."
        )
    mask = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
    if mask.dtype == torch.bool:
        return mask, None
    # Models write the least number of a dtype for "may not attend": as −inf, it is a mask, and not a score.
    return None, mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)


def _check_mask(owner: str, mask: Tensor, queries: Tensor, keys: Tensor) -> None:
    """Raise unless a tensor is a mask for these queries and keys."""
    (batch, heads, n_queries, _), n_keys = queries.shape, keys.shape[-2]
    sizes = (*(1,) * (4 - mask.ndim), *mask.shape)
    if len(sizes) > 4 or any(
        not stretches(*each) for each in zip(sizes, (batch, heads, n_queries, n_keys), strict=True)
    ):
        raise ShapeError(
            f"`attention_mask` as it comes to {owner} must be ({batch} or 1, {heads} or 1, {n_queries} or 1, "
            f"{n_keys}), for batch, heads, queries and keys: got {tuple(mask.shape)}. Pass (batch, keys), and let the "
            f"model make it, or one of that shape."
        )


def _for_each_head(tensor: Tensor, sharing: int) -> Tensor:
    return tensor if sharing == 1 else tensor.repeat_interleave(sharing, 1)


def _by_shared_head(tensor: Tensor, sharing: int) -> Tensor:
    """A tensor `(batch or 1, heads or 1, ...)` with the heads that share keys on an axis of their own."""
    if sharing == 1:
        return tensor
    return tensor[:, None] if tensor.shape[1] == 1 else tensor.unflatten(1, (-1, sharing))


def _scaled_dot(scaling: float | None, dim: int) -> Score:
    if scaling is None or scaling == dim**-0.5:
        return _SCALED_DOT
    return ScaledDot(float(scaling)) if is_tracing() else _kept_scaled_dot(float(scaling))


@lru_cache(maxsize=256)
def _kept_scaled_dot(scaling: float) -> Score:
    return ScaledDot(scaling)


def _collects_attentions() -> bool:
    """Whether the model's call gathers weights, which not every model tells its layers."""
    collected = _collector.get() if _collector is not None else None
    return collected is not None and any(name.endswith("attentions") for name in collected)


def _find_collector() -> Any:
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # another version: models tell their layers by `output_attentions`
        return None
    return _active_collector


_collector = _find_collector()
