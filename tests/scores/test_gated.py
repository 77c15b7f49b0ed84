"""Gated against σ(W_g[q; k]) · score(q, k), pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Gated, Gaussian, attend
from regard.errors import ShapeError


def gate(row, q, k):
    return 1 / (1 + math.exp(-sum(w * x for w, x in zip(row, [*q, *k], strict=True))))


def dot(q, k):
    return sum(a * b for a, b in zip(q, k, strict=True))


def test_the_gate_multiplies_the_dot_product(by_pairs, draw):
    score = Gated(3, 3).double()
    q, k = draw(4, 3), draw(5, 3, seed=1)
    row = score.W_g[0].tolist()
    torch.testing.assert_close(score(q, k), by_pairs(lambda q, k, _: gate(row, q, k) * dot(q, k), q, k))


def test_the_gate_multiplies_any_other_score(by_pairs, draw):
    score = Gated(3, 3, Gaussian(0.7)).double()
    q, k = draw(4, 3), draw(5, 3, seed=1)
    row = score.W_g[0].tolist()

    def pair(q, k, _):
        return gate(row, q, k) * -sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / (2 * 0.7**2)

    torch.testing.assert_close(score(q, k), by_pairs(pair, q, k))


def test_each_head_has_its_own_gate(by_pairs, draw):
    score = Gated(3, 3, heads=2).double()
    q, k = draw(2, 4, 3), draw(2, 5, 3, seed=1)
    rows = score.W_g[:, 0].tolist()
    expected = by_pairs(lambda q, k, index: gate(rows[index[-1]], q, k) * dot(q, k), q, k)
    torch.testing.assert_close(score(q, k), expected)


def test_other_dims_are_refused():
    with pytest.raises(
        ShapeError, match=r"Gated must have queries of dim 3 and keys of dim 3: .*query_dim=4, key_dim=4"
    ):
        attend(torch.ones(4, 4), torch.ones(6, 4), torch.ones(6, 1), score=Gated(3, 3))


def test_the_repr_shows_dims_heads_and_what_is_gated():
    assert repr(Gated(3, 2, heads=5)).startswith("Gated(\n  3, 2, heads=5")
    assert "(score): Dot()" in repr(Gated(3, 2))
