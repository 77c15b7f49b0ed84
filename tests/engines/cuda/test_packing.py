"""One query for each of several heads that share their keys: the heads are rows of one problem."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Dot, Gaussian, Proportional, Raw, ScaledDot, Sigmoid, SoftCap, Softmax, attend, partial
from regard.engines import Tiled
from regard.engines.cuda.packing import packed
from regard.problem import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def grouped(queries=1):
    """Three groups of four heads."""
    torch.manual_seed(0)
    shapes = (2, 3, 4, queries, 8), (2, 3, 1, 150, 8), (2, 3, 1, 150, 5)
    return [torch.randn(*shape, device=DEVICE) for shape in shapes]


def problem_of(tensors, score=None, weights=None, **options):
    return make_problem(*tensors, score=score or ScaledDot(), weights=weights or Softmax(), **options)


@pytest.mark.parametrize("score", [ScaledDot(), SoftCap(Dot(), 3.0), Gaussian(2.0)], ids=str)
@pytest.mark.parametrize("weights", [Softmax(), Softmax(temperature=0.5, sink=0.3), Sigmoid(), Raw()], ids=str)
def test_heads_that_share_keys_are_rows(score, weights):
    tensors = grouped()
    rows = packed(problem_of(tensors, score, weights))
    assert rows is not None
    assert rows.grid.batch_shape == (2, 3)
    assert rows.grid.n_queries == 4
    got = attend(*tensors, score=score, weights=weights, engine=KERNELS)
    wanted = attend(*tensors, score=score, weights=weights, engine="reference")
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_parts_of_packed_problems_merge():
    q, k, v = grouped()
    q, k = q.abs(), k.abs()
    options = {"score": Dot(), "weights": Proportional()}
    halves = [partial(q, k[..., part, :], v[..., part, :], **options) for part in (slice(0, 70), slice(70, 150))]
    merged = halves[0].merge(halves[1]).finish()
    torch.testing.assert_close(merged, attend(q, k, v, engine="reference", **options), rtol=1e-4, atol=1e-5)


def test_what_differs_by_head_is_not_packed():
    q, k, v = tensors = grouped()
    assert packed(problem_of(grouped(queries=2))) is None
    assert packed(problem_of((q, k.expand(2, 3, 4, 150, 8), v))) is None
    assert packed(problem_of((q, k, v.expand(2, 3, 4, 150, 5)))) is None
    assert packed(problem_of(tensors, dropout=0.1)) is None
    assert packed(problem_of((q.requires_grad_(), k, v))) is None
    assert packed(problem_of([each[0, 0, 0] for each in (q.detach(), k, v)])) is None
