"""Claims about the error of leave-one-out: it is what `attend` would miss by, and its gradient is its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard import NotSelf, attend
from regard.database import leave_one_out
from regard.database.bandwidth import Widths, mixed_score
from regard.database.leave_one_out import LeaveOneOut, Places

PLACES = Places(((0,), (1,)), (2,))
FACTORS = torch.tensor([[4.0, 0.7, 1.3], [0.0, 30.0, 0.0], [1e4, 1e4, 5.0]], dtype=torch.float64)


def rows(n_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(n_rows, 3, generator=generator, dtype=torch.float64)
    keys[:, 2] = torch.randint(3, (n_rows,), generator=generator)
    targets = torch.stack([keys[:, 0].sin(), keys[:, 1] + keys[:, 2]], dim=-1)
    return keys, targets + 0.1 * torch.randn(n_rows, 2, generator=generator, dtype=torch.float64)


def by_attend(keys: Tensor, targets: Tensor, factors: Tensor) -> float:
    bandwidths = [factor**-0.5 if factor > 0 else math.inf for factor in factors[:2].tolist()]
    score = mixed_score(PLACES, Widths(tuple(bandwidths), (math.exp(-float(factors[2])),)), dim=3)
    predicted = attend(keys, keys, targets, score=score, mask=NotSelf())
    return float((predicted - targets).square().sum(-1).mean())


@pytest.mark.parametrize("n_rows", [60, 300])
def test_it_is_what_attend_misses_by(n_rows: int) -> None:
    keys, targets = rows(n_rows)
    errors = LeaveOneOut(keys, PLACES, targets, torch.arange(n_rows)).errors(FACTORS)
    assert errors.tolist() == pytest.approx([by_attend(keys, targets, each) for each in FACTORS], rel=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_its_gradient_is_that_of_differences(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    monkeypatch.setattr(leave_one_out, "COMPILED", 0 if compiled else 2**60)
    keys, targets = rows(80)
    hidden = LeaveOneOut(keys, PLACES, targets, torch.arange(80))
    factors = FACTORS[:1]
    _, slopes = hidden.with_gradient(factors)
    for column in range(3):
        step = torch.zeros_like(factors)
        step[0, column] = 0.02
        difference = (hidden.errors(factors + step) - hidden.errors(factors - step)) / 0.04
        assert float(slopes[0, column]) == pytest.approx(float(difference), rel=1e-2, abs=1e-4)


def test_some_hidden_rows_are_compared_with_all_others() -> None:
    keys, targets = rows(300)
    part = LeaveOneOut(keys, PLACES, targets, torch.tensor([7, 200])).errors(FACTORS)
    each = [LeaveOneOut(keys, PLACES, targets, torch.tensor([row])).errors(FACTORS) for row in (7, 200)]
    assert part.tolist() == pytest.approx(((each[0] + each[1]) / 2).tolist(), rel=1e-5)


def test_a_twin_speaks_for_a_hidden_row() -> None:
    keys, targets = rows(40)
    twice = LeaveOneOut(keys.repeat(2, 1), PLACES, targets.repeat(2, 1), torch.arange(80))
    assert float(twice.errors(torch.tensor([[1e8, 1e8, 1.0]]))) == pytest.approx(0.0, abs=1e-12)
