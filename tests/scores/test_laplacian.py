"""Laplacian against −‖q − k‖₁ / bandwidth, pair by pair."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import Laplacian, Proportional, attend
from regard.errors import OptionError, ScoreError, ShapeError


def laplacian(bandwidths):
    return lambda q, k, _=(): -sum(abs(a - b) / h for a, b, h in zip(q, k, bandwidths, strict=True))


def test_the_score_is_the_negative_sum_of_absolute_differences(by_pairs, draw):
    q, k = draw(2, 4, 3), draw(5, 3, seed=1)
    torch.testing.assert_close(Laplacian(0.8)(q, k), by_pairs(laplacian([0.8] * 3), q, k))


def test_each_dimension_may_have_its_own_bandwidth(by_pairs, draw):
    q, k = draw(4, 3), draw(5, 3, seed=1)
    score = Laplacian(torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64))
    torch.testing.assert_close(score(q, k), by_pairs(laplacian([0.5, 1.0, 3.0]), q, k))


def test_a_learned_bandwidth_gets_a_gradient(by_pairs, draw):
    q, k = draw(4, 3), draw(5, 3, seed=1)
    score = Laplacian(nn.Parameter(torch.tensor(0.7, dtype=torch.float64)))
    score(q, k).sum().backward()
    torch.testing.assert_close(score.bandwidth.grad, -by_pairs(laplacian([1.0] * 3), q, k).sum() / 0.7**2)


def test_the_gradient_where_a_query_meets_a_key_is_zero():
    q = torch.ones(1, 2, requires_grad=True)
    Laplacian(1.0)(q, torch.ones(1, 2)).sum().backward()
    assert torch.equal(q.grad, torch.zeros(1, 2))


def test_a_bandwidth_that_is_not_positive_is_refused():
    with pytest.raises(OptionError, match=r"`bandwidth` of Laplacian must be positive: got 0"):
        Laplacian(0)


def test_proportional_refuses_the_logarithm_of_a_kernel():
    with pytest.raises(
        ScoreError, match=r"Laplacian is the logarithm of a kernel\. Use Softmax\(\), which takes its exponential"
    ):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Laplacian(1.0), weights=Proportional())


def test_vectors_of_different_dims_are_refused():
    with pytest.raises(ShapeError, match=r"Laplacian must have queries and keys of the same dim"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=Laplacian(1.0))


def test_the_repr_shows_the_bandwidth():
    assert repr(Laplacian(0.25)) == "Laplacian(bandwidth=0.25)"
