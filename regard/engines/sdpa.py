"""PyTorch's fused kernels, wherever score, rule and mask reduce exactly to softmax(scale · QKᵀ)V."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.engines.base import Engine
from regard.engines.second import gradients_over_strips
from regard.engines.strips import pool_by_strips
from regard.masks import Allowed, Causal, Cover, GlobalKeys, KeyMask, Mask, Padding
from regard.positions import Grid, resolve_offset
from regard.problem import AttentionProblem
from regard.scores import DotForm
from regard.tensors import is_finite
from regard.weights import Softmax

# Masks that are a tensor already, or a row of it: what the kernels take without building n × m.
TENSOR_MASKS = (Allowed, GlobalKeys, KeyMask, Padding)


class Sdpa(Engine):
    """`scaled_dot_product_attention`, never its math backend, which would build n × m."""

    name = "sdpa"
    letter = "S"
    summary = "PyTorch's fused kernels, for scores that are a dot product under softmax"

    def refusals(self, problem: AttentionProblem) -> list[str]:
        reasons = super().refusals(problem)
        form, rule, grid = problem.form, problem.weights, problem.grid
        if type(form) is not DotForm:
            reasons.append(f"{_named(problem.score)} is not a dot product of projected queries and keys")
        elif form.steps:
            steps = ", ".join(type(step).__name__ for step in form.steps)
            reasons.append(f"{_named(problem.score)} changes each score after the dot product ({steps})")
        if type(rule) is not Softmax:
            reasons.append(f"weights are {_named(rule)}, not Softmax")
        elif rule.sink is not None:
            reasons.append("Softmax has a sink")
        if problem.dropout:
            reasons.append("dropout: the kernels draw another pattern")
        if problem.visibility is not Cover.ALL and not _takes_mask(problem.mask, grid):
            reasons.append(f"mask {problem.mask!r} would have to be built as n × m")
        if reasons:
            return reasons
        assert isinstance(form, DotForm)
        if 0 in (*grid.batch_shape, grid.n_queries, grid.n_keys, form.left.shape[-1], problem.values.shape[-1]):
            return ["an empty problem"]
        if form.left.dtype != problem.values.dtype:
            return [f"scores are computed in {form.left.dtype} and values are {problem.values.dtype}"]
        call = _prepare(problem)
        if call is None:
            return ["batch axes broadcast in a way that the kernels would copy"]
        if call.backend() == SDPBackend.MATH:
            return [f"PyTorch has no fused kernel for this on {grid.device.type} and would build n × m"]
        return []

    def bytes(self, problem: AttentionProblem) -> int:
        key_dim, value_dim = problem.form.tensors()[0].shape[-1], problem.values.shape[-1]
        grid = problem.grid
        # Padded copies where key_dim ≠ value_dim, and a log-normaliser for each row.
        padded = 0 if key_dim == value_dim else (grid.n_queries + 2 * grid.n_keys) * max(key_dim, value_dim)
        # The kernels turn a mask of true and false into numbers.
        mask = sum(each.numel() for each in problem.mask.tensors()) if problem.mask is not None else 0
        return (math.prod(grid.batch_shape) * (padded + grid.n_queries) + mask) * problem.compute_dtype.itemsize

    def run(self, problem: AttentionProblem) -> Tensor:
        if problem.may_leak:
            # The kernels multiply masked NaN by 0; their output may be finite and their gradients not.
            return pool_by_strips(problem)
        with torch.autocast(problem.grid.device.type, enabled=False):
            if torch.is_grad_enabled() and any(each.requires_grad for each in problem.inputs):
                output: Tensor = _Fused.apply(problem, *problem.inputs)  # type: ignore[no-untyped-call]
            else:
                call = _prepare(problem)
                assert call is not None
                output = call.compute().reshape(problem.output_shape)
        if problem.visibility is not Cover.ALL and not is_finite(output):
            # A masked score overflowed, and the kernels add −inf to what it became.
            return pool_by_strips(problem)
        return output


@dataclass(frozen=True)
class _Call:
    """The arguments of one call of the fused kernels, in 4-D."""

    query: Tensor  # (batch, heads, n_queries, dim)
    key: Tensor  # (batch, heads or groups, n_keys, dim)
    value: Tensor
    mask: Tensor | None
    empty: Tensor | None  # rows that may look nowhere, (..., n_queries, 1)
    is_causal: bool
    scale: float
    value_dim: int

    def _options(self) -> dict[str, Any]:
        grouped = self.query.shape[1] != self.key.shape[1]
        return {"attn_mask": self.mask, "is_causal": self.is_causal, "scale": self.scale, "enable_gqa": grouped}

    def backend(self) -> SDPBackend:
        """Which kernel PyTorch would take."""
        return SDPBackend(torch._fused_sdp_choice(self.query, self.key, self.value, **self._options()))

    def compute(self) -> Tensor:
        """The output, `(batch, heads, n_queries, value_dim)`."""
        output = scaled_dot_product_attention(self.query, self.key, self.value, **self._options())
        output = output[..., : self.value_dim]
        return output if self.empty is None else torch.where(self.empty, 0, output)


def _prepare(problem: AttentionProblem) -> _Call | None:
    """The call that computes a problem; None if its batch axes would have to be copied."""
    form = problem.form
    assert isinstance(form, DotForm)
    grid = problem.grid
    left, right, values = (_adjacent(each) for each in (form.left, form.right, problem.values))
    key_dim, value_dim = left.shape[-1], values.shape[-1]
    # One dim for all, in steps that the device's kernels take: zeros change neither a dot product nor a sum.
    step = 8 if grid.device.type == "cuda" else 1
    dim = -(-max(key_dim, value_dim) // step) * step
    if key_dim < dim:
        left, right = pad(left, (0, dim - key_dim)), pad(right, (0, dim - key_dim))
    if value_dim < dim:
        values = pad(values, (0, dim - value_dim))
    folded = _fold_batch(grid, left, right, values)
    if folded is None:
        return None
    mask, empty, is_causal = _as_kernel_mask(problem)
    return _Call(*folded, mask, empty, is_causal, form.scale, value_dim)


def _adjacent(tensor: Tensor) -> Tensor:
    """The tensor with the entries of a vector next to each other, as the kernels want them."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _fold_batch(grid: Grid, left: Tensor, right: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The three tensors with two batch axes, as views; None where broadcasting would need copies."""
    batch = grid.batch_shape
    if len(batch) <= 2:
        target = (1,) * (2 - len(batch)) + batch
        return tuple(each.expand(*target, *each.shape[-2:]) for each in (left, right, values))  # type: ignore[return-value]
    tensors = [each.reshape(*(1,) * (len(batch) + 2 - each.ndim), *each.shape) for each in (left, right, values)]
    left, right, values = tensors
    whole = math.prod(batch[:-2])
    if left.shape[:-2] == batch and right.shape[:-2] == values.shape[:-2] == (*batch[:-1], 1):
        # Grouped queries: (..., groups, repeat, n, d) against (..., groups, 1, m, d).
        groups, repeat = batch[-2:]
        return (
            left.reshape(whole, groups * repeat, *left.shape[-2:]),
            right.reshape(whole, groups, *right.shape[-2:]),
            values.reshape(whole, groups, *values.shape[-2:]),
        )
    heads, lead = batch[-1], math.prod(batch[:-1])
    folded = []
    for each in tensors:
        if each.shape[:-3] == batch[:-1]:
            each = each.reshape(lead, *each.shape[-3:])
        elif math.prod(each.shape[:-3]) == 1:
            each = each.reshape(1, *each.shape[-3:])
        else:
            return None
        folded.append(each.expand(lead, heads, *each.shape[-2:]))
    return folded[0], folded[1], folded[2]


