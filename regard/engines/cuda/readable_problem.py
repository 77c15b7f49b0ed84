"""A problem whose weights are read: statistics without values, then one launch for all readings of a block of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from regard.engines.cuda.choosing_pass import best_scores, pool_and_find
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launcher import on_device
from regard.engines.cuda.program import is_small, translate
from regard.engines.cuda.reading_pass import MOST_KEPT, Place, Sums, facts_to_read, fits, longest, read, settle, weigh
from regard.engines.kernels.codes import ORDERED, SCORES
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.kernels.support import RULES
from regard.engines.state import Pooled
from regard.engines.state import Sums as RowSums
from regard.problem import AttentionProblem
from regard.tensors import take
from regard.weights import Statistics

MOST_WEIGHTS = 1 << 24  # that are shown at a time
_HEAVIEST = ("top_weights", "top_index")
SPARE = 2  # keys that are kept beside the heaviest: rounding may swap those that weigh all but the same


class ReadableCudaProblem(Readable):
    """A problem that kernels compute, and its weights.

    Lists of keys are a mask of pairs here: so every weight is at one place, and what keys receive is summed in order.

    Args:
        compiled: What computes it.
        bare: What computes its statistics: the same without values.
        problem: What is read.
        height: How many rows are read at a time: there is room for the mask of so many.
        advance: Is told which share of a pass is done.
    """

    def __init__(
        self,
        compiled: Compiled,
        bare: Callable[[], Compiled],
        problem: AttentionProblem,
        height: int,
        advance: Callable[[float], None],
    ) -> None:
        self._compiled, self._bare, self._height, self._advance = compiled, bare, height, advance
        self._given, self._problem = problem, replace(problem, dropout=0.0, seed=0).around(problem.form)

    def sums(self) -> RowSums:
        return self._compiled.sums()

    def pool(self) -> Pooled:
        pooled = self._compiled.pool()
        self._advance(1.0)
        return pooled

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        return self._compiled.gradients(needed, statistics, centre, gradient)

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return self._compiled.readable(advance)

    def statistics(self) -> Statistics:
        found = self._bare().pool().statistics
        self._advance(1.0)
        return found

    def longest(self) -> tuple[float, ...]:
        problem = replace(self._given, mask=None).around(self._given.form)
        with on_device(problem.grid.device):
            return longest(Launch(translate(problem, rule=SCORES)))

    def takes(self, targets: Mapping[str, Tensor]) -> bool:
        return fits(targets)

    def read(self, statistics: Statistics, targets: Mapping[str, Tensor]) -> None:
        if "top_index" in targets and self.finds_apart:
            with on_device(self._problem.grid.device):
                best = best_scores(Launch(translate(self._problem, rule=SCORES)), _n_best(targets))
                doubtful = settle(self._whole, statistics, best, targets)
            self._read_doubtful(statistics, targets, doubtful)
            targets = {name: each for name, each in targets.items() if name not in _HEAVIEST}
        if targets:
            self._read(statistics, targets)
        else:
            self._advance(1.0)

    def _read_doubtful(self, statistics: Statistics, targets: Mapping[str, Tensor], doubtful: Tensor) -> None:
        """Have the heaviest found among all weights, if the device says so."""
        self._read(statistics, {name: targets[name] for name in _HEAVIEST}, (doubtful,))

    def _read(self, statistics: Statistics, targets: Mapping[str, Tensor], flags: tuple[Tensor, ...] = ()) -> None:
        """Show every weight to readings; where there is a flag, only if it is set."""
        grid = self._problem.grid
        sums = Sums(targets, math.prod(grid.batch_shape))
        with on_device(grid.device):
            for rows in self._blocks():
                launch = self._launch(rows)
                facts = facts_to_read(launch, _of_rows(statistics, rows))
                read(launch, facts, targets, sums, Place(rows.start, grid.n_queries), flags)
                if not flags:
                    self._advance(len(rows) / grid.n_queries)
            sums.write()

    @property
    def finds_apart(self) -> bool:
        return self.finds_heaviest and not is_small(self._problem.grid)

    @property
    def finds_heaviest(self) -> bool:
        # Where rows are taken one block after the other, they are not found beside sums.
        return self._height >= self._problem.grid.n_queries and RULES[type(self._problem.rule)] in ORDERED

    def pool_and_find(self, targets: Mapping[str, Tensor], *, values: bool) -> Pooled:
        problem = self._given if values else without_values(self._given)
        with on_device(problem.grid.device):
            launch = Launch(translate(problem))
            output, peaks, totals, *best = pool_and_find(launch, _n_best(targets))
            doubtful = settle(launch, (peaks, totals), (best[0], best[1]), targets)
        pooled = Pooled(output, (peaks, totals), None)
        self._read_doubtful(pooled.statistics, targets, doubtful)
        self._advance(1.0)
        return pooled

    def weights(self, statistics: Statistics, rows: range, columns: range) -> Tensor:
        grid = self._problem.grid
        shape = *grid.batch_shape, len(rows), len(columns)
        found = torch.empty(shape, dtype=torch.float32, device=grid.device)
        with on_device(grid.device):
            for block in self._blocks():
                here = range(max(block.start, rows.start), min(block.stop, rows.stop))
                if here and columns:
                    launch = self._launch(block)
                    facts = facts_to_read(launch, _of_rows(statistics, block))
                    mine = range(here.start - block.start, here.stop - block.start)
                    weigh(launch, facts, found, mine, columns, Place(here.start - rows.start, len(rows)))
        return found

    def cuts(self) -> Iterator[tuple[range, range]]:
        grid = self._problem.grid
        most = max(MOST_WEIGHTS // math.prod(grid.batch_shape), 1)
        width = min(grid.n_keys, most)
        for block in self._blocks():
            height = max(most // width, 1)
            for start in range(block.start, block.stop, height):
                for left in range(0, grid.n_keys, width):
                    yield (
                        range(start, min(start + height, block.stop)),
                        range(left, min(left + width, grid.n_keys)),
                    )

    def _blocks(self) -> Iterator[range]:
        n_queries = self._problem.grid.n_queries
        for start in range(0, n_queries, self._height):
            yield range(start, min(start + self._height, n_queries))

    def _launch(self, rows: range) -> Launch:
        """A block of rows; where it is not all of them, whoever asks forgets it before the next."""
        if len(rows) == self._problem.grid.n_queries:
            return self._whole
        from regard.engines.cuda.row_chunks import rows_of

        return Launch(translate(rows_of(self._problem, rows), lists=False))

    @cached_property
    def _whole(self) -> Launch:
        return Launch(translate(self._problem, lists=False))


def readable_problem(compiled: Compiled, problem: AttentionProblem, advance: Callable[[float], None]) -> Readable:
    """A problem that kernels compute, however they do, for its weights to be read."""
    from regard.engines.cuda.cuda_kernels import CudaKernels, rows_to_read

    bare = without_values(problem)
    return ReadableCudaProblem(compiled, lambda: CudaKernels().compile(bare), problem, rows_to_read(problem), advance)


def without_values(problem: AttentionProblem) -> AttentionProblem:
    """A problem with the same statistics, and a column of zeros for values."""
    nothing = problem.values.new_zeros(1, 1, requires_grad=False).expand(problem.grid.n_keys, 1)
    if problem.values.ndim > 2:  # whose batch axes may be nobody else's
        nothing = nothing.expand(*problem.values.shape[:-2], problem.grid.n_keys, 1)
    bare = problem.rebuilt((*problem.form.tensors(), nothing))
    return replace(bare, dropout=0.0, seed=0).around(bare.form)


def _n_best(targets: Mapping[str, Tensor]) -> int:
    """How many of the best scores the heaviest are found among."""
    return min(targets["top_index"].shape[-1] + SPARE, MOST_KEPT)


def _of_rows(statistics: Statistics, rows: range) -> Statistics:
    return tuple(take(each, -2, rows) for each in statistics)
