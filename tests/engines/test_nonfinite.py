"""NaN and infinity among the inputs: every engine as the definition, in one ordinary run of it."""

from __future__ import annotations

import math

import pytest
import torch

import regard
from regard import Causal, KeyMask, attend
from regard.engines import Reference, Sdpa, Tiled, tiled
from regard.engines.cpu import missing
from regard.engines.nonfinite import pooling
from regard.problem import make_problem

N, DIM, VALUE_DIM = 12, 4, 3
ENGINES = {"plain tiles": Tiled(tile_elements=64, kernels=False), "kernels": Tiled(kernels=True), "sdpa": Sdpa()}
MASKS = {
    "no mask": None,
    "causal": Causal(),
    "key padding": KeyMask(torch.arange(N) < 9),
    "both": Causal() & KeyMask(torch.arange(N) % 4 != 1),
}
SCORES = {
    "dot": regard.ScaledDot,
    "additive": lambda: regard.Additive(DIM, DIM, 5),
    "gated": lambda: regard.Gated(DIM, DIM),
    "Gaussian": lambda: regard.Gaussian(1.5),
    "Epanechnikov": lambda: regard.Epanechnikov(3.0),
    "a bias for each key": lambda: regard.ScaledDot() + regard.Bias(torch.nn.Parameter(torch.rand(1, N))),
    "a slope": lambda: regard.Dot() + regard.Alibi(torch.nn.Parameter(torch.tensor(0.3)), align="start"),
    "a sum": lambda: regard.Dot() + 0.3 * regard.Gaussian(2.0),
}
CARRYING = sorted(set(SCORES) - {"Epanechnikov"})  # a compact kernel cuts gradients off: there the definition must say
RULES = {
    "softmax": regard.Softmax,
    "softmax, sink": lambda: regard.Softmax(sink=torch.nn.Parameter(torch.tensor(0.2))),
    "entmax": regard.Entmax,
    "entmax, learned": lambda: regard.Entmax(torch.nn.Parameter(torch.tensor(1.4))),
    "sparsemax": regard.Sparsemax,
    "top-k": lambda: regard.TopK(3),
    "top-k, sparsemax": lambda: regard.TopK(3, then=regard.Sparsemax()),
    "top-k, raw": lambda: regard.TopK(3, then=regard.Raw()),
    "sigmoid": regard.Sigmoid,
    "uniform": regard.Uniform,
    "one-hot": regard.OneHot,
    "conic": regard.Conic,
    "raw": regard.Raw,
}


def broken(change, batch=(2, 2)):
    """Queries, keys and values of which something is not finite."""
    generator = torch.Generator().manual_seed(0)
    found = [torch.randn(*batch, N, dim, generator=generator) for dim in (DIM, DIM, VALUE_DIM)]
    queries, keys, values = found
    match change:
        case "all NaN":
            return [torch.full_like(each, math.nan) for each in found]
        case "one NaN query":
            queries[..., 5, :] = math.nan
        case "one NaN key":
            keys[..., 5, :] = math.nan
        case "one NaN key of one head":
            keys[0, 1, 5, 2] = math.nan
        case "one NaN value":
            values[..., 5, :] = math.nan
        case "one component of a value":
            values[0, 0, 5, 1] = math.nan
        case "one inf value":
            values[..., 5, :] = math.inf
        case "infinities of both signs":
            values[..., 5, 0], values[..., 7, 0], values[..., 7, 1] = math.inf, -math.inf, math.inf
        case "one inf key":
            keys[..., 5, 0] = math.inf
        case "one inf query":
            queries[..., 5, 0] = -math.inf
    return found


CHANGES = (
    *("all NaN", "one NaN query", "one NaN key", "one NaN key of one head", "one NaN value"),
    *("one component of a value", "one inf value", "infinities of both signs", "one inf key", "one inf query"),
)


def kinds(tensor):
    """0 where finite, 1 for NaN, 2 and 3 for the infinities."""
    return torch.where(tensor.isnan(), 1, torch.where(tensor == math.inf, 2, torch.where(tensor == -math.inf, 3, 0)))


def outcome(engine, tensors, score, rule, mask, dropout=0.0):
    leaves = [each.clone().requires_grad_() for each in tensors]
    problem = make_problem(*leaves, score=score, weights=rule, mask=mask, dropout=dropout, seed=3)
    if not engine.accepts(problem):
        return None
    output = engine.run(problem)
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    wanted = [*leaves, *score.parameters(), *rule.parameters()]
    return output.detach(), torch.autograd.grad(output, wanted, gradient, allow_unused=True, materialize_grads=True)


