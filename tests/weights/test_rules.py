"""Every rule against its formula, row by row in plain Python, and through every tile-wise route."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

import regard
from regard import Additive, Bias, Custom, Dot, Gaussian, SoftCap, Uniform, attend, weigh
from regard.engines import Tiled
from regard.weights import entmax, one_hot, proportional, softmax, sparsemax, top_k

INF = math.inf


def allowed(row):
    return [place for place, score in enumerate(row) if score != -INF]


def spread(row, weights):
    """The weights of the allowed keys, with zeros for the others."""
    result = [0.0] * len(row)
    for place, weight in zip(allowed(row), weights, strict=True):
        result[place] = weight
    return result


def by_softmax(row, temperature=1.0, sink=None):
    scores = [row[place] / temperature for place in allowed(row)]
    top = max([*scores, sink if sink is not None else -INF], default=0.0)
    numerators = [math.exp(score - top) for score in scores]
    total = sum(numerators) + (math.exp(sink - top) if sink is not None else 0.0)
    return spread(row, [each / total for each in numerators])


def by_proportion(row):
    total = sum(row[place] for place in allowed(row))
    return spread(row, [row[place] / total if total else 0.0 for place in allowed(row)])


def by_entmax(row, alpha):
    """Entmax by bisection of its threshold."""
    scores = [(alpha - 1) * row[place] for place in allowed(row)]
    if not scores:
        return spread(row, [])
    low, high = max(scores) - 1, max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(max(score - middle, 0.0) ** (1 / (alpha - 1)) for score in scores)
        low, high = (middle, high) if total >= 1 else (low, middle)
    return spread(row, [max(score - low, 0.0) ** (1 / (alpha - 1)) for score in scores])


def by_one_hot(row):
    best = max(allowed(row), key=lambda place: (row[place], -place), default=None)
    return [float(place == best) for place in range(len(row))]


def by_top_k(row, k, then):
    chosen = sorted(allowed(row), key=lambda place: (-row[place], place))[:k]
    return then([score if place in chosen else -INF for place, score in enumerate(row)])


def by_count(row):
    return spread(row, [1 / len(allowed(row)) for _ in allowed(row)])


def elementwise(function):
    return lambda row: [0.0 if score == -INF else function(score) for score in row]


RULES = {
    "softmax": (regard.Softmax(), by_softmax),
    "softmax-temperature": (regard.Softmax(temperature=0.4), partial(by_softmax, temperature=0.4)),
    "softmax-sink": (regard.Softmax(sink=0.3), partial(by_softmax, sink=0.3)),
    "softmax-both": (regard.Softmax(temperature=2.0, sink=-0.3), partial(by_softmax, temperature=2.0, sink=-0.3)),
    "proportional": (regard.Proportional(), by_proportion),
    "conic": (regard.Conic(), elementwise(lambda score: max(score, 0.0))),
    "raw": (regard.Raw(), elementwise(lambda score: score)),
    "sigmoid": (regard.Sigmoid(), elementwise(lambda score: 1 / (1 + math.exp(-score)))),
    "one-hot": (regard.OneHot(), by_one_hot),
    "uniform": (regard.Uniform(), by_count),
    "sparsemax": (regard.Sparsemax(), partial(by_entmax, alpha=2.0)),
    "entmax-1.05": (regard.Entmax(1.05), partial(by_entmax, alpha=1.05)),
    "entmax-1.5": (regard.Entmax(), partial(by_entmax, alpha=1.5)),
    "entmax-3": (regard.Entmax(3.0), partial(by_entmax, alpha=3.0)),
    "entmax-4": (regard.Entmax(4.0), partial(by_entmax, alpha=4.0)),
    "top-k": (regard.TopK(3), partial(by_top_k, k=3, then=by_softmax)),
    "top-k-sparsemax": (regard.TopK(3, regard.Sparsemax()), partial(by_top_k, k=3, then=partial(by_entmax, alpha=2.0))),
    "top-k-uniform": (
        regard.TopK(2, regard.Uniform()),
        partial(by_top_k, k=2, then=by_count),
    ),
    "top-1": (regard.TopK(1, regard.Raw()), partial(by_top_k, k=1, then=elementwise(lambda score: score))),
}


def scores_for(name: str) -> torch.Tensor:
    """Rows with ties, with some keys not allowed, with one allowed, and with none."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, 23, dtype=torch.float64, generator=generator) * 1.5
    scores[3, 0] = -0.5
    scores = scores.abs() if name == "proportional" else scores
    scores[1] = torch.randint(0, 3, (23,), generator=generator)
    scores[2, ::2] = -INF
    scores[3, 1:] = -INF
    scores[4] = -INF
    scores[5] = 0
    scores[6] *= 100
    return scores


