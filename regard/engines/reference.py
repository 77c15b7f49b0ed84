"""The reference engine: the definition of attention, on dense tensors.

Any other engine is an optimisation of these lines and is tested against them, forward and gradient.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.engines.costs import dense_seconds
from regard.engines.dropout import keep_factors
from regard.engines.engine import Engine
from regard.engines.nan_safe import pool
from regard.engines.ties import twins_of, with_ties_settled
from regard.engines.work import Work
from regard.modes import is_tracing, is_transforming
from regard.problem import AttentionProblem
from regard.tensors import Span, without_autocast


def define(problem: AttentionProblem, rows: Span | None = None) -> Tensor:
    """Attention(q, D) = Σ α(q, k_i) · v_i for some queries, or all: `(*batch_shape, rows, value_dim)`."""
    alpha = define_weights(problem, rows)
    if problem.dropout:
        alpha = alpha * dropout_factors(problem, rows, alpha.dtype)
    return pool(alpha, problem.values.to(alpha.dtype)).to(problem.dtype)


def define_weights(problem: AttentionProblem, rows: Span | None = None) -> Tensor:
    """α(q, k_i) for some queries, or all: `(*batch_shape, rows, n_keys)`, before dropout."""
    scores = problem.scores(rows)  # a(q, k), −inf where the mask does not allow the pair
    if problem.rule.choices:
        columns = torch.arange(scores.shape[-1], device=scores.device)
        form = problem.form if rows is None else problem.form.narrow(rows, problem.grid.columns)
        settings = columns, problem.rule.choices, form, lambda: twins_of(problem)
        scores = with_ties_settled(scores, *settings)
    # The rule, row by row. The meta device has no numbers for it to decide by, and weights have the shape of scores.
    alpha = scores if scores.device.type == "meta" else problem.rule.define(scores)
    return alpha.expand(*problem.grid.batch_shape, *alpha.shape[-2:])


def dropout_factors(problem: AttentionProblem, rows: Span | None, dtype: torch.dtype) -> Tensor:
    """What dropout multiplies the weights of some queries by."""
    grid = problem.grid
    columns: Span = grid.columns
    if rows is None and is_tracing():
        # Ranges would fix sizes that may be symbols.
        rows, columns = torch.arange(grid.n_queries, device=grid.device), torch.arange(grid.n_keys, device=grid.device)
    return keep_factors(problem.seed, problem.dropout, grid, grid.rows if rows is None else rows, columns, dtype)


class Reference(Engine):
    """The definition, dense: any rule, any dtype, differentiable again and again (entmax to third order)."""

    name = "reference"
    letter = "R"
    has_tangents = True
    summary = "it computes the definition on dense tensors; any rule, of differentiable operations throughout"

    def bytes(self, problem: AttentionProblem) -> int:
        pairs = math.prod(problem.grid.batch_shape) * problem.grid.n_queries * problem.grid.n_keys
        # Scores before and after the mask and the rule; the widest intermediate, before and after its function.
        width = problem.form.width
        return pairs * (4 + (2 * width if width > 1 else 0)) * problem.compute_dtype.itemsize

    def seconds(self, work: Work) -> float:
        return dense_seconds(work)

    def run(self, problem: AttentionProblem) -> Tensor:
        with without_autocast(problem.grid.device.type):
            output = define(problem)
            return connect(output, problem.inputs) if torch.is_grad_enabled() else output


def connect(output: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """`output`, with a gradient of zero for inputs that it does not depend on: zeros, not None."""
    # A transform of torch.func gives zeros by itself.
    if not torch.is_grad_enabled() or is_transforming() or not any(each.requires_grad for each in inputs):
        return output
    if is_tracing():
        # Sums of nothing, which have a gradient: torch.compile warns of a Function.
        nothing = [each.flatten()[:0].sum().to(output.dtype) for each in inputs if each.requires_grad]
        return output + torch.stack(nothing).sum()
    return _Connect.apply(output, *inputs)  # type: ignore[no-any-return, no-untyped-call]


class _Connect(torch.autograd.Function):
    """The identity in its first argument, with zero derivative in the others."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return output.clone()  # a view could not be changed in place, as people do with residuals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        wanted = zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        return gradients[0], *(torch.zeros_like(each) if needed else None for each, needed in wanted)
