"""The engine over PyTorch's fused kernels: never the math backend, exact where it runs, plain about what it refuses."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import regard
from regard import Allowed, Causal, GlobalKeys, KeyMask, Padding, Window, attend, plan
from regard.engines import Reference, Sdpa
from regard.engines.sdpa.fused_call import are_few_rows, may_pass_for_heads, pool_row_by_row
from regard.engines.sdpa.sdpa_engine import _prepare
from regard.errors import EngineRefusal
from regard.problem import make_problem

B, H, N, M, D = 2, 3, 6, 8, 4


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def three(query=(B, H, N, D), key=(B, H, M, D), value=(B, H, M, D), dtype=torch.float64):
    return drawn(*query, dtype=dtype), drawn(*key, seed=1, dtype=dtype), drawn(*value, seed=2, dtype=dtype)


def holes(*shape: int) -> torch.Tensor:
    allowed = torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.5
    allowed[..., 2, :] = False  # a fully masked query
    return allowed


ACCEPTED = {
    "4-d": (three(), {}),
    "no-batch": (three((N, D), (M, D), (M, D)), {}),
    "one-batch-axis": (three((H, N, D), (H, M, D), (H, M, D)), {}),
    "five-axes": (three((2, B, H, N, D), (2, B, H, M, D), (2, B, H, M, D)), {}),
    "shared-keys": (three(key=(M, D), value=(M, D)), {}),
    "shared-queries": (three(query=(N, D)), {}),
    "shared-values": (three(value=(M, D)), {}),
    "grouped": (three((B, 2, 3, N, D), (B, 2, 1, M, D), (B, 2, 1, M, D)), {}),
    "wider-values": (three(value=(B, H, M, 9)), {}),
    "narrower-values": (three(value=(B, H, M, 1)), {}),
    "one-query": (three(query=(B, H, 1, D)), {}),
    "causal": (three(), {"mask": Causal(align="start")}),
    "causal-square": (three(query=(B, H, M, D)), {"mask": Causal()}),
    "allowed": (three(), {"mask": Allowed(holes(N, M))}),
    "allowed-per-batch": (three(), {"mask": Allowed(holes(B, 1, N, M))}),
    "key-mask": (three(), {"mask": KeyMask(torch.arange(M) % 3 != 1)}),
    "no-key-at-all": (three(), {"mask": KeyMask(torch.zeros(M, dtype=torch.bool))}),
    "padding": (three(), {"mask": Padding(torch.tensor([5, 0]))}),
    "global-keys": (three(), {"mask": GlobalKeys([0, 3])}),
    "a-window-over-everything": (three(), {"mask": Window(before=99, after=99, align="start")}),
    "dot": (three(), {"score": regard.Dot()}),
    "scale": (three(), {"score": regard.ScaledDot(0.3)}),
    "multiple": (three(), {"score": 0.3 * regard.Dot()}),
    "multiplicative": (three(key=(B, H, M, 5)), {"score": regard.Multiplicative(D, 5, heads=H).double()}),
    "cosine": (three(), {"score": regard.Cosine(0.2)}),
    "gaussian-near": (three(), {"score": regard.Gaussian(2.0)}),
    "temperature": (three(), {"weights": regard.Softmax(temperature=0.5)}),
    "learned-temperature": (three(), {"weights": regard.Softmax(temperature=nn.Parameter(torch.tensor(0.5).double()))}),
    "float32": (three(dtype=torch.float32), {}),
    "bfloat16": (three(dtype=torch.bfloat16), {}),
}


def problem_of(name: str):
    tensors, options = ACCEPTED[name]
    return make_problem(*tensors, **{"score": regard.ScaledDot(), "weights": regard.Softmax(), **options})


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_fused_kernel_takes_every_problem_that_is_accepted(name):
    problem = problem_of(name)
    assert Sdpa().refusals(problem) == []
    assert _prepare(problem).backend() not in (SDPBackend.MATH, SDPBackend.ERROR)


@pytest.mark.parametrize("name", ACCEPTED)
def test_no_operation_of_the_math_backend_runs(name):
    tensors, options = ACCEPTED[name]
    tensors = [each.clone().requires_grad_() for each in tensors]
    with torch.profiler.profile() as profile:
        attend(*tensors, engine="sdpa", **options).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert any("flash" in each or "efficient" in each for each in names)
    assert not any("_math" in each or each == "aten::_softmax" for each in names)


@pytest.mark.parametrize("name", ACCEPTED)
def test_output_and_gradients_are_those_of_the_reference(name):
    tensors, options = ACCEPTED[name]
    results = []
    for engine in (Sdpa(), Reference()):
        leaves = [each.clone().requires_grad_() for each in tensors]
        output = attend(*leaves, engine=engine, **options)
        cotangent = drawn(*output.shape, seed=7, dtype=output.dtype)
        results.append((output, *torch.autograd.grad(output, leaves, cotangent)))
    half = tensors[0].dtype == torch.bfloat16
    torch.testing.assert_close(*results, **({"rtol": 2e-2, "atol": 4e-2} if half else {}))


def test_fully_masked_rows_are_zero_and_send_nothing():
    q, k, v = (each.requires_grad_() for each in three())
    output = attend(q, k, v, mask=Allowed(holes(N, M)), engine="sdpa")
    assert torch.equal(output[..., 2, :], torch.zeros(B, H, D).double())
    output.sum().backward()
    assert torch.equal(q.grad[..., 2, :], torch.zeros(B, H, D).double())
    alone = torch.autograd.grad(attend(q, k, v, mask=Allowed(holes(N, M)), engine="sdpa")[..., 2, :].sum(), (q, k, v))
    assert not any(bool(each.any()) for each in alone)


BROADCAST_INSIDE = three((2, B, H, N, D), (2, 1, H, M, D), (2, 1, H, M, D))
REFUSED = {
    "additive": (
        three(),
        {"score": regard.Additive(D, D, 2).double()},
        "Additive is not a dot product of projected queries",
    ),
    "gaussian-far": (three(), {"score": regard.Gaussian(1e-3)}, "Gaussian is not a dot product"),
    "gated": (
        three(),
        {"score": regard.Gated(D, D).double()},
        r"Gated changes each score after the dot product \(Gate\)",
    ),
    "soft-cap": (three(), {"score": regard.SoftCap(regard.Dot(), 1.0)}, r"SoftCap changes each score .* \(Cap\)"),
    "bias": (
        three(),
        {"score": regard.Dot() + regard.Bias(torch.zeros(N, M).double())},
        r"WithBias changes .* \(AddPairs\)",
    ),
    "sparsemax": (three(), {"weights": regard.Sparsemax()}, "weights are Sparsemax, not Softmax"),
    "sink": (three(), {"weights": regard.Softmax(sink=0.0)}, "Softmax has a sink"),
    "dropout": (three(), {"dropout": 0.5}, "dropout: the kernels draw another pattern"),
    "window": (three(), {"mask": Window(1, 1, align="start")}, r"mask Window\(.*\) would have to be built as n × m"),
    "causal-at-the-end": (three(), {"mask": Causal(align="end")}, r"mask Causal\(align='end'\) would have to be built"),
    "negative-scale": (
        three(),
        {"score": regard.ScaledDot(-1.0), "mask": Causal(align="start")},
        "need a positive scale, not -1",
    ),
    "empty": (three(key=(B, H, 0, D), value=(B, H, 0, D)), {}, "an empty problem"),
    "no-dims": (three((N, 0), (M, 0), (M, 2)), {}, "an empty problem"),
    "float16": (three(dtype=torch.float16), {"score": regard.Gaussian(9.0)}, "Gaussian is not a dot product"),
    "broadcast-inside": (BROADCAST_INSIDE, {}, "batch axes broadcast in a way that the kernels would copy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_gives_its_reason(name):
    tensors, options, reason = REFUSED[name]
    with pytest.raises(
        EngineRefusal, match=rf"Engine 'sdpa' cannot compute this problem: .*{reason}.*Leave `engine` out"
    ):
        attend(*tensors, engine="sdpa", **options)
    assert "sdpa" in plan(*tensors, **options).refusals
    assert plan(*tensors, **options).engine != "sdpa"


@pytest.mark.parametrize("scale", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [8, 64])
def test_a_scale_below_zero_loses_no_causal_mask(scale, dtype, n):
    """PyTorch multiplies −inf by the scale: half precision gave zeros, float32 NaN."""
    q, k, v = three((n, 8), (64, 8), (64, 8), dtype=dtype)
    for align in ("start", "end"):
        options = {"score": regard.ScaledDot(scale), "mask": Causal(align=align)}
        attend(q, k, v, **options | {"score": regard.ScaledDot()})  # whose plan must not serve for another sign
        exact = attend(q.double(), k.double(), v.double(), engine="reference", **options)
        torch.testing.assert_close(attend(q, k, v, **options).double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_several_reasons_are_all_given():
    refusals = plan(*three(), score=regard.Additive(D, D, 2).double(), weights=regard.Conic(), dropout=0.1).refusals[
        "sdpa"
    ]
    assert len(refusals) == 3


def test_what_would_reach_the_math_backend_is_refused(monkeypatch):
    monkeypatch.setattr("regard.engines.sdpa.fused_call.Call.backend", lambda self: SDPBackend.MATH)
    with pytest.raises(EngineRefusal, match="PyTorch has no fused kernel for this on cpu and would build n × m"):
        attend(*three(), engine="sdpa")


def test_autocast_reaches_the_fused_kernels_with_a_learned_projection():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plan(*three(dtype=torch.float32), score=regard.Multiplicative(D, D)).engine == "sdpa"


def test_scores_in_another_dtype_than_values_are_refused():
    rule = regard.Softmax(temperature=nn.Parameter(torch.tensor([0.5, 1.0, 2.0])))  # float32, for inputs in half
    refusals = plan(*three(dtype=torch.bfloat16), weights=rule).refusals["sdpa"]
    assert refusals == ("scores are computed in torch.float32 and values are torch.bfloat16",)


@pytest.mark.parametrize("engine", [None, "sdpa"])
@pytest.mark.parametrize(
    "name", ["4-d", "shared-keys", "grouped", "causal-square", "allowed-per-batch", "wider-values"]
)
def test_what_the_backward_pass_needs_is_kept_where_autograds_hooks_see_it(name, engine):
    tensors, options = ACCEPTED[name]
    plain = [each.clone().requires_grad_() for each in tensors]
    wanted = torch.autograd.grad(attend(*plain, engine="sdpa", **options).square().sum(), plain)
    leaves = [each.clone().requires_grad_() for each in tensors]
    inputs = [each * 1 for each in leaves]
    seen = [weakref.ref(each) for each in inputs]
    # Elsewhere, as when activations are offloaded: nothing else may hold on to the inputs.
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        output = attend(*inputs, engine=engine, **options).square().sum()
    del inputs
    assert not any(each() is not None for each in seen)
    torch.testing.assert_close(torch.autograd.grad(output, leaves), wanted)


@pytest.mark.parametrize("name", ["4-d", "grouped", "causal-square", "padding"])
def test_a_checkpoint_computes_it_again(name):
    tensors, options = ACCEPTED[name]
    gradients = []
    for run in (attend, lambda *each, **rest: checkpoint(attend, *each, use_reentrant=False, **rest)):
        leaves = [each.clone().requires_grad_() for each in tensors]
        gradients.append(torch.autograd.grad(run(*leaves, **options).square().sum(), leaves))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ACCEPTED)
def test_without_the_kernel_that_a_cpu_has_gradients_come_from_a_graph_of_its_own(name, monkeypatch):
    # As on a GPU, where PyTorch chooses among kernels.
    tensors, options = ACCEPTED[name]
    results = []
    for by_name in (True, False):
        monkeypatch.setattr("regard.engines.sdpa.fused_call.CALLED_BY_NAME", {"cpu"} if by_name else set())
        leaves = [each.clone().requires_grad_() for each in tensors]
        output = attend(*leaves, engine="sdpa", **options)
        results.append((output, *torch.autograd.grad(output, leaves, drawn(*output.shape, seed=7, dtype=output.dtype))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["4-d", "no-batch", "grouped", "narrower-values"])
def test_an_output_can_be_changed_in_place_until_its_gradient_is_asked_for(name):
    tensors, _ = ACCEPTED[name]
    output = attend(*(each.clone().requires_grad_() for each in tensors), engine="sdpa")
    output += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # as PyTorch's own
        output.sum().backward()


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_rows_that_see_every_key_may_pass_for_heads(groups):
    query, key, value = torch.randn(2, 6, 5, 8), torch.randn(2, groups, 40, 8), torch.randn(2, groups, 40, 8)
    expected = scaled_dot_product_attention(query, key, value, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(pool_row_by_row(query, key, value, 0.3), expected)
    assert not are_few_rows(query, key, value)  # on a CPU


def test_rows_pass_for_heads_where_they_are_few_and_a_kernel_takes_them():
    half = torch.bfloat16
    assert may_pass_for_heads((1, 8, 4, 128), 4096, half)
    assert may_pass_for_heads((1, 32, 64, 128), 512, half)
    assert not may_pass_for_heads((1, 32, 65, 128), 4096, half)
    assert not may_pass_for_heads((1, 8, 1, 128), 4096, half)
    assert not may_pass_for_heads((1, 8, 4, 128), 511, half)
    assert not may_pass_for_heads((1, 8, 4, 264), 4096, half)
    assert not may_pass_for_heads((1, 8, 4, 128), 4096, torch.float32)
