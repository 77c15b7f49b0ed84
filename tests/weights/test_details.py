"""Details of rules at their edges."""

import itertools

import pytest
import torch

from regard import Causal, Conic, Dot, Entmax, OnePass, Softmax, TopK, Weights, attend, partial, plan, weigh
from regard.engines import Tiled
from regard.weights.rule import Peak
from regard.weights.topk import best_k


class Softplus(OnePass):
    kind, normalized = "convex", True

    def numerators(self, scores, peak):
        return torch.nn.functional.softplus(scores)


def test_a_rule_without_a_slope_gets_it_by_autograd():
    q, k = torch.randn(9, 3).double().requires_grad_(), torch.randn(11, 3).double()
    gradients = [
        torch.autograd.grad(attend(q, k, k, weights=Softplus(), engine=engine).square().sum(), q)[0]
        for engine in ("reference", Tiled(64))
    ]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().sum() > 0


def test_a_rule_with_passes_and_no_slope_says_so_when_a_gradient_is_asked_for():
    class Top(Weights):
        def define(self, scores):
            return (scores >= scores.amax(-1, keepdim=True)).to(scores.dtype)

        def solve(self, fold):
            return fold(Peak())

        def weights(self, scores, statistics, columns):
            return (scores >= statistics[0]).to(scores.dtype)

    q = torch.randn(9, 3, requires_grad=True)
    output = attend(q, q, q, weights=Top(), engine=Tiled(64))
    with pytest.raises(NotImplementedError, match="Top must define slope"):
        output.sum().backward()


@pytest.mark.parametrize("engine", ["reference", Tiled(64)])
def test_a_conic_weight_of_zero_has_no_slope(engine):
    q = torch.tensor([[1.0, 0.0]], requires_grad=True)
    attend(
        q, torch.tensor([[0.0, 1.0]]), torch.ones(1, 1), score=Dot(), weights=Conic(), engine=engine
    ).sum().backward()
    assert q.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("engine", ["reference", Tiled(64)])
def test_a_sink_of_minus_infinity_is_no_sink(engine):
    q, k = torch.randn(3, 4), torch.randn(5, 4)
    rule = Softmax(sink=-torch.inf)
    torch.testing.assert_close(attend(q, k, k, weights=rule, engine=engine), attend(q, k, k))
    assert attend(q, k[:0], k[:0], weights=rule, engine=engine).tolist() == [[0.0] * 4] * 3
    assert weigh(q, k, k, weights=rule).log_normalizer().isfinite().all()


class Sharp(OnePass):
    """A rule that learns how sharp it is."""

    kind, normalized = "convex", True

    def __init__(self):
        super().__init__()
        self.sharpness = torch.nn.Parameter(torch.tensor(1.5).double())

    def numerators(self, scores, peak):
        return torch.nn.functional.softplus(self.sharpness * scores)


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "over the k best"])
@pytest.mark.parametrize("engine", ["reference", Tiled(64)])
def test_what_a_users_rule_learns_gets_its_gradient(engine, wrapped):
    q, k = torch.randn(9, 3).double(), torch.randn(11, 3).double()
    rule = Sharp()
    attend(
        q, k, k, weights=TopK(5, then=rule) if wrapped else rule, mask=Causal(align="end"), engine=engine
    ).square().sum().backward()
    sharpness = torch.tensor(1.5).double().requires_grad_()
    scores = (q @ k.mT / 3**0.5).masked_fill(~torch.ones(9, 11).tril(2).bool(), -torch.inf)
    if wrapped:
        fifth = scores.topk(5, -1).values[:, -1:]
        scores = scores.masked_fill(scores < fifth, -torch.inf)
    numerators = torch.nn.functional.softplus(sharpness * scores.masked_fill(scores == -torch.inf, 0)) * (
        scores > -torch.inf
    )
    (numerators / numerators.sum(-1, keepdim=True) @ k).square().sum().backward()
    torch.testing.assert_close(rule.sharpness.grad, sharpness.grad)


