"""Kernels for GPUs where numbers are large, small or none at all: what the definition says, as floats hold it."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import regard
from regard import Alibi, Bias, Causal, Dot, Gaussian, Mask, Proportional, SoftCap, attend
from regard.engines import Tiled
from regard.errors import EngineRefusal
from regard.grid import Grid
from regard.scores import ChannelForm, DotForm, Score, steps

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def both(tensors, gradient=None, **options):
    """The output and the gradients by kernels and by the definition."""
    results = []
    for engine in (KERNELS, "reference"):
        leaves = [each.to(DEVICE).requires_grad_() for each in (each.detach().clone() for each in tensors)]
        output = attend(*leaves, engine=engine, **options)
        to_output = torch.ones_like(output) if gradient is None else gradient.to(output)
        results.append([output.detach(), *torch.autograd.grad(output, leaves, to_output)])
    return zip(*results, strict=True)


def assert_same(pairs, rtol=1e-5, atol=1e-5):
    for got, wanted in pairs:
        assert torch.equal(got.isfinite(), wanted.isfinite())
        torch.testing.assert_close(got.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0), rtol=rtol, atol=atol)


@pytest.mark.parametrize("broken", [torch.inf, torch.nan])
@pytest.mark.parametrize("score", [Gaussian(1.0), Dot(), SoftCap(Dot(), 2.0)], ids=str)
def test_what_is_masked_does_not_reach_gradients(score, broken):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 3, 4)
    k[2], v[2] = broken, broken
    assert_same(both((q, k, v), score=score, mask=Causal()))
    q[0] = torch.nan
    assert_same(both((q, k.nan_to_num(0, 0), v.nan_to_num(0, 0)), score=score, mask=Causal()))


def test_a_bias_of_minus_infinity_hides_a_key_that_is_no_number():
    q, k, v = torch.randn(3, 3, 4)
    k[2] = torch.nan
    bias = torch.tensor([[0.0, 1.0, -torch.inf]], device=DEVICE)
    assert_same(both((q, k, v), score=Gaussian(1.0) + Bias(bias)))


def test_weights_of_zero_annihilate_without_a_mask_too():
    """By a score of −inf, by one so low that its weight is 0, and by dropout."""
    q, v = torch.ones(1, 2), torch.tensor([[2.0], [torch.nan]])
    for low in (-torch.inf, -500.0):
        assert_same(both((q, torch.tensor([[0.0, 0.0], [low, low]]), v), score=Dot()))
    q, k, v = torch.randn(8, 4), torch.randn(40, 4), torch.randn(40, 1)
    v[3] = torch.nan
    outputs = []
    for engine in (KERNELS, "reference"):
        torch.manual_seed(5)
        outputs.append(attend(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), dropout=0.5, engine=engine))
    assert 0 < int(outputs[0].isnan().sum()) < 8
    assert_same([outputs])


def test_scores_far_from_zero_keep_their_digits():
    """A score is held against the largest of its row before it is turned into another unit."""
    q, v = torch.ones(1, 1), torch.linspace(-1, 1, 40)[:, None]
    for far in (4096.0, 2.0**20):
        k = far + torch.arange(40.0)[:, None] / 8
        output, wanted = next(iter(both((q, k, v), score=Dot())))
        torch.testing.assert_close(output, wanted, rtol=0, atol=1e-6)


def test_weights_of_huge_scores_are_at_most_one_on_the_way_back():
    torch.manual_seed(0)
    q, k, v = torch.randn(40, 64) * 3e3, torch.randn(40, 64) * 3e3, torch.randn(40, 4)
    to_values = list(both((q, k, v), score=Dot()))[3][0]
    assert float(to_values.abs().max()) <= 40


@pytest.mark.parametrize(("size", "values"), [(1e30, 1e10), (1e-30, 1e-15)])
def test_proportional_sums_stay_within_float32(size, values):
    q, k, v = torch.ones(1, 1), torch.tensor([[size], [3 * size]]), torch.tensor([[values], [5 * values]])
    (output, wanted), *_ = both((q, k, v), score=Dot(), weights=Proportional())
    torch.testing.assert_close(output, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(output.item(), 4 * values, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [8000.0, 1e-4])
def test_gradients_of_scores_have_room_in_float16(size):
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 16), torch.randn(256, 16), torch.randn(256, 4)
    pairs = list(both((q.half(), k.half(), v.half()), torch.full((2, 4), size), score=Dot()))
    for got, wanted in pairs[1:]:
        assert got.isfinite().all()
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=4e-3 * float(wanted.abs().max()))


class _Weighted(Score):
    def form(self, queries, keys):
        weight = torch.tensor([[1.01, 0.67]], dtype=queries.dtype, device=queries.device)
        return ChannelForm(queries, keys, "square", weight=weight, scale=-1.0)


def test_weighted_squares_of_half_precision_are_not_rounded_before_they_cancel():
    torch.manual_seed(0)
    q, k = 20 + torch.randn(8, 2), 20 + torch.randn(40, 2)
    got, wanted = next(iter(both((q.bfloat16(), k.bfloat16(), torch.randn(40, 2).bfloat16()), score=_Weighted())))
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-2)


class _FarAlibi(Alibi):
    def step(self, grid):
        step = super().step(grid)
        return steps.AddDistance(step.query_positions + 2**26, step.key_positions + 2**26, step.slope)


def test_positions_far_away_keep_their_distances():
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)
    assert_same(both((q, k, v), score=(Dot() + _FarAlibi(1.0, align="start")).to(DEVICE)))


class _Beyond(Mask):
    """Says of rows that they attend to more than there is."""

    def allows(self, rows, columns, grid):
        return (columns >= rows - 300) & (columns < rows + 200)

    def bounds(self, rows, grid: Grid):
        places = torch.arange(rows.start, rows.stop, device=grid.device)
        return places - 300, places + 200


def test_bounds_beyond_the_keys():
    q, k, v = torch.randn(16, 4), torch.randn(40, 4), torch.randn(40, 4)
    assert_same(both((q, k, v), score=SoftCap(Dot(), 3.0), mask=_Beyond()))


def test_a_weight_for_each_head_is_read_as_it_was_converted():
    class PerHead(Score):
        def form(self, queries, keys):
            weight = torch.tensor([[1.5, 0.5]], dtype=torch.bfloat16, device=queries.device).expand(1, 3, 1, 2)
            return ChannelForm(queries, keys, "square", weight=weight, scale=-1.0)

    q, k, v = torch.randn(2, 3, 5, 2), torch.randn(2, 3, 7, 2), torch.randn(2, 3, 7, 2)
    (got, wanted), *_ = both((q.bfloat16(), k.bfloat16(), v.bfloat16()), score=PerHead())
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)


def test_second_derivatives_do_not_see_what_is_masked():
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 3, 4, device=DEVICE)
    k[2] = torch.nan
    found = []
    for engine in (KERNELS, "reference"):
        leaf = q.clone().requires_grad_()
        output = attend(leaf, k, v, mask=Causal(), engine=engine)[:2]
        (first,) = torch.autograd.grad(output.square().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first[:2].square().sum(), leaf)[0][:2])
    assert found[0].any()
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_a_compiled_call_in_half_precision():
    q, k, v = torch.randn(3, 2, 40, 8, device=DEVICE).bfloat16()

    def call(*tensors):
        return attend(*tensors, score=SoftCap(Dot(), 2.0), engine="tiled")

    got = torch.compile(call, backend="aot_eager", fullgraph=True)(q, k, v)
    torch.testing.assert_close(got, call(q, k, v))


def test_either_way_to_allow_tf32_is_heard():
    from regard.engines import torch_internals

    assert not torch_internals.allows_tf32()
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert torch_internals.allows_tf32()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_a_triton_that_does_not_work_is_a_reason(monkeypatch):
    from regard.engines.cuda import cuda_kernels, trial

    def fail(device):
        raise RuntimeError("no C compiler")

    cuda_kernels._unusable.cache_clear()
    monkeypatch.setattr(trial, "try_launch", fail)
    x = torch.randn(4, 8, device=DEVICE)
    try:
        with pytest.raises(EngineRefusal, match="Triton does not work here: RuntimeError: no C compiler"):
            attend(x, x, x, score=SoftCap(Dot(), 2.0), engine=KERNELS)
        text = str(regard.plan(x, x, x, score=SoftCap(Dot(), 2.0), engine="tiled"))
        assert "no C compiler" in text
    finally:
        cuda_kernels._unusable.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("far", [30.0, 87.0, 87.5, 200.0])
def test_gates_of_any_size(far, dtype):
    """e^−g · e^−h, where one or the other, or either times what the score is multiplied by, leaves float32."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(40, 8).to(dtype) for _ in range(3))

    class Far(Score):
        def form(self, queries, keys):
            given = torch.full((40, 1), -far), torch.full((40, 1), far) + torch.linspace(-1, 1, 40)[:, None]
            return DotForm(queries, keys, 0.125).then(steps.Gate(*(each.to(queries) for each in given)))

    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    assert_same(both((q, k, v), score=Far()), rtol=tolerance, atol=tolerance)


def test_squared_distances_that_a_temperature_multiplies():
    """Products would round a score by so much that the temperature shows it."""
    torch.manual_seed(0)
    q, k, v = torch.randn(30, 8), torch.randn(30, 8), torch.randn(30, 4)

    class Sharp(Score):
        def form(self, queries, keys):
            factor = torch.full((1, 1), 1e4, device=queries.device)
            return ChannelForm(queries, keys, "square", scale=-1.0).then(steps.Scale(factor))

    output, wanted = next(iter(both((q, k, v), score=Sharp())))
    torch.testing.assert_close(output, wanted, rtol=1e-3, atol=1e-3)
