"""Multiplicative against qᵀWk, pair by pair."""

from __future__ import annotations

import pytest
import torch

from regard import Multiplicative, attend
from regard.errors import DtypeError, OptionError, ShapeError


def bilinear(matrix):
    return lambda q, k, _: sum(q[a] * matrix[a][b] * k[b] for a in range(len(q)) for b in range(len(k)))


def test_the_score_is_q_w_k_for_dims_that_differ(by_pairs, draw):
    score = Multiplicative(3, 2).double()
    q, k = draw(4, 3), draw(5, 2, seed=1)
    torch.testing.assert_close(score(q, k), by_pairs(bilinear(score.W.tolist()), q, k))


def test_each_head_has_its_own_matrix(by_pairs, draw):
    score = Multiplicative(3, 2, heads=2).double()
    q, k = draw(4, 2, 2, 3), draw(1, 5, 2, seed=1)
    matrices = score.W.tolist()
    expected = by_pairs(lambda q, k, index: bilinear(matrices[index[-1]])(q, k, index), q, k.expand(2, 5, 2))
    torch.testing.assert_close(score(q, k), expected)


def test_the_matrix_starts_at_the_spread_of_a_scaled_dot_product():
    torch.manual_seed(0)
    score = Multiplicative(64, 64)
    scores = score(torch.randn(200, 64), torch.randn(200, 64))
    assert 0.8 < scores.std() < 1.2


def test_other_dims_are_refused_with_the_dims_to_ask_for():
    text = r"Multiplicative must have queries of dim 3 and keys of dim 2: got queries \(4, 5\) and keys \(6, 2\)\. "
    with pytest.raises(ShapeError, match=text + r"Make the score with query_dim=5, key_dim=2\."):
        attend(torch.ones(4, 5), torch.ones(6, 2), torch.ones(6, 1), score=Multiplicative(3, 2))


def test_another_number_of_heads_is_refused():
    text = r"Multiplicative has heads=2, so the last batch axis must be 2 or 1: got \(3, 4, 5\)\. Put heads on the"
    with pytest.raises(ShapeError, match=text):
        attend(torch.ones(3, 4, 5), torch.ones(3, 6, 5), torch.ones(6, 1), score=Multiplicative(5, 5, heads=2))


def test_parameters_of_another_dtype_are_refused():
    text = r"Multiplicative must have parameters of the inputs' dtype: got parameters in torch\.float32 and inputs.*64"
    with pytest.raises(
        DtypeError, match=text + r"\. Convert the score with \.to\(torch\.float64\), or run under torch\.autocast"
    ):
        attend(
            torch.ones(2, 3).double(), torch.ones(4, 3).double(), torch.ones(4, 1).double(), score=Multiplicative(3, 3)
        )


def test_no_heads_at_all_are_refused():
    with pytest.raises(
        OptionError, match=r"`heads` must be at least 1: got 0\. Leave it out for one set of parameters\."
    ):
        Multiplicative(3, 3, heads=0)


def test_the_repr_shows_dims_and_heads():
    assert repr(Multiplicative(3, 2)) == "Multiplicative(3, 2)"
    assert repr(Multiplicative(3, 2, heads=4)) == "Multiplicative(3, 2, heads=4)"
