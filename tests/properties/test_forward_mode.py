"""Tangents: forward-mode differentiation is that of the definition, whatever would run without it."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

import regard
from regard import attend, plan, weigh
from regard.errors import EngineRefusal

RULES = {
    "softmax": regard.Softmax(),
    "entmax": regard.Entmax(1.5),
    "sparsemax": regard.Sparsemax(),
    "top-k": regard.TopK(2),
    "sigmoid": regard.Sigmoid(),
    "conic": regard.Conic(),
}
STEP = 1e-5


# torch's own formulas of tangents are scripted.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 5, 8)], ids=str)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_tangent_is_the_slope_of_the_output(rule, shape):
    queries, keys, way = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with forward_ad.dual_level():
        output = attend(forward_ad.make_dual(queries, way), keys, keys, weights=rule)
        tangent = forward_ad.unpack_dual(output).tangent
    above, below = (attend(queries + side * way, keys, keys, weights=rule) for side in (STEP, -STEP))
    assert torch.allclose(tangent, (above - below) / (2 * STEP), atol=1e-7)


@pytest.mark.parametrize("engine", ["tiled", "sdpa"])
def test_an_engine_without_tangents_refuses(engine):
    x = torch.randn(3, 5, 8)
    with forward_ad.dual_level(), pytest.raises(EngineRefusal, match="no tangents"):
        attend(forward_ad.make_dual(x, x), x, x, engine=engine)


def test_a_view_is_read_inside_vmap():
    x = torch.randn(3, 5, 8)
    assert torch.allclose(torch.vmap(lambda each: weigh(each, each, each).dense())(x), weigh(x, x, x).dense())


def test_the_plan_says_that_tangents_go_by_the_definition():
    x = torch.randn(5, 8)
    with forward_ad.dual_level():
        assert plan(x, x, x).engine == "reference"
    assert plan(x, x, x).engine == "sdpa"