def expected_for(name: str, scores: torch.Tensor) -> torch.Tensor:
    return torch.tensor([RULES[name][1](row) for row in scores.tolist()], dtype=torch.float64)


@pytest.mark.parametrize("name", RULES)
def test_the_definition_is_the_formula(name):
    scores = scores_for(name)
    torch.testing.assert_close(RULES[name][0](scores), expected_for(name, scores), atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", RULES)
def test_an_allowed_argument_is_the_same_as_minus_infinity(name):
    scores = scores_for(name)
    seen = torch.rand(12, 23, generator=torch.Generator().manual_seed(1)) < 0.5
    hidden = scores.masked_fill(~seen, -INF)
    assert torch.equal(RULES[name][0](scores, seen), RULES[name][0](hidden))


@pytest.mark.parametrize("engine", ["reference", Tiled(tile_elements=64)])
@pytest.mark.parametrize("name", RULES)
def test_attention_pools_by_the_formula(name, engine):
    scores = scores_for(name)
    rows, columns = (torch.arange(size, dtype=torch.float64)[:, None] for size in scores.shape)
    score = Custom(lambda q, k: scores[q[:, 0].long()][:, k[:, 0].long()])
    values = torch.randn(23, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = expected_for(name, scores)
    output = attend(rows, columns, values, score=score, weights=RULES[name][0], engine=engine)
    torch.testing.assert_close(output, expected @ values, atol=1e-8, rtol=1e-7)
    view = weigh(rows, columns, values, score=score, weights=RULES[name][0], engine=engine)
    torch.testing.assert_close(view.tile(slice(0, 12), slice(3, 20)), expected[:, 3:20], atol=1e-9, rtol=1e-7)


FUNCTIONS = {
    "softmax": softmax,
    "softmax-sink": partial(softmax, sink=torch.tensor(0.3, dtype=torch.float64)),
    "proportional": proportional,
    "sparsemax": sparsemax,
    "entmax-1.5": entmax,
    "entmax-3": partial(entmax, alpha=3.0),
    "one-hot": one_hot,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_of_each_rule_is_the_rule(name):
    scores = scores_for(name)
    seen = torch.rand(12, 23, generator=torch.Generator().manual_seed(1)) < 0.5
    assert torch.equal(FUNCTIONS[name](scores, seen), RULES[name][0](scores, seen))


def test_one_hot_takes_the_lowest_index_among_equal_scores_of_different_tiles():
    # Every key scores 1, though no two are equal: only the index tells them apart.
    keys = torch.eye(8, dtype=torch.float64)
    queries, values = torch.ones(3, 8, dtype=torch.float64), torch.arange(8.0, dtype=torch.float64).unsqueeze(-1)
    for engine in ("reference", Tiled(tile_elements=6, kernels=False)):
        output = attend(queries, keys, values, score=regard.Dot(), weights=regard.OneHot(), engine=engine)
        torch.testing.assert_close(output, torch.zeros(3, 1, dtype=torch.float64))


def test_top_k_names_the_best_keys_lowest_first_among_equals():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0], [5.0, -INF, -INF, 1.0], [0.0, 0.0, 0.0, 0.0]])
    expected = [[False, True, True, False], [True, False, False, True], [True, True, False, False]]
    assert top_k(scores, 2).tolist() == expected
    seen = torch.tensor([True, False, True, True])
    assert top_k(scores, 3, seen).tolist()[0] == [True, False, True, True]
    assert top_k(scores, 9).tolist()[1] == [True, False, False, True]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_keys_at_all_give_empty_rows(name):
    assert FUNCTIONS[name](torch.zeros(3, 0)).shape == (3, 0)


@pytest.mark.parametrize("name", RULES)
def test_every_kind_is_what_the_weights_show(name):
    rule, scores = RULES[name][0], scores_for(name)
    weights, sums = rule(scores), rule(scores).sum(-1)
    assert (rule.kind == "linear") == bool((weights < 0).any())
    if rule.kind in ("convex", "one-hot", "uniform"):
        # Row 4 allows nothing; the scores of row 5 sum to 0.
        nothing = [4, 5] if name == "proportional" else [4]
        torch.testing.assert_close(sums, torch.ones(12).double().index_fill(0, torch.tensor(nothing), 0))
    elif rule.kind == "conic":
        assert not torch.allclose(sums[sums != 0], torch.ones(()).double())


