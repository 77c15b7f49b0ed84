"""What compiled kernels know: every score × rule is theirs or is named here with the reason why it is not."""

import pytest
import torch
from torch import nn

from regard import Allowed, Bias, Dot, Entmax, OnePass, ScaledDot, Softmax
from regard.engines.kernels.dispatch import why_unsupported
from regard.problem import make_problem
from regard.testing import RULES, SCORES, Case

# Scores that are sums over channels: kernels weigh them, but do not choose the best of them.
CHANNELS = {
    *("Additive", "Gated(Additive)", "Gaussian, bandwidth per dimension", "Laplacian", "Boxcar", "Epanechnikov"),
    *("Triangular", "Equal"),
}
CHOICES = {"OneHot", "TopK", "TopK(Raw)", "TopK(Sparsemax)"}
# What only plain torch computes, whatever the rule: a user's own function, and sums of scores.
UNKNOWN_SCORES = {"Custom", "sum of scores"}
UNKNOWN_RULES = {"Entmax, alpha learned"}


def is_known(score, rule):
    if rule == "Uniform" and score != "Custom":  # which asks no score but a user's function, for −inf
        return True
    return not (score in UNKNOWN_SCORES or rule in UNKNOWN_RULES or (score in CHANNELS and rule in CHOICES))


@pytest.mark.parametrize("score", SCORES)
def test_kernels_know_every_score_under_every_rule_but_those_named_here(score):
    found, wanted = {}, {}
    for rule in RULES:
        case = Case(score, rule, "no mask")
        if not case.expected_error:
            reason = why_unsupported(case.make(torch.float32))
            found[rule], wanted[rule] = reason is None, is_known(score, rule)
            assert found[rule] or reason
    assert found == wanted


class Doubled(OnePass):
    kind = "conic"

    def numerators(self, scores, peak):
        return 2 * scores


def problem(dtype=torch.float32, n_keys=5, **options):
    queries, keys, values = torch.ones(3, 4, dtype=dtype), torch.ones(n_keys, 4, dtype=dtype), torch.ones(n_keys, 2)
    options = {"score": ScaledDot(), "weights": Softmax(), **options}
    return make_problem(queries, keys, values.to(dtype), **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": torch.float64}, "float32, not float64"),
        ({"weights": Doubled()}, "do not have Doubled"),
        ({"weights": Entmax(nn.Parameter(torch.tensor(1.5)))}, "a learned alpha of Entmax"),
        ({"n_keys": 0}, "empty"),
        ({"score": Dot() + Bias(nn.Parameter(torch.zeros(3, 5)))}, "learned for each pair"),
        ({"score": Dot() + Bias(torch.zeros(3, 5)) + Bias(torch.zeros(3, 5))}, "one bias for each pair"),
    ],
)
def test_what_kernels_do_not_know_is_left_to_plain_torch_with_a_reason(options, text):
    assert text in why_unsupported(problem(**options))


def test_masks_are_no_reason():
    assert why_unsupported(problem(mask=Allowed(torch.ones(3, 5, dtype=torch.bool)))) is None
