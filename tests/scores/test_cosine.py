"""Cosine against q·k / (‖q‖‖k‖) / temperature, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard import Cosine, attend
from regard.errors import OptionError, ShapeError


def cosine(q, k, _=()):
    lengths = math.hypot(*q) * math.hypot(*k)
    return sum(a * b for a, b in zip(q, k, strict=True)) / lengths if lengths else 0.0


def test_the_score_is_the_cosine_over_the_temperature(by_pairs, draw):
    q, k = draw(2, 4, 3), draw(5, 3, seed=1)
    torch.testing.assert_close(Cosine(0.25)(q, k), by_pairs(lambda q, k, _: cosine(q, k) / 0.25, q, k))


def test_a_learned_temperature_divides_too_and_gets_a_gradient(by_pairs, draw):
    q, k = draw(4, 3), draw(5, 3, seed=1)
    score = Cosine(nn.Parameter(torch.tensor(0.5, dtype=torch.float64)))
    torch.testing.assert_close(score(q, k), by_pairs(lambda q, k, _: cosine(q, k) / 0.5, q, k))
    score(q, k).sum().backward()
    torch.testing.assert_close(score.temperature.grad, -by_pairs(cosine, q, k).sum() / 0.5**2)


def test_a_learned_temperature_for_each_head(by_pairs, draw):
    q, k = draw(2, 4, 3), draw(2, 5, 3, seed=1)
    score = Cosine(nn.Parameter(torch.tensor([0.5, 2.0], dtype=torch.float64)))
    torch.testing.assert_close(score(q, k), by_pairs(lambda q, k, index: cosine(q, k) / [0.5, 2.0][index[-1]], q, k))


def test_a_zero_vector_scores_zero_and_gets_no_gradient(draw):
    q, k = draw(3, 2), draw(4, 2, seed=1)
    q[1], k[2] = 0, 0
    q.requires_grad_(), k.requires_grad_()
    scores = Cosine()(q, k)
    assert torch.equal(scores[1], torch.zeros(4).double())
    assert torch.equal(scores[:, 2], torch.zeros(3).double())
    scores.square().sum().backward()
    assert torch.equal(q.grad[1], torch.zeros(2).double())
    assert torch.equal(k.grad[2], torch.zeros(2).double())
    assert q.grad.isfinite().all()
    assert k.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_whose_squares_leave_float32_do_not_matter(size, draw):
    q, k = draw(3, 4).float(), draw(5, 4, seed=1).float()
    torch.testing.assert_close(Cosine()(q * size, k / size), Cosine()(q, k))


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(OptionError, match=r"`temperature` of Cosine must be positive: got "):
        Cosine(temperature)


def test_vectors_of_different_dims_are_refused():
    with pytest.raises(ShapeError, match=r"Cosine must have queries and keys of the same dim"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=Cosine())


def test_the_repr_shows_the_temperature():
    assert repr(Cosine(0.5)) == "Cosine(temperature=0.5)"
