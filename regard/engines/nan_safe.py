"""Products in which a weight of exactly 0 annihilates, so that NaN in a masked-out value reaches nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.modes import is_tracing
from regard.tensors import broken_vectors, is_finite, product


def pool(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j α_j · v_j over the keys with α_j ≠ 0: `(..., n, m)` and `(..., m, value_dim)` to `(..., n, value_dim)`.

    0 · NaN is NaN in floats, so a plain product would carry a NaN or infinity to queries that give it no weight. Its
    gradients do not leak either, to any order: those of `weights` through such a value are what plain arithmetic gives
    where α_j ≠ 0, and 0 elsewhere.
    """
    if is_tracing() or is_finite(values):
        return product(weights, values)
    return _Pool.apply(weights, values)  # type: ignore[no-any-return, no-untyped-call]


def infinite_part(positive: Tensor, negative: Tensor) -> Tensor:
    """What terms of +inf and of −inf add to a sum, where there are any: ±inf, or NaN for both, which stands for NaN."""
    sign = positive.to(torch.float32) - negative.to(torch.float32)
    return torch.where(positive | negative, sign / 0, 0)  # 0 / 0 is NaN


class _Pool(torch.autograd.Function):
    """The sum of the finite entries, then what the others make of it: one product for each sign, not one a key."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(weights, values)
        pooled = product(weights, without_broken(values))
        columns = broken_keys(values)
        some, others = weights[..., columns], values[..., columns, :]
        above, below = (some > 0).to(pooled), (some < 0).to(pooled)
        positive, negative = others == torch.inf, others == -torch.inf
        up, down, unknown = positive.to(pooled), negative.to(pooled), others.isnan().to(pooled)
        # A weight that is NaN has made `pooled` NaN already, in every component.
        to_up = product(above, up + unknown) + product(below, down + unknown) > 0
        to_down = product(above, down + unknown) + product(below, up + unknown) > 0
        return pooled + infinite_part(to_up, to_down).to(pooled.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weights, values = ctx.saved_tensors
        (gradient,) = gradients
        to_weights = to_values = None
        silent = broken_vectors(values).mT & (weights == 0)
        if ctx.needs_input_grad[0]:
            to_weights = _Against.apply(gradient, values, silent).sum_to_size(weights.shape)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            to_values = product(torch.where(silent, 0, weights).mT, gradient).sum_to_size(values.shape)
        return to_weights, to_values


class _Against(torch.autograd.Function):
    """Σ_d g_d · v_jd for every query and key, 0 where the pair is silent: the gradient of weights."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, values: Tensor, silent: Tensor) -> Tensor:
        ctx.save_for_backward(gradient, values, silent)
        return torch.where(silent, 0, product(gradient, values.mT))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        gradient, values, silent = ctx.saved_tensors
        (second,) = gradients
        second = torch.where(silent, 0, second)
        to_gradient = pool(second, values) if ctx.needs_input_grad[0] else None
        to_values = product(second.mT, gradient).sum_to_size(values.shape) if ctx.needs_input_grad[1] else None
        return to_gradient, to_values, None


def without_broken(values: Tensor) -> Tensor:
    """The values with 0 for each entry that is not finite."""
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def broken_keys(values: Tensor) -> Tensor:
    """The keys whose value is not finite in some batch entry: `(..., m, value_dim)` to indices."""
    return broken_vectors(values).reshape(-1, values.shape[-2]).any(0).nonzero().flatten()
