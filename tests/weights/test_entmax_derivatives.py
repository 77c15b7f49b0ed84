"""Derivatives of entmax beyond the first, where small weights make the terms of its formula huge."""

from __future__ import annotations

import pytest
import torch

from regard.weights import entmax


@pytest.mark.parametrize("small", [0.3, 0.0024, 1e-4])
def test_the_first_three_derivatives_of_two_weights_at_alpha_4(small):
    # Weights a and 1 − a have scores (a³ − (1 − a)³)/3 apart: a′ = 1/(a² + (1 − a)²), and so on by the chain rule.
    gap = torch.tensor(((1 - small) ** 3 - small**3) / 3, dtype=torch.float64, requires_grad=True)
    found = entmax(torch.stack([gap, torch.zeros_like(gap)])[None], alpha=4.0)[0, 0]
    a = torch.tensor(1 - small, dtype=torch.float64, requires_grad=True)
    expected, slope = a, 1 / (a**2 + (1 - a) ** 2)
    for _ in range(3):
        (found,) = torch.autograd.grad(found, gap, create_graph=True)
        (step,) = torch.autograd.grad(expected, a, create_graph=True)
        expected = step * slope
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0, 3.0])
def test_derivatives_in_scores_and_alpha_to_third_order(alpha):
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(2, 4, generator=generator, dtype=torch.float64) / 4).requires_grad_()
    order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    mix = torch.randn(2, 4, generator=generator, dtype=torch.float64)

    def slopes(scores, order):
        found = torch.autograd.grad((entmax(scores, alpha=order) * mix).sum(), (scores, order), create_graph=True)
        return (found[0] * mix.flip(0)).sum() + found[1]

    assert torch.autograd.gradcheck(lambda s, o: entmax(s, alpha=o), (scores, order))
    assert torch.autograd.gradcheck(slopes, (scores, order))
    # Second derivatives are good to 1e-10 at alpha 1.05: a step of 1e-6 would show no more than four digits.
    assert torch.autograd.gradgradcheck(slopes, (scores, order), eps=1e-5)
