"""Nothing that grows with n × m is ever allocated by `tiled`, forward or backward."""

import pytest
import torch

from regard.engines import Reference, Tiled
from regard.testing import RULES, SCORES, AllocationTrap, Case, Sizes, TooLarge

SIDE = 64
LIMIT = SIDE * SIDE // 2  # as many as the pairs of a causal mask; the fewer tiles below it, the sooner all is seen
SIZE = Sizes(batch=1, heads=1, n_queries=SIDE, n_keys=SIDE, dim=4, value_dim=4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", SCORES)
def test_tiled_allocates_nothing_that_grows_with_the_pairs(score, rule, masks):
    engine = Tiled(tile_elements=LIMIT * 4 // 5, kernels=False)
    for mask in masks:
        case = Case(score, rule, mask, size=SIZE)
        if case.expected_error or case.may_be_negative:
            continue
        problem = case.make(torch.float32)
        given = [*problem.inputs, *(() if problem.mask is None else problem.mask.tensors())]
        with AllocationTrap(LIMIT, known=given):
            engine.run(problem).sum().backward()


def test_the_trap_catches_the_reference():
    problem = Case("ScaledDot", "Softmax", "no mask", size=SIZE).make(torch.float32)
    with pytest.raises(TooLarge), AllocationTrap(LIMIT):
        Reference().run(problem)


@pytest.mark.parametrize("score", ["ScaledDot", "Additive", "Custom"])
@pytest.mark.parametrize("rule", ["Softmax", "Entmax", "TopK"])
def test_default_tiles_are_small_too(score, rule):
    side = 2400 if score == "Custom" else 1200
    size = Sizes(batch=1, heads=1, n_queries=side, n_keys=side, dim=4, value_dim=4)
    problem = Case(score, rule, "Causal, end", size=size).make(torch.float32)
    with AllocationTrap(side * side // 4):
        Tiled().run(problem).sum().backward()
