"""Gradients of every score under every rule against difference quotients, learned parameters included."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import regard
from regard import Allowed, Causal, attend
from regard.engines import Reference, Sdpa, Tiled

# Tiles of 8 × 8 at most, so that 9 keys are two tiles.
ENGINES = {"reference": Reference(), "tiled": Tiled(tile_elements=64)}
N_QUERIES, N_KEYS = 3, 9


def learned(*numbers: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(numbers if len(numbers) > 1 else numbers[0], dtype=torch.float64))


SCORES = {
    "dot": regard.Dot,
    "scaled-dot": regard.ScaledDot,
    "multiplicative": lambda: regard.Multiplicative(2, 2),
    "additive": lambda: regard.Additive(2, 2, 2),
    "gated": lambda: regard.Gated(2, 2),
    "cosine": lambda: regard.Cosine(learned(0.7)),
    "gaussian-folded": lambda: regard.Gaussian(learned(1.1, 0.8)),
    "gaussian-far": lambda: regard.Gaussian(learned(0.1)),
    "laplacian": lambda: regard.Laplacian(learned(0.8)),
    "epanechnikov": lambda: regard.Epanechnikov(learned(2.5)),
    "triangular": lambda: regard.Triangular(learned(2.5)),
    "soft-cap": lambda: regard.SoftCap(regard.Dot(), 1.5),
    "bias": lambda: regard.Dot() + regard.Bias(nn.Parameter(drawn(N_QUERIES, N_KEYS, seed=9))),
    "alibi": lambda: regard.Dot() + regard.Alibi(learned(0.3), align="end"),
    "relative-bias": lambda: regard.Dot() + regard.RelativeBias(2, align="end"),
    "sum-on-columns": lambda: 0.5 * regard.Dot().on([0]) + regard.Gaussian(learned(0.9)).on([1]),
    "custom": lambda: regard.Custom(_Pairs()),
}

RULES = {
    "softmax": regard.Softmax,
    "softmax-learned": lambda: regard.Softmax(temperature=learned(0.8), sink=learned(0.2)),
    "proportional": regard.Proportional,
    "conic": regard.Conic,
    "raw": regard.Raw,
    "sigmoid": regard.Sigmoid,
    "sparsemax": regard.Sparsemax,
    "entmax-learned": lambda: regard.Entmax(learned(1.4)),
    "top-k": lambda: regard.TopK(4, regard.Softmax(sink=learned(-0.5))),
}

POSITIVE = ("epanechnikov", "triangular")  # the scores that Proportional takes


class _Pairs(nn.Module):
    """A user's function with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.power = learned(0.6)

    def forward(self, q, k):
        return self.power * torch.sin(q @ k.mT)


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def function_of(score, rule, engine, mask=None):
    """Attention as a function of queries, keys, values and every learned parameter; and those tensors."""
    score, rule = score.double(), rule.double()
    parameters = [*score.parameters(), *rule.parameters()]
    for seed, each in enumerate(parameters):
        if not bool(each.any()):  # a bias that starts at zero has a special place
            each.data.copy_(0.3 * drawn(*each.shape, seed=20 + seed))

    def function(queries, keys, values, *_):
        return attend(queries, keys, values, score=score, weights=rule, engine=engine, mask=mask)

    inputs = (drawn(N_QUERIES, 2, seed=0), drawn(N_KEYS, 2, seed=1), drawn(N_KEYS, 2, seed=2))
    return function, (*(each.requires_grad_() for each in inputs), *parameters)


PAIRS = [pair for pair in itertools.product(SCORES, RULES) if pair[1] != "proportional" or pair[0] in POSITIVE]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("score", "rule"), PAIRS)
def test_gradients_match_difference_quotients(score, rule, engine):
    torch.manual_seed(0)
    function, inputs = function_of(SCORES[score](), RULES[rule](), ENGINES[engine])
    assert gradcheck(function, inputs, fast_mode=True)


SECOND = [
    *itertools.product(
        ["reference", "tiled"], ["dot", "additive", "gated", "laplacian", "custom"], ["softmax-learned"]
    ),
    *itertools.product(["reference", "tiled"], ["scaled-dot"], ["sparsemax", "entmax-learned", "sigmoid", "top-k"]),
    *itertools.product(["reference", "tiled"], ["epanechnikov"], ["proportional", "conic"]),
    *itertools.product(["reference", "tiled"], ["relative-bias", "sum-on-columns"], ["raw"]),
    *itertools.product(["sdpa"], ["dot", "multiplicative", "cosine", "gaussian-folded"], ["softmax"]),
]
ALL_ENGINES = {**ENGINES, "sdpa": Sdpa()}


@pytest.mark.parametrize(("engine", "score", "rule"), SECOND)
def test_second_gradients_match_difference_quotients(engine, score, rule):
    torch.manual_seed(0)
    function, inputs = function_of(SCORES[score](), RULES[rule](), ALL_ENGINES[engine])
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("score", ["dot", "multiplicative", "cosine", "gaussian-folded"])
def test_gradients_through_the_fused_kernels_match_difference_quotients(score):
    torch.manual_seed(0)
    function, inputs = function_of(SCORES[score](), regard.Softmax(temperature=learned(0.8)), Sdpa())
    assert gradcheck(function, inputs, fast_mode=True)


MASKS = {
    "causal": lambda: Causal(align="start"),
    "holes": lambda: Allowed(torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 0]]).bool().repeat(1, 3)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_first_and_second_gradients_under_a_mask_match_difference_quotients(engine, mask):
    function, inputs = function_of(regard.ScaledDot(), regard.Softmax(), ALL_ENGINES[engine], MASKS[mask]())
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("score", "rule"),
    [
        (regard.Boxcar(1.5), regard.Proportional()),
        (regard.Equal(), regard.Softmax()),
        (regard.Dot(), regard.OneHot()),
        (regard.Dot(), regard.Uniform()),
        (regard.Multiplicative(2, 2), regard.OneHot()),
        (regard.Dot(), regard.TopK(2, regard.Uniform())),
    ],
)
def test_what_is_flat_sends_zeros_to_queries_and_keys_not_none(score, rule, engine):
    function, (queries, keys, values, *parameters) = function_of(score, rule, ENGINES[engine])
    function(queries, keys, values).square().sum().backward()
    for each in (queries, keys, *parameters):
        assert torch.equal(each.grad, torch.zeros_like(each))
    assert values.grad.any()


@pytest.mark.parametrize("engine", [*ALL_ENGINES])
def test_one_tensor_in_every_place_gets_the_sum_of_its_gradients(engine):
    x = drawn(5, 2, seed=0).requires_grad_()
    assert gradcheck(lambda x: attend(x, x, x, engine=ALL_ENGINES[engine]), (x,))
    assert gradgradcheck(lambda x: attend(x, x, x, engine=ALL_ENGINES[engine]), (x,))


def test_a_third_derivative_of_tiles_is_refused_with_the_engine_to_use():
    x = drawn(5, 2, seed=0).requires_grad_()
    (first,) = torch.autograd.grad(attend(x, x, x, engine="tiled").square().sum(), x, create_graph=True)
    with pytest.raises(
        RuntimeError, match=r"must stop at second derivatives: got a request for a third\. Use engine=\"reference\""
    ):
        torch.autograd.grad(first.square().sum(), x, create_graph=True)