def _takes_mask(mask: Mask | None, grid: Grid) -> bool:
    # By type, not isinstance: a user's subclass may allow something else.
    if type(mask) is Causal:
        offset = resolve_offset(mask.align, grid, "Causal")
        return isinstance(offset, int) and offset == 0
    return type(mask) in TENSOR_MASKS and len(grid.batch_shape) <= 2


def _as_kernel_mask(problem: AttentionProblem) -> tuple[Tensor | None, Tensor | None, bool]:
    """(mask tensor, rows that may look nowhere, is_causal) for the kernels."""
    grid, mask = problem.grid, problem.mask
    if mask is None or problem.visibility is Cover.ALL:
        return None, None, False
    if isinstance(mask, Causal):
        return None, None, True
    allowed = _in_4d(mask.tile(grid.rows, grid.columns, grid), grid)
    empty = ~allowed.any(-1, keepdim=True)
    if not bool(empty.any()):
        return allowed, None, False
    # Let such rows look everywhere and throw their output away: a row without keys has no defined gradient in the
    # kernels.
    return allowed | empty, empty, False


def _in_4d(mask: Tensor, grid: Grid) -> Tensor:
    """The mask with four axes. Axes of size 1 stay so: expanded, torch would turn them into n × m numbers."""
    return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)


def _named(thing: object) -> str:
    return type(thing).__name__


class _Fused(torch.autograd.Function):
    """The fused kernels with their own gradient, and a second derivative, which they lack."""

    @staticmethod
    def forward(ctx: Any, problem: AttentionProblem, *inputs: Tensor) -> Tensor:
        leaves = [
            each.detach().requires_grad_(need) for each, need in zip(inputs, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad():
            call = _prepare(problem.rebuilt(leaves))
            assert call is not None
            output = call.compute().reshape(problem.output_shape)
        ctx.problem, ctx.inner = problem, (output, leaves)
        ctx.save_for_backward(*inputs)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        results = _FusedGradients.apply(  # type: ignore[no-untyped-call]
            ctx.problem, ctx.inner, ctx.needs_input_grad[1:], gradients[0], *ctx.saved_tensors
        )
        return None, *results


class _FusedGradients(torch.autograd.Function):
    """The kernels' first derivative; its own derivative, over strips of the definition."""

    @staticmethod
    def forward(
        ctx: Any, problem: AttentionProblem, inner: Any, needed: tuple[bool, ...], gradient: Tensor, *inputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        ctx.problem, ctx.needed = problem, needed
        ctx.save_for_backward(gradient, *inputs)
        ctx.set_materialize_grads(False)
        output, leaves = inner
        wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
        found = iter(torch.autograd.grad(output, wanted, gradient, retain_graph=True))
        return tuple(next(found) if need else None for need in needed)

    @staticmethod
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, *inputs = ctx.saved_tensors
        return None, None, None, *gradients_over_strips(ctx.problem, ctx.needed, gradient, inputs, second)
