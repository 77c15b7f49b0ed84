"""NaN and infinity among the inputs: an engine's ordinary run on what is left, and what the rest comes to.

The definition (`reference.py`) says where a broken query, key or value shows: with those that give it weight, and
nowhere else. Most of that follows without a computation. A score of NaN makes a whole row of softmax NaN, output and
gradients; a value of NaN shows in its component, wherever its weight is not 0. So the engine runs once, with zeros for
what is broken and columns beside the values that count who sees it. What does not follow (an infinite key, whose score
may be anything) is computed by the definition, for the rows that see it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.engines.nonfinite.marks import PAIR, ROW, SPREADS, Marks, axes_of, follows, mark, preferring, rows_of
from regard.engines.nonfinite.visibility import any_seen, seen_by, sees
from regard.engines.nonfinite.weight_counts import Counts
from regard.engines.strips import define_rows, pool_by_strips
from regard.problem import AttentionProblem
from regard.scores.form_part import Axes
from regard.tensors import broadcast_shapes, broken_vectors
from regard.weights import Sigmoid, Softmax, Uniform

# Rows that see an infinite value, and no NaN, up to which their gradients go by the definition, which tells +inf, −inf
# and NaN apart: so many, or this share of all. Where there are more, NaN stands for all three.
INFINITE_ROWS, INFINITE_SHARE = 8, 32

Run = Callable[[AttentionProblem], Tensor]


def pool_nonfinite(problem: AttentionProblem, run: Run, *, chooses: bool) -> Tensor:
    """The pooled output of a problem with NaN or infinity among its inputs.

    Args:
        problem: What is to be computed.
        run: The engine's way with a problem that has none.
        chooses: Whether that way visits chosen keys alone, so that a NaN among them reaches no other.
    """
    marks = mark(problem, chooses) if follows(problem) else None
    return pool_by_strips(problem) if marks is None else _pool(problem, run, marks)


def _pool(problem: AttentionProblem, run: Run, marks: Marks) -> Tensor:
    # Whether nobody is left whose output is not known.
    known = SPREADS[type(problem.rule)] == ROW and bool((marks.undefined | ~any_seen(problem)).all())
    counts = None if known else Counts.of(problem)
    sane, _, _ = problem.sane
    tensors = sane.tensors()
    inputs = (problem.values, *tensors, *problem.rule.learned())
    tracked = problem.needs_gradient
    case = _Case(problem, marks, counts)
    token = None
    if tracked:
        values, token, *tensors = _Enter.apply(case, problem.values, *tensors)  # type: ignore[no-untyped-call]
    else:
        values = problem.values if counts is None else counts.beside(problem.values)
    if known:
        output = values.new_zeros(*problem.output_shape[:-1], values.shape[-1])
    else:
        form = sane.rebuilt(iter(tensors))
        if marks.chosen:
            form = preferring(form, marks)
        _, broken_queries, broken_keys = problem.sane
        queries, keys = torch.where(broken_queries, 0, problem.queries), torch.where(broken_keys, 0, problem.keys)
        output = run(replace(problem, queries=queries.detach(), keys=keys.detach(), values=values).around(form))
    output = _Leave.apply(case, output, token, *inputs) if tracked else case.finish(output, tracked=False)  # type: ignore[no-untyped-call]
    marks = case.marks
    if not bool(marks.unclear.any()):
        return output
    rows = rows_of(marks.unclear, problem)
    unclear = marks.unclear.expand(*marks.unclear.shape[:-2], problem.grid.n_queries, 1).index_select(-2, rows)
    defined = torch.where(unclear, define_rows(problem, rows), output.index_select(-2, rows))
    return output.index_copy(-2, rows, defined)


@dataclass
class _Case:
    """What both ends of a run know."""

    problem: AttentionProblem
    marks: Marks
    counts: Counts | None
    touched: Tensor | None = None  # rows that give weight to a broken value

    @property
    def reach(self) -> bool:
        return self.counts is not None and self.counts.reach

    @property
    def _has_slope(self) -> bool:
        """Whether a gradient goes to scores at all."""
        return not isinstance(self.problem.rule, Uniform)

    def finish(self, pooled: Tensor, *, tracked: bool) -> Tensor:
        """The output, from that of the run."""
        output = pooled
        if self.counts is not None:
            output, touched, infinite = self.counts.split(pooled, self.problem.values.shape[-1])
            infinite = infinite & ~self.marks.undefined & ~self.marks.unclear
            if tracked and self._has_slope and bool(infinite.any()):
                grid = self.problem.grid
                if rows_of(infinite, self.problem).numel() <= max(grid.n_queries // INFINITE_SHARE, INFINITE_ROWS):
                    self.marks = self.marks._replace(unclear=self.marks.unclear | infinite)
            if isinstance(self.problem.rule, Softmax | Sigmoid):
                self.marks = self.marks._replace(unclear=self.marks.unclear | self._doubtful(pooled))
            self.touched = touched & ~self.marks.unclear
        return torch.where(self.marks.undefined, torch.nan, output).to(self.problem.dtype)

    def _doubtful(self, pooled: Tensor) -> Tensor:
        """Rows that see a broken value and give it a weight of 0, by a rule whose weights are positive.

        An engine's exponential may vanish before the definition's does: that one must say.
        """
        assert self.counts is not None
        columns = self.counts.columns != 0
        weighted = pooled[..., self.problem.values.shape[-1] :][..., : columns.shape[-1]] != 0
        if columns.shape[-1] > 2:
            columns, weighted = columns.any(-1, keepdim=True), weighted.any(-1, keepdim=True)
        doubtful = torch.zeros_like(weighted[..., :1])
        for column in range(columns.shape[-1]):
            one = slice(column, column + 1)
            doubtful |= sees(self.problem, columns[..., one]) & ~weighted[..., one]
        return doubtful & ~self.marks.undefined

    def rows(self) -> Tensor:
        """The rows whose own gradients are not finite."""
        rows = self.marks.undefined
        return rows | self.touched if self.touched is not None and self._has_slope else rows

    def keys(self, reach: Tensor | None) -> tuple[Tensor, Tensor]:
        """The keys whose gradients are not finite, and those whose values' are not: `(..., n_keys, 1)` each."""
        problem, marks = self.problem, self.marks
        rule = SPREADS[type(problem.rule)]
        nothing = torch.zeros(1, 1, dtype=torch.bool, device=problem.grid.device)
        keys = values = nothing
        if rule == ROW:
            keys = values = seen_by(problem, marks.undefined)
            if type(problem.rule) is Softmax and self.touched is not None:
                keys = keys | seen_by(problem, self.touched)
        elif rule == PAIR:
            queries = marks.undefined_queries & ~marks.unclear
            seen = seen_by(problem, marks.undefined) & marks.undefined_keys
            keys = values = seen_by(problem, queries) | seen
        if reach is not None:
            reached = reach != 0
            if rule == PAIR:
                reached = reached & broken_vectors(problem.values)
            keys = keys | reached
        return keys, values


