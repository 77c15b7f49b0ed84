"""What only a GPU can show: that nobody waits for it, captured graphs, streams, the same bits every time."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import attend, nn
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.sdpa import fused_call, shortcut
from regard.testing import MASKS, RULES, SCORES, Case

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

# Torch says once that the mode is a prototype.
pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")

KERNEL_SCORES = ["Dot", "ScaledDot", "Gated", "SoftCap", "Bias", "Alibi", "Gaussian", "Epanechnikov"]
KERNEL_SCORES += ["Additive", "Gated(Additive)", "Laplacian", "Equal"]
KERNEL_RULES = ["Softmax", "Softmax, temperature", "Softmax, sink", "Sigmoid", "Conic", "Raw", "Uniform"]
KERNEL_RULES += ["Sparsemax", "Entmax", "Entmax, alpha learned", "OneHot", "TopK", "TopK(Raw)", "TopK(Sparsemax)"]
# What asks a mask about its tensors, or has no kernel yet.
LOOKING_MASKS = {"a combination", "PerHead"}


@pytest.fixture
def nobody_waits():
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def inputs(*shape, dtype=torch.float32):
    return [torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]


def run(case):
    problem = case.make(case.dtype)
    output = regard.engines.Tiled(kernels=True).run(problem)
    leaves = (problem.queries, problem.keys, problem.values)
    return [output, *torch.autograd.grad(output, leaves, torch.ones_like(output), allow_unused=True)]


@pytest.mark.parametrize("rule", KERNEL_RULES)
@pytest.mark.parametrize("score", KERNEL_SCORES)
def test_nobody_waits_for_the_device(score, rule):
    case = Case(score, rule, "Causal, end", torch.float32, "cuda")
    assert score in SCORES
    assert rule in RULES
    run(case)  # compiled by now
    problem = case.make(case.dtype)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        output = regard.engines.Tiled(kernels=True).run(problem)
        torch.autograd.grad(output.sum(), problem.values)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("mask", [name for name in MASKS if name not in LOOKING_MASKS])
def test_nobody_waits_for_a_mask(mask):
    case = Case("SoftCap", "Softmax", mask, torch.float32, "cuda")
    run(case)
    problem = case.make(case.dtype)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend(problem.queries, problem.keys, problem.values, score=problem.score, mask=problem.mask).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("mask", [None, regard.Causal(), regard.Window(5, 0)], ids=str)
@pytest.mark.parametrize("score", [regard.ScaledDot(), regard.SoftCap(regard.ScaledDot(), 5.0)], ids=str)
def test_attend_and_its_gradient_wait_for_nothing(nobody_waits, score, mask):
    q, k, v = inputs(2, 4, 64, 32, dtype=torch.bfloat16)
    attend(q, k, v, score=score, mask=mask).sum().backward()


@pytest.mark.parametrize("mask", [None, regard.Causal()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_readings_wait_for_nothing_and_keep_their_digits(dtype, mask):
    q, k, v = (each.detach() for each in inputs(2, 3, 700, 64, dtype=dtype))
    problem = regard.problem.make_problem(
        q, k, v, score=regard.SoftCap(regard.ScaledDot(), 5.0), weights=regard.Softmax(), mask=mask
    )
    readable = CudaKernels().compile(problem).readable(lambda share: None)
    rows = 2, 3, 700
    targets = {"entropy": torch.zeros(rows, device="cuda"), "received": torch.zeros(rows, device="cuda")}
    targets |= {
        "picture": torch.zeros(2, 3, 100, 90, device="cuda"),
        "top_weights": torch.zeros(*rows, 5, device="cuda"),
        "top_index": torch.zeros(*rows, 5, dtype=torch.long, device="cuda"),
    }
    for mode in ("default", "error"):  # compiled first
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode(mode)
        try:
            readable.read(readable.statistics(), targets)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    weights = regard.engines.reference.define_weights(problem)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(targets["entropy"], -torch.xlogy(weights, weights).sum(-1), **tolerance)
    torch.testing.assert_close(targets["received"], weights.sum(-2), **tolerance)
    torch.testing.assert_close(targets["top_weights"], weights.topk(5).values, **tolerance)
    torch.testing.assert_close(targets["picture"].sum((-1, -2)), weights.sum((-1, -2)), **tolerance)
    again = {name: torch.zeros_like(each) for name, each in targets.items()}
    readable.read(readable.statistics(), again)
    assert all(torch.equal(again[name], each) for name, each in targets.items())


@pytest.mark.parametrize("layer", [nn.MultiHeadAttention, nn.EncoderLayer])
def test_layers_wait_for_nothing(layer):
    made = layer(64, 4, batch_first=True).cuda()
    x = torch.randn(2, 32, 64, device="cuda")
    call = (lambda: made(x, x, x, need_weights=False)[0]) if layer is nn.MultiHeadAttention else (lambda: made(x))
    call().sum().backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call().sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("score", [regard.ScaledDot(), regard.SoftCap(regard.ScaledDot(), 5.0)], ids=str)
def test_a_captured_graph_replays(score, dropout):
    q, k, v = (each.detach() for each in inputs(2, 4, 64, 32))

    def call():
        return attend(q, k, v, score=score, mask=regard.Causal(), dropout=dropout)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    graph.replay()
    first = output.clone()
    graph.replay()
    if dropout:
        assert not torch.equal(first, output)  # each replay drops other weights
    else:
        assert torch.equal(first, output)
        torch.testing.assert_close(output, call())


def test_two_hundred_and_fifty_repeats_give_the_same_bits():
    q, k, v = inputs(2, 4, 300, 64, dtype=torch.bfloat16)

    def once():
        output = attend(q, k, v, score=regard.SoftCap(regard.ScaledDot(), 5.0), mask=regard.Causal())
        return [output, *torch.autograd.grad(output.square().sum(), (q, k, v))]

    first = once()
    for _ in range(250):
        assert all(map(torch.equal, once(), first))


def test_several_streams():
    q, k, v = (each.detach() for each in inputs(4, 8, 512, 64))
    options = {"score": regard.SoftCap(regard.ScaledDot(), 5.0)}
    wanted, streams = attend(q, k, v, **options), [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    results = []
    for stream in streams:
        with torch.cuda.stream(stream):
            results += [attend(q, k, v, **options) for _ in range(4)]
    torch.cuda.synchronize()
    assert all(torch.equal(each, wanted) for each in results)


def test_autocast():
    q, k, v = inputs(2, 4, 64, 32)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = attend(q, k, v, weights=regard.Sigmoid())
    assert output.dtype == torch.bfloat16
    output.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_more_elements_than_fit_in_32_bits():
    n = 9_000_000
    k = torch.randn(n, 256, device="cuda", dtype=torch.bfloat16)  # 2.3e9 numbers
    v = torch.randn(n, 16, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(3, 256, device="cuda", dtype=torch.bfloat16) / 4
    got = attend(q, k, v, weights=regard.Sigmoid(), engine=regard.engines.Tiled(kernels=True)).float()
    wanted = torch.zeros(3, 16, device="cuda")
    for part in range(0, n, 1_000_000):
        piece = slice(part, part + 1_000_000)
        wanted += torch.sigmoid(q.float() @ k[piece].float().mT / 16) @ v[piece].float()
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2 * float(wanted.abs().max()))


COMPILED = {
    "causal": {"mask": regard.Causal()},
    "soft-capped": {"score": regard.SoftCap(regard.ScaledDot(), 5.0), "mask": regard.Causal()},
    "sigmoid": {"weights": regard.Sigmoid()},
    "ALiBi": {"score": (regard.ScaledDot() + regard.Alibi(0.1)).to("cuda")},
}


@pytest.mark.parametrize("options", COMPILED.values(), ids=COMPILED)
@pytest.mark.filterwarnings("ignore")  # torch's own, of what it compiles with
def test_compiled_calls_give_the_same(options):
    q, k, v = inputs(2, 4, 200, 64, dtype=torch.bfloat16)

    def call(q, k, v):
        return attend(q, k, v, **options)

    results = []
    for each in (torch.compile(call, fullgraph=True), call):
        output = each(q, k, v)
        results.append([output, *torch.autograd.grad(output.float().square().sum(), (q, k, v))])
    for compiled, plain in zip(*results, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=2e-2, atol=2e-2 * float(plain.abs().max()))


@pytest.mark.parametrize("options", list(COMPILED.values())[1:], ids=list(COMPILED)[1:])
def test_the_operator_passes_opcheck(options, monkeypatch):
    from regard.traced import routes
    from regard.traced.operators import attend_operator

    seen = []
    monkeypatch.setattr(routes, "attend_operator", lambda *a: seen.append(a) or attend_operator(*a))
    given = {"score": regard.ScaledDot(), "weights": regard.Softmax(), "mask": None, **options}
    routes.attend_traced(*inputs(2, 3, 40, 16), **given, dropout=0.0, engine="tiled")
    values, tensors, *rest = seen[0]
    leaves = [each.detach().requires_grad_(each.requires_grad) for each in (values, *tensors)]
    torch.library.opcheck(attend_operator, (leaves[0], leaves[1:], *rest))


def test_a_small_call_is_made_again_with_one_launch(monkeypatch):
    from regard.engines.cuda import program, small_calls

    monkeypatch.setattr(program, "SMALL", 1 << 18)
    small_calls._KNOWN.clear()
    options = {"score": regard.SoftCap(regard.ScaledDot(), 5.0), "mask": regard.Causal()}
    for turn in range(3):
        q, k, v = (each.detach() for each in inputs(2, 4, 16, 32))
        torch.testing.assert_close(
            attend(q, k, v, **options), attend(q, k, v, engine="reference", **options), rtol=1e-5, atol=1e-5
        )
        assert len(small_calls._KNOWN) == 1, turn


@pytest.mark.parametrize("mask", [None, regard.Causal(), regard.Allowed(torch.rand(8, 8) < 0.5)], ids=str)
def test_tiny_calls_in_training_wait_for_nothing_and_replay(monkeypatch, mask):
    from regard.engines.cuda import program, tiny_calls

    monkeypatch.setattr(program, "SMALL", 1 << 18)
    monkeypatch.setattr(tiny_calls, "_KNOWN", {})
    q, k, v = inputs(2, 4, 8, 32)
    mask = None if mask is None else mask.to(q.device)

    def call():
        output = attend(q, k, v, mask=mask, dropout=0.3)
        return output, *torch.autograd.grad(output.sum(), (q, k, v))

    found = []
    for engine in (None, "reference"):
        torch.manual_seed(5)
        output = attend(q, k, v, mask=mask, dropout=0.3, engine=engine)
        found.append((output, *torch.autograd.grad(output.square().sum(), (q, k, v))))
    assert any(tiny_calls._KNOWN.values())
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, _, _, to_values = call()
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(output.clone())
        # The way back drops what the way forward has: the output is linear in the values.
        torch.testing.assert_close((to_values * v).sum(), output.sum(), rtol=1e-4, atol=1e-3)
    assert not torch.equal(*seen)


@pytest.mark.parametrize("n_queries", [2, 5, 64])
def test_few_rows_over_many_keys_pass_for_heads(monkeypatch, n_queries):
    q, k, v = (torch.randn(2, 3, n, 64, device="cuda", dtype=torch.bfloat16) for n in (n_queries, 900, 900))
    expected = attend(*(each.double() for each in (q, k, v)), engine="reference")
    plain = attend(q, k, v)
    torch.testing.assert_close(plain.double(), expected, rtol=2e-2, atol=2e-2)
    calls = []
    by_row = fused_call.pool_row_by_row
    for module in (shortcut, fused_call):
        monkeypatch.setattr(module, "pool_row_by_row", lambda *given: calls.append(1) or by_row(*given))
    assert torch.equal(attend(q, k, v), plain)
    torch.testing.assert_close(attend(q, k, v, engine="sdpa"), plain)
    assert len(calls) == 2


def test_few_rows_build_nothing_large_nor_where_values_learn():
    q, k, v = (torch.randn(1, 8, n, 64, device="cuda") for n in (256, 4096, 4096))
    for dtype, learns in ((torch.float32, False), (torch.bfloat16, True)):
        given = [each.to(dtype) for each in (q, k, v)]
        given[2].requires_grad_(learns)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = attend(*given)
        if learns:
            output.sum().backward()
        assert torch.cuda.max_memory_allocated() - before < 64 << 20
