"""torch.jit.trace: what it can record is traced, for every size; all else is refused with the reason."""

import pytest
import torch

from regard import Causal, Dot, Epanechnikov, Gaussian, Proportional, attend, nn, partial, weigh
from regard.errors import EngineRefusal
from regard.testing import RULES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


def traced(function, *inputs):
    return torch.jit.trace(function, inputs, check_trace=False)


@pytest.mark.parametrize("with_gradient", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_softmax_of_a_dot_product_is_traced_for_every_size(with_gradient, need_weights):
    layer = nn.MultiHeadAttention(16, 4, batch_first=True).eval()

    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            found = self.layer(x, x, x, need_weights=need_weights)
            return found if need_weights else found[0]

    looks = Looks()
    with torch.set_grad_enabled(with_gradient):
        trace = traced(looks, torch.rand(2, 7, 16))
        for shape in ((2, 7, 16), (3, 9, 16)):
            x = torch.rand(shape)
            torch.testing.assert_close(trace(x), looks(x))


@pytest.mark.parametrize("with_gradient", [False, True])
@pytest.mark.parametrize("rule", [name for name in RULES if name not in ("Softmax", "Softmax, temperature")])
def test_every_other_rule_is_refused_with_the_reason(rule, with_gradient):
    weights = RULES[rule]()
    score = Epanechnikov(9.0) if isinstance(weights, Proportional) else Dot()
    x = torch.rand(6, 4, requires_grad=with_gradient)
    with pytest.raises(EngineRefusal, match="torch.compile or torch.export"):
        traced(lambda x: attend(x, x, x, score=score, weights=weights), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: attend(x, x, x, mask=Causal()),
        lambda x: attend(x, x, x, dropout=0.5),
        lambda x: attend(x, x, x, score=Gaussian(1.0)),
        lambda x: attend(x, x, x, engine="reference"),
        lambda x: weigh(x, x, x).dense(),
        lambda x: partial(x, x, x).finish(),
    ],
    ids=["mask", "dropout", "distance", "reference", "view", "partial"],
)
def test_what_a_trace_would_fix_for_one_input_is_refused(function):
    with pytest.raises(EngineRefusal, match=r"Under torch\.jit\.trace"):
        traced(function, torch.rand(6, 4))
