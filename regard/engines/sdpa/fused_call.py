"""One call of PyTorch's fused kernels, in 4-D, with the gradients that autograd needs of it.

The kernels have a first derivative and no second: that one is the definition's, over strips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.engines import torch_internals
from regard.engines.kernels.protocol import Guard
from regard.engines.rounding import are_large
from regard.engines.second_derivatives import gradients_over_strips
from regard.engines.strips import pool_by_strips
from regard.grid import Grid
from regard.masks import Mask
from regard.problem import AttentionProblem
from regard.scores import DotForm, Score
from regard.weights import Weights

# There it is known which kernel runs. Elsewhere PyTorch chooses, and each keeps what it needs in a graph of its own.
CALLED_BY_NAME = frozenset({"cpu"})

# Of one query, PyTorch's kernels for GPUs split the keys over the whole device, and heads that share keys read them
# once. Of several they take a program for each head, up to ten times as long. Rows that see every key may pass for
# heads: quicker, on an H200, for so many rows of all heads.
FEW_ROWS, MANY_KEYS, MOST_DIMS = 2048, 512, 256

Three = tuple[Tensor, Tensor, Tensor]


class Call(NamedTuple):
    """The arguments of one call of the kernels."""

    query: Tensor  # (batch, heads, n_queries, dim)
    key: Tensor  # (batch, heads or groups, n_keys, dim)
    value: Tensor
    mask: Tensor | None  # True is allowed
    empty: Tensor | None  # fully masked rows, (..., n_queries, 1), which `mask` lets attend to every key
    is_causal: bool
    scale: float
    value_dim: int  # what is beyond it in `value` is padding

    def of(self, query: Tensor, key: Tensor, value: Tensor) -> Call:
        """This call with other tensors."""
        return self._replace(query=query, key=key, value=value)

    def backend(self) -> SDPBackend:
        """Which kernel PyTorch would take."""
        return SDPBackend(torch_internals.backend_of(self.query, self.key, self.value, **self._options()))

    def compute(self) -> Tensor:
        """The output, `(batch, heads, n_queries, value_dim)`."""
        if self.mask is None and not self.is_causal and are_few_rows(self.query, self.key, self.value):
            return self.finish(pool_row_by_row(self.query, self.key, self.value, self.scale))
        return self.finish(scaled_dot_product_attention(self.query, self.key, self.value, **self._options()))

    def finish(self, output: Tensor) -> Tensor:
        """What a kernel returned without padding, and with zeros for fully masked rows."""
        if output.shape[-1] != self.value_dim:
            output = output[..., : self.value_dim]
        return output if self.empty is None else torch.where(self.empty, 0, output)

    def _options(self) -> dict[str, Any]:
        options = {"attn_mask": self.mask, "is_causal": self.is_causal, "scale": self.scale}
        # In a branch, so that torch.compile decides it too.
        return {**options, "enable_gqa": True} if self.query.shape[1] != self.key.shape[1] else options


@dataclass(frozen=True)
class Frame:
    """A problem without its tensors: those, autograd is given to keep by name, so that its hooks see them."""

    grid: Grid
    scale: float
    score: Score
    weights: Weights
    mask: Mask | None
    guard: Guard | None = None  # computes again what the kernels let through, where nobody looks

    def problem(self, left: Tensor, right: Tensor, values: Tensor) -> AttentionProblem:
        """The problem of these tensors, projections done."""
        problem = AttentionProblem(left, right, values, self.score, self.weights, self.mask, 0.0, 0, None)
        problem = problem.around(DotForm(left, right, self.scale))
        return problem if self.guard is None else problem.without_a_look()

    def guarded(self, output: Tensor) -> Tensor:
        """The output of the kernels, computed again where NaN or infinity came through a mask."""
        if self.guard is None:
            return output
        if output.stride(-1) != 1 or output.ndim > 5:  # kernels walk along three batch axes, if these cannot be joined
            output = output.contiguous()
        self.guard.mend_output(output)
        return output


def are_few_rows(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether `pool_row_by_row` is quicker, of rows that all see every key."""
    if not query.is_cuda or torch.compiler.is_compiling():
        return False
    trains = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    return not trains and may_pass_for_heads(query.shape, key.shape[-2], query.dtype)


