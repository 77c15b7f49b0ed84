"""Dot and ScaledDot against qᵀk, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Dot, ScaledDot, attend
from regard.errors import OptionError, ShapeError


def dot(q, k, _=()):
    return sum(a * b for a, b in zip(q, k, strict=True))


def test_dot_is_the_sum_of_products(by_pairs, draw):
    q, k = draw(2, 3, 4), draw(2, 5, 4, seed=1)
    torch.testing.assert_close(Dot()(q, k), by_pairs(dot, q, k))


def test_scaled_dot_divides_by_the_root_of_the_dim(by_pairs, draw):
    q, k = draw(3, 4), draw(5, 4, seed=1)
    torch.testing.assert_close(ScaledDot()(q, k), by_pairs(lambda q, k, _: dot(q, k) / math.sqrt(4), q, k))


def test_scaled_dot_takes_another_scale(by_pairs, draw):
    q, k = draw(3, 4), draw(5, 4, seed=1)
    torch.testing.assert_close(ScaledDot(scale=-0.3)(q, k), by_pairs(lambda q, k, _: -0.3 * dot(q, k), q, k))


def test_batch_axes_of_queries_and_keys_broadcast(by_pairs, draw):
    q, k = draw(2, 1, 3, 4), draw(5, 2, 4, seed=1)
    assert Dot()(q, k).shape == (2, 5, 3, 2)
    torch.testing.assert_close(Dot()(q, k), by_pairs(dot, q, k))


def test_vectors_of_length_zero_score_zero(draw):
    assert torch.equal(ScaledDot()(draw(2, 0), draw(3, 0)), torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("score", [Dot(), ScaledDot()])
def test_vectors_of_different_dims_are_refused(score):
    text = rf"{type(score).__name__}\(\) must have queries and keys of the same dim: got .* \(2, 3\) and .* \(4, 5\)\. "
    with pytest.raises(ShapeError, match=text + r"Project one of them, or use Multiplicative\(query_dim, key_dim\)"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=score)


@pytest.mark.parametrize("scale", [math.inf, math.nan])
def test_a_scale_that_is_not_finite_is_refused(scale):
    with pytest.raises(OptionError, match=r"`scale` of ScaledDot must be a finite number: got .*Leave it out for 1/√d"):
        ScaledDot(scale=scale)


def test_reprs_show_what_was_given():
    assert (repr(Dot()), repr(ScaledDot()), repr(ScaledDot(2.0))) == ("Dot()", "ScaledDot()", "ScaledDot(scale=2)")