RULES_THAT_NORMALISE = [regard.Softmax(), regard.Softmax(sink=0.5), regard.Proportional(), regard.Entmax()]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("rule", [*RULES_THAT_NORMALISE, regard.TopK(2)], ids=repr)
def test_a_score_that_is_not_finite_gives_no_weight_to_a_key_that_is_not_allowed(rule, bad):
    weights = rule(torch.tensor([[bad, 1.0, 2.0, 0.5]]), torch.tensor([[True, True, True, False]]))
    assert weights[0, 0].isnan()
    assert weights[0, 3] == 0


UNSCORED = {"reference": "reference", "tiled": Tiled(tile_elements=64, kernels=False), "kernels": Tiled(kernels=True)}


@pytest.mark.parametrize("engine", UNSCORED)
@pytest.mark.parametrize("score", [Dot(), Dot() + Gaussian(1.0), Additive(2, 2, 3), SoftCap(-1e30 * Dot(), 3.0)])
def test_uniform_counts_every_allowed_key_though_its_score_overflows(score, engine):
    queries = torch.tensor([[1e30, 1e30], [1.0, 1.0]], requires_grad=True)
    keys = torch.tensor([[-1e30, -1e30], [1.0, 1.0], [1e30, 1e30]], requires_grad=True)
    values = torch.tensor([[3.0], [6.0], [12.0]], requires_grad=True)
    output = attend(queries, keys, values, score=score, weights=Uniform(), engine=UNSCORED[engine])
    torch.testing.assert_close(output, torch.full((2, 1), 7.0))
    found = torch.autograd.grad(output.sum(), (queries, keys, values, *score.parameters()))
    assert all(torch.equal(each, torch.zeros_like(each)) for each in (*found[:2], *found[3:]))
    torch.testing.assert_close(found[2], torch.full((3, 1), 2 / 3))
    biased = score + Bias(torch.tensor([[0.0, -torch.inf, 0.0]]))
    output = attend(queries, keys, values, score=biased, weights=Uniform(), engine=UNSCORED[engine])
    torch.testing.assert_close(output, torch.full((2, 1), 7.5))


@pytest.mark.parametrize("engine", UNSCORED)
def test_uniform_counts_every_allowed_key_though_its_biases_add_up_to_infinity(engine):
    low = Bias(torch.tensor([[-3e38, -torch.inf, -3e38]]))
    values = torch.tensor([[3.0], [6.0], [12.0]])
    score = Dot() + low + low
    output = attend(torch.ones(2, 2), torch.ones(3, 2), values, score=score, weights=Uniform(), engine=UNSCORED[engine])
    torch.testing.assert_close(output, torch.full((2, 1), 7.5))


def test_uniform_asks_a_function_of_your_own_whom_it_excludes():
    score = Custom(lambda q, k: torch.where(k.mT > 1, q @ k.mT, -torch.inf)) + Dot()
    keys = torch.tensor([[1.0], [2.0], [3.0]])
    for engine in ("reference", "tiled"):
        assert attend(torch.ones(1, 1), keys, keys, score=score, weights=Uniform(), engine=engine).item() == 2.5


@pytest.mark.parametrize(
    "engine", ["reference", Tiled(kernels=False), Tiled(kernels=True)], ids=["reference", "tiled", "kernels"]
)
def test_the_k_best_of_fewer_keys_take_the_room_of_those(engine):
    queries, keys = torch.rand(3, 4), torch.rand(7, 4, requires_grad=True)
    rule = regard.TopK(10**12, regard.Softmax(temperature=torch.nn.Parameter(torch.tensor(2.0))))
    output = attend(queries, keys, keys, weights=rule, engine=engine)
    torch.testing.assert_close(output, attend(queries, keys, keys, weights=regard.Softmax(2.0)))
    output.sum().backward()
    assert rule.then.temperature.grad is not None
    assert regard.weigh(queries, keys, keys, weights=rule).top(7).indices.shape == (3, 7)


@pytest.mark.parametrize("engine", ["reference", Tiled(kernels=False), Tiled(kernels=True), None])
def test_one_hot_of_a_key_that_is_nan_is_nan_where_it_is_seen(engine):
    q, k, v = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 2)
    k[2] = torch.nan
    output = attend(q, k, v, weights=regard.OneHot(), mask=regard.Causal(), engine=engine)
    assert output[:2].isfinite().all()
    assert output[2].isnan().all()
