"""While a CUDA graph is captured nothing can be looked at. No GPU is needed to see what is decided then."""

from __future__ import annotations

import pytest
import torch

from regard import Allowed, attend, weigh
from regard.engines.sdpa.sdpa_engine import _as_kernel_mask
from regard.errors import OptionError
from regard.modes import is_capturing
from regard.problem import make_problem
from regard.scores import ScaledDot
from regard.tensors import is_finite
from regard.weights import Softmax


@pytest.fixture
def capturing(monkeypatch):
    for where in ("tensors", "problem", "engines.sdpa.sdpa_engine"):
        monkeypatch.setattr(f"regard.{where}.is_capturing", lambda device: True)


def test_only_a_gpu_captures(monkeypatch):
    assert not is_capturing(torch.device("cpu"))
    for answer in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda answer=answer: answer)
        assert is_capturing(torch.device("cuda")) is answer
        assert not is_capturing(torch.device("cpu"))


def test_what_cannot_be_looked_at_is_taken_to_be_finite(capturing):
    assert is_finite(torch.empty(3, device="meta"))  # which could not say
    assert not is_finite(torch.tensor([torch.nan]))  # on a CPU everything can be looked at


def test_dropout_is_refused_since_every_replay_would_drop_the_same(capturing):
    x = torch.rand(4, 8)
    for function in (attend, weigh):
        with pytest.raises(OptionError, match="must be 0 while a CUDA graph is captured: got 0.1"):
            function(x, x, x, dropout=0.1)
    assert attend(x, x, x).shape == (4, 8)


@pytest.mark.parametrize("looks", [True, False])
def test_fully_masked_rows_are_set_to_zero_whether_or_not_there_are_any(looks, request):
    if not looks:
        request.getfixturevalue("capturing")
    x, allowed = torch.rand(4, 8), torch.ones(4, 4, dtype=torch.bool)
    problem = make_problem(x, x, x, score=ScaledDot(), weights=Softmax(), mask=Allowed(allowed))
    assert (_as_kernel_mask(problem)[1] is None) is looks
    assert torch.allclose(attend(x, x, x, mask=Allowed(allowed), engine="sdpa"), attend(x, x, x), atol=1e-6)
