"""Those who run beside us: each a function of the inputs that returns a `Call`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import formulas
from regard import Mask, Score, attend

Results = Tensor | tuple[Tensor, ...]
Formula = Callable[..., Tensor]

# What needs more is not run, but reported as impossible with what it would need.
MEMORY_LIMIT = 6 << 30


@dataclass(frozen=True)
class Call:
    """One way to compute a row."""

    compute: Callable[[], Results]
    leaves: tuple[Tensor, ...] = ()  # what training asks gradients for; none if it cannot train
    same: bool = True  # whether it computes what we compute, or only work to compare with
    needs: int = 0  # bytes, where that may be too many

    @property
    def cannot(self) -> str | None:
        """Why it is not run; None if it is."""
        return f"cannot: needs {self.needs / 2**30:,.0f} GiB" if self.needs > MEMORY_LIMIT else None


@dataclass(frozen=True)
class Inputs:
    """The tensors of a row, and how regard is asked for it."""

    queries: Tensor  # (..., n_queries, dim)
    keys: Tensor  # (..., n_keys, dim)
    values: Tensor
    score: Score | None = None
    options: dict[str, Any] | None = None  # weights and mask
    width: int = 1  # numbers that a formula builds for a pair

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries, self.keys, self.values

    @property
    def learned(self) -> tuple[Tensor, ...]:
        return () if self.score is None else tuple(self.score.parameters())

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return (*self.tensors, *self.learned)

    @property
    def dense_bytes(self) -> int:
        """About what a formula keeps for its gradient: four copies of all that it builds for the pairs."""
        *lead, n_queries, _ = self.queries.shape
        return 4 * 4 * math.prod(lead) * n_queries * self.keys.shape[-2] * self.width


def regard(inputs: Inputs, engine: str | None = None) -> Call:
    """Ours."""
    options = dict(inputs.options or {})
    if inputs.score is not None:
        options["score"] = inputs.score
    return Call(lambda: attend(*inputs.tensors, **options, engine=engine), inputs.leaves)


def sdpa(inputs: Inputs, *, same: bool = False, mask: Tensor | None = None) -> Call:
    """PyTorch's fused softmax(QKᵀ/√d)V: the same work in products, whatever the score and the rule."""

    def compute() -> Tensor:
        extra = 4 - inputs.queries.ndim
        queries, keys, values = (each[(None,) * extra] if extra else each for each in inputs.tensors)
        output = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return output[(0,) * extra] if extra else output

    return Call(compute, inputs.tensors, same=same)


def eager(inputs: Inputs, formula: Formula) -> Call:
    """The formula as it stands."""
    return Call(lambda: formula(*inputs.leaves), inputs.leaves, needs=inputs.dense_bytes)


def compiled(inputs: Inputs, formula: Formula) -> Call:
    """torch.compile of the formula."""

    @functools.cache
    def prepare() -> Formula:
        return torch.compile(formula, dynamic=False)

    return eager(inputs, lambda *tensors: prepare()(*tensors))


def flex(inputs: Inputs, score_mod: Callable[..., Tensor] | None = None, mask: Mask | None = None) -> Call:
    """Compiled FlexAttention; on a CPU it refuses tensors that want a gradient."""
    queries, keys, values = (each.detach() for each in inputs.tensors)

    @functools.cache
    def prepare() -> tuple[Any, Any]:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        n_queries, n_keys = queries.shape[-2], keys.shape[-2]
        allows = None if mask is None else _as_mask_mod(mask)
        block_mask = None if allows is None else create_block_mask(allows, None, None, n_queries, n_keys, device="cpu")
        return torch.compile(flex_attention, dynamic=False), block_mask

    def compute() -> Tensor:
        attention, block_mask = prepare()
        output: Tensor = attention(queries, keys, values, score_mod=score_mod, block_mask=block_mask)
        return output

    return Call(compute)


def _as_mask_mod(mask: Any) -> Callable[..., Tensor]:
    """A window as FlexAttention wants it."""
    before, after = mask.before, mask.after

    def allows(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return (column - row <= after) & (row - column <= before)

    return allows


def flex_gated(inputs: Inputs) -> Call:
    """A gate that is projected beforehand: `score_mod` sees places, not queries and keys."""
    with torch.no_grad():
        of_query, of_key = formulas.gates(inputs.queries, inputs.keys, inputs.learned[0])

    def gate(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return score * torch.sigmoid(of_query[batch, head, row] + of_key[batch, head, column])

    return flex(inputs, gate)


def flex_softcap(inputs: Inputs) -> Call:
    """A cap as the `score_mod` that FlexAttention's own examples have."""

    def cap(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return formulas.CAP * torch.tanh(score / formulas.CAP)

    return flex(inputs, cap)


def keops_additive(inputs: Inputs) -> Call:
    """The additive score as a KeOps formula. It has no tanh: tanh(x) = 1 − 2 / (e²ˣ + 1)."""

    def compute() -> Tensor:
        import pykeops

        pykeops.set_verbose(False)
        from pykeops.torch import LazyTensor

        *weights, v = inputs.learned
        left, right = formulas.projections(inputs.queries, inputs.keys, *weights)
        total = LazyTensor(left.unsqueeze(-2)) + LazyTensor(right.unsqueeze(-3))
        lead = (1,) * (left.ndim - 2)
        scores = (1 - 2 / ((2 * total).exp() + 1)) | LazyTensor(v.view(*lead, 1, 1, -1))
        output: Tensor = scores.sumsoftmaxweight(LazyTensor(inputs.values.unsqueeze(-3)), dim=left.ndim - 1)
        return output

    return Call(compute, inputs.leaves)


def entmax_package(inputs: Inputs, name: str) -> Call:
    """The `entmax` package over all scores; `name` is entmax15 or sparsemax."""

    def compute() -> Tensor:
        import entmax

        return getattr(entmax, name)(formulas.scaled_dot(inputs.queries, inputs.keys), dim=-1) @ inputs.values

    return Call(compute, inputs.leaves, needs=inputs.dense_bytes)


def two_products(inputs: Inputs) -> Call:
    """The least that one query must read: keys times a vector, and a vector times values."""
    query, keys, values = (each.detach() for each in inputs.tensors)
    query = query.squeeze(0)

    def compute() -> Tensor:
        return (keys @ query) @ values

    return Call(compute, same=False)
