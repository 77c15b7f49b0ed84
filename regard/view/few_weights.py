"""Few weights: all of them are computed once and kept, where a pass over tiles would cost more than that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

from torch import Tensor

from regard.engines.reference import define_weights
from regard.problem import AttentionProblem
from regard.view.passes import Passes

# Elements of the widest intermediate up to which weights are few.
FEW_WEIGHTS = 1 << 15


def are_few(problem: AttentionProblem) -> bool:
    """Whether all weights of a problem cost less, computed at once, than a pass over tiles."""
    grid = problem.grid
    return math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys * problem.form.width <= FEW_WEIGHTS


class FewWeights(Passes):
    """Every reading is cut out of the weights that the definition gives: one strip for all rows."""

    pools = False
    _defined = True

    def undisturbed(self) -> AbstractContextManager[None]:
        return nullcontext()  # no kernels

    @cached_property
    def is_sharp(self) -> bool:
        return not self._rounding.is_small

    @cached_property
    def _all(self) -> Tensor:
        with self._passes(1):
            return define_weights(self._problem)

    def define(self, problem: AttentionProblem, rows: Tensor | None = None) -> Tensor:
        return self._strips(problem, problem.grid.rows if rows is None else rows)

    def _strips(self, problem: AttentionProblem, rows: range | Tensor) -> Tensor:
        weights = self._all if problem is self._problem else define_weights(problem)
        return weights[..., rows.start : rows.stop, :].clone() if isinstance(rows, range) else weights[..., rows, :]

    def _blocks(self) -> Iterator[tuple[Tensor, range, range]]:
        if self._all.numel():
            yield self._all, self._problem.grid.rows, self._problem.grid.columns
        self._progress.advance(1.0)