def test_what_a_users_rule_learns_gets_a_second_derivative_and_merges():
    q, k = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    rule = Sharp()

    def run(sharpness):
        return torch.func.functional_call(_Attending(rule, q, k), {"rule.sharpness": sharpness}, ())

    assert torch.autograd.gradcheck(run, (rule.sharpness,))
    assert torch.autograd.gradgradcheck(run, (rule.sharpness,))
    partial(q, k[:2], k[:2], weights=rule).merge(
        partial(q, k[2:], k[2:], weights=rule)
    ).finish().square().sum().backward()
    merged, rule.sharpness.grad = rule.sharpness.grad, None
    attend(q, k, k, weights=rule, engine="reference").square().sum().backward()
    torch.testing.assert_close(merged, rule.sharpness.grad)


class _Attending(torch.nn.Module):
    def __init__(self, rule, q, k):
        super().__init__()
        self.rule, self.q, self.k = rule, q, k

    def forward(self):
        return attend(self.q, self.k, self.k, weights=self.rule, engine=Tiled(64))


def test_parameters_that_a_rule_does_not_name_keep_tiles_away():
    class Quiet(Weights):
        def __init__(self):
            super().__init__()
            self.t = torch.nn.Parameter(torch.tensor(1.0))

        def define(self, scores):
            return self.t * (scores >= scores.amax(-1, keepdim=True)).to(scores.dtype)

        def solve(self, fold):
            return fold(Peak())

        def weights(self, scores, statistics, columns):
            return self.t * (scores >= statistics[0]).to(scores.dtype)

    x = torch.randn(300, 3)
    made = plan(x, x, x, weights=Quiet())
    assert made.engine == "reference"
    assert made.refusals["tiled"] == ("Quiet has parameters that its learned() does not name",)


@pytest.mark.parametrize("numerators", [lambda s: torch.sigmoid(s) + 0.1, torch.cosh], ids=["sigmoid", "cosh"])
@pytest.mark.parametrize("engine", ["reference", Tiled(64)])
def test_a_users_numerators_never_count_where_the_mask_says_no(engine, numerators):
    rule = type(
        "Mine", (OnePass,), {"kind": "convex", "normalized": True, "numerators": lambda self, s, peak: numerators(s)}
    )()
    x = torch.randn(7, 3).double().requires_grad_()
    (gradient,) = torch.autograd.grad(attend(x, x, x, weights=rule, mask=Causal(), engine=engine).square().sum(), x)
    weights = numerators(x @ x.mT / 3**0.5) * torch.ones(7, 7).tril()
    (expected,) = torch.autograd.grad((weights / weights.sum(-1, keepdim=True) @ x).square().sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_nan_and_infinity_rank_alike_the_lowest_index_first():
    scores = torch.tensor([[1.0, torch.inf, torch.nan, 2.0, -torch.nan, torch.inf]])
    for k in (2, 3, 5, 9):
        assert best_k(scores, k)[1][0, :4].tolist() == [1, 2, 4, 5][: min(k, 4)]


@pytest.mark.parametrize(
    ("alpha", "bound"), [(1.2, 2e-6), (1.5, 2e-6), (2.0, 2e-6), (2.5, 2e-3), (3.0, 2e-3), (4.0, 0.1)]
)
@pytest.mark.parametrize(
    "engine", ["reference", Tiled(kernels=False), Tiled(kernels=True)], ids=["dense", "tiled", "kernels"]
)
def test_gradients_of_entmax_in_float32_are_as_close_to_float64_as_it_says(alpha, bound, engine):
    for seed, scale in itertools.product(range(4), (0.3, 1.0, 3.0)):
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(n, 16, generator=generator) for n in (32, 64, 64)]
        drawn[0] *= scale
        outputs, gradients = [], []
        for dtype, how in ((torch.float32, engine), (torch.float64, "reference")):
            tensors = [each.to(dtype).requires_grad_() for each in drawn]
            outputs.append(attend(*tensors, weights=Entmax(alpha), engine=how))
            gradients.append(torch.autograd.grad((outputs[-1] * torch.arange(16.0).to(dtype)).sum(), tensors))
        torch.testing.assert_close(
            outputs[0].double(), outputs[1], rtol=0, atol=1e-5 * float(outputs[1].detach().abs().amax())
        )
        for found, wanted in zip(*gradients, strict=True):
            assert (found.double() - wanted).norm() <= bound * wanted.norm()