def assert_same(got, wanted):
    """The same numbers; in the output the same kinds of broken ones, in gradients the same places."""
    assert torch.equal(kinds(got[0]), kinds(wanted[0]))
    for mine, theirs in zip((got[0], *got[1]), (wanted[0], *wanted[1]), strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        finite = theirs.isfinite()
        torch.testing.assert_close(mine[finite], theirs[finite], rtol=2e-4, atol=2e-4)


def compare(engine, change, score, rule, mask, **options):
    wanted = outcome(Reference(), broken(change), score, rule, mask, **options)
    got = outcome(engine, broken(change), score, rule, mask, **options)
    if got is not None:
        assert_same(got, wanted)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_rule_is_as_the_definition(engine, rule, change):
    torch.manual_seed(0)
    for mask in MASKS.values():
        compare(ENGINES[engine], change, regard.ScaledDot(), RULES[rule](), mask)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_score_is_as_the_definition(engine, score, change):
    torch.manual_seed(0)
    for mask in (None, MASKS["both"]):
        compare(ENGINES[engine], change, SCORES[score](), regard.Softmax(), mask)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rule", ["softmax", "entmax", "top-k", "sigmoid"])
def test_dropout_is_as_the_definition(rule, change):
    for engine in (ENGINES["plain tiles"], ENGINES["kernels"]):
        compare(engine, change, regard.ScaledDot(), RULES[rule](), Causal(), dropout=0.4)


@pytest.mark.parametrize("change", ["one NaN query", "one NaN key", "one NaN value", "one inf value"])
def test_the_gradient_of_a_gradient_is_as_the_definition(change):
    results = []
    for engine in ("reference", "tiled"):
        leaves = [each.double().requires_grad_() for each in broken(change)]
        output = attend(*leaves, mask=Causal(), engine=engine)
        first = torch.autograd.grad(output[..., :5, :].sum(), leaves, create_graph=True)
        some = sum(torch.where(each.isfinite(), each, 0).square().sum() for each in first)
        results.append([*first, *torch.autograd.grad(some, leaves, allow_unused=True, materialize_grads=True)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_few_rows_that_see_an_infinite_value_have_infinite_gradients():
    tensors = broken("all finite")
    tensors[2][..., -1, 0] = math.inf  # which the last query alone sees
    wanted = outcome(Reference(), tensors, regard.ScaledDot(), regard.Softmax(), Causal())
    got = outcome(ENGINES["plain tiles"], tensors, regard.ScaledDot(), regard.Softmax(), Causal())
    assert bool(wanted[1][1].isinf().any())
    for mine, theirs in zip(got[1], wanted[1], strict=True):
        assert torch.equal(kinds(mine), kinds(theirs))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("change", ["all NaN", "one NaN query", "one NaN key", "one NaN value", "one inf value"])
@pytest.mark.parametrize(("score", "rule"), [*((each, "softmax") for each in CARRYING), ("dot", "entmax")])
def test_an_engine_runs_once_and_nothing_goes_by_the_definition(monkeypatch, score, rule, change, mask):
    runs = []
    pool_stream = tiled.pool_stream

    def counted(stream):
        runs.append(stream)
        return pool_stream(stream)

    def refuse(*arguments):
        raise AssertionError("by the definition")

    monkeypatch.setattr(tiled, "pool_stream", counted)
    monkeypatch.setattr(pooling, "pool_by_strips", refuse)
    monkeypatch.setattr(pooling, "define_rows", refuse)
    monkeypatch.setattr(pooling, "INFINITE_ROWS", 0)
    torch.manual_seed(0)
    outcome(ENGINES["plain tiles"], broken(change), SCORES[score](), RULES[rule](), MASKS[mask])
    assert len(runs) <= 1
    if change == "all NaN" or (change, mask) == ("one NaN key", "no mask"):
        assert not runs  # every row is known to be NaN


@pytest.mark.skipif(missing() is not None, reason="the choice is the kernels'")
@pytest.mark.parametrize("change", ["all NaN", "one NaN query", "one NaN key", "one NaN value", "one inf value"])
def test_a_choice_of_keys_goes_to_the_kernels_whole(monkeypatch, change):
    def refuse(*arguments):
        raise AssertionError("by the definition")

    monkeypatch.setattr(pooling, "pool_by_strips", refuse)
    monkeypatch.setattr(pooling, "define_rows", refuse)
    monkeypatch.setattr(pooling, "INFINITE_ROWS", 0)
    for mask in MASKS.values():
        outcome(ENGINES["kernels"], broken(change), regard.ScaledDot(), regard.TopK(3), mask)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_no_queries_and_no_keys_are_nothing_special(sizes):
    n_queries, n_keys = sizes
    queries, keys, values = (torch.full((count, DIM), math.nan) for count in (n_queries, n_keys, n_keys))
    for mask in (None, KeyMask(torch.ones(n_keys, dtype=torch.bool))):
        output = attend(queries, keys, values, mask=mask, engine=Tiled(kernels=False))
        assert torch.equal(output, torch.zeros(n_queries, DIM))


@pytest.mark.skipif(missing() is not None, reason="it is the kernels' exponential that vanishes")
@pytest.mark.parametrize("rule", [regard.Softmax(), regard.Sigmoid()], ids=repr)
def test_a_weight_that_vanishes_in_a_kernel_but_not_by_definition_counts(rule):
    queries, keys = torch.ones(1, 1), torch.tensor([[0.0], [-95.0], [-200.0]])  # e^−95 is 5e-42; e^−200 is 0
    for place in (1, 2):
        values = torch.ones(3, 1)
        values[place] = math.nan
        wanted, *others = (
            attend(queries, keys, values, score=regard.Dot(), weights=rule, engine=engine)
            for engine in (Reference(), ENGINES["plain tiles"], ENGINES["kernels"])
        )
        assert place == 2 or isinstance(rule, regard.Sigmoid) or bool(wanted.isnan().all())
        for output in others:
            assert torch.equal(output.isnan(), wanted.isnan())


def test_a_small_weight_counts_in_half_precision():
    queries, keys = torch.zeros(1, 1), torch.tensor([[0.0], [0.0]])
    bias = torch.tensor([[0.0, -20.0]])
    values = torch.tensor([[1.0], [math.nan]])
    half = [each.to(torch.float16) for each in (queries, keys, values)]
    score = regard.Dot() + regard.Bias(bias.half())
    assert attend(*half, score=score, engine=Tiled(kernels=False)).isnan().all()
