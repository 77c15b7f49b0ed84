"""Gaussian against −‖q − k‖² / (2 · bandwidth²), pair by pair, near and far."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard import Gaussian, Laplacian, Proportional, attend, plan
from regard.errors import OptionError, ScoreError, ShapeError
from regard.scores import ChannelForm, DotForm


def gaussian(bandwidths):
    return lambda q, k, _=(): -sum(((a - b) / h) ** 2 for a, b, h in zip(q, k, bandwidths, strict=True)) / 2


# Near the origin the score is folded into a dot product, far from it differences are summed.
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_the_score_is_the_logarithm_of_a_gaussian(shift, by_pairs, draw):
    q, k = draw(2, 4, 3) + shift, draw(5, 3, seed=1) + shift
    torch.testing.assert_close(Gaussian(0.8)(q, k), by_pairs(gaussian([0.8] * 3), q, k))


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_each_dimension_may_have_its_own_bandwidth(shift, by_pairs, draw):
    q, k = draw(4, 3) + shift, draw(5, 3, seed=1) + shift
    score = Gaussian(torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64))
    torch.testing.assert_close(score(q, k), by_pairs(gaussian([0.5, 1.0, 3.0]), q, k))
    assert list(score.parameters()) == []
    assert "bandwidth" in dict(score.named_buffers())


@pytest.mark.parametrize("bandwidth", [0.7, [0.5, 1.0, 3.0]])
def test_a_learned_bandwidth_is_found_and_gets_a_gradient(bandwidth, by_pairs, draw):
    q, k = draw(4, 3), draw(5, 3, seed=1)
    score = Gaussian(nn.Parameter(torch.tensor(bandwidth, dtype=torch.float64)))
    each = bandwidth if isinstance(bandwidth, list) else [bandwidth] * 3
    torch.testing.assert_close(score(q, k), by_pairs(gaussian(each), q, k))
    assert [name for name, _ in score.named_parameters()] == ["bandwidth"]
    score(q, k).sum().backward()
    # d/dh of −Σ d²/(2h²) is Σ d²/h³.
    squares = torch.stack([by_pairs(lambda q, k, _, c=c: (q[c] - k[c]) ** 2, q, k).sum() for c in range(3)])
    expected = squares / torch.tensor(each, dtype=torch.float64) ** 3
    torch.testing.assert_close(score.bandwidth.grad, expected if isinstance(bandwidth, list) else expected.sum())


@pytest.mark.parametrize("engine", ["reference", "tiled", None])
def test_keys_spread_over_a_thousand_bandwidths_keep_their_digits_in_float32(engine):
    # The folded form, ‖q‖² + ‖k‖² − 2q·k, would be off by 1e-3 here.
    generator = torch.Generator().manual_seed(0)
    keys = torch.rand(400, 1, generator=generator) * 1000
    queries = keys[:100] + torch.randn(100, 1, generator=generator)
    values = torch.rand(400, 2, generator=generator)
    exact = attend(queries.double(), keys.double(), values.double(), score=Gaussian(1.0), engine="reference")
    result = attend(queries, keys, values, score=Gaussian(1.0), engine=engine)
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-6)


def test_points_far_from_the_origin_are_not_folded_and_near_ones_are():
    near, far = torch.rand(3, 2), torch.rand(3, 2) + 1000
    assert isinstance(Gaussian(1.0).form(near, near), DotForm)
    assert isinstance(Gaussian(1.0).form(far, far), ChannelForm)
    assert isinstance(Gaussian(0.001).form(near, near), ChannelForm)
    refusals = plan(far, far, far, score=Gaussian(1.0)).refusals
    assert refusals["sdpa"] == ("Gaussian is not a dot product of projected queries and keys",)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_gradient_where_a_query_meets_a_key_is_zero(shift):
    q = torch.full((1, 2), shift, dtype=torch.float64, requires_grad=True)
    Gaussian(1.0)(q, q.detach().clone()).sum().backward()
    torch.testing.assert_close(q.grad, torch.zeros_like(q), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Gaussian, Laplacian])
def test_a_bandwidth_for_another_number_of_dimensions_is_refused(kind):
    text = r"must be one number, or one for each of 3 dimensions: got \(2,\)\. Pass a tensor \(3,\)\."
    with pytest.raises(ShapeError, match=rf"`bandwidth` of {kind.__name__} {text}"):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=kind(torch.ones(2)))


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan, torch.tensor([1.0, 0.0])])
def test_a_bandwidth_that_is_not_positive_is_refused(bandwidth):
    with pytest.raises(OptionError, match=r"`bandwidth` of Gaussian must be positive: got "):
        Gaussian(bandwidth)


def test_proportional_refuses_the_logarithm_of_a_kernel():
    text = r"Proportional\(\) must have scores that are not negative: Gaussian is the logarithm of a kernel\. Use"
    with pytest.raises(ScoreError, match=text):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Gaussian(1.0), weights=Proportional())


def test_vectors_of_different_dims_are_refused():
    with pytest.raises(ShapeError, match=r"Gaussian must have queries and keys of the same dim"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=Gaussian(1.0))


def test_the_repr_shows_a_number_or_a_shape():
    assert repr(Gaussian(0.5)) == "Gaussian(bandwidth=0.5)"
    assert repr(Gaussian(torch.ones(3))) == "Gaussian(bandwidth=3 numbers)"
