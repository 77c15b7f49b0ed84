"""Details of rules at their edges."""

import pytest
import torch

from regard import Conic, Dot, OnePass, Softmax, Weights, attend, weigh
from regard.engines import Tiled
from regard.weights.base import Peak


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
