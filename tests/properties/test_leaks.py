"""NaN and infinity that a query may not see never reach it, forward or backward; one that sees nothing gets zeros."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import Allowed, Causal, KeyMask, NotSelf, Padding, Window, attend
from regard.engines import Tiled
from regard.grid import Grid

N, M, DIM = 5, 9, 3
GRID = Grid((), N, M)
ENGINES = {"reference": "reference", "tiled": Tiled(tile_elements=64), "sdpa": "sdpa", "planned": None}
RULES = [
    *(regard.Softmax(), regard.Softmax(sink=0.5), regard.Conic(), regard.Raw(), regard.Sigmoid(), regard.OneHot()),
    *(regard.Uniform(), regard.Sparsemax(), regard.Entmax(), regard.TopK(2)),
]
torch.manual_seed(0)
SCORES = [
    *(regard.ScaledDot(), regard.Additive(DIM, DIM, 2).double(), regard.Gated(DIM, DIM).double(), regard.Gaussian(0.9)),
    *(regard.Gaussian(1e-2), regard.Laplacian(1.0), regard.Cosine(), regard.Multiplicative(DIM, DIM).double()),
    regard.SoftCap(regard.Dot(), 2.0),
    regard.Custom(lambda q, k: -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().amax(-1)),
]
BAD = [math.nan, math.inf, -math.inf]
many = settings(max_examples=200)


def holes(seed: int) -> torch.Tensor:
    """Which pairs are allowed; some keys no query sees, some queries see no key."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(N, M, generator=generator) < 0.6
    allowed[:, torch.rand(M, generator=generator) < 0.3] = False
    allowed[torch.rand(N, generator=generator) < 0.3] = False
    return allowed


@st.composite
def masks(draw, fused: bool = False) -> regard.Mask:
    """A mask; one that the fused kernels take, if asked."""
    seed = draw(st.integers(0, 2**32))
    seen = torch.rand(M, generator=torch.Generator().manual_seed(seed)) < 0.5
    choices = [Allowed(holes(seed)), KeyMask(seen), Padding(torch.tensor(seed % M)), Causal(align="start")]
    if not fused:
        window = Window(before=seed % 3, after=0, align=seed % 7 - 3)
        choices += [window, Causal(align=seed % 7 - 3), NotSelf(align="start") & KeyMask(seen), ~KeyMask(seen) & window]
    return draw(st.sampled_from(choices))


@st.composite
def problems(draw, engine: str):
    """Clean tensors, what to poison, and how attention is to be computed."""
    fused = engine == "sdpa"
    mask = draw(masks(fused=fused))
    options = {
        "mask": mask,
        "engine": ENGINES[engine],
        "score": SCORES[0] if fused else draw(st.sampled_from(SCORES)),
        "weights": RULES[0] if fused else draw(st.sampled_from(RULES)),
    }
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    tensors = [torch.randn(n, DIM, dtype=torch.float64, generator=generator) for n in (N, M, M)]
    return tensors, mask.tile(GRID.rows, GRID.columns, GRID).expand(N, M), options, draw(st.sampled_from(BAD))


