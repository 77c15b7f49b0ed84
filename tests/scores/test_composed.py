"""Scores made of scores: sums, multiples, and scores on some coordinates."""

from __future__ import annotations

import pytest
import torch

from regard import (
    Additive,
    Bias,
    Boxcar,
    Cosine,
    Custom,
    Dot,
    Equal,
    Gaussian,
    Laplacian,
    Proportional,
    ScaledDot,
    SoftCap,
    attend,
)
from regard.errors import OptionError, ScoreError, ShapeError
from regard.scores import Sum


def test_a_sum_of_scores_adds_them_whatever_their_forms(draw):
    q, k = draw(2, 3, 4), draw(5, 4, seed=1)
    parts = [
        Dot(),
        Gaussian(0.5),
        Laplacian(2.0),
        Additive(4, 4, 3).double(),
        Custom(lambda q, k: q[..., :1] + k[..., :1].mT),
    ]
    total = parts[0] + parts[1] + (parts[2] + parts[3]) + parts[4]
    assert isinstance(total, Sum)
    assert len(total.scores) == 5  # sums of sums are one sum
    expected = sum(part(q, k) for part in parts)
    torch.testing.assert_close(total(q, k), expected)
    for engine in ("reference", "tiled"):
        torch.testing.assert_close(attend(q, k, k, score=total, engine=engine), torch.softmax(expected, -1) @ k)


@pytest.mark.parametrize(
    "score", [Dot(), Gaussian(1.0), SoftCap(Dot(), 2.0), Dot() + Bias(torch.ones(1, 1)), Dot() + Equal()]
)
def test_a_multiple_of_a_score_multiplies_it(score, draw):
    q, k = draw(3, 2), draw(4, 2, seed=1)
    torch.testing.assert_close((score * 3)(q, k), 3 * score(q, k))
    torch.testing.assert_close((-0.5 * score)(q, k), -0.5 * score(q, k))


@pytest.mark.parametrize(
    ("columns", "picked"), [([0, 2], [0, 2]), (slice(1, 3), [1, 2]), ((3,), [3]), ([2, 0, 2], [2, 0, 2])]
)
def test_a_score_on_some_columns_sees_those_alone(columns, picked, draw):
    q, k = draw(2, 3, 4), draw(5, 4, seed=1)
    torch.testing.assert_close(Cosine().on(columns)(q, k), Cosine()(q[..., picked], k[..., picked]))


def test_mixed_columns_each_with_a_score_of_their_own(draw):
    q, k = draw(3, 3), draw(5, 3, seed=1)
    q[:, 2], k[:, 2] = torch.tensor([0.0, 1, 1]), torch.tensor([1.0, 0, 1, 0, 1])
    score = Gaussian(0.5).on([0, 1]) + 2.0 * Equal().on([2])
    expected = Gaussian(0.5)(q[:, :2], k[:, :2]) + 2.0 * (q[:, 2:] == k[:, 2:].mT)
    torch.testing.assert_close(score(q, k), expected)


def test_parameters_of_parts_are_parameters_of_the_whole():
    score = 2.0 * (Additive(2, 2, 3).on([0, 1]) + SoftCap(Additive(4, 4, 3), 1.0))
    assert len(list(score.parameters())) == 8


@pytest.mark.parametrize("score", [Gaussian(1.0) + Laplacian(1.0), 0.5 * Gaussian(1.0), Gaussian(1.0).on([0])])
def test_proportional_refuses_what_is_made_of_log_kernels(score):
    with pytest.raises(ScoreError, match=rf"{type(score).__name__} is the logarithm of a kernel"):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=score, weights=Proportional())


def test_proportional_takes_a_sum_of_kernels():
    score = Boxcar(1.0) + Equal()
    output = attend(
        torch.zeros(1, 1), torch.tensor([[0.0], [1.0], [2.0]]), torch.eye(3), score=score, weights=Proportional()
    )
    torch.testing.assert_close(output, torch.tensor([[2 / 3, 1 / 3, 0]]))


@pytest.mark.parametrize("columns", [[0, 4], [-1, 0]])
def test_columns_outside_the_dim_are_refused(columns):
    text = r"The columns of \.on\(\[.*\]\) must be in \[0, dim\): got vectors \(2, 3\)\. Columns count from 0\."
    with pytest.raises(ShapeError, match=text):
        attend(torch.ones(2, 3), torch.ones(5, 3), torch.ones(5, 1), score=Dot().on(columns))


def test_adding_a_tensor_is_refused_with_the_wrapper_to_use():
    with pytest.raises(
        OptionError, match=r"A score and a tensor cannot be added\. Wrap the tensor: score \+ Bias\(tensor\)\."
    ):
        Dot() + torch.ones(2, 2)


@pytest.mark.parametrize(
    "combine", [lambda: Dot() + 1.0, lambda: Dot() * Dot(), lambda: Dot() * "2", lambda: 1.0 + Bias(torch.ones(1, 1))]
)
def test_other_things_cannot_be_added_or_multiplied(combine):
    with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
        combine()


def test_reprs_show_factors_and_columns():
    assert "factor=2" in repr(2 * ScaledDot())
    assert "columns=(0, 1)" in repr(Dot().on([0, 1]))


def test_a_sum_is_the_logarithm_of_a_kernel_if_every_term_is():
    assert (Gaussian(1.0) + Gaussian(2.0)).is_log_kernel
    assert not (Gaussian(1.0) + Dot()).is_log_kernel
