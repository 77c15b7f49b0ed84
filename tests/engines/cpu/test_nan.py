"""Without gradients the kernels look for NaN and infinity in what they return, not in what they are given."""

import pytest
import torch

pytest.importorskip("numba")

from regard.engines import Reference, Tiled
from regard.engines.kernels.dispatch import why_unsupported
from regard.testing import SCORES, Case

MASKS = ("no mask", "Causal, end", "Allowed")
RULES = ("Softmax", "Softmax, sink", "Proportional", "Conic", "Raw", "Sigmoid", "Uniform", "Sparsemax", "TopK")


def broken_anywhere(case):
    """Problems with NaN, +inf or −inf in one entry of queries, keys or values."""
    for place in range(3):
        for value in (torch.nan, torch.inf, -torch.inf):
            problem = case.make(torch.float32)
            tensor = (problem.queries, problem.keys, problem.values)[place]
            with torch.no_grad():
                tensor[..., tensor.shape[-2] // 2, 1] = value
            yield problem


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", sorted(set(SCORES) - {"Custom", "sum of scores"}))
def test_what_is_not_finite_reaches_those_alone_who_see_it(score, rule):
    for mask in MASKS:
        case = Case(score, rule, mask)
        if case.expected_error or case.may_be_negative:
            continue
        for problem in broken_anywhere(case):
            if why_unsupported(problem):  # the contract has the table of what is
                continue
            with torch.no_grad():
                try:
                    wanted = Reference().run(problem)
                except ValueError:
                    continue  # a negative infinite score under a proportional rule
                got = Tiled(kernels=True).run(problem)
            torch.testing.assert_close(
                got, wanted, equal_nan=True, rtol=1e-4, atol=1e-4, msg=lambda text, mask=mask: f"{mask}: {text}"
            )
