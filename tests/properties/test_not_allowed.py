"""A score of −inf means "not allowed", as a mask would: wherever it comes from, whatever follows, on every engine."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import regard
from regard import Additive, Allowed, Bias, Custom, Dot, Gated, Gaussian, RelativeBias, ScaledDot, SoftCap, attend
from regard.engines import Tiled

N, M, DIM = 6, 8, 3
ENGINES = {"reference": "reference", "tiled": Tiled(tile_elements=64, kernels=False), "kernels": Tiled(kernels=True)}
ALLOWED = torch.rand(N, M, generator=torch.Generator().manual_seed(1)) < 0.6
ALLOWED[2], ALLOWED[:, 5], ALLOWED[0] = False, False, torch.arange(M) != 5  # a query and a key without pairs
SCORES = {
    "a factor of 0": lambda term: 0.0 * (Dot() + term),
    "a negative factor": lambda term: -1.5 * (Dot() + term),
    "a cap": lambda term: SoftCap(ScaledDot() + term, 2.0),
    "a gate": lambda term: Gated(DIM, DIM, ScaledDot() + term),
    "a gate around a cap": lambda term: Gated(DIM, DIM, SoftCap(Additive(DIM, DIM, 4) + term, 2.0)),
    "another bias": lambda term: ScaledDot() + term + Bias(torch.linspace(-1, 1, M)[None]),
    "another term": lambda term: -1.0 * (SoftCap(Dot() + term, 3.0) + Gaussian(1.0)),
    "a function": lambda term: Custom(lambda q, k: q @ k.mT) + (ScaledDot() + term),
    "nothing": lambda term: ScaledDot() + term,
}
RULES = {
    "temperature": lambda: regard.Softmax(temperature=nn.Parameter(torch.tensor(0.7))),
    "sink": lambda: regard.Softmax(temperature=nn.Parameter(torch.tensor(2.0)), sink=nn.Parameter(torch.tensor(0.3))),
    "alpha": lambda: regard.Entmax(nn.Parameter(torch.tensor(1.3))),
    "entmax": lambda: regard.Entmax(1.5),
    "sigmoid": regard.Sigmoid,
    "raw": regard.Raw,
    "conic": regard.Conic,
    "uniform": regard.Uniform,
    "top-k": lambda: regard.TopK(2),
    "one-hot": regard.OneHot,
}


def inputs(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, DIM, generator=generator).to(dtype).requires_grad_() for n in (N, M, M)]


def biases(engine: str) -> tuple[Bias, Bias]:
    """What excludes pairs, and the same without: learned, so that gradients are seen, where the engine has them."""
    plain = torch.randn(N, M, generator=torch.Generator().manual_seed(2))
    both = torch.where(ALLOWED, plain, -torch.inf), plain
    first, second = both if engine == "kernels" else map(nn.Parameter, both)
    return Bias(first), Bias(second)


def cases() -> list[tuple[str, str, str]]:
    """Every score, rule and engine, but for what the kernels do not have."""
    beyond = {"another term", "a function"}
    return [
        (name, rule, engine)
        for name in SCORES
        for rule in RULES
        for engine in ENGINES
        if engine != "kernels"
        or not (name in beyond or rule == "alpha" or (name == "a gate around a cap" and rule in ("top-k", "one-hot")))
    ]


def outcome(score, rule, engine, mask=None, tensors=None):
    """The output, and the gradient of everything, by name."""
    tensors = inputs() if tensors is None else tensors
    output = attend(*tensors, score=score, weights=rule, mask=mask, engine=engine)
    learned = {**dict(score.named_parameters()), **dict(rule.named_parameters())}
    found = torch.autograd.grad(output.square().sum(), (*tensors, *learned.values()), materialize_grads=True)
    return output, dict(zip(("queries", "keys", "values", *learned), found, strict=True))


@pytest.mark.parametrize(("name", "rule", "engine"), cases())
def test_a_bias_of_minus_infinity_is_a_mask_whatever_follows(name, rule, engine):
    excluding, plain = biases(engine)
    rules = RULES[rule](), RULES[rule]()
    torch.manual_seed(0)
    scores = [SCORES[name](excluding)]
    torch.manual_seed(0)
    scores.append(SCORES[name](plain))
    # In float32 two orders of the same sums differ by more than the defaults allow; kernels have no float64.
    dtype = torch.float32 if engine == "kernels" else torch.float64
    for module in (*scores, *rules):
        module.to(dtype)
    expected, expected_gradients = outcome(scores[1], rules[0], "reference", Allowed(ALLOWED), inputs(dtype))
    output, gradients = outcome(scores[0], rules[1], ENGINES[engine], tensors=inputs(dtype))
    torch.testing.assert_close(output, expected)
    for each, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[each], msg=lambda text, each=each: f"{each}: {text}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(1, M), (N, 1)])
def test_a_bias_for_each_key_or_query_excludes_too(shape, engine):
    bias = torch.zeros(shape)
    bias.view(-1)[::2] = -torch.inf
    score = Gated(DIM, DIM, ScaledDot() + Bias(nn.Parameter(bias.clone())))
    output, gradients = outcome(score, regard.Softmax(), ENGINES[engine])
    with torch.no_grad():
        score.score.term.bias.zero_()
    expected, wanted = outcome(score, regard.Softmax(), "reference", Allowed((bias == 0).expand(N, M)))
    torch.testing.assert_close(output, expected)
    for each, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[each])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_entry_of_minus_infinity_in_a_table_of_relative_positions_excludes_that_distance(engine):
    term = RelativeBias(2, align="start")
    with torch.no_grad():
        term.table.normal_()
        term.table[3] = -torch.inf
    allowed = torch.arange(M) - torch.arange(N)[:, None] != 1
    score = Gated(DIM, DIM, -1.0 * (ScaledDot() + term))
    output, gradients = outcome(score, regard.Softmax(), ENGINES[engine])
    with torch.no_grad():
        term.table[3] = 0.0
    expected, wanted = outcome(score, regard.Softmax(), "reference", Allowed(allowed))
    torch.testing.assert_close(output, expected)
    for each, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[each])


@pytest.mark.parametrize("engine", ["reference", "tiled"])
@pytest.mark.parametrize("rule", ["temperature", "entmax", "sigmoid", "top-k"])
def test_a_function_that_returns_minus_infinity_excludes_whatever_follows(rule, engine):
    def function(queries, keys):
        scores = queries @ keys.mT
        return torch.where(scores > 0, scores, -torch.inf)

    with torch.no_grad():
        allowed = inputs()[0] @ inputs()[1].mT > 0
    torch.manual_seed(0)
    score = Gated(DIM, DIM, SoftCap(-1.0 * Custom(function), 2.0))
    torch.manual_seed(0)
    plain = Gated(DIM, DIM, SoftCap(-1.0 * Dot(), 2.0))
    output, gradients = outcome(score, RULES[rule](), ENGINES[engine])
    expected, wanted = outcome(plain, RULES[rule](), "reference", Allowed(allowed))
    torch.testing.assert_close(output, expected)
    for (each, gradient), other in zip(gradients.items(), wanted.values(), strict=True):
        torch.testing.assert_close(gradient, other, msg=lambda text, each=each: f"{each}: {text}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("other", [math.inf, math.nan])
def test_minus_infinity_and_anything_is_not_allowed(other, engine):
    excluding, plain = biases(engine)
    most = torch.where(torch.arange(M) == 5, other, 0.0)[None]  # of a key that no query may attend to
    rule = regard.Softmax(temperature=nn.Parameter(torch.tensor(0.7)))
    torch.manual_seed(0)
    score = 0.5 * Gated(DIM, DIM, SoftCap(ScaledDot() + excluding, 4.0) + Bias(most))
    torch.manual_seed(0)
    masked = 0.5 * Gated(DIM, DIM, SoftCap(ScaledDot() + plain, 4.0))
    output, gradients = outcome(score, rule, ENGINES[engine])
    expected, wanted = outcome(masked, rule, "reference", Allowed(ALLOWED))
    torch.testing.assert_close(output, expected)
    for each in ("queries", "keys", "values", "temperature"):
        torch.testing.assert_close(gradients[each], wanted[each])
    assert all(each.isfinite().all() for each in gradients.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["temperature", "sink", "entmax", "conic", "sigmoid", "one-hot", "uniform"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_key_or_value_behind_minus_infinity_is_held_back(bad, rule, engine):
    excluding, _ = biases(engine)
    clean, dirty = inputs(), inputs()
    with torch.no_grad():
        dirty[1][5], dirty[2][5], dirty[0][2] = bad, bad, bad
    score = Gated(DIM, DIM, SoftCap(ScaledDot() + excluding, 4.0))
    rule = RULES[rule]()
    expected, wanted = outcome(score, rule, "reference", tensors=clean)
    output, gradients = outcome(score, rule, ENGINES[engine], tensors=dirty)
    torch.testing.assert_close(output, expected)
    for each, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[each], msg=lambda text, each=each: f"{each}: {text}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["temperature", "sink", "entmax", "sigmoid"])
def test_second_derivatives_are_those_of_a_mask(rule, engine):
    def second(score, mask, engine):
        rule_ = RULES[rule]()
        tensors = inputs()
        output = attend(*tensors, score=score, weights=rule_, mask=mask, engine=engine)
        learned = [*tensors, *score.parameters(), *rule_.parameters()]
        first = torch.autograd.grad(output.square().sum(), learned, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), learned, materialize_grads=True)

    excluding, plain = biases(engine)
    torch.manual_seed(0)
    score = Gated(DIM, DIM, SoftCap(ScaledDot() + excluding, 4.0))
    torch.manual_seed(0)
    expected = second(Gated(DIM, DIM, SoftCap(ScaledDot() + plain, 4.0)), Allowed(ALLOWED), "reference")
    for found, wanted in zip(second(score, None, ENGINES[engine]), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_masked_score_that_overflowed_sends_no_nan_through_the_steps_that_follow(engine):
    tensors = inputs()
    with torch.no_grad():
        tensors[1][5] = 1e38  # finite, but its dot products are not
    mask = Allowed(ALLOWED & (torch.arange(M) != 5))
    rule = regard.Softmax(temperature=nn.Parameter(torch.tensor(0.7)))
    _, gradients = outcome(Gated(DIM, DIM, SoftCap(1e3 * Dot(), 5.0)), rule, ENGINES[engine], mask, tensors)
    for each, gradient in gradients.items():
        assert gradient.isfinite().all(), each


def test_a_rule_called_on_scores_of_minus_infinity_sends_its_temperature_a_finite_gradient():
    rule = regard.Softmax(temperature=nn.Parameter(torch.tensor(0.7)))
    scores = torch.tensor([[1.0, -torch.inf, 0.5]], requires_grad=True)
    rule(scores)[0, 0].backward()
    assert rule.temperature.grad.isfinite()
    assert scores.grad[0, 1] == 0


@pytest.mark.parametrize("name", ["a factor of 0", "a gate", "another term"])
def test_a_traced_call_has_the_same_meaning(name):
    torch.manual_seed(0)
    excluding, _ = biases("reference")
    score, rule = SCORES[name](excluding), RULES["temperature"]()
    expected, wanted = outcome(score, rule, "reference")
    tensors = inputs()
    output = torch.vmap(lambda q, k, v: attend(q, k, v, score=score, weights=rule))(*(each[None] for each in tensors))
    compiled = torch.compile(lambda *inputs: attend(*inputs, score=score, weights=rule), backend="aot_eager")
    for traced in (output[0], compiled(*tensors)):
        torch.testing.assert_close(traced, expected)
        found = torch.autograd.grad(traced.square().sum(), (*tensors, rule.temperature))
        for gradient, each in zip(found, ("queries", "keys", "values", "temperature"), strict=True):
            torch.testing.assert_close(gradient, wanted[each], rtol=1e-4, atol=1e-4)
