"""Additive against vᵀ tanh(W₁q + W₂k + b), pair by pair."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Additive, attend
from regard.errors import ShapeError


def randomised(score: Additive) -> Additive:
    """The score in float64, with a bias that is not zero."""
    score = score.double()
    with torch.no_grad():
        score.b.normal_(generator=torch.Generator().manual_seed(3))
    return score


def additive(W1, W2, b, v):
    def pair(q, k, _=()):
        total = 0.0
        for unit in range(len(v)):
            inner = sum(w * x for w, x in zip(W1[unit], q, strict=True)) + sum(
                w * x for w, x in zip(W2[unit], k, strict=True)
            )
            total += v[unit] * math.tanh(inner + b[unit])
        return total

    return pair


def test_the_score_is_a_network_with_one_hidden_layer(by_pairs, draw):
    score = randomised(Additive(3, 2, 4))
    q, k = draw(4, 3), draw(5, 2, seed=1)
    pair = additive(*(each.tolist() for each in (score.W1, score.W2, score.b, score.v)))
    torch.testing.assert_close(score(q, k), by_pairs(pair, q, k))


def test_each_head_has_its_own_network(by_pairs, draw):
    score = randomised(Additive(3, 2, 4, heads=2))
    q, k = draw(3, 2, 4, 3), draw(2, 5, 2, seed=1)
    pairs = [additive(*(each[head].tolist() for each in (score.W1, score.W2, score.b, score.v))) for head in range(2)]
    torch.testing.assert_close(score(q, k), by_pairs(lambda q, k, index: pairs[index[-1]](q, k), q, k))


def test_inputs_that_saturate_the_tanh_stay_exact(by_pairs):
    # 15 − 14 is a legitimate pair, though each half alone is far beyond the knee of tanh.
    score = Additive(1, 1, 1).double()
    with torch.no_grad():
        for each in (score.W1, score.W2, score.v):
            each.fill_(1)
    q, k = torch.tensor([[15.0], [500.0]]).double(), torch.tensor([[-14.0], [-499.5], [400.0]]).double()
    expected = by_pairs(lambda q, k, _: math.tanh(q[0] + k[0]), q, k)
    torch.testing.assert_close(score(q, k), expected)


def test_the_bias_starts_at_zero_and_the_weights_do_not():
    score = Additive(3, 2, 4)
    assert torch.equal(score.b, torch.zeros(4))
    assert all(bool(each.ne(0).all()) for each in (score.W1, score.W2, score.v))


def test_other_dims_are_refused():
    with pytest.raises(
        ShapeError,
        match=r"Additive must have queries of dim 3 and keys of dim 2: .*Make the score with query_dim=3, key_dim=4",
    ):
        attend(torch.ones(4, 3), torch.ones(6, 4), torch.ones(6, 1), score=Additive(3, 2, 4))


def test_the_repr_shows_dims_and_heads():
    assert (repr(Additive(3, 2, 4)), repr(Additive(3, 2, 4, heads=5))) == (
        "Additive(3, 2, 4)",
        "Additive(3, 2, 4, heads=5)",
    )
