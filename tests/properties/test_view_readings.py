"""Every reading of a view comes from the same weights: any score, rule, mask, size of scores, engine and route."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import Allowed, Causal, Custom, Dot, Gaussian, Window, weigh
from regard.engines import Tiled
from regard.errors import EngineRefusal

DIM = 5
RULES = {
    "softmax": regard.Softmax(),
    "temperature": regard.Softmax(temperature=0.3),
    "sink": regard.Softmax(sink=0.5),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "top-k": regard.TopK(3),
    "top-k of sparsemax": regard.TopK(4, regard.Sparsemax()),
    "one-hot": regard.OneHot(),
    "uniform": regard.Uniform(),
    "proportional": regard.Proportional(),
    "raw": regard.Raw(),
    "conic": regard.Conic(),
    "sigmoid": regard.Sigmoid(),
}
SCORES = {
    "dot": Dot(),
    "gaussian": Gaussian(1.0),
    "laplacian": regard.Laplacian(1.0),
    "triangular": regard.Triangular(2.0),
    "cosine": regard.Cosine(),
    "capped": regard.SoftCap(Dot(), 30.0),
    "additive": regard.Additive(DIM, DIM, 7),
    "gated": regard.Gated(DIM, DIM),
    "sum": Dot() + Gaussian(1.0),
    "custom": Custom(lambda queries, keys: queries @ keys.mT),
}
MASKS = {
    "none": lambda n, m: None,
    "causal": lambda n, m: Causal(align="start"),
    "window": lambda n, m: Window(before=4, after=2, align="start"),
    "holes": lambda n, m: Allowed(torch.rand(n, m) < 0.6),
    "few": lambda n, m: regard.Selected(torch.randint(m, (n, 2))),
}
ENGINES = {
    "kernels": Tiled(kernels=True),
    "plain": Tiled(kernels=False),
    "small tiles": Tiled(64, kernels=False),
    "chosen": None,
    "reference": "reference",
}


def close(reading: Tensor, expected: Tensor, scale: float) -> None:
    """Equal, to the rounding of a float32 that is as large as the largest weight."""
    torch.testing.assert_close(reading.detach().double(), expected, rtol=0, atol=2e-5 * scale)


@settings(max_examples=150)
@given(
    score=st.sampled_from(sorted(SCORES)),
    rule=st.sampled_from(sorted(RULES)),
    mask=st.sampled_from(sorted(MASKS)),
    engine=st.sampled_from(sorted(ENGINES)),
    exponent=st.integers(-8, 8),
    n_queries=st.integers(1, 40),
    n_keys=st.integers(1, 70),
    batch=st.sampled_from([(), (2,)]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float64, torch.bfloat16]),
    grad=st.booleans(),
    whole=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_reading_comes_from_the_same_weights(
    score, rule, mask, engine, exponent, n_queries, n_keys, batch, dtype, grad, whole, seed
):
    assume(rule != "proportional" or score == "triangular")
    torch.manual_seed(seed)
    size = 10.0 ** (exponent / 2)  # of queries and keys: their product has 10 ** exponent
    queries, keys, values = (
        torch.randn(*batch, n, dim).mul(factor)
        for n, dim, factor in ((n_queries, DIM, size), (n_keys, DIM, size), (n_keys, 2, 1.0))
    )
    if whole:  # ties
        queries, keys = queries.round(), keys.round()
    queries, keys, values = (each.to(dtype).requires_grad_(grad) for each in (queries, keys, values))
    try:
        view = weigh(
            queries,
            keys,
            values,
            score=SCORES[score].to(dtype),
            weights=RULES[rule],
            mask=MASKS[mask](n_queries, n_keys),
            engine=ENGINES[engine],
        )
    except EngineRefusal:
        assert engine == "kernels"
        reject()
    rows, columns = slice(n_queries // 3, n_queries // 3 + 5), slice(n_keys // 3, n_keys // 3 + 9)
    some = torch.randint(n_queries, (3,))
    readings = [
        ("tile", lambda: view.tile(slice(None), slice(None)), lambda alpha: alpha),
        ("a part", lambda: view.tile(rows, columns), lambda alpha: alpha[..., rows, columns]),
        ("rows", lambda: view.rows(some), lambda alpha: alpha[..., some, :]),
        ("map", lambda: view.map(n_queries, n_keys), lambda alpha: alpha),
        ("means", lambda: view.map(1, 1, pool="mean"), lambda alpha: alpha.mean((-1, -2), keepdim=True)),
        ("largest", lambda: view.map(n_queries, n_keys, pool="max"), lambda alpha: alpha),
        ("top", lambda: spread(view.top(n_keys), n_keys), lambda alpha: alpha),
        ("received", lambda: view.received() / n_queries, lambda alpha: alpha.sum(-2) / n_queries),
        ("output", lambda: view.output, lambda alpha: alpha @ values.detach().double()),
    ]
    convex = view.kind in ("convex", "one-hot", "uniform")
    if convex:
        readings.append(("entropy", view.entropy, lambda alpha: -torch.xlogy(alpha, alpha).sum(-1)))
    # In any order: some find the statistics of rows in the same pass, others begin with what was found before.
    first = seed % len(readings)
    found = [(name, read(), expected) for name, read, expected in (*readings[first:], *readings[:first])]
    weights = view.dense().detach()
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    weights = weights.double()
    scale = max(1.0, largest(weights))
    for name, reading, expected in found:
        wanted = expected(weights)
        if name == "output":  # which has the dtype of the inputs
            torch.testing.assert_close(reading.detach().double(), wanted, rtol=2**-7, atol=2**-8 * largest(wanted))
            wanted = wanted.to(dtype).double() if dtype != torch.bfloat16 else reading.detach().double()
        close(reading, wanted, 4 * max(scale, largest(wanted)))
        assert name == "output" or reading.dtype == view.dense().dtype
    if convex:
        total = weights.sum(-1)
        close(total, torch.where(total == 0, 0.0, 1.0).double(), 1.0)


def largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def spread(top, n_keys: int) -> Tensor:
    """The heaviest weights, where they belong."""
    places = torch.where(top.indices < 0, n_keys, top.indices)
    return top.weights.new_zeros(*top.weights.shape[:-1], n_keys + 1).scatter(-1, places, top.weights)[..., :n_keys]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", ["softmax", "entmax"])
@pytest.mark.parametrize("score", ["dot", "gaussian"])
def test_weights_of_large_scores_sum_to_one_in_every_reading(score, rule, engine, grad):
    torch.manual_seed(0)
    size = 1e4 if score == "dot" else 500.0  # scores of 1e8, and distances of hundreds of bandwidths
    queries, keys, values = (size * torch.randn(300, 16, requires_grad=grad) for _ in range(3))
    view = weigh(queries, keys, values, score=SCORES[score], weights=RULES[rule], engine=ENGINES[engine])
    ones = torch.ones(300).double()
    readings = {
        "tile": view.tile(slice(None), slice(None)),
        "half": torch.cat([view.tile(slice(None), slice(170)), view.tile(slice(None), slice(170, None))], -1),
        "map": view.map(300, 300),
        "largest": view.map(300, 300, pool="max"),
        "rows": view.rows(list(range(300))),
        "top": view.top(300).weights,
        "dense": view.dense(),
    }
    for reading in readings.values():
        close(reading.sum(-1), ones, 1.0)
    close(view.received().sum() / 300, ones[0], 1.0)
    close(view.output / size, view.dense().detach().double() @ values.detach().double() / size, 10.0)
    assert float(view.entropy().detach().max()) <= math.log(300) + 1e-5


@pytest.mark.parametrize("engine", ENGINES)
def test_the_log_normalizer_of_large_scores_is_that_of_the_weights(engine):
    torch.manual_seed(0)
    queries, keys = 500 * torch.randn(100, 16), 500 * torch.randn(80, 16)
    view = weigh(queries, keys, keys, score=Gaussian(1.0), engine=ENGINES[engine])
    best = -torch.cdist(queries.double(), keys.double()).square() / 2
    expected = best.logsumexp(-1)
    torch.testing.assert_close(view.log_normalizer().double(), expected, rtol=1e-6, atol=0)
