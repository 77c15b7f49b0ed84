"""What engines must not do by accident: wrong higher derivatives, large masks, hidden NaN."""

import pytest
import torch

from regard import Allowed, Causal, Dot, GlobalKeys, KeyMask, Padding, Proportional, Score, attend, partial, plan, weigh
from regard.engines import ENGINES, Sdpa, Tiled
from regard.errors import EngineRefusal
from regard.problem import make_problem
from regard.scores import Additive, DotForm, ScaledDot
from regard.testing import AllocationTrap
from regard.weights import Softmax

X = torch.randn(1, 1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def third_derivative(engine):
    x = X.clone().requires_grad_()
    value = attend(x, x, x, engine=engine).pow(3).sum()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        value = gradient.square().sum()
    return torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize("engine", ["sdpa", "tiled"])
def test_a_third_derivative_is_refused_where_it_would_be_wrong(engine):
    with pytest.raises(EngineRefusal, match='must stop at second derivatives.*Use engine="reference"'):
        third_derivative(engine)


def test_the_reference_has_a_third_derivative():
    assert third_derivative("reference").isfinite().all()


def test_a_second_derivative_of_a_part_alone_is_refused():
    q, k, v = X[0, 0].clone().requires_grad_(), X[0, 0].clone().requires_grad_(), X[0, 0]
    merged = partial(q, k, v).merge(partial(q.detach(), k.detach() + 1, v)).finish()
    (first,) = torch.autograd.grad(merged.pow(3).sum(), k, create_graph=True)
    with pytest.raises(EngineRefusal, match="A second derivative must be taken of one problem"):
        torch.autograd.grad(first.sum(), k)


ROW_MASKS = {
    "Padding": Padding(torch.tensor([500, 0])),
    "KeyMask": KeyMask(torch.arange(512) % 3 != 0),
    "GlobalKeys": GlobalKeys([0, 5]),
}


@pytest.mark.parametrize("name", ROW_MASKS)
def test_masks_of_keys_cost_the_fused_kernels_no_matrix(name):
    x = torch.randn(2, 4, 512, 8)
    with AllocationTrap(512 * 512 // 4):
        output = attend(x, x, x, mask=ROW_MASKS[name], engine="sdpa")
    torch.testing.assert_close(output, attend(x, x, x, mask=ROW_MASKS[name], engine="reference"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_that_is_nan_gets_nan(engine):
    q, k = torch.randn(4, 8), torch.randn(5, 8)
    q[1] = torch.nan
    output = attend(q, k, k, engine=engine)
    assert output[1].isnan().all()
    assert output[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_masked_score_that_overflows_reaches_nothing(engine):
    q, k = torch.full((1, 2), 1e20), torch.tensor([[1e-20, 1e-20], [1e-20, 1e-20], [1e20, 1e20]])
    output = attend(q, k, torch.ones(3, 2), mask=Padding(2), engine=engine)
    torch.testing.assert_close(output, torch.ones(1, 2))


@pytest.mark.parametrize("engine", ENGINES)
def test_nan_at_a_weight_of_zero_reaches_nothing_without_a_mask(engine):
    q, k, v = torch.tensor([[1.0], [-1.0]]), torch.tensor([[200.0], [0.0], [0.0]]), torch.ones(3, 1)
    v[0] = torch.nan
    output = attend(q, k, v, score=Dot(), engine=engine)
    assert output[0].isnan().all()
    torch.testing.assert_close(output[1], torch.ones(1))


def test_a_plan_says_that_nan_takes_the_slow_way():
    x = torch.randn(64, 8)
    assert "strips" not in str(plan(x, x, x, mask=Causal()))
    x[-1] = torch.nan
    assert "rows that see it are computed apart" in str(plan(x, x, x, mask=Causal()))


def test_a_subclass_of_a_mask_or_form_is_not_taken_for_what_it_extends():
    class Anti(Causal):
        def allows(self, rows, columns, grid):
            return columns >= rows

        def tile(self, rows, columns, grid):
            return torch.ones(len(rows), len(columns), dtype=torch.bool).triu(columns.start - rows.start)

    class Doubled(DotForm):
        def pairs(self):
            return 2 * super().pairs()

    class Twice(Score):
        def form(self, queries, keys):
            return Doubled(queries, keys)

    x = torch.randn(2, 3, 8, 4)
    for options in ({"mask": Anti()}, {"score": Twice()}):
        problem = make_problem(x, x, x, **{"score": ScaledDot(), "weights": Softmax(), **options})
        assert Sdpa().refusals(problem)


def test_vectors_that_are_not_contiguous_keep_the_fused_kernels():
    x = torch.randn(2, 3, 8, 16).mT  # (2, 3, 16, 8), the last axis strided
    assert plan(x, x, x).engine == "sdpa"
    torch.testing.assert_close(attend(x, x, x), attend(x, x, x, engine="reference"))


def test_the_output_of_the_reference_may_be_changed_in_place():
    x = torch.randn(3, 4, requires_grad=True)
    output = attend(x, x, x, engine="reference")
    output += x
    output.sum().backward()


def test_a_full_mask_is_counted_in_the_bytes():
    x = torch.randn(1, 1, 256, 8)
    allowed = Allowed(torch.ones(256, 256, dtype=torch.bool).tril())
    assert plan(x, x, x, mask=allowed, engine="sdpa").bytes >= 256 * 256 * 4


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(("score", "value"), [(1e30, 1e10), (1e-16, 1e-27)])
def test_a_share_of_values_is_computed_where_score_times_value_is_no_number(score, value, kernels):
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.rand(2, 3, 4, generator=generator) * score**0.5
    values = torch.rand(3, 2, generator=generator) * value
    options = {"score": Dot(), "weights": Proportional()}
    wanted = attend(queries, keys, values, **options, engine="reference")
    for output in (
        attend(queries, keys, values, **options, engine=Tiled(kernels=kernels)),
        weigh(queries, keys, values, **options, engine=Tiled(kernels=kernels)).output,
    ):
        torch.testing.assert_close(output, wanted, rtol=1e-5, atol=0)


def test_rows_of_a_small_gradient_keep_it_beside_huge_ones():
    torch.manual_seed(0)
    score, generator = Additive(8, 8, 16), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, d, generator=generator) for n, d in ((200, 8), (300, 8), (300, 4)))
    towards = torch.randn(200, 4, generator=generator) * 1e-9
    towards[0] = 1e33
    found = []
    for engine, dtype in (("reference", torch.float64), (Tiled(kernels=True), torch.float32)):
        queries = q.to(dtype).requires_grad_()
        output = attend(queries, k.to(dtype), v.to(dtype), score=score.to(dtype), engine=engine)
        found.append(torch.autograd.grad(output, queries, towards.to(dtype))[0][1:].double())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-4 * float(found[0].abs().max()))


@pytest.mark.parametrize(("value", "gradient"), [(1e30, 1.0), (1e20, 1e20), (2e38, 1.0)])
def test_values_of_additive_scores_have_their_gradient_whatever_others_are(value, gradient):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(64, 8, generator=generator) for _ in range(3))
    torch.manual_seed(0)
    score, towards = Additive(8, 8, 8), torch.full((64, 8), gradient)
    v[0], towards[-1] = value, 1e-16
    found = []
    for engine in ("reference", Tiled(kernels=True)):
        values = v.clone().requires_grad_()
        output = attend(q.requires_grad_(), k, values, score=score, mask=Causal(), engine=engine)
        found.append(torch.autograd.grad(output, values, towards)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=0)


def test_gradients_of_additive_scores_with_huge_values_are_numbers():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(64, 8, generator=generator) for _ in range(3))
    torch.manual_seed(0)
    score = Additive(8, 8, 8)
    for each in score.parameters():
        torch.nn.init.normal_(each)
    found = []
    for kernels in (False, True):
        leaves = [each.clone().requires_grad_() for each in (q, k, v * 1e30)]
        output = attend(*leaves, score=score, engine=Tiled(kernels=kernels))
        found.append(torch.autograd.grad(output.sum(), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other / one.abs().max(), one / one.abs().max(), rtol=0, atol=1e-5)
