"""Attention(q, D) = Σ α(q, kᵢ)·vᵢ, once more: dense, in any dtype, and without a line of the library.

Inputs are finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fuzz.definition.masks import allows
from fuzz.definition.numbers import Parameters, steep
from fuzz.definition.rules import rule_batch, weights_of
from fuzz.definition.scores import Scored, scores_of
from fuzz.parts import Part

__all__ = ["Parameters", "Scored", "attention", "steep"]


def attention(
    score: Part,
    rule: Part,
    mask: Part | None,
    parameters: Parameters,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor, Scored]:
    """The output, the weights, and the scores, all with every batch axis.

    Args:
        score, rule, mask: What is computed.
        parameters: The numbers that are learned, by name.
        queries, keys, values: `(..., n, dim)`.
        noise: What scores are off by, in units of their size; nothing, if left out.
    """
    scored = scores_of(score, parameters, queries, keys)
    batch = torch.broadcast_shapes(scored.scores.shape[:-2], values.shape[:-2], rule_batch(rule, parameters))
    shape = (*batch, queries.shape[-2], keys.shape[-2])
    allowed = ~scored.blocked.expand(shape)
    if mask is not None:
        allowed = allowed & allows(mask, shape)
    scores = scored.scores.expand(shape)
    if noise is not None:
        scores = scores + noise * scored.size
    weights = weights_of(rule, parameters, scores, allowed)
    return weights @ values, weights, Scored(scores, scored.size.expand(shape), ~allowed)
