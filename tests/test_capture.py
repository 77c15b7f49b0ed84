"""While a CUDA graph is captured nothing can be looked at. No GPU is needed to see what is decided then."""

from __future__ import annotations

import pytest
import torch

from regard import Allowed, attend
from regard.engines import Tiled
from regard.engines.sdpa.sdpa_engine import _as_kernel_mask
from regard.modes import is_capturing
from regard.planner import find_engine as engine_of
from regard.problem import draw_seed, make_problem
from regard.scores import ScaledDot
from regard.tensors import is_finite
from regard.weights import Softmax


@pytest.fixture
def capturing(monkeypatch):
    for where in ("tensors", "engines.sdpa.sdpa_engine"):
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


def test_the_seed_of_dropout_stays_on_a_device_so_that_every_replay_draws_its_own():
    assert isinstance(draw_seed(torch.device("cpu")), int)
    seed = draw_seed(torch.device("meta"))  # which stands for any device that must not be waited for
    assert isinstance(seed, torch.Tensor)
    assert seed.device.type == "meta"


@pytest.mark.parametrize("engine", ["reference", Tiled(kernels=False), Tiled(tile_elements=64, kernels=False)], ids=str)
def test_a_seed_that_is_a_tensor_drops_what_its_number_drops(engine):
    x, seed = torch.rand(20, 8), 0x1234_5678_9ABC_DEF
    options = {"score": ScaledDot(), "weights": Softmax(), "dropout": 0.4}
    one, two = (
        engine_of(engine).run(make_problem(x, x, x, seed=each, **options)) for each in (seed, torch.tensor(seed))
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, attend(x, x, x))


@pytest.mark.parametrize("looks", [True, False])
def test_fully_masked_rows_are_set_to_zero_whether_or_not_there_are_any(looks, request):
    if not looks:
        request.getfixturevalue("capturing")
    x, allowed = torch.rand(4, 8), torch.ones(4, 4, dtype=torch.bool)
    problem = make_problem(x, x, x, score=ScaledDot(), weights=Softmax(), mask=Allowed(allowed))
    assert (_as_kernel_mask(problem)[1] is None) is looks
    assert torch.allclose(attend(x, x, x, mask=Allowed(allowed), engine="sdpa"), attend(x, x, x), atol=1e-6)
