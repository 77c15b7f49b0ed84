"""The product in which a weight of 0 annihilates, against a sum that is taken key by key."""

from __future__ import annotations

import math

import pytest
import torch

from regard.engines.nan_safe import pool

BAD = (math.nan, math.inf, -math.inf)


def key_by_key(weights, values):
    """Σ_j α_j · v_j, leaving out the pairs with α_j = 0, in differentiable operations."""
    total = 0
    for key in range(values.shape[-2]):
        weight, value = weights[..., key : key + 1], values[..., key : key + 1, :]
        total = total + weight * torch.where(weight != 0, value, 0)
    return total


def problem(seed, *, signed, shared):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    weights = weights if signed else weights.relu()
    weights[torch.rand(weights.shape, generator=generator) < 0.3] = 0
    values = torch.randn(*(() if shared else (2, 1)), 7, 4, generator=generator, dtype=torch.float64)
    chance = torch.rand(values.shape, generator=generator)
    for place, bad in enumerate(BAD):
        values[(chance > place / 20) & (chance < (place + 1) / 20)] = bad
    return weights, values


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_sum_over_keys_that_have_weight_and_so_are_its_gradients(seed, signed, shared):
    results = []
    for function in (pool, key_by_key):
        leaves = [each.clone().requires_grad_() for each in problem(seed, signed=signed, shared=shared)]
        output = function(*leaves)
        gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        to_weights, to_values = torch.autograd.grad(output, leaves, gradient)
        # Key by key, a weight of 0 has no gradient through any value; only broken ones are meant to be silent.
        silent = (leaves[0] == 0) & leaves[1].isfinite().all(-1).unsqueeze(-2)
        results.append([output, torch.where(silent, 0, to_weights), to_values])
    torch.testing.assert_close(*results, equal_nan=True)


def test_finite_gradients_are_right_to_second_order():
    weights, values = problem(0, signed=True, shared=False)
    weights[..., values.isfinite().all(-1).logical_not().any(0).any(0)] = 0  # nobody looks at what is broken
    finite = torch.where(values.isfinite(), values, 0)

    def pooled(some, others):
        return pool(some, torch.where(values.isfinite(), others, values))

    leaves = [weights.requires_grad_(), finite.requires_grad_()]
    gradients = torch.autograd.grad(pooled(*leaves).square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in gradients), leaves)
    assert all(bool(each.isfinite().all()) for each in (*gradients, *second))


def test_many_broken_values_take_a_few_products_not_one_for_each(monkeypatch):
    from regard.engines import nan_safe

    asked = []
    monkeypatch.setattr(nan_safe, "product", lambda left, right: asked.append(1) or left @ right)
    pool(torch.rand(6, 500), torch.full((500, 3), math.nan))
    assert len(asked) <= 8
