"""PyTorch's kernels let NaN through a mask: where a flag says so, ours compute it again, and elsewhere nothing."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Causal, Dot, KeyMask, Multiplicative, Softmax, attend
from regard.engines.kernels import dispatch
from regard.engines.sdpa import fused_call
from regard.engines.sdpa.fused_call import Call, Frame, pool_fused
from regard.engines.sdpa.sdpa_engine import _guard_of
from regard.grid import Grid
from regard.problem import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def broken(requires_grad=False):
    """Queries, keys and values, of which the last key and value are none."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 20, 8, device=DEVICE)
    k[..., -1, :], v[..., -1, :] = torch.inf, torch.nan
    return [each.requires_grad_(requires_grad) for each in (q, k, v)]


def guard_of(tensors, mask):
    problem = make_problem(*tensors, score=Dot(), weights=Softmax(), mask=mask)
    guard = _guard_of(problem)
    assert guard is not None
    return guard


@pytest.mark.parametrize("mask", [Causal(), KeyMask(torch.arange(20, device=DEVICE) < 19)], ids=["causal", "keys"])
def test_what_leaked_is_computed_again(monkeypatch, mask):
    monkeypatch.setattr(fused_call, "CALLED_BY_NAME", frozenset())  # as on a GPU, autograd keeps a graph of its own
    tensors = broken(requires_grad=True)
    is_causal = isinstance(mask, Causal)
    allowed = None if is_causal else mask.tensor.expand(1, 2, 20, 20)
    frame = Frame(Grid((1, 2), 20, 20, tensors[0].device), 1.0, Dot(), Softmax(), mask, guard_of(tensors, mask))
    call = Call(*tensors, allowed, None, is_causal, 1.0, 8)
    results = []
    for run in (
        lambda: pool_fused(frame, call, *tensors),
        lambda: attend(*tensors, score=Dot(), mask=mask, engine="reference"),
    ):
        output = run()
        visible = output[..., :19, :]
        results.append([output.detach(), *torch.autograd.grad(visible.sum(), tensors)])
    leaked = call.compute().detach()
    assert leaked[..., :19, :].isnan().any() or not is_causal
    for got, wanted in zip(*results, strict=True):
        assert torch.equal(got.isfinite(), wanted.isfinite())
        torch.testing.assert_close(got.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0), rtol=1e-4, atol=1e-5)
    assert results[0][0][..., :19, :].isfinite().all()


def test_what_is_finite_is_not_touched():
    tensors = broken()
    guard = guard_of(tensors, Causal())
    marks = [torch.full_like(tensors[0], mark) for mark in (1.0, 2.0, 3.0, 4.0)]
    guard.mend_output(marks[0])
    assert (marks[0] == 1).all()
    found = guard.mend_gradients(marks[0], torch.ones_like(marks[0]), [marks[1], None, marks[3]])
    assert found[1] is None
    assert torch.equal(found[0], marks[1])
    assert torch.equal(found[2], marks[3])


def test_a_backward_pass_leaves_the_output_as_it_is():
    """A gradient that is not finite sets the flag: what was returned is somebody's by then."""
    tensors = [each.nan_to_num(0, 0, 0) for each in broken()]
    output = torch.full_like(tensors[0], 7.0)
    gradient = torch.ones_like(output)
    gradient[..., 3, :] = torch.inf
    found = [torch.full_like(each, torch.nan) for each in tensors]
    mended = guard_of(tensors, Causal()).mend_gradients(output, gradient, found)
    assert (output == 7).all()
    assert mended[0][..., :3, :].isfinite().all()


def test_learned_scores_are_looked_at():
    """What they have learned would get NaN from a vector that a mask hides."""
    tensors = broken()
    score = Multiplicative(8, 8).to(DEVICE)
    assert _guard_of(make_problem(*tensors, score=score, weights=Softmax(), mask=Causal())) is None
    with torch.no_grad():
        assert _guard_of(make_problem(*tensors, score=score, weights=Softmax(), mask=Causal())) is not None


def test_devices_without_such_kernels_have_no_guard(monkeypatch):
    monkeypatch.delitem(dispatch._KERNELS, DEVICE)
    assert _guard_of(make_problem(*broken(), score=Dot(), weights=Softmax(), mask=Causal())) is None


def test_four_batch_axes_that_cannot_be_joined_are_copied():
    tensors = [each.nan_to_num(0, 0, 0).expand(2, 2, 2, 2, 20, 8).clone() for each in broken()]
    output = torch.ones_like(tensors[0])
    gradient = torch.ones_like(output).permute(3, 2, 1, 0, 4, 5)
    found = [torch.full_like(each, torch.nan) for each in tensors]
    mended = guard_of(tensors, Causal()).mend_gradients(output, gradient, found)
    assert all(each.isfinite().all() for each in mended)
