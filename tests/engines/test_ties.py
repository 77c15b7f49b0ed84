"""Ties go to the lowest index: keys that are equal have one score, wherever they stand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard import (
    Additive,
    Alibi,
    Bias,
    Custom,
    Dot,
    Gated,
    Gaussian,
    KeyMask,
    Laplacian,
    Multiplicative,
    OneHot,
    ScaledDot,
    Score,
    SoftCap,
    TopK,
    attend,
    partial,
    weigh,
)
from regard.engines import Tiled
from regard.engines.ties import equal_keys
from regard.scores import DotForm

ENGINES = {"reference": "reference", "tiled": Tiled(tile_elements=1024, kernels=False), "kernels": Tiled(kernels=True)}
DIM = 17
SCORES = {
    "dot": ScaledDot,
    "gated": lambda: Gated(DIM, DIM),
    "capped": lambda: SoftCap(Dot(), 5.0),
    "multiplicative": lambda: Multiplicative(DIM, DIM),
    "Gaussian": lambda: Gaussian(4.0),
    "additive": lambda: Additive(DIM, DIM, 23),
    "sum": lambda: Dot() + Additive(DIM, DIM, 5),
    "function": lambda: Custom(lambda q, k: q @ k.mT),
    "biased": lambda: ScaledDot() + Bias(torch.linspace(-1, 1, 7)[:, None]),
}
KERNELS_LACK = {"additive", "sum", "function"}
CASES = [(name, engine) for name in SCORES for engine in ENGINES if engine != "kernels" or name not in KERNELS_LACK]


def drawn(n_distinct: int, n_keys: int, seed: int, dtype: torch.dtype = torch.float32):
    """Queries, keys of which each occurs several times, and for each key the place where it occurs first."""
    generator = torch.Generator().manual_seed(seed)
    queries, distinct = torch.randn(7, DIM, generator=generator), torch.randn(n_distinct, DIM, generator=generator)
    which = torch.randint(n_distinct, (n_keys,), generator=generator)
    first = torch.tensor([which.tolist().index(each) for each in which.tolist()])
    return queries.to(dtype), distinct[which].to(dtype), first


@pytest.mark.parametrize(
    ("name", "engine", "dtype"),
    [(*case, torch.float32) for case in CASES]
    + [(*case, torch.float64) for case in CASES if case[1] != "kernels"],  # which compute in float32
)
def test_one_hot_takes_the_first_of_equal_keys(name, engine, dtype):
    for seed, n_keys in enumerate((9, 17, 31, 33, 50, 97, 131, 530)):
        torch.manual_seed(seed)
        score = SCORES[name]().to(dtype)
        queries, keys, first = drawn(4, n_keys, seed, dtype)
        values = torch.arange(n_keys).to(dtype)[:, None]
        found = attend(queries, keys, values, score=score, weights=OneHot(), engine=ENGINES[engine]).flatten().long()
        assert torch.equal(found, first[found]), n_keys


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_top_k_takes_the_first_of_equal_keys(name, engine):
    for seed, n_keys in enumerate((17, 33, 50, 131, 530)):
        torch.manual_seed(seed)
        queries, keys, first = drawn(4, n_keys, seed)
        rule = TopK(3)
        view = weigh(queries, keys, keys, score=SCORES[name](), weights=rule, engine=ENGINES[engine])
        for row in view.dense().detach():
            chosen = row.nonzero().flatten()
            for group in first[chosen].unique():
                members = (first == group).nonzero().flatten()
                taken = chosen[first[chosen] == group]
                assert torch.equal(taken, members[: len(taken)]), n_keys


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["gated", "dot"])
def test_under_a_mask_it_is_the_first_of_those_that_are_allowed(name, engine):
    for seed, n_keys in enumerate((17, 33, 131)):
        queries, keys, first = drawn(3, n_keys, seed)
        allowed = torch.arange(n_keys) >= 5
        values = torch.arange(float(n_keys))[:, None]
        options = {"weights": OneHot(), "mask": KeyMask(allowed), "engine": ENGINES[engine]}
        found = attend(queries, keys, values, score=SCORES[name](), **options).flatten().long()
        for place in found:
            assert place == ((first == first[place]) & allowed).nonzero().min()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bias_that_prefers_a_later_one_of_equal_keys_is_heard(engine):
    queries, keys, _ = drawn(1, 40, 0)
    bias = torch.zeros(40)
    bias[29:31] = 1e-3
    options = {"weights": OneHot(), "engine": ENGINES[engine]}
    found = attend(queries, keys, torch.arange(40.0)[:, None], score=Gated(DIM, DIM) + Bias(bias[None]), **options)
    assert found.flatten().tolist() == [29.0] * len(queries)
    score = ScaledDot() + Alibi(0.5, align=20)
    found = attend(queries, keys, torch.arange(40.0)[:, None], score=score, **options)
    assert found.flatten().tolist() == [20.0 + row for row in range(len(queries))]


@pytest.mark.parametrize("engine", ENGINES)
def test_heads_have_equal_keys_of_their_own(engine):
    problems = [drawn(4, 33, seed) for seed in range(3)]
    queries, keys, first = (torch.stack(each) for each in zip(*problems, strict=True))
    values = torch.arange(33.0)[:, None]
    found = attend(queries, keys, values, weights=OneHot(), engine=ENGINES[engine]).squeeze(-1).long()
    assert torch.equal(found, first.gather(-1, found))


@pytest.mark.parametrize("rule", [OneHot(), TopK(2, OneHot())])
def test_equal_keys_of_several_parts_are_equal_too(rule):
    torch.manual_seed(0)
    score = Additive(DIM, DIM, 23)
    for seed in range(10):
        queries, keys, first = drawn(3, 50, seed)
        values = torch.arange(50.0)[:, None]
        parts = [partial(queries, keys[a:b], values[a:b], score=score, weights=rule) for a, b in ((0, 17), (17, 50))]
        found = parts[0].merge(parts[1]).finish().flatten().long()
        assert torch.equal(found, first[found])


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_settling_a_tie_changes_no_gradient(engine):
    queries, keys, _ = drawn(4, 33, 0, torch.float64)
    leaf = keys.clone().requires_grad_()
    score = Additive(DIM, DIM, 5).double()
    rule = TopK(3, regard.Softmax(temperature=nn.Parameter(torch.tensor(0.7, dtype=torch.float64))))
    output = attend(queries, leaf, keys, score=score, weights=rule, engine=ENGINES[engine])
    (found,) = torch.autograd.grad(output.square().sum(), leaf)
    chosen = weigh(queries, leaf, keys, score=score, weights=rule).dense().detach() > 0
    output = attend(queries, leaf, keys, score=score, weights=rule.then, mask=regard.Allowed(chosen))
    torch.testing.assert_close(found, torch.autograd.grad(output.square().sum(), leaf)[0])


def test_equal_keys_are_found():
    keys = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 4.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-0.0, 0.0, 0.0]])
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        assert equal_keys(keys.to(dtype)).tolist() == [0, 1, 0, 3, 3]
        assert equal_keys(keys[1:4].to(dtype)) is None
    assert equal_keys(torch.zeros(3, 0)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_pair_of_equal_keys_on_a_grid_is_found(dtype):
    keys = torch.randint(-3, 4, (4, 500, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    first = (keys.unsqueeze(-2) == keys.unsqueeze(-3)).all(-1).to(torch.int8).argmax(-1)
    assert torch.equal(equal_keys(keys), first)


class Placed(Score):
    """q · (k + p), with a vector p for each place: equal keys are told apart."""

    def __init__(self, n_keys: int) -> None:
        super().__init__()
        self.places = torch.randn(n_keys, DIM, generator=torch.Generator().manual_seed(1))

    def form(self, queries, keys):
        return DotForm(queries, keys + self.places)


@pytest.mark.parametrize("n_queries", [7, 600])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_score_that_tells_equal_keys_apart_is_heard(engine, n_queries):
    torch.manual_seed(0)
    queries, keys, score = torch.randn(n_queries, DIM), torch.randn(DIM).expand(100, DIM).contiguous(), Placed(100)
    found = attend(queries, keys, torch.eye(100), score=score, weights=OneHot(), engine=ENGINES[engine])
    assert torch.equal(found.argmax(-1), (queries @ (keys + score.places).mT).argmax(-1))


def test_compiled_a_sum_is_not_tied_where_one_of_its_terms_is():
    torch.manual_seed(0)
    queries, keys = torch.randn(600, 2), torch.stack([torch.ones(50), torch.randn(50)], -1)
    score = Dot().on([0]) + Laplacian(1.0).on([1])

    def look(queries, keys):
        return attend(queries, keys, torch.eye(50), score=score, weights=OneHot())

    assert torch.equal(torch.compile(look, backend="eager")(queries, keys), look(queries, keys))


@pytest.mark.parametrize("rule", [OneHot(), TopK(2)])
def test_a_recording_has_the_keys_that_were_chosen(rule):
    torch.manual_seed(0)
    layer = regard.nn.MultiHeadAttention(16, 4, batch_first=True, weights=rule)
    tokens = torch.randn(1, 600, 16)
    tokens[:, 300:] = tokens[:, :300]
    with torch.no_grad(), regard.nn.record(layer) as recording:
        _, weights = layer(tokens, tokens, tokens, average_attn_weights=False)
    torch.testing.assert_close(recording[0].dense(), weights)
    torch.testing.assert_close(recording[0].received(), weights.sum(-2))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", [OneHot(), TopK(1)], ids=["one-hot", "top-1"])
def test_a_small_bias_among_equal_keys_is_heard(rule, engine):
    queries, keys = torch.tensor([[1000.0, 0.0]]), torch.tensor([[0.0, 1000.0]]).repeat(4, 1)
    values = torch.arange(4.0)[:, None]
    for bias, best in (([0, 0.9, 0, 0], 1.0), ([0, 1e-3, 0, 1e-3], 1.0), ([-1e-3, -1e-3, -1e-3, 0], 3.0)):
        score = Dot() + Bias(torch.tensor([bias]))
        assert attend(queries, keys, values, score=score, weights=rule, engine=ENGINES[engine]).item() == best
    far = torch.tensor([[30.0, 0.0]]), torch.tensor([[0.0, 30.0]]).repeat(4, 1), values
    score = Dot() + Alibi(-1e-4, align=0)
    assert attend(*far, score=score, weights=rule, engine=ENGINES[engine]).item() == 3.0


@pytest.mark.parametrize("engine", ["reference", Tiled(tile_elements=64, kernels=False), Tiled(kernels=True)], ids=str)
def test_ties_among_keys_whose_squares_leave_float32_go_to_the_lowest_index(engine):
    for seed in range(8):
        queries, keys, first = drawn(9, 40, seed)
        options = {"score": Multiplicative(DIM, DIM), "weights": OneHot(), "engine": engine}
        places = torch.arange(40.0)[:, None]
        chosen = attend(queries * 1e3, keys * 3e19, places, **options).squeeze(-1).long()
        assert torch.equal(chosen, first[chosen])
