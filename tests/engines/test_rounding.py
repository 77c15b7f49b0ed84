"""Scores so large that rounding shows: gradients are those of the weights of the forward pass."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import Boxcar, Causal, Dot, Epanechnikov, Gaussian, Laplacian, Triangular, attend, weigh
from regard.engines import Tiled, tiled
from regard.engines.rounding import LIMIT, Rounding
from regard.engines.strips import pool_by_strips
from regard.problem import make_problem

SIZES = [(3, 4, 64), (4, 2, 16), (20, 3, 64), (1, 9, 5), (28, 4, 64), (9, 130, 16)]


def total_weights(size: tuple[int, int, int], engine: Tiled, dtype: torch.dtype, score=None, batch=()) -> torch.Tensor:
    """What the gradient of values sums to for each batch entry, over how many queries there are: 1, if α sums to 1."""
    n_queries, n_keys, dim = size
    torch.manual_seed(n_queries)
    queries = (1e4 * torch.randn(*batch, n_queries, dim)).to(dtype).requires_grad_()
    keys, values = (1e4 * torch.randn(n_keys, dim)).to(dtype).requires_grad_(), torch.ones(n_keys, 2, dtype=dtype)
    values.requires_grad_()
    attend(queries, keys, values, score=score or Dot(), engine=engine).float().sum().backward()
    return values.grad.double().sum(-2)[0] / (n_queries * torch.Size(batch).numel())


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_weights_of_the_backward_pass_are_those_of_the_forward_pass(size, kernels, batch):
    total = total_weights(size, Tiled(kernels=kernels), torch.float32, batch=batch)
    assert float(total) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("rule", "size", "again"), [
    (regard.Entmax(1.5), 1e4, True), (regard.Entmax(1.5), 1.0, False), (regard.Softmax(), 1e4, False)
])  # fmt: skip
def test_what_kernels_take_from_lists_is_not_computed_again_where_rounding_shows(monkeypatch, rule, size, again):
    """A BLAS may sum a product in another order than the loop over a list: which weights are 0 would change."""
    torch.manual_seed(0)
    x, strips = size * torch.randn(8, 4, requires_grad=True), []
    monkeypatch.setattr(tiled, "pool_by_strips", lambda problem: strips.append(1) or pool_by_strips(problem))
    attend(x, x, x, score=Dot(), weights=rule, engine=Tiled(kernels=True))
    assert bool(strips) is again


@pytest.mark.parametrize("rule", [regard.Entmax(1.5), regard.TopK(3, then=regard.Entmax(1.5))], ids=["entmax", "top-k"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_nor_where_large_terms_cancel(monkeypatch, rule, compiled):
    """The scores are small, but not what they are summed from."""
    from regard.traced import operators

    torch.manual_seed(0)
    far, strips = torch.full((64, 1), 1e3), []
    queries = torch.cat([far, far, torch.randn(64, 4)], 1).requires_grad_()
    keys = torch.cat([far, -far, torch.randn(64, 4)], 1)
    for module in (tiled, operators):
        monkeypatch.setattr(module, "pool_by_strips", lambda problem: strips.append(1) or pool_by_strips(problem))

    def call(queries, keys):
        return attend(queries, keys, keys, score=Dot(), weights=rule, engine="tiled")

    (torch.compile(call, backend="eager") if compiled else call)(queries, keys)
    assert strips


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nor_do_they_differ_in_half_precision(size):
    assert float(total_weights(size, Tiled(kernels=False), torch.bfloat16, batch=(2,))) == pytest.approx(1, abs=2e-2)


@pytest.mark.parametrize(
    ("score", "size", "small"),
    [
        (regard.ScaledDot(), 1.0, True),
        (Dot(), 1e4, False),
        (regard.Gaussian(1.0), 500.0, False),
        (regard.Additive(4, 4, 8), 1e6, True),  # a tangent is never larger than 1
        (regard.Cosine(), 1e6, True),
        (Dot() + regard.Alibi(1.0), 1.0, True),
        (Dot() + regard.Bias(torch.full((6, 6), 1e6)), 1.0, False),
    ],
    ids=["scaled", "dot", "gaussian", "additive", "cosine", "alibi", "bias"],
)
def test_how_large_terms_are_is_known_of_every_form(score, size, small):
    torch.manual_seed(0)
    x = size * torch.randn(6, 4)
    problem = make_problem(x, x, x, score=score, weights=regard.Softmax())
    assert Rounding(problem).is_small is small
    assert Rounding(make_problem(x, x, x, score=score, weights=regard.Raw())).is_small
    wide = make_problem(x.double(), x.double(), x.double(), score=score.double(), weights=regard.Softmax())
    assert Rounding(wide).is_small is small
    score.float()


def test_distances_of_many_bandwidths_are_harmless_where_a_key_is_near():
    places = torch.linspace(0, 1000, 50)[:, None]
    problem = make_problem(places, places, places, score=regard.Gaussian(1.0), weights=regard.Softmax())
    rounding = Rounding(problem)
    assert not rounding.is_small
    assert not rounding.is_large
    assert not rounding.shows((torch.zeros(50, 1), torch.ones(50, 1)))
    assert rounding.shows((torch.full((50, 1), -2 * LIMIT), torch.ones(50, 1)))


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("engine", ["sdpa", None])
def test_fused_gradients_of_huge_scores_are_those_of_weights_that_sum_to_one(engine, mask):
    torch.manual_seed(0)
    queries, keys = (3e3 * torch.randn(1, 2, 40, 32) for _ in range(2))
    values = torch.ones(1, 2, 40, 1, requires_grad=True)
    attend(queries.requires_grad_(), keys, values, mask=mask, engine=engine).sum().backward()
    # Each query gives its weights away: over all keys they sum to one for each.
    torch.testing.assert_close(values.grad.sum((-1, -2)), torch.full((1, 2), 40.0))
    assert float(queries.grad.abs().max()) < 1e-3 * float(keys.abs().max())


@pytest.mark.parametrize("engine", ["sdpa", "tiled"])
def test_in_float64_gradients_of_large_scores_are_those_of_weights_that_sum_to_one(engine):
    torch.manual_seed(0)
    q, k, v = (torch.randn(64, 3).double() for _ in range(3))
    k[:, 0] = 1e5
    q[:, 0] = 30
    v.requires_grad_()
    attend(q, k, v, score=Dot(), engine=engine).sum().backward()
    torch.testing.assert_close(v.grad.sum(0), torch.full((3,), 64.0).double(), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e3), (torch.float64, 1e8)])
def test_queries_that_broadcast_against_keys_have_the_same_weights_in_both_passes(dtype, size):
    # torch folds the batch of such a product into its rows, or does not, by whether a gradient is wanted.
    torch.manual_seed(0)
    q, k = (size * torch.randn(*shape, dtype=dtype) for shape in ((100, 64), (8, 7, 64)))
    v = torch.ones(8, 7, 1, dtype=dtype, requires_grad=True)
    attend(q.requires_grad_(), k.requires_grad_(), v, score=Dot() * 0.5, engine=Tiled(kernels=False)).sum().backward()
    torch.testing.assert_close(v.grad.sum((-1, -2)), torch.full((8,), 100.0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_what_tiles_add_to_a_gradient_is_not_rounded_to_half_precision(dtype):
    # Of keys of one number, the shares of a proportional rule do not depend on the query: what tiles add cancels.
    generator = torch.Generator().manual_seed(0)
    queries = (torch.rand(100, 1, generator=generator) + 0.5).to(dtype).requires_grad_()
    keys = (torch.rand(33, 1, generator=generator) + 0.5).to(dtype)
    values = torch.randn(33, 2, generator=generator).to(dtype)
    output = regard.attend(
        queries, keys, values, score=regard.Dot(), weights=regard.Proportional(), engine=Tiled(64, kernels=False)
    )
    (gradient,) = torch.autograd.grad(output, queries, torch.ones_like(output))
    assert float(gradient.abs().max()) < 1e-5


@pytest.mark.parametrize("score", [Gaussian, Laplacian, Epanechnikov, Triangular, Boxcar])
@pytest.mark.parametrize("width", [1e-300, 1e-160, 1e160, 1e300])
def test_widths_beyond_every_square_are_read_without_an_error(score, width):
    queries, keys = (
        torch.zeros(1, 2, dtype=torch.float64),
        torch.ones(3, 2, dtype=torch.float64) * torch.arange(3)[:, None],
    )
    view = weigh(queries, keys, keys, score=score(width))
    expected = [1.0, 0.0, 0.0] if width < 1 and score in (Gaussian, Laplacian) else [1 / 3] * 3
    if width > 1 or score in (Gaussian, Laplacian):
        torch.testing.assert_close(view.dense()[0].tolist(), expected)
    torch.testing.assert_close(view.entropy(), torch.special.entr(view.dense()).sum(-1))
