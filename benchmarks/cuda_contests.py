"""The rows of `benchmarks/cuda.py`: for each, who computes it; ours first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.peers import Call
from regard import (
    Alibi,
    Causal,
    Conic,
    Gaussian,
    Mask,
    ScaledDot,
    Score,
    Selected,
    Sigmoid,
    SoftCap,
    Weights,
    Window,
    attend,
    nn,
)
from regard.scores import DotForm, Form
from regard.scores.steps import Gate

OURS = "regard"
READING = "a sum"  # of all keys and values: no attention, but the least that reading them takes
CAP = 20.0


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _half() -> torch.dtype:
    return torch.bfloat16 if device().type == "cuda" else torch.float32


def drawn(*shape: int, dtype: torch.dtype | None = None) -> Tensor:
    drawn = torch.randn(*shape, device=device(), dtype=torch.float32)
    return drawn.to(_half() if dtype is None else dtype).requires_grad_()


def inputs(quick: bool, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a shape."""
    q, k, v = (drawn(*((1, 2, 64, 16) if quick else shape)) for _ in range(3))
    return q, k, v


def ours(tensors: tuple[Tensor, ...], leaves: tuple[Tensor, ...] | None = None, **options: Any) -> Call:
    return Call(lambda: attend(*tensors, **options), tensors if leaves is None else leaves)


def _sdpa(tensors: tuple[Tensor, ...], **options: Any) -> Call:
    return Call(lambda: scaled_dot_product_attention(*tensors, **options), tensors)


