"""Who runs beside whom: for each kind of attention a function of the size that returns the calls, ours first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks import formulas, peers
from benchmarks.peers import Call, Inputs
from regard import (
    Additive,
    Conic,
    Entmax,
    Gated,
    Gaussian,
    ScaledDot,
    Score,
    Selected,
    Sigmoid,
    SoftCap,
    Sparsemax,
    TopK,
    Window,
    attend,
    weigh,
)

OURS = "regard"
TILED = "regard, tiled"


@dataclass(frozen=True)
class Size:
    """The shapes of queries `(*lead, n_queries, dim)` and of keys and values `(*lead, n_keys, dim)`."""

    lead: tuple[int, ...]
    n_queries: int
    n_keys: int
    dim: int = 64

    def shrunk(self, factor: int, least: int = 16) -> Size:
        """So many times fewer queries and keys, but not fewer than some."""

        def fewer(count: int) -> int:
            return min(count, max(least, count // factor))

        return replace(self, n_queries=fewer(self.n_queries), n_keys=fewer(self.n_keys))

    def __str__(self) -> str:
        sides = (self.n_queries,) if self.n_queries == self.n_keys else (f"{self.n_queries}×{self.n_keys}",)
        return f"({', '.join(map(str, (*self.lead, *sides, self.dim)))})"


def make_inputs(size: Size, score: Score | None = None, *, width: int = 1, **options: Any) -> Inputs:
    """Normal numbers from a fixed seed, all wanting gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> Tensor:
        return torch.randn(*size.lead, count, size.dim, generator=generator).requires_grad_()

    return Inputs(draw(size.n_queries), draw(size.n_keys), draw(size.n_keys), score, options, width)


def make_score(score: type[Score], size: Size, *rest: Any) -> Score:
    """A score whose parameters are the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return score(size.dim, size.dim, *rest)


def dot(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size)
    return {
        OURS: peers.regard(inputs),
        TILED: peers.regard(inputs, engine="tiled"),
        "SDPA": peers.sdpa(inputs, same=True),
        "eager": peers.eager(inputs, formulas.dot),
        "FlexAttention": peers.flex(inputs),
    }


def small(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size)
    return {OURS: peers.regard(inputs), "SDPA": peers.sdpa(inputs, same=True)}


def beside_formula(inputs: Inputs, formula: Callable[..., Tensor], **others: Call) -> dict[str, Call]:
    """Ours, SDPA's plain softmax, the formula, its compilation, and others."""
    return {
        OURS: peers.regard(inputs),
        "SDPA": peers.sdpa(inputs),
        "eager": peers.eager(inputs, formula),
        "compiled": peers.compiled(inputs, formula),
        **others,
    }


def gated(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, make_score(Gated, size, ScaledDot()))
    return beside_formula(inputs, formulas.gated, FlexAttention=peers.flex_gated(inputs))


def gaussian(size: Size) -> dict[str, Call]:
    return beside_formula(make_inputs(size, Gaussian(formulas.BANDWIDTH)), formulas.gaussian)


def sigmoid(size: Size) -> dict[str, Call]:
    return beside_formula(make_inputs(size, weights=Sigmoid()), formulas.sigmoid)


def conic(size: Size) -> dict[str, Call]:
    return beside_formula(make_inputs(size, weights=Conic()), formulas.conic)


def softcap(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, SoftCap(ScaledDot(), formulas.CAP))
    return beside_formula(inputs, formulas.softcap, FlexAttention=peers.flex_softcap(inputs))


def additive(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, make_score(Additive, size, formulas.HIDDEN), width=formulas.HIDDEN)
    calls = beside_formula(inputs, formulas.additive, KeOps=peers.keops_additive(inputs))
    calls.pop("SDPA")  # it has no hidden units, so that its time says nothing here
    return calls


def window(size: Size) -> dict[str, Call]:
    mask = Window(before=128, after=127)
    inputs = make_inputs(size, mask=mask)
    row, column = torch.arange(size.n_queries).unsqueeze(-1), torch.arange(size.n_keys)
    allowed = (column - row <= 127) & (row - column <= 128)
    return {
        OURS: peers.regard(inputs),
        "SDPA": peers.sdpa(inputs),
        "SDPA, masked": peers.sdpa(inputs, same=True, mask=allowed),
        "FlexAttention": peers.flex(inputs, mask=mask),
    }


def selected(size: Size) -> dict[str, Call]:
    # One key of each of 64 equal parts, so that no key is listed twice.
    n_parts = min(64, size.n_keys)
    part = size.n_keys // n_parts
    generator = torch.Generator().manual_seed(2)
    within = torch.randint(part, (size.lead[-1], size.n_queries, n_parts), generator=generator)
    indices = within + part * torch.arange(n_parts)
    inputs = make_inputs(size, mask=Selected(indices))
    return {
        OURS: peers.regard(inputs),
        "SDPA": peers.sdpa(inputs),
        "gathered": Call(lambda: formulas.gathered(*inputs.tensors, indices), inputs.tensors),
    }


def entmax(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, weights=Entmax(1.5))
    package = peers.entmax_package(inputs, "entmax15")
    return {OURS: peers.regard(inputs), "SDPA": peers.sdpa(inputs), "entmax package": package}


def sparsemax(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, weights=Sparsemax())
    package = peers.entmax_package(inputs, "sparsemax")
    return {OURS: peers.regard(inputs), "SDPA": peers.sdpa(inputs), "entmax package": package}


def top_k(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size, weights=TopK(32))
    formula = functools.partial(formulas.top_k, k=32)
    return {OURS: peers.regard(inputs), "SDPA": peers.sdpa(inputs), "eager": peers.eager(inputs, formula)}


def one_query(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size)
    return {
        OURS: peers.regard(inputs),
        "two products": peers.two_products(inputs),
        "SDPA": peers.sdpa(inputs, same=True),
        "eager": peers.eager(inputs, formulas.dot),
    }


def view(size: Size) -> dict[str, Call]:
    inputs = make_inputs(size)

    def collect() -> tuple[Tensor, ...]:
        seen = weigh(*inputs.tensors).collect(top=8, entropy=True, received=True, map=(256, 256))
        return seen.top.weights, seen.entropy, seen.received, seen.map

    return {
        OURS: Call(collect),
        "plain forward": Call(lambda: attend(*inputs.tensors), same=False),
        "eager": Call(lambda: formulas.readings(inputs.queries, inputs.keys, 8, 256), needs=inputs.dense_bytes),
    }
