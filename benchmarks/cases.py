"""Every row of the table, as data: the work, its size, who runs it, and what must be reached."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks import formulas, peers
from benchmarks.measure import Quantity
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
MEGABYTE = 10**6


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


@dataclass(frozen=True)
class Demand:
    """What must be reached: ours beside a peer's, or by itself, at most."""

    quantity: Quantity | Literal["memory"]
    at_most: float
    peer: str | None = None  # nobody: the figure itself, in bytes
    ours: str = OURS
    difference: bool = False  # seconds over the peer, instead of a multiple of it


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    work: str
    size: Size
    build: Callable[[Size], Mapping[str, Call]]  # the calls, ours first
    demands: tuple[Demand, ...]
    quantities: tuple[Quantity, ...] = ("forward", "training")
    weighed: tuple[str, ...] = ()  # whose memory is measured, in a process of its own
    weighed_pass: Quantity = "training"
    verify_at: Size | None = None  # a size at which the definition fits, where it does not at the row's own


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


# Who runs each kind of attention ---------------------------------------------------------------------------------


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


# The table -------------------------------------------------------------------------------------------------------


def both(at_most: float, peer: str, **others: Any) -> tuple[Demand, Demand]:
    """The same demand on forward and on forward + backward."""
    return Demand("forward", at_most, peer, **others), Demand("training", at_most, peer, **others)


FULL = Size((1, 8), 4096, 4096)
LONG = Size((1, 2), 16_384, 16_384)  # as many heads as cores: SDPA's backward takes a core a head
PLAIN = (*both(1.03, "SDPA"), *both(1.05, "SDPA", ours=TILED))
FUSED = (*both(1.2, "SDPA"), *both(1 / 2.5, "compiled"))
ADDITIVE = (
    *(Demand("forward", 1 / 40, "eager"), Demand("forward", 1 / 12, "compiled"), Demand("forward", 1.0, "KeOps")),
    *(Demand("training", 1 / 25, "eager"), Demand("training", 1 / 10, "compiled"), Demand("training", 1.0, "KeOps")),
)
SPARSE = (
    *(Demand("training", 1.6, "SDPA"), Demand("training", 1 / 10, "entmax package")),
    Demand("memory", 1 / 10, "entmax package"),
)
# 256 of 16,384 keys are 64 times less work; half of that must be reached.
WINDOW = (*both(1 / 32, "SDPA"), Demand("forward", 1.0, "FlexAttention"))
GROWTH = (Demand("memory", 300 * MEGABYTE),)
OVERHEAD = (Demand("forward", 15e-6, "SDPA", difference=True),)

ROWS = (
    Row("dot", "dot softmax", FULL, dot, PLAIN),
    Row("dot-batch", "dot softmax", Size((8, 8), 512, 512), dot, PLAIN),
    Row("small", "dot softmax", Size((1, 8), 16, 16), small, OVERHEAD, ("forward",)),
    Row("gated", "gated", FULL, gated, FUSED),
    Row("gaussian", "Gaussian", FULL, gaussian, FUSED),
    Row("sigmoid", "sigmoid", FULL, sigmoid, FUSED),
    Row("conic", "conic", FULL, conic, FUSED),
    Row("softcap", "soft-capped", FULL, softcap, FUSED),
    Row("additive", "additive, hidden 64", Size((1, 4), 1024, 1024), additive, ADDITIVE),
    Row(
        "additive-memory", "additive, hidden 64", Size((1, 1), 16_384, 16_384), additive, GROWTH, (),
        weighed=(OURS,), verify_at=Size((1, 1), 512, 512),
    ),
    Row("window", "window of 256", LONG, window, WINDOW),
    Row("selected", "64 selected keys", LONG, selected, both(1 / 20, "SDPA")),
    Row("entmax", "entmax 1.5", Size((1, 8), 2048, 2048), entmax, SPARSE, weighed=(OURS, "entmax package")),
    Row("sparsemax", "sparsemax", Size((1, 8), 2048, 2048), sparsemax, SPARSE, weighed=(OURS, "entmax package")),
    Row("topk", "top-k 32", FULL, top_k, both(1.6, "SDPA")),
    Row(
        "one-query", "one query", Size((), 1, 1_000_000), one_query,
        (Demand("forward", 1 / 0.8, "two products"),), ("forward",),
    ),
    Row(
        "view", "collect(top, entropy, received, map)", Size((1, 1), 32_768, 32_768), view,
        (Demand("forward", 2.5, "plain forward"), *GROWTH), ("forward",),
        weighed=(OURS,), weighed_pass="forward", verify_at=Size((1, 1), 1024, 1024),
    ),
)  # fmt: skip


def find_row(name: str) -> Row:
    """The row of that name."""
    return {row.name: row for row in ROWS}[name]
