"""Every row of the table, as data: the work, its size, who runs it, and what must be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks import contests, layers
from benchmarks.contests import OURS, TILED, Size
from benchmarks.measure import Quantity
from benchmarks.peers import Call

MEGABYTE = 10**6


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


def both(at_most: float, peer: str, **others: Any) -> tuple[Demand, Demand]:
    """The same demand on forward and on forward + backward."""
    return Demand("forward", at_most, peer, **others), Demand("training", at_most, peer, **others)


FULL = Size((1, 8), 4096, 4096)
HALF = Size((1, 8), 2048, 2048)
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
    Row("dot", "dot softmax", FULL, contests.dot, PLAIN),
    Row("dot-batch", "dot softmax", Size((8, 8), 512, 512), contests.dot, PLAIN),
    Row("small", "dot softmax", Size((1, 8), 16, 16), contests.small, OVERHEAD, ("forward",)),
    Row("gated", "gated", FULL, contests.gated, FUSED),
    Row("gaussian", "Gaussian", FULL, contests.gaussian, FUSED),
    Row("sigmoid", "sigmoid", FULL, contests.sigmoid, FUSED),
    Row("conic", "conic", FULL, contests.conic, FUSED),
    Row("softcap", "soft-capped", FULL, contests.softcap, FUSED),
    Row("additive", "additive, hidden 64", Size((1, 4), 1024, 1024), contests.additive, ADDITIVE),
    Row(
        "additive-memory", "additive, hidden 64", Size((1, 1), 16_384, 16_384), contests.additive, GROWTH, (),
        weighed=(OURS,), verify_at=Size((1, 1), 512, 512),
    ),
    Row("window", "window of 256", LONG, contests.window, WINDOW),
    Row("selected", "64 selected keys", LONG, contests.selected, both(1 / 20, "SDPA")),
    Row("entmax", "entmax 1.5", HALF, contests.entmax, SPARSE, weighed=(OURS, "entmax package")),
    Row("sparsemax", "sparsemax", HALF, contests.sparsemax, SPARSE, weighed=(OURS, "entmax package")),
    Row("topk", "top-k 32", FULL, contests.top_k, both(1.6, "SDPA")),
    Row(
        "one-query", "one query", Size((), 1, 1_000_000), contests.one_query,
        (Demand("forward", 1 / 0.8, "two products"),), ("forward",),
    ),
    Row(
        "view", "collect(top, entropy, received, map)", Size((1, 1), 32_768, 32_768), contests.view,
        (Demand("forward", 2.5, "plain forward"), *GROWTH), ("forward",),
        weighed=(OURS,), weighed_pass="forward", verify_at=Size((1, 1), 1024, 1024),
    ),
    Row("multi-head", "multi-head attention", Size((8,), 512, 512, 512), layers.multi_head, both(1.05, "PyTorch")),
    Row(
        "multi-head-weights", "multi-head attention, top 8 weights", Size((1,), 2048, 2048, 512),
        layers.multi_head_weights, (Demand("forward", 1 / 1.5, "PyTorch"), Demand("memory", 1 / 10, "PyTorch")),
        ("forward",), weighed=(OURS, "PyTorch", "PyTorch, no weights"), weighed_pass="forward",
    ),
    Row(
        "encoder", "Transformer encoder, two layers", Size((8,), 256, 256, 512), layers.encoder,
        (Demand("training", 1.05, "PyTorch"),),
    ),
    Row(
        "sentences", "MiniLM on 100 sentences", Size((), 100, 100, 384), layers.sentences,
        (Demand("forward", 1.1, "transformers"),), ("forward",),
    ),
)  # fmt: skip


def find_row(name: str) -> Row:
    """The row of that name."""
    return {row.name: row for row in ROWS}[name]
