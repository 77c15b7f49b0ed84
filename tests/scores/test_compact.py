"""Boxcar, Epanechnikov and Triangular against their functions of u = ‖q − k‖ / radius, pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard import Boxcar, Epanechnikov, Proportional, Triangular, attend
from regard.errors import OptionError, ShapeError

FUNCTIONS = {
    Boxcar: lambda u: float(u <= 1),
    Epanechnikov: lambda u: max(0.0, 1 - u * u),
    Triangular: lambda u: max(0.0, 1 - u),
}


def distance(q, k):
    return math.dist(q, k)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_score_is_its_function_of_the_relative_distance(kind, by_pairs, draw):
    q, k = draw(2, 6, 3), draw(8, 3, seed=1)
    expected = by_pairs(lambda q, k, _: FUNCTIONS[kind](distance(q, k) / 2.1), q, k)
    assert 0 < (expected == 0).double().mean() < 1  # some pairs within the radius, some beyond
    torch.testing.assert_close(kind(2.1)(q, k), expected)


def test_the_edge_of_a_boxcar_is_inside_and_exact():
    # Integers, so that distances are exact: 3-4-5 lies on the edge.
    q, k = torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [4.0, 4.0], [0.0, 5.0], [5.0, 1.0]])
    assert Boxcar(5.0)(q, k).tolist() == [[1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize("kind", [Epanechnikov, Triangular])
@pytest.mark.parametrize("radius", [2.1, [1.5, 3.0]])
def test_a_learned_radius_one_or_one_for_each_head(kind, radius, by_pairs, draw):
    q, k = draw(2, 4, 3), draw(2, 5, 3, seed=1)
    score = kind(nn.Parameter(torch.tensor(radius, dtype=torch.float64)))

    def pair(q, k, index):
        return FUNCTIONS[kind](distance(q, k) / (radius[index[-1]] if isinstance(radius, list) else radius))

    torch.testing.assert_close(score(q, k), by_pairs(pair, q, k))
    score(q, k).sum().backward()
    assert score.radius.grad.shape == score.radius.shape
    assert bool((score.radius.grad > 0).all())  # a wider kernel scores every pair higher


@pytest.mark.parametrize("kind", [Epanechnikov, Triangular])
def test_the_gradient_where_a_query_meets_a_key_is_zero(kind):
    q = torch.ones(1, 2, requires_grad=True)
    kind(1.0)(q, torch.ones(1, 2)).sum().backward()
    assert torch.equal(q.grad, torch.zeros(1, 2))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_queries_beyond_every_radius_get_zeros_under_proportional(kind):
    output = attend(
        torch.zeros(1, 1), torch.tensor([[5.0], [7.0]]), torch.ones(2, 1), score=kind(1.0), weights=Proportional()
    )
    assert output.tolist() == [[0.0]]


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_radius_that_is_not_positive_is_refused(kind):
    with pytest.raises(OptionError, match=rf"`radius` of {kind.__name__} must be positive: got -1"):
        kind(-1)


def test_a_learned_radius_of_a_boxcar_is_refused():
    with pytest.raises(
        OptionError, match=r"`radius` of Boxcar must be a number: it has no gradient\. Learn Epanechnikov's or Triang"
    ):
        Boxcar(nn.Parameter(torch.tensor(1.0)))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_vectors_of_different_dims_are_refused(kind):
    with pytest.raises(ShapeError, match=rf"{kind.__name__} must have queries and keys of the same dim"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=kind(1.0))


def test_the_repr_shows_the_radius():
    assert repr(Triangular(2.0)) == "Triangular(radius=2)"