def may_pass_for_heads(shape: Sequence[int], n_keys: int, dtype: torch.dtype) -> bool:
    """Whether rows `(batch, heads, n_queries, dim)` are few, over many keys, for the one kernel that takes them so.

    In float32, and of more dims, PyTorch would have none and build n × m.
    """
    if dtype.itemsize != 2 or shape[-1] > MOST_DIMS:
        return False
    return shape[-2] > 1 and n_keys >= MANY_KEYS and math.prod(shape[:-1]) <= FEW_ROWS


def pool_row_by_row(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The output, `(batch, heads, n_queries, dim)`, with each row as one more head on the same keys."""
    batch, heads, n_queries, dim = query.shape
    lone = query.reshape(batch, heads * n_queries, 1, dim)
    output = scaled_dot_product_attention(lone, key, value, scale=scale, enable_gqa=True)
    return output.reshape(batch, heads, n_queries, value.shape[-1])


def fold(grid: Grid, left: Tensor, right: Tensor, values: Tensor) -> Three | None:
    """The three tensors in 4-D and of one dim, as the kernels want them; None where broadcasting would need copies."""
    key_dim, value_dim = left.shape[-1], values.shape[-1]
    # One dim for all, in steps that the device's kernels take: zeros change neither a dot product nor a sum.
    step = 8 if grid.device.type == "cuda" else 1
    dim = -(-max(key_dim, value_dim) // step) * step
    left, right, values = _adjacent(left, dim), _adjacent(right, dim), _adjacent(values, dim)
    batch = grid.batch_shape
    if len(batch) <= 2:
        target = (1,) * (2 - len(batch)) + batch
        return _expanded(left, target), _expanded(right, target), _expanded(values, target)
    left, right, values = (
        each.reshape(*(1,) * (len(batch) + 2 - each.ndim), *each.shape) for each in (left, right, values)
    )
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
    for each in (left, right, values):
        if each.shape[:-3] == batch[:-1]:
            each = each.reshape(lead, *each.shape[-3:])
        elif math.prod(each.shape[:-3]) == 1:
            each = each.reshape(1, *each.shape[-3:])
        else:
            return None
        folded.append(_expanded(each, (lead, heads)))
    return folded[0], folded[1], folded[2]


def _adjacent(tensor: Tensor, dim: int) -> Tensor:
    """The tensor padded to `dim`, with the entries of a vector next to each other."""
    if tensor.shape[-1] < dim:
        return pad(tensor, (0, dim - tensor.shape[-1]))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _expanded(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    return tensor if tensor.shape[:-2] == batch else tensor.expand(*batch, *tensor.shape[-2:])


def _unfolded(gradient: Tensor, grid: Grid, like: Tensor) -> Tensor:
    """The gradient of a tensor from that of its fold: without padding, and summed where it was broadcast."""
    if gradient.shape[-1] != like.shape[-1]:
        gradient = gradient[..., : like.shape[-1]]
    if gradient.shape == like.shape:
        return gradient
    if gradient.numel() == like.numel():
        return gradient.reshape(like.shape)
    return gradient.reshape(*grid.batch_shape, *like.shape[-2:]).sum_to_size(like.shape)


def pool_fused(frame: Frame, call: Call, left: Tensor, right: Tensor, values: Tensor) -> Tensor:
    """The output of a call whose tensors are the fold of these, `(*batch_shape, n_queries, value_dim)`."""
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad or values.requires_grad):
        return _Fused.apply(frame, call, left, right, values)  # type: ignore[no-any-return, no-untyped-call]
    return frame.guarded(shaped(call.compute(), frame.grid))


def shaped(output: Tensor, grid: Grid) -> Tensor:
    """The output of a call with the problem's own batch axes."""
    return output if len(grid.batch_shape) == 2 else output.reshape(*grid.batch_shape, *output.shape[-2:])


class _Fused(torch.autograd.Function):
    """The kernels with their own gradient, and a second derivative, which they lack."""

    @staticmethod
    def forward(ctx: Any, frame: Frame, call: Call, left: Tensor, right: Tensor, values: Tensor) -> Tensor:
        ctx.frame, ctx.is_causal, ctx.inner = frame, call.is_causal, None
        if frame.grid.device.type in CALLED_BY_NAME and _has_flash():
            bias = _as_numbers(call.mask, values.dtype)
            pooled, log_totals = torch_internals.flash(*call[:3], 0.0, call.is_causal, attn_mask=bias, scale=call.scale)
            ctx.save_for_backward(left, right, values, pooled, log_totals, call.mask, call.empty)
            output = shaped(call.finish(pooled), frame.grid)
            return output if output is pooled else output.detach()  # a view could not be changed in place
        wanted = ctx.needs_input_grad[2:]
        leaves = [each.detach().requires_grad_(need) for each, need in zip((left, right, values), wanted, strict=True)]
        with torch.enable_grad():
            folded = fold(frame.grid, *leaves)
            assert folded is not None
            output = shaped(call.of(*folded).compute(), frame.grid)
        result = frame.guarded(output.detach())
        ctx.inner = output, leaves
        ctx.save_for_backward(left, right, values, *(() if frame.guard is None else (result,)))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        arguments = (ctx.frame, ctx.is_causal, ctx.inner, ctx.needs_input_grad[2:], gradients[0], *ctx.saved_tensors)
        # Where nobody will differentiate them again, the gradients need no node of their own.
        found = _FusedGradients.apply(*arguments) if torch.is_grad_enabled() else _gradients(*arguments)  # type: ignore[no-untyped-call]
        return None, None, *found


class _FusedGradients(torch.autograd.Function):
    """The kernels' first derivative; its own derivative, over strips of the definition."""

    @staticmethod
    def forward(
        ctx: Any, frame: Frame, is_causal: bool, inner: Any, needed: tuple[bool, ...], gradient: Tensor, *saved: Any
    ) -> tuple[Tensor | None, ...]:
        ctx.frame, ctx.needed, ctx.n_saved = frame, needed, len(saved)
        ctx.save_for_backward(gradient, *saved[:3])
        ctx.set_materialize_grads(False)
        return _gradients(frame, is_causal, inner, needed, gradient, *saved)

    @staticmethod
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, *inputs = ctx.saved_tensors
        found = gradients_over_strips(ctx.frame.problem(*inputs), ctx.needed, gradient, inputs, second)
        return None, None, None, None, *found, *(None,) * (ctx.n_saved - 3)


def _gradients(
    frame: Frame,
    is_causal: bool,
    inner: tuple[Tensor, list[Tensor]] | None,
    needed: tuple[bool, ...],
    gradient: Tensor,
    left: Tensor,
    right: Tensor,
    values: Tensor,
    pooled: Tensor | None = None,
    log_totals: Tensor | None = None,
    mask: Tensor | None = None,
    empty: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The first derivatives with respect to `left`, `right` and `values`, where they are needed."""
    if inner is not None:
        output, leaves = inner
        wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
        found = iter(torch.autograd.grad(output, wanted, gradient, retain_graph=True))
        gradients = [next(found) if need else None for need in needed]
        if frame.guard is not None:
            assert pooled is not None
            gradients = frame.guard.mend_gradients(pooled, gradient, gradients)
        return tuple(gradients)
    assert pooled is not None
    assert log_totals is not None
    if are_large(log_totals):
        # The kernels would compute other weights again than their logarithms of totals are of.
        return _gradients_of_strips(frame, needed, gradient, left, right, values)
    folded = fold(frame.grid, left, right, values)
    assert folded is not None
    if gradient.shape[:-1] != pooled.shape[:-1]:
        gradient = gradient.reshape(*pooled.shape[:-1], gradient.shape[-1])
    if empty is not None:
        gradient = torch.where(empty, 0, gradient)
    if gradient.shape[-1] != pooled.shape[-1]:
        gradient = pad(gradient, (0, pooled.shape[-1] - gradient.shape[-1]))
    bias = _as_numbers(mask, values.dtype)
    to_left, to_right, to_values = torch_internals.flash_gradients(
        gradient, *folded, pooled, log_totals, 0.0, is_causal, attn_mask=bias, scale=frame.scale
    )
    grid = frame.grid
    return (
        _unfolded(to_left, grid, left) if needed[0] else None,
        _unfolded(to_right, grid, right) if needed[1] else None,
        _unfolded(to_values, grid, values) if needed[2] else None,
    )


def _gradients_of_strips(
    frame: Frame, needed: tuple[bool, ...], gradient: Tensor, *inputs: Tensor
) -> tuple[Tensor | None, ...]:
    """The same derivatives, over strips of the definition."""
    leaves = [each.detach().requires_grad_(need) for each, need in zip(inputs, needed, strict=True)]
    with torch.enable_grad():
        output = pool_by_strips(frame.problem(*leaves))
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, gradient.reshape(output.shape)))
    return tuple(next(found) if need else None for need in needed)


def _has_flash() -> bool:
    return torch_internals.flash is not None and torch_internals.flash_gradients is not None


def _as_numbers(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask as what to add to scores."""
    return None if mask is None else torch.where(mask, 0.0, -torch.inf).to(dtype)
