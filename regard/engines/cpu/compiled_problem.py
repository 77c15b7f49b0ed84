"""A problem that kernels compute: its sums, its output, its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.engines.cpu.passes.backward import differentiate
from regard.engines.cpu.passes.choosing import choose_keys, pool_thresholds
from regard.engines.cpu.passes.forward import sum_rows
from regard.engines.cpu.program import Program
from regard.engines.cpu.traversal.by_lists import Lists
from regard.engines.cpu.traversal.by_support import Supports
from regard.engines.cpu.traversal.by_tiles import ROWS, Tiles
from regard.engines.cpu.traversal.traversal import FLOATS, Facts, Way, WayBack
from regard.engines.kernels import codes
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.state import Pooled, Sums
from regard.weights import OneHot, OnePass, Softmax, Statistics

# How many times fewer keys a row must list than tiles would visit for gathering them to be cheaper.
GATHERING = 6

# dO times values, from which on the gradients of channels are computed of a smaller dO.
LARGEST = 2.0**48


class CpuProblem(Compiled):
    """A program and the way through its live pairs."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def way(self) -> Tiles | Lists:
        problem = self.program.problem
        mask, grid = problem.mask, problem.grid
        tiles = Tiles(problem, by_channels=self.program.channel is not None)
        if mask is not None and not tiles.by_channels:
            longest = mask.count_bound(grid)
            if longest is not None and longest * GATHERING < tiles.visited(ROWS):
                return Lists(problem, lambda rows: mask.indices(rows, grid), longest)
        return tiles

    def readable(self, advance: Callable[[float], None]) -> Readable:
        from regard.engines.cpu.passes.weight_readings import ReadableCpuProblem

        return ReadableCpuProblem(self.program, advance)

    def sums(self) -> Sums:
        return self._sums(self.way)

    def _sums(self, way: Way) -> Sums:
        assert isinstance(self.program.inner, OnePass)
        return sum_rows(self.program, way, self.program.inner)

    def pool(self) -> Pooled:
        program, way = self.program, self.way
        if not program.choose:
            return self._pool(way)
        index = choose_keys(program, way)
        pooled = self._pool(self._chosen(index))
        if isinstance(program.problem.rule, OneHot):
            return Pooled(pooled.output, (index,), None)
        return Pooled(pooled.output, (index, *pooled.statistics), pooled.slope_mean)

    def _pool(self, way: Tiles | Lists) -> Pooled:
        rule = self.program.inner
        if isinstance(rule, OnePass):
            return self._sums(way).finish(rule, reuse=True)
        return pool_thresholds(self.program, way)

    def _chosen(self, index: Tensor) -> Lists:
        return Lists(self.program.problem, lambda rows: index[..., rows.start : rows.stop, :], self.program.choose)

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        problem = self.program.problem
        gradient = gradient.float()
        large = _large_rows(gradient, problem.values) if self.program.channel is not None else None
        if large is None:
            return self._differentiate(needed, statistics, centre, gradient)
        # Gradients are linear in dO: large rows of it are divided by what would carry them away, and only those.
        rows, factor = large
        values = len(problem.form.tensors())  # whose gradient is no product with values, and needs nothing smaller
        alone, others = (
            [each and (place == values) is of for place, each in enumerate(needed)] for of in (True, False)
        )
        small = self._differentiate(others, statistics, centre, torch.where(rows, 0, gradient))
        divided = self._differentiate(others, statistics, centre, torch.where(rows, gradient / factor, 0))
        found = [
            None if one is None or other is None else one + other * factor
            for one, other in zip(small, divided, strict=True)
        ]
        found[values] = self._differentiate(alone, statistics, centre, gradient)[values]
        return found

    def _differentiate(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        program = self.program
        grid = program.problem.grid
        rows = (program.n_entries, grid.n_queries)
        gradient = gradient.reshape(*rows, -1).contiguous()
        delta = torch.zeros(rows, **FLOATS) if centre is None else (gradient * centre.reshape(*rows, -1)).sum(-1)
        way: WayBack = self.way
        if program.choose:
            index, *inner = statistics
            way, statistics = self._chosen(index), tuple(inner)
        if isinstance(program.problem.rule, OneHot):
            statistics = (torch.zeros(1, 1, **FLOATS), torch.ones(1, 1, **FLOATS))
        shape = (*grid.batch_shape, grid.n_queries, 1)
        # A compiled call keeps statistics side by side, and kernels take what lies together.
        peak, total = (each.expand(shape).reshape(rows).contiguous() for each in statistics[:2])
        if program.rule == codes.ENTMAX:
            facts = Facts(peak.float(), total.double(), delta, gradient)
        else:
            # A fully masked row: e^(−inf − 0) · 0.
            peak = torch.where(peak == -torch.inf, 0, peak)
            facts = Facts(peak.float(), total.double().reciprocal(), delta, gradient)
        if program.rule == codes.ENTMAX and isinstance(way, Tiles) and not way.by_channels:
            supports = Supports(way)
            way = supports if supports.are_few(program, facts) else way
        n_form = len(program.problem.form.tensors())
        found = differentiate(program, way, facts, needed[: n_form + 1])
        if any(needed[n_form + 1 :]):
            found.append(self._sink_gradient(statistics, delta.reshape(*grid.batch_shape, grid.n_queries, 1)))
        else:
            found += [None] * len(needed[n_form + 1 :])
        return found

    def _sink_gradient(self, statistics: Statistics, delta: Tensor) -> Tensor:
        """−Σ_i α_i(sink) · δ_i: a sink takes weight from every key of a row."""
        rule = self.program.inner
        assert isinstance(rule, Softmax)
        assert isinstance(rule.sink, Tensor)
        share = rule.sink_weight(statistics)  # (..., n_queries, 1)
        total = (-share * delta).double().sum_to_size(*rule.sink.shape, 1, 1)
        return total.reshape(rule.sink.shape).to(rule.sink.dtype)


def _large_rows(gradient: Tensor, values: Tensor) -> tuple[Tensor, float] | None:
    """The rows of dO that must be smaller before channels differentiate, `(..., 1)`, and by what; None for none.

    The steps to the gradient of tanh multiply dP by as much as 2⁶⁴ before they divide it.
    """
    if not gradient.numel() or not values.numel():
        return None
    largest, value = (float(torch.stack(each.aminmax()).abs().max()) for each in (gradient, values.detach()))
    size = largest * value
    if not LARGEST < size < math.inf:
        return None
    # A power of two that float32 has.
    return gradient.abs().amax(-1, keepdim=True) > LARGEST / value, 2.0 ** min(math.frexp(size)[1], 126)