class _Enter(torch.autograd.Function):
    """The tensors of a form and the values as the run takes them; what is not finite joins their gradients here."""

    @staticmethod
    def forward(ctx: Any, case: _Case, values: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.case = case
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(values, *tensors)
        beside = values.detach() if case.counts is None else case.counts.beside(values)
        if case.reach:
            # One gradient for each batch entry: keys that share their value need not share who sees it.
            beside = beside.expand(*case.problem.grid.batch_shape, *beside.shape[-2:])
        results = (beside, values.new_zeros(()), *(t.detach() for t in tensors))
        needed = ctx.needs_input_grad[1:]
        unneeded = [each for each, need in zip(results[2:], needed[1:], strict=True) if not need]
        if not needed[0] and not case.reach:
            unneeded.append(results[0])
        ctx.mark_non_differentiable(*unneeded)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        case, (values, *tensors) = ctx.case, ctx.saved_tensors
        to_values, _, *to_tensors = gradients
        reach = None
        if to_values is not None:
            reach = to_values[..., -1:] if case.reach else None
            to_values = to_values[..., : values.shape[-1]].sum_to_size(values.shape)
        with torch.no_grad():
            rows, (keys, of_values) = case.rows(), case.keys(reach)
            sane, _, _ = case.problem.sane
            places = zip(tensors, to_tensors, axes_of(sane), ctx.needs_input_grad[2:], strict=True)
            found = [
                _joined(gradient, tensor, _mark_of(tensor, axes, rows, keys)) if need else None
                for tensor, gradient, axes, need in places
            ]
            to_values = _joined(to_values, values, of_values) if ctx.needs_input_grad[1] else None
        return None, to_values, *found


class _Leave(torch.autograd.Function):
    """The output from that of the run. A gradient that is itself to be differentiated goes by the definition."""

    @staticmethod
    def forward(ctx: Any, case: _Case, pooled: Tensor, token: Tensor, *inputs: Tensor) -> Tensor:
        output = case.finish(pooled, tracked=True)
        ctx.case, ctx.width, ctx.dtype = case, pooled.shape[-1], pooled.dtype
        ctx.save_for_backward(*inputs)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        case, inputs, (gradient,) = ctx.case, ctx.saved_tensors, gradients
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            return None, None, None, *_by_definition(case.problem, inputs, needed, gradient)
        marks = case.marks
        if SPREADS[type(case.problem.rule)] == ROW:
            gradient = torch.where(marks.undefined, 0, gradient)
        gradient = gradient.to(ctx.dtype)
        beside = gradient.new_zeros(*gradient.shape[:-1], ctx.width - gradient.shape[-1])
        if case.reach and case.touched is not None:
            beside[..., -1:] = case.touched
        n_learned = len(case.problem.rule.learned())
        rows = case.rows()
        to_learned = [
            _joined(None, each, _per_head(rows, each)) if need else None
            for each, need in zip(inputs[len(inputs) - n_learned :], needed[len(needed) - n_learned :], strict=True)
        ]
        to_others = (None,) * (len(inputs) - n_learned)
        return None, torch.cat([gradient, beside], -1), torch.zeros_like(gradient[:0].sum()), *to_others, *to_learned


def _by_definition(
    problem: AttentionProblem, inputs: Sequence[Tensor], needed: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """The gradient of each input, made of differentiable operations."""
    sane, broken_queries, broken_keys = problem.sane
    n_form = len(sane.tensors())
    # Aliases: queries, keys and values may be one tensor, and each place has a gradient of its own.
    own = [each.view_as(each) for each in inputs[: n_form + 1]]
    wanted = [*own, *inputs[n_form + 1 :]]
    alias = replace(problem, values=own[0])
    alias.__dict__["form"] = problem.form
    alias = alias.around_broken(sane.rebuilt(iter(own[1:])), broken_queries, broken_keys)
    output = pool_by_strips(alias)
    sources = [each for each, need in zip(wanted, needed, strict=True) if need]
    found = iter(torch.autograd.grad(output, sources, gradient, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def _mark_of(tensor: Tensor, axes: Axes, rows: Tensor, keys: Tensor) -> Tensor:
    """Where the gradient of a form's tensor is not finite, by the axes that it follows."""
    if axes == (True, False):
        return rows
    if axes == (False, True):
        return keys
    if axes == (True, True) and tensor.shape[-1] > 1:
        return keys.mT
    return rows if axes == (True, True) and tensor.shape[-2] > 1 else rows.any(-2, keepdim=True)


def _per_head(rows: Tensor, learned: Tensor) -> Tensor:
    """Which entries of what a rule learned, `()` or `(heads,)`, serve a marked row."""
    marked = rows.any(-2).squeeze(-1)
    return marked.any() if learned.ndim == 0 else marked


def _joined(gradient: Tensor | None, tensor: Tensor, mark: Tensor) -> Tensor:
    """The gradient of a tensor, NaN where it is marked; marks of entries that share a place count together."""
    gradient = torch.zeros_like(tensor) if gradient is None else gradient
    if not bool(mark.any()):
        return gradient
    places = tensor.shape if mark.shape[-1:] != (1,) else (*tensor.shape[:-1], 1)
    whole = mark.expand(broadcast_shapes(mark.shape, places))
    return torch.where(whole.to(torch.float32).sum_to_size(places) > 0, torch.nan, gradient)
