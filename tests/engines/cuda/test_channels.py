"""Scores that are sums over channels: they match the definition, and tanh as factors does for numbers of any size."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Causal, attend
from regard.engines import Tiled
from regard.engines.cuda import channels, masks, program
from regard.engines.kernels import codes
from regard.scores import ChannelForm, Score
from regard.testing import Case, Sizes, check

from .test_kernels import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(batch=1, heads=2, n_queries=7, n_keys=11, dim=3)

# Each score, rule of one pass and dtype, and each way in which a mask is given.
CASES = [
    ("Additive", "Softmax, sink", "Causal, end", torch.float32, "NaN and infinity"),
    ("Additive", "Sigmoid", "PerHead", torch.bfloat16, "dropout"),
    ("Gated(Additive)", "Softmax, temperature", "SameDocument", torch.float32, "plain"),
    ("Gated(Additive)", "Raw", "no mask", torch.float16, "batch axes of queries alone"),
    ("Laplacian", "Softmax", "Window", torch.float32, "not contiguous"),
    ("Laplacian", "Conic", "no mask", torch.bfloat16, "plain"),
    ("Equal", "Proportional", "Allowed", torch.float32, "plain"),
    ("Gaussian, bandwidth per dimension", "Softmax", "no mask", torch.float32, "plain"),
]


@pytest.mark.parametrize(("score", "rule", "mask", "dtype", "variant"), CASES)
def test_channels_match_the_definition(score, rule, mask, dtype, variant):
    assert check(KERNELS, Case(score, rule, mask, dtype, DEVICE, SIZE, variant)).matched


@pytest.mark.parametrize(("score", "rule"), [("Additive", "Softmax"), ("Laplacian", "Sigmoid"), ("Equal", "Uniform")])
def test_small_problems_of_channels_match_the_definition(monkeypatch, score, rule):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    assert check(KERNELS, Case(score, rule, "Causal, end", torch.float32, DEVICE, SIZE)).matched


@pytest.mark.parametrize("score", ["Gated(Additive)", "Laplacian"])
def test_lists_of_channels_match_the_definition(monkeypatch, score):
    monkeypatch.setattr(masks, "SPARSE", 1)
    size = Sizes(batch=1, heads=1, n_queries=7, n_keys=11, dim=3)  # the interpreter takes its time for each row
    assert check(KERNELS, Case(score, "Softmax", "Selected", torch.float32, DEVICE, size)).matched


def test_one_query_of_channels():
    assert check(KERNELS, Case("Additive", "Softmax", "no mask", variant="one query", device=DEVICE, size=SIZE)).matched


class Hidden(Score):
    """tanh of sums, each with its weight."""

    def __init__(self, weight, function="tanh"):
        super().__init__()
        self.weight, self.function = weight, function

    def form(self, queries, keys):
        return ChannelForm(queries, keys, self.function, None if self.weight is None else self.weight.to(queries))


def errors(tensors, **options):
    """How far kernels and the definition in float32 are from that in float64, for the output and each gradient."""
    found = []
    for engine, dtype in ((KERNELS, torch.float32), ("reference", torch.float32), ("reference", torch.float64)):
        q, k, v, weight = (each.detach().to(dtype).requires_grad_() for each in tensors)
        output = attend(q, k, v, score=Hidden(weight), engine=engine, **options)
        found.append([output.detach(), *torch.autograd.grad(output.cos().sum(), (q, k, v, weight))])
    return [[float((one.double() - exact).abs().max()) for one in (a, b)] for a, b, exact in zip(*found, strict=True)]


# Four channels share a reciprocal; two do, on the way back; each has its own; no factor is a number; tanh is near 0.
# Of a multiple of four channels, weights are part of the factors, unless they are too small for that, or too large.
@pytest.mark.parametrize(
    ("size", "weight", "dim"),
    [
        (0.5, 1.0, 5),
        (3.0, 1.0, 5),
        (8.0, 1.0, 5),
        (70.0, 1.0, 5),
        (0.1, 100.0, 5),
        (0.5, 1.0, 8),
        (0.5, 1e-12, 8),
        (0.1, 1e12, 8),
        (3.0, 1.0, 8),
    ],
)
def test_tanh_of_any_size_is_as_exact_as_the_definition(size, weight, dim):
    torch.manual_seed(0)
    q, k, v = size * torch.randn(9, dim), size * torch.randn(70, dim), torch.randn(70, 2)
    for got, plain in errors([each.to(DEVICE) for each in (q, k, v, weight * torch.randn(1, dim))]):
        assert got <= 4 * plain + 2e-6


@pytest.mark.parametrize("function", ["tanh", "absolute"])
def test_channels_without_weights_over_several_blocks(function):
    torch.manual_seed(0)
    q, k, v = (torch.randn(n, 3, device=DEVICE) for n in (5, 135, 135))
    results = []
    for engine in (KERNELS, "reference"):
        leaves = [each.clone().requires_grad_() for each in (q, k, v)]
        options = {"score": Hidden(None, function), "mask": Causal(align="end"), "engine": engine}
        output = attend(*leaves, **options)
        results.append([output.detach(), *torch.autograd.grad(output.square().sum(), leaves)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


# A power of two, a multiple of four in both halves, and so many that fewer vectors stay.
@pytest.mark.parametrize("dim", [16, 28, 130])
@pytest.mark.parametrize("function", ["tanh", "absolute", "square", "differ"])
def test_so_many_channels_of_which_some_are_equal(function, dim):
    torch.manual_seed(0)
    q, k = (torch.randint(-2, 3, (n, dim), device=DEVICE) / dim**0.5 for n in (20, 70))
    v, weight = torch.randn(70, 3, device=DEVICE), torch.randn(1, dim, device=DEVICE)
    if function == "tanh":
        q[0, 0], weight[0, 1] = 60.0, 0.0  # the first tile has factors that do not go together
    results = []
    for engine, dtype in ((KERNELS, torch.float32), ("reference", torch.float64)):
        leaves = [each.to(dtype).requires_grad_() for each in (q, k, v, weight)]
        output = attend(*leaves[:3], score=Hidden(leaves[3], function), engine=engine, mask=Causal(align="end"))
        gradients = torch.autograd.grad(output.cos().sum(), leaves, allow_unused=True)
        results.append([output.detach(), *[each for each in gradients if each is not None]])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=2e-5)


def test_what_is_broadcast_is_prepared_once():
    vectors = torch.randn(2, 1, 5, 3, device=DEVICE)
    made, ranges = channels.prepared(vectors.expand(2, 4, 5, 3), codes.TANH)
    assert made.shape == (2, 1, 2 * 4 * 128)
    by_channel, by_vector = made.view(2, 2, 4 * 128).unbind(1)
    torch.testing.assert_close(by_channel.view(2, 4, 128)[:, :3, :5], (2 * vectors[:, 0].mT).exp())
    torch.testing.assert_close(by_vector.view(2, 128, 4), by_channel.view(2, 4, 128).mT)
    torch.testing.assert_close(ranges[1, 0, 0], 2 * vectors[1].amax() / torch.tensor(2.0).log())