@pytest.mark.parametrize("engine", ENGINES)
@many
@given(data=st.data())
def test_what_nobody_sees_reaches_nothing_forward_or_backward(engine, data):
    tensors, allowed, options, bad = data.draw(problems(engine))
    clean = [each.clone().requires_grad_() for each in tensors]
    dirty = [each.clone() for each in tensors]
    dirty[0][~allowed.any(1)] = bad
    dirty[1][~allowed.any(0)] = bad
    dirty[2][~allowed.any(0), 0] = bad
    dirty = [each.requires_grad_() for each in dirty]
    expected, output = attend(*clean, **options), attend(*dirty, **options)
    torch.testing.assert_close(output, expected)
    cotangent = torch.randn(N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    learned = list(options["score"].parameters())
    some = {"allow_unused": True, "materialize_grads": True}
    found = torch.autograd.grad(output, [*dirty, *learned], cotangent, **some)
    wanted = torch.autograd.grad(expected, [*clean, *learned], cotangent, **some)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("engine", ENGINES)
@many
@given(data=st.data(), place=st.integers(0, M - 1), what=st.sampled_from(["key", "value", "both"]))
def test_what_some_see_reaches_them_alone(engine, data, place, what):
    tensors, allowed, options, bad = data.draw(problems(engine))
    q, k, v = tensors
    dirty_k, dirty_v = k.clone(), v.clone()
    if what != "value":
        dirty_k[place] = bad
    if what != "key":
        dirty_v[place] = bad
    expected, output = attend(q, k, v, **options), attend(q, dirty_k, dirty_v, **options)
    blind = ~allowed[:, place]
    torch.testing.assert_close(output[blind], expected[blind])


@pytest.mark.parametrize("engine", ENGINES)
@many
@given(data=st.data(), place=st.integers(0, M - 1))
def test_what_some_see_reaches_no_gradient_but_of_what_they_see(engine, data, place):
    tensors, allowed, options, _ = data.draw(problems(engine))
    clean = [each.clone().requires_grad_() for each in tensors]
    dirty = [each.clone() for each in tensors]
    dirty[1][place] = dirty[2][place] = math.nan
    dirty = [each.requires_grad_() for each in dirty]
    cotangent = torch.randn(N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad(attend(*dirty, **options), dirty, cotangent)
    wanted = torch.autograd.grad(attend(*clean, **options), clean, cotangent)
    blind = ~allowed[:, place]
    apart = ~allowed[~blind].any(0)  # keys that nobody sees who sees the broken one
    for mine, theirs, where in zip(found, wanted, (blind, apart, apart), strict=True):
        torch.testing.assert_close(mine[where], theirs[where])


@pytest.mark.parametrize("engine", ENGINES)
@many
@given(data=st.data(), row=st.integers(0, N - 1))
def test_a_broken_query_breaks_no_other(engine, data, row):
    tensors, _, options, bad = data.draw(problems(engine))
    q, k, v = tensors
    dirty = q.clone()
    dirty[row] = bad
    others = torch.arange(N) != row
    torch.testing.assert_close(attend(dirty, k, v, **options)[others], attend(q, k, v, **options)[others])


@pytest.mark.parametrize("engine", ENGINES)
@many
@given(data=st.data())
def test_a_fully_masked_query_gets_zeros_and_sends_zero_gradient(engine, data):
    tensors, allowed, options, _ = data.draw(problems(engine))
    q, k, v = (each.requires_grad_() for each in tensors)
    nowhere = ~allowed.any(1)
    output = attend(q, k, v, **options)
    assert not output[nowhere].any()
    grads = torch.autograd.grad(output[nowhere].sum(), (q, k, v), retain_graph=True)
    assert not any(bool(each.any()) for each in grads)
    (to_queries,) = torch.autograd.grad(output.sum(), q)
    assert not to_queries[nowhere].any()


@pytest.mark.parametrize("engine", ["reference", "tiled"])
@pytest.mark.parametrize(
    "rule", [regard.Softmax(), regard.Sigmoid(), regard.Entmax()], ids=lambda rule: type(rule).__name__
)
def test_an_infinite_key_whose_score_is_minus_infinity_sends_no_gradient_to_who_sees_it(engine, rule):
    q, k, v = (torch.randn(6, 4, dtype=torch.float64) for _ in range(3))
    q[:, 0], k[3] = -q[:, 0].abs(), torch.tensor([math.inf, 0, 0, 0])
    leaves = [each.requires_grad_() for each in (q, k, v)]
    attend(*leaves, weights=rule, mask=Causal(), engine=engine).sum().backward()
    assert all(bool(each.grad.isfinite().all()) for each in leaves)
    assert bool((k.grad[3] == 0).all())
