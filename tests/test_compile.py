"""torch.compile gives the numbers of eager mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import (
    Additive,
    Alibi,
    Allowed,
    Causal,
    Conic,
    Cosine,
    Custom,
    Dot,
    Entmax,
    Gated,
    Gaussian,
    GlobalKeys,
    KeyMask,
    Laplacian,
    Multiplicative,
    OneHot,
    OnePass,
    Padding,
    Proportional,
    RandomKeys,
    RelativeBias,
    SameDocument,
    ScaledDot,
    Selected,
    SoftCap,
    Softmax,
    Sparsemax,
    TopK,
    Triangular,
    Uniform,
    Where,
    Window,
    attend,
)
from regard.engines import Tiled
from regard.errors import EngineRefusal, OptionError, ScoreError
from regard.traced import routes

HEADS, N_QUERIES, N_KEYS, DIM = 3, 13, 19, 4


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def three(n_queries: int = N_QUERIES, n_keys: int = N_KEYS, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, HEADS, n_queries, DIM), (2, HEADS, n_keys, DIM), (2, HEADS, n_keys, 5)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def compiled(function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    return torch.compile(function, fullgraph=True, **{"backend": "aot_eager", **options})


def results(function: Callable[..., Tensor], tensors: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """The output, and the gradients of the tensors and of what is learned."""
    leaves = [each.detach().clone().requires_grad_() for each in tensors]
    output = function(*leaves)
    return [output, *torch.autograd.grad(output.double().square().sum(), [*leaves, *parameters])]


def assert_same(left: list[Tensor], right: list[Tensor], **options: Any) -> None:
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, **options)


def check(tensors: list[Tensor], *modules: nn.Module, **options: Any) -> None:
    """Compiled attention has the output and the gradients of eager mode."""

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, **options)

    learned = [each for module in modules for each in module.parameters()]
    assert_same(results(compiled(function), tensors, learned), results(function, tensors, learned))


def graph_of(function: Callable[..., Tensor], *tensors: Tensor) -> list[str]:
    """The operations that torch.compile sees."""
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compile(function, fullgraph=True, backend=backend)(*tensors)
    return seen


def parameter(*numbers: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(numbers if len(numbers) > 1 else numbers[0]))


# Compiled scores, rules and masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "score",
    [
        pytest.param(Multiplicative(DIM, DIM, heads=HEADS), id="Multiplicative"),
        pytest.param(Gated(DIM, DIM, Additive(DIM, DIM, 3)), id="Gated(Additive)"),
        pytest.param(Cosine(parameter(0.5)), id="Cosine"),
        pytest.param(Gaussian(parameter(0.3, 0.4, 0.5, 0.6)), id="Gaussian"),
        pytest.param(Triangular(parameter(4.0)), id="Triangular"),
        pytest.param(ScaledDot() + Alibi(parameter(0.1, 0.2, 0.3), align="end"), id="Alibi"),
        pytest.param(SoftCap(ScaledDot(), 2.0) + RelativeBias(4, align="end"), id="RelativeBias"),
        pytest.param(Laplacian(2.0).on([0, 1]) + 0.5 * Dot().on([2, 3]), id="a sum of scores"),
    ],
)
def test_a_compiled_score_serves_every_size(score):
    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, score=score, mask=Causal(align="end"))

    learned, fast = list(score.parameters()), compiled(function, dynamic=True)
    for tensors in (three(), three(7, 11)):
        assert_same(results(fast, tensors, learned), results(function, tensors, learned), rtol=1e-4, atol=1e-5)


def test_sizes_that_change_do_not_compile_again():
    compilations = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        nonlocal compilations
        compilations += 1
        return graph.forward

    score = Additive(DIM, DIM, 3)
    fast = torch.compile(
        lambda *tensors: attend(*tensors, score=score, mask=Window(3, 3, align="end")),
        fullgraph=True,
        dynamic=True,
        backend=backend,
    )
    for size in (6, 9, 17):
        fast(*three(size, size + 1))
    assert compilations == 1


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Softmax(temperature=parameter(1.7)), id="temperature"),
        pytest.param(Softmax(sink=parameter(0.1, 0.2, 0.3)), id="sink"),
        pytest.param(Proportional(), id="Proportional"),
        pytest.param(Conic(), id="Conic"),
        pytest.param(Uniform(), id="Uniform"),
        pytest.param(OneHot(), id="OneHot"),
        pytest.param(Sparsemax(), id="Sparsemax"),
        pytest.param(Entmax(parameter(1.3)), id="Entmax, alpha learned"),
        pytest.param(TopK(5, then=Sparsemax()), id="TopK(Sparsemax)"),
    ],
)
@pytest.mark.parametrize("engine", [None, "tiled"])
def test_a_compiled_rule_has_the_numbers_of_eager_mode(rule, engine):
    queries, keys, values = three()
    check([queries.abs(), keys.abs(), values], rule, score=SoftCap(Dot(), 9.0), weights=rule, engine=engine)


@pytest.mark.parametrize(
    "mask",
    [
        Causal(align=torch.tensor([2, -3])),
        Window(3, 2, align="end") | GlobalKeys([0, -1]),
        RandomKeys(5, seed=1),
        Padding([7, 19]) & ~KeyMask(torch.arange(N_KEYS) % 3 == 1),
        SameDocument(torch.arange(N_QUERIES) // 4, torch.arange(N_KEYS) // 4),
        Selected(torch.arange(2 * N_QUERIES).reshape(N_QUERIES, 2) % N_KEYS),
        Allowed(torch.arange(N_QUERIES)[:, None] != torch.arange(N_KEYS)),
    ],
    ids=repr,
)
def test_a_compiled_mask_has_the_numbers_of_eager_mode(mask):
    check(three(), mask=mask)


def test_scores_rules_and_masks_may_be_made_inside_what_is_compiled():
    def function(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
        mask = (Causal(align="end") & Padding(lengths)) | GlobalKeys([1, -1]) | RandomKeys(2, seed=0)
        once = attend(queries, keys, values, score=SoftCap(Dot(), 3.0), weights=Entmax(1.5), mask=mask)
        return once + attend(queries, keys, values, score=Gaussian(2.0), weights=TopK(3, then=Softmax(sink=0.5)))

    tensors = [*three(), torch.tensor([4, 19])]
    torch.testing.assert_close(compiled(function)(*tensors), function(*tensors))


def test_kernels_leave_the_backward_operator_what_it_needs():
    # Large enough for compiled kernels, where there are any.
    queries, keys, values = (torch.randn(2, 96, 16) for _ in range(3))
    score = Additive(16, 16, 8)
    for rule in (Softmax(), Entmax(1.5), TopK(4)):
        check([queries, keys, values], score, score=score, weights=rule, mask=Causal(), engine="tiled")


# Which way a call goes --------------------------------------------------------------------------------------------


def test_a_plain_call_goes_straight_to_sdpa():
    seen = graph_of(attend, *three())
    assert any("scaled_dot_product_attention" in each for each in seen)
    assert not any("regard" in each for each in seen)


def test_all_else_is_one_operator_with_its_projections_outside():
    score = Additive(DIM, DIM, 3)
    seen = graph_of(lambda *tensors: attend(*tensors, score=score, mask=Causal(align="end")), *three())
    assert sum("regard.attend" in each for each in seen) == 1
    assert sum("matmul" in each for each in seen) == 2


class Softplus(OnePass):
    kind, normalized = "convex", True

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return nn.functional.softplus(scores)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"score": Custom(lambda q, k: q @ k.mT), "weights": TopK(3)}, id="Custom under TopK"),
        pytest.param({"weights": Softplus()}, id="a rule of one's own"),
        pytest.param({"mask": Where(lambda row, column: (row + column) % 3 == 0)}, id="Where"),
    ],
)
def test_what_is_a_users_own_is_compiled_by_the_definition_which_says_so(options):
    routes._warn.cache_clear()
    with pytest.warns(UserWarning, match=r"compiled by its definition.* leave that part uncompiled\."):
        check(three(), **options)


def test_a_users_own_is_compiled_without_a_warning_where_the_definition_is_asked_for():
    check(three(), score=Custom(lambda q, k: q @ k.mT), engine="reference", mask=Causal(align="start"), dropout=0.0)


def test_an_engine_of_ones_own_is_refused_while_tracing():
    queries, keys, values = three()
    with pytest.raises(EngineRefusal, match="by name"):
        torch.vmap(lambda *tensors: attend(*tensors, engine=Tiled()))(queries, keys, values)


# What a call may hold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"mask": Causal(align="end")}, {"score": Custom(lambda q, k: q @ k.mT), "engine": "reference"}]
)
def test_compiled_dropout_draws_another_pattern_in_each_call_and_the_same_one_backward(options):
    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, dropout=0.4, **options)

    fast, tensors = compiled(function), three()
    torch.manual_seed(3)
    wanted = results(function, tensors, [])
    torch.manual_seed(3)
    assert_same(results(fast, tensors, []), wanted)
    assert not torch.equal(fast(*tensors), wanted[0])


@pytest.mark.parametrize("mask", [None, Causal(align="end")], ids=repr)
def test_autocast_inside_and_outside_what_is_compiled(mask):
    score = Multiplicative(DIM, DIM)

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, score=score, mask=mask)

    def inside(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(queries, keys, values)

    wanted = results(inside, three(), list(score.parameters()))
    assert wanted[0].dtype == torch.bfloat16
    close = {"rtol": 0.02, "atol": 0.02}
    assert_same(results(compiled(inside), three(), list(score.parameters())), wanted, **close)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(results(compiled(function), three(), list(score.parameters())), wanted, **close)


def test_half_precision_is_accumulated_as_in_eager_mode():
    check(three(dtype=torch.bfloat16), score=SoftCap(Dot(), 5.0), mask=Causal(align="end"))


@pytest.mark.parametrize(
    "options", [{}, {"engine": "tiled"}, {"score": Laplacian(2.0), "weights": Sparsemax()}, {"score": Gaussian(9.0)}]
)
def test_compiled_masks_stop_nan_and_infinity(options):
    queries, keys, values = three()
    keys[:, :, -1], values[:, :, -2] = torch.nan, torch.inf
    check([queries, keys, values], mask=Causal(align="start"), **options)
    fast = compiled(lambda *tensors: attend(*tensors, mask=Causal(align="start"), **options))
    assert all(each.isfinite().all() for each in results(fast, [queries, keys, values], []))


def test_compiled_distances_far_from_the_origin_keep_their_digits():
    queries, keys, values = three()
    check([queries + 1000, keys + 1000, values], score=Gaussian(1.0), mask=Causal(align="end"))


def test_wrong_values_are_found_when_a_compiled_call_runs():
    def negative(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, score=Dot(), weights=Proportional())

    def too_long(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
        return attend(queries, keys, values, mask=Padding(lengths))

    with pytest.raises(ScoreError, match="not negative"):
        compiled(negative)(*three())
    with pytest.raises(OptionError, match="between 0 and the number of keys"):
        compiled(too_long)(*three(), torch.tensor([3, N_KEYS + 1]))


def test_sizes_of_nothing_compile():
    for n_queries, n_keys in ((0, 5), (5, 0)):
        check(three(n_queries, n_keys))
        check(three(n_queries, n_keys), weights=Sparsemax(), engine="tiled")


# Inductor ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # inductor's own
def test_inductor_compiles_attention_into_its_graph():
    score = Gated(DIM, DIM)

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        gated = attend(queries.relu(), keys, values, score=score, mask=Causal(align="end"))
        return gated + attend(queries, keys, values).tanh()

    learned = list(score.parameters())
    wanted = results(function, three(), learned)
    assert_same(results(compiled(function, backend="inductor"), three(), learned), wanted, rtol=1e-4, atol=1e-5)


# Transforms -------------------------------------------------------------------------------------------------------


def test_transforms_that_are_compiled():
    tensors = three()

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, mask=Causal(align="end")).square().sum((-1, -2))

    torch.testing.assert_close(compiled(torch.vmap(function))(*tensors), function(*tensors))
    gradient = torch.func.grad(lambda *each: function(*each).sum())
    torch.testing.assert_close(compiled(gradient)(*tensors), gradient(*tensors))


def test_statistics_that_a_compiled_call_kept_are_taken_by_kernels() -> None:
    check(three(80, 80), weights=Entmax(1.5))
