"""Attention as people write it in plain torch: every formula builds all n × m scores.

A formula takes queries, keys, values and what the score has learned, in the order of its parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BANDWIDTH = 4.0
CAP = 30.0
HIDDEN = 64


def scaled_dot(queries: Tensor, keys: Tensor) -> Tensor:
    """qᵀk / √d of every pair."""
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def dot(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(QKᵀ/√d) V."""
    return torch.softmax(scaled_dot(queries, keys), -1) @ values


def gates(queries: Tensor, keys: Tensor, W_g: Tensor) -> tuple[Tensor, Tensor]:
    """What a query and what a key adds to the gate of a pair, `(..., n)` each."""
    for_query, for_key = W_g[..., 0, :].split([queries.shape[-1], keys.shape[-1]], -1)
    return queries @ for_query, keys @ for_key


def gated(queries: Tensor, keys: Tensor, values: Tensor, W_g: Tensor) -> Tensor:
    """softmax(σ(W_g[q; k]) · qᵀk/√d) V."""
    of_query, of_key = gates(queries, keys, W_g)
    gate = torch.sigmoid(of_query.unsqueeze(-1) + of_key.unsqueeze(-2))
    return torch.softmax(gate * scaled_dot(queries, keys), -1) @ values


def gaussian(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(−‖q−k‖² / 2h²) V, the squares written out: faster than cdist, forward and backward."""
    squares = queries.square().sum(-1, keepdim=True) + keys.square().sum(-1).unsqueeze(-2) - 2 * queries @ keys.mT
    return torch.softmax(-squares / (2 * BANDWIDTH**2), -1) @ values


def sigmoid(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """σ(QKᵀ/√d) V."""
    return torch.sigmoid(scaled_dot(queries, keys)) @ values


def conic(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """max(QKᵀ/√d, 0) V."""
    return torch.relu(scaled_dot(queries, keys)) @ values


def softcap(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(c · tanh(QKᵀ/√d / c)) V."""
    return torch.softmax(CAP * torch.tanh(scaled_dot(queries, keys) / CAP), -1) @ values


def projections(queries: Tensor, keys: Tensor, W1: Tensor, W2: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """W₁q and W₂k + b, `(..., n, hidden)` each."""
    return queries @ W1.mT, keys @ W2.mT + b


def additive(queries: Tensor, keys: Tensor, values: Tensor, W1: Tensor, W2: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """softmax(vᵀ tanh(W₁q + W₂k + b)) V: n × m × hidden numbers."""
    left, right = projections(queries, keys, W1, W2, b)
    return torch.softmax(torch.tanh(left.unsqueeze(-2) + right.unsqueeze(-3)) @ v, -1) @ values


def top_k(queries: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """softmax over the k best keys of each query."""
    scores = scaled_dot(queries, keys)
    best = scores.topk(min(k, scores.shape[-1]), -1)
    kept = torch.full_like(scores, -torch.inf).scatter(-1, best.indices, best.values)
    return torch.softmax(kept, -1) @ values


def gathered(queries: Tensor, keys: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """softmax over the keys that are listed for each query: their rows are copied, `(..., n, k, dim)`."""
    heads = torch.arange(indices.shape[0]).view(-1, 1, 1)
    near, theirs = keys[:, heads, indices], values[:, heads, indices]
    scores = (near @ queries.unsqueeze(-1)).squeeze(-1) / math.sqrt(queries.shape[-1])
    return (torch.softmax(scores, -1).unsqueeze(-2) @ theirs).squeeze(-2)


def readings(queries: Tensor, keys: Tensor, k: int, side: int) -> tuple[Tensor, ...]:
    """The k heaviest weights, the entropy, what each key receives and a pooled map, from all weights at once."""
    alpha = torch.softmax(scaled_dot(queries, keys), -1)
    n_queries, n_keys = alpha.shape[-2:]
    side = min(side, n_queries, n_keys)
    pooled = alpha.unflatten(-1, (side, n_keys // side)).sum(-1).unflatten(-2, (side, n_queries // side)).sum(-2)
    return alpha.topk(k, -1).values, -torch.xlogy(alpha, alpha).sum(-1), alpha.sum(-2), pooled
