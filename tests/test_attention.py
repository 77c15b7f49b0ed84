"""attend(): shapes, dtypes, autocast, empty things and determinism, as the design fixes them."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import Causal, attend, weigh
from regard.engines import Tiled

ENGINES = ["reference", "tiled", "sdpa", None]
GENERAL = ["reference", "tiled", None]
HALF = [torch.float16, torch.bfloat16]

RULES = {
    "softmax": regard.Softmax(),
    "sink": regard.Softmax(sink=0.5),
    "conic": regard.Conic(),
    "raw": regard.Raw(),
    "sigmoid": regard.Sigmoid(),
    "one-hot": regard.OneHot(),
    "uniform": regard.Uniform(),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "top-k": regard.TopK(3),
}


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def plain(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3), (2, 2, 1, 3)])
def test_any_number_of_batch_axes_including_none(batch, engine):
    q, k, v = drawn(*batch, 5, 4), drawn(*batch, 7, 4, seed=1), drawn(*batch, 7, 4, seed=2)
    output = attend(q, k, v, engine=engine)
    assert output.shape == (*batch, 5, 4)
    torch.testing.assert_close(output, plain(q, k, v))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value_dim", [1, 3, 9])
def test_values_may_have_another_dim_than_keys(value_dim, engine):
    q, k, v = drawn(5, 4), drawn(7, 4, seed=1), drawn(7, value_dim, seed=2)
    torch.testing.assert_close(attend(q, k, v, engine=engine), plain(q, k, v))


@pytest.mark.parametrize("engine", ENGINES)
def test_grouped_queries_equal_keys_that_are_repeated(engine):
    q, k, v = (
        each.requires_grad_()
        for each in (drawn(2, 3, 4, 5, 8), drawn(2, 3, 1, 7, 8, seed=1), drawn(2, 3, 1, 7, 8, seed=2))
    )
    output = attend(q, k, v, engine=engine)
    repeated = plain(q, k.expand(2, 3, 4, 7, 8).contiguous(), v.expand(2, 3, 4, 7, 8).contiguous())
    torch.testing.assert_close(output, repeated)
    found = torch.autograd.grad(output.square().sum(), (q, k, v))
    torch.testing.assert_close(found, torch.autograd.grad(repeated.square().sum(), (q, k, v)))


@pytest.mark.parametrize("engine", ENGINES)
def test_one_query_equals_that_row_of_many(engine):
    q, k, v = drawn(5, 4), drawn(7, 4, seed=1), drawn(7, 4, seed=2)
    together = attend(q, k, v, engine=engine)
    for row in range(5):
        torch.testing.assert_close(attend(q[row : row + 1], k, v, engine=engine), together[row : row + 1])


@pytest.mark.parametrize("engine", GENERAL)
@pytest.mark.parametrize("rule", RULES)
def test_an_empty_database_answers_with_zeros_and_zero_gradient(rule, engine):
    q, k, v = (each.requires_grad_() for each in (drawn(2, 5, 4), drawn(2, 0, 4), drawn(2, 0, 3)))
    output = attend(q, k, v, weights=RULES[rule], engine=engine)
    assert torch.equal(output, torch.zeros(2, 5, 3).double())
    output.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))
    assert (k.grad.shape, v.grad.shape) == (k.shape, v.shape)


@pytest.mark.parametrize("engine", GENERAL)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("query", "key", "output"), [((0, 4), (7, 4), (0, 4)), ((0, 5, 4), (7, 4), (0, 5, 4)), ((0, 4), (0, 4), (0, 4))]
)
def test_no_queries_or_an_empty_batch_give_an_empty_output(query, key, output, rule, engine):
    q, k = drawn(*query).requires_grad_(), drawn(*key).requires_grad_()
    result = attend(q, k, k, weights=RULES[rule], engine=engine)
    assert result.shape == output
    result.sum().backward()
    assert not k.grad.any()


@pytest.mark.parametrize("engine", GENERAL)
def test_vectors_without_coordinates_and_values_without_columns(engine):
    v = drawn(7, 3)
    torch.testing.assert_close(attend(drawn(5, 0), drawn(7, 0), v, engine=engine), v.mean(0).expand(5, 3))
    assert attend(drawn(5, 2), drawn(7, 2), drawn(7, 0), engine=engine).shape == (5, 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
def test_the_output_has_the_dtype_of_the_inputs_and_their_gradients_too(dtype, engine):
    q, k, v = (drawn(2, n, 8, seed=n, dtype=dtype).requires_grad_() for n in (5, 7, 7))
    output = attend(q, k, v, engine=engine)
    assert output.dtype == dtype
    grads = torch.autograd.grad(output.sum(), (q, k, v))
    assert all(each.dtype == dtype for each in grads)


@pytest.mark.parametrize("engine", ["reference", "tiled", Tiled(256)])
@pytest.mark.parametrize("rule", ["softmax", "sink", "sigmoid", "sparsemax", "entmax", "raw"])
@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_is_no_worse_than_the_plain_formula_in_that_dtype(dtype, rule, engine):
    # At most twice the error of the plain formula, plus one unit in the last place of the largest output.
    q, k, v = drawn(64, 16, dtype=dtype), drawn(96, 16, seed=1, dtype=dtype), drawn(96, 16, seed=2, dtype=dtype)
    exact = attend(q.double(), k.double(), v.double(), weights=RULES[rule], engine="reference")
    scores = q @ k.mT / 4
    eager = (RULES[rule](scores).to(dtype) @ v).double()
    unit = torch.finfo(dtype).eps * float(exact.abs().max())
    allowed = 2 * float((eager - exact).abs().max()) + unit
    assert float((attend(q, k, v, weights=RULES[rule], engine=engine).double() - exact).abs().max()) <= allowed


AUTOCAST = {
    "plain": lambda: regard.ScaledDot(),
    "multiplicative": lambda: regard.Multiplicative(8, 8),
    "additive": lambda: regard.Additive(8, 8, 4),
    "gated": lambda: regard.Gated(8, 8),
    "gaussian": lambda: regard.Gaussian(torch.nn.Parameter(torch.tensor(2.0))),
    "custom": lambda: regard.Custom(lambda q, k: q @ k.mT),
}


@pytest.mark.parametrize("engine", GENERAL)
@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_runs_in_its_dtype_and_learns_in_the_parameters_own(name, engine):
    torch.manual_seed(0)
    score = AUTOCAST[name]()
    q, k, v = (drawn(2, n, 8, seed=n, dtype=torch.float32).requires_grad_() for n in (5, 7, 7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(q, k, v, score=score, engine=engine)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), attend(q, k, v, score=score), rtol=0.05, atol=0.05)
    output.float().square().sum().backward()
    for each in (q, k, v, *score.parameters()):
        assert each.grad.dtype == torch.float32
        assert each.grad.isfinite().all()


@pytest.mark.parametrize("engine", GENERAL)
def test_a_custom_function_keeps_autocast_in_its_tiles_forward_and_backward(engine):
    seen = []
    layer = torch.nn.Linear(8, 8)

    def function(q, k):
        projected = layer(q)
        seen.append(projected.dtype)
        return projected @ k.mT

    q, k, v = (drawn(n, 8, seed=n, dtype=torch.float32).requires_grad_() for n in (5, 7, 7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(q, k, v, score=regard.Custom(function), engine=engine)
    output.float().sum().backward()
    assert set(seen) == {torch.bfloat16}
    assert layer.weight.grad.dtype == torch.float32


def test_autocast_leaves_float64_alone():
    q, k, v = drawn(5, 4), drawn(7, 4, seed=1), drawn(7, 4, seed=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(q, k, v)
    assert torch.equal(output, attend(q, k, v))


def test_autocast_brings_tensors_of_different_dtypes_together():
    q, k = drawn(5, 4, dtype=torch.bfloat16), drawn(7, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(q, k, k).dtype == torch.bfloat16


DOT, ADDITIVE = regard.ScaledDot(), regard.Additive(4, 4, 3)
EVERY_ENGINE = ["reference", "tiled", Tiled(64)]


@pytest.mark.parametrize(
    ("score", "engine"),
    [(DOT, "sdpa"), *((DOT, each) for each in EVERY_ENGINE), *((ADDITIVE, each) for each in EVERY_ENGINE)],
)
def test_the_same_inputs_give_the_same_bits_gradients_included(score, engine):
    q, k, v = (drawn(2, 30, 4, seed=n, dtype=torch.float32).requires_grad_() for n in range(3))
    runs = []
    for _ in range(2):
        output = attend(q, k, v, score=score, mask=Causal(), engine=engine)
        runs.append((output, *torch.autograd.grad(output.square().sum(), (q, k, v, *score.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("engine", ["reference", "tiled", None])
@pytest.mark.parametrize("score", [regard.ScaledDot(), regard.Laplacian(1.0)], ids=str)
def test_signs_that_are_to_be_turned(score, engine):
    """An imaginary part of a conjugate is a view whose numbers lie there with the other sign."""
    x = drawn(2, 300, 8, dtype=torch.float32)
    turned = torch._neg_view(-x)
    assert turned.is_neg()
    wanted = attend(x, x, x, score=score, mask=Causal(), engine=engine)
    for tensors in ((turned, x, x), (x, turned, x), (x, x, turned)):
        torch.testing.assert_close(attend(*tensors, score=score, mask=Causal(), engine=engine), wanted)
    view = weigh(turned, x, turned, score=score)
    torch.testing.assert_close(view.output, attend(x, x, x, score=score))


def test_attend_under_no_grad_or_without_leaves_tracks_nothing():
    q = drawn(5, 4).requires_grad_()
    for engine in ENGINES:
        with torch.no_grad():
            assert not attend(q, q, q, engine=engine).requires_grad
        assert not attend(q.detach(), q.detach(), q.detach(), engine=engine).requires_grad


def test_weights_and_scores_may_also_be_shared_by_calls():
    score, rule = regard.Additive(4, 4, 3).double(), regard.Entmax(1.7)
    x, y = drawn(5, 4), drawn(9, 4, seed=1)
    first = attend(x, y, y, score=score, weights=rule)
    weigh(y, x, x, score=score, weights=rule).entropy()
    assert torch.equal(first, attend(x, y, y, score=score, weights=rule))
