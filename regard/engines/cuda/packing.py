"""One query of each head, and heads that share their keys: they become rows of one problem, and keys are read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from regard.engines.cuda.readable_problem import readable_problem
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.kernels.support import inner_rule
from regard.engines.state import Pooled, Sums
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm, Step
from regard.weights import Softmax, Statistics


class PackedProblem(Compiled):
    """A problem whose last batch axis became its rows. Nothing of it needs a gradient."""

    def __init__(self, problem: AttentionProblem, packed: Compiled) -> None:
        self._problem, self._shape = problem, problem.output_shape
        self._packed = packed

    def sums(self) -> Sums:
        sums = self._packed.sums()
        return Sums(*map(self._unpacked, (sums.peak, sums.total, sums.pooled)))

    def pool(self) -> Pooled:
        pooled = self._packed.pool()
        return Pooled(self._unpacked(pooled.output), tuple(map(self._unpacked, pooled.statistics)), None)

    def _unpacked(self, rows: Tensor) -> Tensor:
        """`(*batch, heads, width)` as `(*batch, heads, 1, width)`."""
        return rows.reshape(*self._shape[:-1], rows.shape[-1])

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        raise AssertionError("a problem that needs gradients is not packed")

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return readable_problem(self, self._problem, advance)


def packed(problem: AttentionProblem) -> AttentionProblem | None:
    """The problem with the heads of its last batch axis as rows; None where they do not share all else."""
    form, grid, (rule, _) = problem.form, problem.grid, inner_rule(problem.rule)
    if grid.n_queries != 1 or not grid.batch_shape or grid.batch_shape[-1] == 1:
        return None
    # Dropout is a function of batch entry and row; a mask would be asked about rows that it does not know.
    if problem.dropout or problem.mask is not None or problem.needs_gradient or problem.rule.batch_shape:
        return None
    if not isinstance(form, DotForm | ChannelForm) or not all(map(_is_alike, form.steps)):
        return None
    weight = form.weight if isinstance(form, ChannelForm) else None
    sink = rule.sink if isinstance(rule, Softmax) else None
    if isinstance(sink, Tensor) or not all(map(_is_shared, (form.right, problem.values))):
        return None
    if weight is not None and not _is_shared(weight):
        return None
    left = form.left.expand(*grid.batch_shape, 1, -1).squeeze(-2)
    right, values = _without_heads(form.right), _without_heads(problem.values)
    rows: DotForm | ChannelForm = replace(form, left=left, right=right, steps=tuple(map(_step, form.steps)))
    if isinstance(rows, ChannelForm) and weight is not None:
        rows = replace(rows, weight=_without_heads(weight))
    return replace(problem, queries=left, keys=right, values=values).around(rows)


def _is_alike(step: Step) -> bool:
    """Whether a step does the same to every head."""
    return isinstance(step, steps.Cap) or (isinstance(step, steps.Scale) and _is_shared(step.factor))


def _step(step: Step) -> Step:
    return replace(step, factor=_without_heads(step.factor)) if isinstance(step, steps.Scale) else step


def _is_shared(tensor: Tensor) -> bool:
    """Whether a tensor `(..., n, dim)` is the same for each entry of the last batch axis."""
    return tensor.ndim < 3 or tensor.shape[-3] == 1


def _without_heads(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim < 3 else tensor.squeeze(-3)
