"""A problem that the CUDA kernels compute: its sums, its output, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.backward_pass import (
    ColumnGradients,
    RowGradients,
    differentiate_by_columns,
    differentiate_by_rows,
    facts_of,
)
from regard.engines.cuda.forward_pass import pool, sum_rows
from regard.engines.cuda.general_pass import differentiate_relative, steps_of
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launcher import compiled_together, on_device
from regard.engines.cuda.program import Program, Role
from regard.engines.cuda.readable_problem import readable_problem
from regard.engines.cuda.threshold_pass import room_for_slopes
from regard.engines.kernels import codes
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.state import Pooled, Sums
from regard.weights import Entmax, Softmax, Statistics


class _Wanted(NamedTuple):
    """A tensor of a step that needs a gradient."""

    place: int  # among the tensors of the form
    step: int
    role: Role


class CudaProblem(Compiled):
    """A program and its launches."""

    def __init__(self, program: Program, *, trains: bool | None = None) -> None:
        self.program = program
        self._launch = Launch(program)
        # Whoever pools may have turned gradients off by then.
        self._trains = program.problem.needs_gradient if trains is None else trains

    def sums(self) -> Sums:
        with on_device(self._launch.device):
            pooled, peaks, totals = sum_rows(self._launch)
        return Sums(self._by_row(peaks), self._by_row(totals), pooled.reshape(*self._rows, -1))

    def pool(self) -> Pooled:
        return self._pool(centred=self._launch.has_threshold and self._trains)

    def _pool(self, *, centred: bool) -> Pooled:
        launch, rule = self._launch, self.program.problem.rule
        slopes = room_for_slopes(launch) if centred else None
        with on_device(launch.device), compiled_together():
            output, peaks, totals = pool(launch, slopes)
        if not launch.has_threshold:
            return Pooled(output, (peaks, totals), None)
        thresholds = totals.double()
        if not rule.learned():
            return Pooled(output, (peaks, thresholds), None if slopes is None else slopes.mean)
        # Without gradients nobody asks for these.
        sums = (
            torch.zeros_like(thresholds).expand(*thresholds.shape[:-1], 2) if slopes is None else slopes.sums.double()
        )
        statistics = peaks, thresholds, sums[..., :1], sums[..., 1:]
        return Pooled(output, statistics, None if slopes is None else slopes.mean)

    @property
    def _rows(self) -> tuple[int, ...]:
        return (*self.program.problem.grid.batch_shape, self._launch.n_queries)

    def _by_row(self, numbers: Tensor) -> Tensor:
        return numbers.reshape(*self._rows, 1)

    def _by_entry(self, numbers: Tensor) -> Tensor:
        return numbers.reshape(*self._rows[:-1], 1, 1)

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        with on_device(self._launch.device):
            return self._gradients(needed, statistics, centre, gradient)

    def _gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        problem, launch = self.program.problem, self._launch
        tensors = problem.form.tensors()
        n_form = len(tensors)
        gradient = gradient.to(problem.values.dtype).expand(problem.output_shape).contiguous()
        rows = launch.n_entries, launch.n_queries
        if launch.has_threshold and centre is None:  # who has pooled did not know of a gradient
            again = self._pool(centred=True)
            centre, statistics = again.slope_mean, again.statistics
        given = [each.expand(*self._rows, 1).reshape(rows).float().contiguous() for each in statistics[:2]]
        to_output = gradient, launch.strides_of(gradient)
        centre = None if centre is None else centre.contiguous()
        of_centre = None if centre is None else (centre, launch.strides_of(centre))

        n_fixed = 2 if self.program.weight is None else 3
        wanted = [
            _Wanted(place, *role)
            for place, role in enumerate(self.program.roles, start=n_fixed)
            if needed[place] and role is not None
        ]
        steps = range(len(self.program.steps))
        by_row = [any(each.step == step and each.role in ("row", "number") for each in wanted) for step in steps]
        by_column = [any(each.step == step and each.role == "column" for each in wanted) for step in steps]
        to_weight = n_fixed == 3 and needed[2]
        by_alpha = launch.has_threshold and any(needed[n_form + 1 :])
        if by_alpha:
            by_row += [False] * (len(steps_of(launch)) - len(by_row)) + [True, True]
        found: list[Tensor | None] = [None] * (n_form + 1)
        of_rows = of_columns = None
        with compiled_together():
            facts = facts_of(launch, given, to_output, of_centre)
            if needed[0] or any(by_row) or to_weight:
                of_rows = differentiate_by_rows(launch, to_output, facts, learns=by_row, learns_weight=to_weight)
            if needed[1] or any(by_column) or needed[n_form]:
                of_columns = differentiate_by_columns(launch, to_output, facts, learns=by_column)
        if needed[0] and of_rows is not None:
            found[0] = self._summed(of_rows.to_left, tensors[0])
        if needed[1] and of_columns is not None:
            found[1] = self._summed(of_columns.to_right, tensors[1])
        if needed[n_form] and of_columns is not None:
            found[n_form] = self._summed(of_columns.to_values, problem.values)
        if to_weight and of_rows is not None and of_rows.squares is not None:
            found[2] = self._summed(of_rows.squares.double().sum(-2, keepdim=True), tensors[2])
        for each in wanted:
            like = tensors[each.place]
            if each.role == "table":
                found[each.place] = self._summed(differentiate_relative(launch, to_output, facts, each.step), like)
            else:
                found[each.place] = self._learned(each, like, of_rows, of_columns)
        for place, tensor in enumerate((*tensors, problem.values)):
            if needed[place] and found[place] is None:  # what no weight depends on
                found[place] = torch.zeros_like(tensor)
        if by_alpha and of_rows is not None:
            found.append(self._alpha_gradient(statistics, of_rows))
        elif any(needed[n_form + 1 :]):
            found.append(self._sink_gradient(statistics, facts.deltas))
        return found + [None] * (len(needed) - len(found))

    def _summed(self, gradient: Tensor, like: Tensor) -> Tensor:
        """The gradient of a tensor from that of every batch entry."""
        whole = gradient.reshape(*self.program.problem.grid.batch_shape, *gradient.shape[-2:])
        return whole.sum_to_size(like.shape).to(like.dtype)

    def _learned(
        self, wanted: _Wanted, like: Tensor, of_rows: RowGradients | None, of_columns: ColumnGradients | None
    ) -> Tensor:
        """The gradient of a step's parameter from what each row or column gives it."""
        found = of_columns if wanted.role == "column" else of_rows
        assert found is not None
        assert found.sums is not None
        lines = found.sums[..., wanted.step].double().unsqueeze(-1)  # (entries, n, 1)
        if wanted.role == "number":
            lines = lines.sum(-2, keepdim=True)
        elif wanted.role == "column" and self.program.steps[wanted.step] == codes.ADD_COLUMN:
            lines = lines.mT  # a bias has columns along its last axis
        return self._summed(lines, like)

    def _alpha_gradient(self, statistics: Statistics, of_rows: RowGradients) -> Tensor:
        """Σ_i of what each row gives to its alpha: Σ_j (dP − δ)·(α/unit² − α ln α/unit), of unit = alpha − 1.

        δ is rounded, and what is left of it, Σ_j slope · (dP − δ), shows where unit is small.
        """
        rule = self.program.problem.rule
        assert isinstance(rule, Entmax)
        assert isinstance(rule.alpha, Tensor)
        assert of_rows.sums is not None
        total_slope, entropy = statistics[2:]
        turned, moved = (self._by_row(each.double()) for each in of_rows.sums[..., -2:].unbind(-1))
        unit = self._by_entry(self._launch.units.double())
        share = (1 / unit + entropy) / unit / torch.where(total_slope == 0, 1, total_slope)
        total = (turned - moved * share).sum_to_size(*rule.alpha.shape, 1, 1)
        return total.reshape(rule.alpha.shape).to(rule.alpha.dtype)

    def _sink_gradient(self, statistics: Statistics, deltas: Tensor) -> Tensor:
        """−Σ_i α_i(sink) · δ_i: a sink takes weight from every key of a row."""
        rule = self.program.problem.rule
        assert isinstance(rule, Softmax)
        assert isinstance(rule.sink, Tensor)
        share = rule.sink_weight(statistics)  # (..., n_queries, 1)
        total = (-share * self._by_row(deltas)).double().sum_to_size(*rule.sink.shape, 1, 1)
        return total.reshape(rule.sink.shape).to(rule.sink.dtype)

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return readable_problem(self, self.program.problem, advance)
