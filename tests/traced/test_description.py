"""A description says all there is to a problem."""

from __future__ import annotations

import json

import pytest
import torch

from regard.engines import ENGINES
from regard.problem import make_problem
from regard.scores import ScaledDot
from regard.testing.cases import MASKS, RULES, SCORES, Sizes
from regard.traced.description import describe, rebuild
from regard.weights import OnePass, Softmax, TopK

SIZES = Sizes()
UNDESCRIBED = {"Custom", "Where"}


def problem_of(score=None, rule=None, mask=None):
    generator = torch.Generator().manual_seed(0)
    lead = SIZES.batch, SIZES.heads
    queries = torch.rand(*lead, SIZES.n_queries, SIZES.dim, generator=generator)
    keys = torch.rand(*lead, SIZES.n_keys, SIZES.dim, generator=generator)
    values = torch.rand(*lead, SIZES.n_keys, SIZES.value_dim, generator=generator)
    return make_problem(
        queries, keys, values, score=score or ScaledDot(), weights=Softmax() if rule is None else rule, mask=mask
    )


def said_of(problem):
    return describe(problem.form, problem.rule, problem.mask, 0.25, "tiled", True)


CASES = (
    [pytest.param({"score": score(SIZES)}, id=name) for name, score in SCORES.items() if name not in UNDESCRIBED]
    + [pytest.param({"rule": rule()}, id=name) for name, rule in RULES.items()]
    + [pytest.param({"mask": mask(SIZES)}, id=name) for name, mask in MASKS.items() if name not in UNDESCRIBED]
)


@pytest.mark.parametrize("parts", CASES)
def test_what_is_rebuilt_from_a_description_has_the_same_output(parts):
    problem = problem_of(**parts)
    said = said_of(problem)
    assert json.loads(said.text)["training"] is True
    again = rebuild(said)
    assert (again.dropout, again.engine, repr(again.mask)) == (0.25, "tiled", repr(problem.mask))
    other = make_problem(
        problem.queries, problem.keys, problem.values, score=problem.score, weights=again.rule, mask=again.mask
    ).around(again.form)
    assert torch.equal(ENGINES["reference"].run(other), ENGINES["reference"].run(problem))


class Doubled(OnePass):
    def numerators(self, scores, peak):
        return 2 * scores


class Warm(Softmax):
    """A subclass may be something else, whatever its parent's description says."""


@pytest.mark.parametrize("rule", [Doubled(), Warm(), TopK(2, then=Doubled())], ids=lambda rule: type(rule).__name__)
def test_a_rule_of_ones_own_has_no_description(rule):
    assert said_of(problem_of(rule=rule)) is None


@pytest.mark.parametrize("parts", [{"score": SCORES["Custom"](SIZES)}, {"mask": ~MASKS["Where"](SIZES)}], ids=str)
def test_a_users_function_has_no_description(parts):
    assert said_of(problem_of(**parts)) is None


@pytest.mark.parametrize("rule", [make() for make in RULES.values()], ids=RULES)
def test_the_layout_of_statistics_is_what_solve_gives(rule):
    scores = torch.rand(2, 3, 5, 7)

    def fold(monoid):
        return monoid.lift(scores, torch.arange(7))

    found = tuple((each.shape[-1], each.dtype) for each in rule.solve(fold))
    assert found == tuple((width, dtype or torch.float32) for width, dtype in rule.layout())
