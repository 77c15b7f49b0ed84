"""The definition over strips of rows: exact, differentiable to any order, in memory that grows with n + m.

A strip is a few queries against all keys. Each is computed by the reference and thrown away; a backward pass computes
it again. Slower than tiles, and so kept for what tiles do not do: rows of which `nonfinite.py` cannot tell what NaN or
infinity comes to, second derivatives, and reductions of weights that people put in losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.engines.block_sizes import block_sizes
from regard.engines.reference import connect, define
from regard.problem import AttentionProblem
from regard.tensors import Span

Summary = TypeVar("Summary")


def strips_of(problem: AttentionProblem) -> Iterator[range]:
    """Ranges of rows, each small enough that its scores fit in a strip."""
    grid = problem.grid
    for_row = max(math.prod(grid.batch_shape) * grid.n_keys * problem.form.width, 1)
    height = max(block_sizes(grid.device).strip // for_row, 1)
    for start in range(0, grid.n_queries, height):
        yield range(start, min(start + height, grid.n_queries))


def map_strips(
    problem: AttentionProblem,
    function: Callable[[AttentionProblem, Any], Summary],
    strips: Iterable[Span] | None = None,
) -> Iterator[Summary]:
    """`function(problem, rows)` for each strip, or those given, kept for the backward pass as its inputs alone."""
    problem.settle()
    for rows in strips_of(problem) if strips is None else strips:
        if torch.is_grad_enabled():
            yield checkpoint(function, problem, rows, use_reentrant=False, preserve_rng_state=False)
        else:
            yield function(problem, rows)


def pool_by_strips(problem: AttentionProblem) -> Tensor:
    """The pooled output, strip by strip."""
    with torch.autocast(problem.grid.device.type, enabled=False):
        strips = list(map_strips(problem, define))
    if not strips:
        return connect(problem.values.new_zeros(problem.output_shape), problem.inputs)
    return connect(torch.cat(strips, dim=-2), problem.inputs)


def define_rows(problem: AttentionProblem, rows: Tensor) -> Tensor:
    """The definition of some rows, at least one, strip by strip: `(*batch_shape, len(rows), value_dim)`."""
    height = len(next(strips_of(problem)))
    with torch.autocast(problem.grid.device.type, enabled=False):
        return torch.cat(list(map_strips(problem, define, rows.split(height))), dim=-2)