def _flex() -> tuple[Any, Any]:
    """FlexAttention and its masks. Each row compiles it anew: torch compiles one function a few times and no more."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if device().type != "cuda":
        return flex_attention, create_block_mask
    torch._dynamo.reset()
    return torch.compile(flex_attention, dynamic=False), create_block_mask


def _flexed(
    tensors: tuple[Tensor, ...],
    change: Callable[..., Tensor] | None = None,
    allowed: Callable[..., Tensor] | None = None,
    more: tuple[Tensor, ...] = (),
) -> Call:
    """FlexAttention with a change of scores and a mask, both functions of positions."""
    flex, create = _flex()
    n = tensors[0].shape[-2]
    block_mask = None if allowed is None else create(allowed, None, None, n, n, device=str(device()))
    leaves = (*tensors, *more) if device().type == "cuda" else ()  # it cannot train on a CPU
    given = tensors if leaves else tuple(each.detach() for each in tensors)
    return Call(lambda: flex(*given, score_mod=change, block_mask=block_mask), leaves)


def dot(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 4, 16, 4096, 128)
    return {OURS: ours(tensors), "SDPA": _sdpa(tensors)}


def causal(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 4, 16, 4096, 128)
    return {OURS: ours(tensors, mask=Causal()), "SDPA": _sdpa(tensors, is_causal=True)}


class GivenGates(Score):
    """σ(g_q + g_k) · qᵀk / √d, of gates that somebody else computes."""

    def __init__(self, of_queries: Tensor, of_keys: Tensor) -> None:
        super().__init__()
        self.of_queries, self.of_keys = of_queries, of_keys

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        gate = Gate(self.of_queries.unsqueeze(-1), self.of_keys.unsqueeze(-1))
        return DotForm(queries, keys, 1 / math.sqrt(queries.shape[-1])).then(gate)


def _gates(tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    batch, heads, length, _ = tensors[0].shape
    return drawn(batch, heads, length), drawn(batch, heads, length)


def _gated(quick: bool, mask: Mask | None, allowed: Callable[..., Tensor] | None) -> Mapping[str, Call]:
    tensors = inputs(quick, 4, 16, 4096, 128)
    of_queries, of_keys = gates = _gates(tensors)

    if device().type != "cuda":
        of_queries, of_keys = of_queries.detach(), of_keys.detach()

    def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score * torch.sigmoid(of_queries[b, h, i] + of_keys[b, h, j])

    call = ours(tensors, (*tensors, *gates), score=GivenGates(*gates), mask=mask)
    return {OURS: call, "FlexAttention": _flexed(tensors, change, allowed, gates)}


def gated(quick: bool) -> Mapping[str, Call]:
    return _gated(quick, None, None)


def causal_and_gated(quick: bool) -> Mapping[str, Call]:
    return _gated(quick, Causal(), lambda b, h, i, j: i >= j)


def soft_capped(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 4, 16, 4096, 128)
    flexed = _flexed(tensors, lambda score, b, h, i, j: CAP * torch.tanh(score / CAP))
    return {OURS: ours(tensors, score=SoftCap(ScaledDot(), CAP)), "FlexAttention": flexed}


def alibi(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 4, 16, 4096, 128)
    term = Alibi.for_heads(tensors[0].shape[1]).to(device())
    slopes = term.slopes
    flexed = _flexed(tensors, lambda score, b, h, i, j: score - slopes[h] * (i - j).abs())
    return {OURS: ours(tensors, score=ScaledDot() + term), "FlexAttention": flexed}


def window(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 1, 16, 16_384, 64)
    width = 16 if quick else 256
    flexed = _flexed(tensors, allowed=lambda b, h, i, j: (i >= j) & (i - j < width))
    return {OURS: ours(tensors, mask=Window(before=width - 1, after=0)), "FlexAttention": flexed}


def selected(quick: bool) -> Mapping[str, Call]:
    q, k, v = tensors = inputs(quick, 1, 16, 16_384, 64)
    n, width = q.shape[-2], 8 if quick else 64
    index = torch.rand(n, n if quick else 512, device=device()).topk(width).indices * (1 if quick else n // 512)

    def gathered() -> Tensor:
        keys, values = k[..., index, :], v[..., index, :]  # (batch, heads, n, width, dim)
        scores = (q.unsqueeze(-2) * keys).sum(-1) / math.sqrt(q.shape[-1])
        return (scores.softmax(-1).unsqueeze(-1) * values).sum(-2)

    return {OURS: ours(tensors, mask=Selected(index)), "gathered": Call(gathered, tensors)}


def against_compiled(quick: bool, formula: Callable[..., Tensor], **options: Any) -> Mapping[str, Call]:
    tensors = inputs(quick, 2, 8, 2048, 64)
    compiled = formula if quick else torch.compile(formula, dynamic=False)
    return {OURS: ours(tensors, **options), "compiled": Call(lambda: compiled(*tensors), tensors)}


def gaussian(quick: bool) -> Mapping[str, Call]:
    width = 8.0

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        squares = q.square().sum(-1, keepdim=True) + k.square().sum(-1).unsqueeze(-2) - 2 * (q @ k.mT)
        return (squares / (-2 * width**2)).softmax(-1) @ v

    return against_compiled(quick, formula, score=Gaussian(width))


def sigmoid(quick: bool) -> Mapping[str, Call]:
    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.sigmoid(q @ k.mT / math.sqrt(q.shape[-1])) @ v

    return against_compiled(quick, formula, weights=Sigmoid())


def conic(quick: bool) -> Mapping[str, Call]:
    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.relu(q @ k.mT / math.sqrt(q.shape[-1])) @ v

    return against_compiled(quick, formula, weights=Conic())


def _decoding(quick: bool, **options: Any) -> Mapping[str, Call]:
    groups, repeat, n_keys, dim = (2, 2, 64, 16) if quick else (8, 4, 131_072, 128)
    q = drawn(1, groups, repeat, 1, dim)
    k, v = drawn(1, groups, 1, n_keys, dim), drawn(1, groups, 1, n_keys, dim)
    whole = (q.view(1, groups * repeat, 1, dim), k.squeeze(2), v.squeeze(2))
    calls = {OURS: Call(lambda: attend(q, k, v, **options).view(1, groups * repeat, 1, dim)), READING: _summed(k, v)}
    if not options:
        calls["SDPA"] = Call(lambda: scaled_dot_product_attention(*whole, enable_gqa=True))
    return calls


def _summed(*tensors: Tensor) -> Call:
    """What reading costs at least: a sum over every number."""
    return Call(lambda: tuple(each.sum() for each in tensors), same=False)


def decoding(quick: bool) -> Mapping[str, Call]:
    return _decoding(quick)


def decoding_soft_capped(quick: bool) -> Mapping[str, Call]:
    return _decoding(quick, score=SoftCap(ScaledDot(), CAP))


def one_query(quick: bool) -> Mapping[str, Call]:
    n_keys = 512 if quick else 4_000_000
    q, k, v = (drawn(*shape, dtype=torch.float32) for shape in ((1, 128), (n_keys, 128), (n_keys, 16)))

    def products() -> Tensor:
        squares = q.square().sum(-1, keepdim=True) + k.square().sum(-1) - 2 * (q @ k.mT)
        return (squares / -128).softmax(-1) @ v

    ours = Call(lambda: attend(q, k, v, score=Gaussian(8.0)))
    return {OURS: ours, READING: _summed(k, v), "two products": Call(products)}


def small_calls() -> Mapping[str, Mapping[str, Callable[[], Any]]]:
    """Calls so small that only their way through Python counts."""
    tensors = [drawn(2, 4, 16, 32).detach() for _ in range(3)]
    rules: dict[str, Weights] = {"sigmoid": Sigmoid()}
    plain: dict[str, Callable[[], Any]] = {
        OURS: lambda: attend(*tensors),
        "SDPA": lambda: scaled_dot_product_attention(*tensors),
        "regard, own kernel": lambda: attend(*tensors, weights=rules["sigmoid"]),
    }
    theirs = torch.nn.MultiheadAttention(256, 8, batch_first=True, device=device()).train()
    ours = nn.MultiHeadAttention(256, 8, batch_first=True).to(device()).train()
    x = drawn(4, 32, 256, dtype=torch.float32).detach()
    layers: dict[str, Callable[[], Any]] = {
        OURS: lambda: ours(x, x, x, need_weights=False),
        "PyTorch": lambda: theirs(x, x, x, need_weights=False),
    }
    return {"attend, n = 16": plain, "multi-head attention (4, 32, 256)": layers}


def long_gated(quick: bool) -> Call:
    """So many pairs that n × m would take 128 GiB."""
    tensors = inputs(quick, 1, 1, 131_072, 128)
    gates = _gates(tensors)
    return ours(tensors, (*tensors, *gates), score=GivenGates(*gates))
