"""SoftCap against cap · tanh(a / cap)."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Bias, Dot, Gaussian, Proportional, SoftCap, attend, weigh
from regard.errors import OptionError, ScoreError


def test_the_score_is_the_capped_tanh(by_pairs, draw):
    q, k = draw(4, 3), draw(5, 3, seed=1)
    expected = by_pairs(lambda q, k, _: 1.5 * math.tanh(sum(a * b for a, b in zip(q, k, strict=True)) / 1.5), q, k)
    torch.testing.assert_close(SoftCap(Dot(), cap=1.5)(q, k), expected)


def test_not_allowed_stays_not_allowed_under_a_cap():
    score = SoftCap(Dot() + Bias(torch.tensor([[0.0, -torch.inf]])), cap=2.0)
    assert weigh(torch.ones(1, 1), torch.ones(2, 1), torch.ones(2, 1), score=score).dense().tolist() == [[1.0, 0.0]]


def test_a_bias_of_minus_infinity_under_a_cap_sends_no_nan_backward():
    bias = torch.tensor([[0.0, -torch.inf, 1.0]])
    for engine in ("reference", "tiled"):
        q, k = torch.ones(1, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
        attend(
            q, k, torch.arange(3.0)[:, None], score=SoftCap(Dot() + Bias(bias), cap=2.0), engine=engine
        ).sum().backward()
        assert q.grad.isfinite().all()
        assert k.grad.isfinite().all()


@pytest.mark.parametrize("cap", [0.0, -1.0])
def test_a_cap_that_is_not_positive_is_refused(cap):
    with pytest.raises(OptionError, match=rf"`cap` of SoftCap must be a positive number: got {cap}"):
        SoftCap(Dot(), cap=cap)


def test_a_capped_log_kernel_is_still_refused_by_proportional():
    with pytest.raises(ScoreError, match=r"SoftCap is the logarithm of a kernel"):
        attend(
            torch.ones(2, 3),
            torch.ones(4, 3),
            torch.ones(4, 1),
            score=SoftCap(Gaussian(1.0), 2.0),
            weights=Proportional(),
        )


def test_the_repr_shows_the_cap():
    assert "cap=2" in repr(SoftCap(Dot(), 2.0))
