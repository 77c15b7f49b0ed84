"""A problem that kernels compute: its sums, its output, its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.engines.cpu import codes
from regard.engines.cpu.backward import Facts, differentiate
from regard.engines.cpu.forward import sum_rows
from regard.engines.cpu.lists import Lists
from regard.engines.cpu.programs import Program
from regard.engines.cpu.tiles import Tiles
from regard.engines.cpu.ways import Way
from regard.engines.sums import Pooled, Sums
from regard.weights import OnePass, Softmax, Statistics

# How many times fewer keys a row must list than tiles would visit for gathering them to be cheaper.
GATHERING = 6


class Compiled:
    """A program and the way through its live pairs."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def way(self) -> Way:
        problem = self.program.problem
        mask, grid = problem.mask, problem.grid
        tiles = Tiles(problem)
        if mask is not None:
            longest = mask.count_bound(grid)
            if longest is not None and longest * GATHERING < tiles.visited():
                return Lists(problem, lambda rows: mask.indices(rows, grid), longest)
        return tiles

    def sums(self) -> Sums:
        """The sums of every row, for a rule of one pass."""
        rule = self.program.problem.weights
        assert isinstance(rule, OnePass)
        return sum_rows(self.program, self.way, rule)

    def pool(self) -> Pooled:
        """The output and the statistics of every row."""
        rule = self.program.problem.weights
        assert isinstance(rule, OnePass)
        return self.sums().finish(rule)

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
        peak, total = (each.float().expand(*grid.batch_shape, -1, -1).reshape(rows) for each in statistics[:2])
        scales = total if program.rule == codes.ENTMAX else total.reciprocal()
        facts = Facts(torch.where(peak == -torch.inf, 0, peak).contiguous(), scales.contiguous(), delta, gradient)
        n_form = len(program.problem.form.tensors())
        found = differentiate(program, self.way, facts, needed[: n_form + 1])
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
