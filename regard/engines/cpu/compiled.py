"""A problem that kernels compute: its sums, its output, its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.engines.cpu import codes
from regard.engines.cpu.backward import RowFacts, differentiate
from regard.engines.cpu.forward import sum_rows
from regard.engines.cpu.layout import Layout
from regard.engines.cpu.programs import Program
from regard.weights import Softmax, Statistics


class Compiled:
    """A program with the layout of its tiles."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.program.problem)

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """(peak, total, pooled) of every row, for a rule of one pass."""
        return sum_rows(self.program, self.layout)

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        """The gradient of each input of the problem; None where it is not needed.

        Args:
            needed: Which of `problem.inputs` need one.
            statistics: Of the rows, as the rule has them.
            centre: u in dS = slope · (dP − dO·u); None for 0.
            gradient: dO, `(*batch_shape, n_queries, value_dim)`.
        """
        program = self.program
        grid = program.problem.grid
        rows = (program.n_entries, grid.n_queries)
        gradient = gradient.float().reshape(*rows, -1).contiguous()
        delta = torch.zeros(rows) if centre is None else (gradient * centre.reshape(*rows, -1)).sum(-1)
        peak, total = (each.float().reshape(rows) for each in statistics[:2])
        scales = total if program.rule == codes.ENTMAX else total.reciprocal()
        facts = RowFacts(torch.where(peak == -torch.inf, 0, peak).contiguous(), scales.contiguous(), delta)
        n_form = len(program.problem.form.tensors())
        found = differentiate(program, self.layout, facts, gradient, needed[: n_form + 1])
        if any(needed[n_form + 1 :]):
            found.append(self._sink_gradient(statistics, delta.reshape(*grid.batch_shape, grid.n_queries, 1)))
        else:
            found += [None] * len(needed[n_form + 1 :])
        return found

    def _sink_gradient(self, statistics: Statistics, delta: Tensor) -> Tensor:
        """−Σ_i α_i(sink) · δ_i: a sink takes weight from every key of a row."""
        rule = self.program.problem.weights
        assert isinstance(rule, Softmax) and isinstance(rule.sink, Tensor)
        share = rule.sink_weight(statistics)  # (..., n_queries, 1)
        total = (-share * delta).double().sum_to_size(*rule.sink.shape, 1, 1)
        return total.reshape(rule.sink.shape).to(rule.sink.dtype)
