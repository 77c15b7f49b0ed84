"""Products in which a weight of exactly 0 annihilates, so that NaN in a masked-out value reaches nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.tensors import is_finite, product
from regard.tracing import is_tracing


def pool(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j α_j · v_j over the keys with α_j ≠ 0: `(..., n, m)` and `(..., m, value_dim)` to `(..., n, value_dim)`.

    0 · NaN is NaN in floats, so a plain product would carry a NaN or infinity to queries that give it no weight. It is
    made of plain tensor operations, so it is differentiable to any order, and its gradients do not leak either.
    """
    if is_tracing() or is_finite(values):
        return product(weights, values)
    broken = ~values.isfinite().all(-1, keepdim=True)  # (..., m, 1)
    pooled = product(weights, torch.where(broken, 0, values))
    for column in broken.unsqueeze(0).flatten(end_dim=-3).any(0).squeeze(-1).nonzero().flatten().tolist():
        weight = weights[..., column : column + 1]  # (..., n, 1)
        value = values[..., column : column + 1, :]  # (..., 1, value_dim)
        reaches = (weight != 0) & broken[..., column : column + 1, :]
        pooled = pooled + weight * torch.where(reaches, value, 0)
    return pooled
