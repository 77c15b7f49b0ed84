"""The definition over strips of rows: exact, differentiable to any order, in memory that grows with n + m.

A strip is a few queries against all keys. Each is computed by the reference and thrown away; a backward pass computes
it again. Slower than tiles, and so kept for what tiles do not do: inputs that are not finite under a mask, second
derivatives, and reductions of weights that people put in losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.engines.reference import connect, define
from regard.problem import AttentionProblem

STRIP_ELEMENTS = 1 << 18

Summary = TypeVar("Summary")


def strips_of(problem: AttentionProblem) -> Iterator[range]:
    """Ranges of rows, each small enough that its scores fit in a strip."""
    grid = problem.grid
    for_row = max(math.prod(grid.batch_shape) * grid.n_keys * problem.form.width, 1)
    height = max(STRIP_ELEMENTS // for_row, 1)
    for start in range(0, grid.n_queries, height):
        yield range(start, min(start + height, grid.n_queries))


def map_strips(problem: AttentionProblem, function: Callable[[AttentionProblem, range], Summary]) -> Iterator[Summary]:
    """`function(problem, rows)` for each strip, kept for the backward pass as its inputs alone."""
    problem.settle()
    for rows in strips_of(problem):
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
