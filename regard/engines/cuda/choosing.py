"""Rules that take the best keys of each row alone: these are found, and then listed for the rule over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.cuda.choosing_pass import best_keys, pairs_of
from regard.engines.cuda.cuda_problem import CudaProblem
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launcher import on_device
from regard.engines.cuda.masks import MaskTensors
from regard.engines.cuda.program import is_small, translate
from regard.engines.cuda.readable_problem import readable_problem, without_values
from regard.engines.cuda.reading_pass import fits
from regard.engines.cuda.row_chunks import rows_of
from regard.engines.kernels import codes
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.state import Pooled, Sums
from regard.masks import Selected
from regard.problem import AttentionProblem
from regard.weights import OneHot, Statistics, TopK, Uniform


class ChoosingProblem(Compiled):
    """A problem whose rule chooses keys. Its mask has had its say with the choice.

    Args:
        problem: What is computed.
        k: How many keys are chosen.
        height: How many rows there is room for the mask of.
    """

    def __init__(self, problem: AttentionProblem, k: int, height: int) -> None:
        self.problem, self._k, self._height = problem, k, height
        rule = problem.rule.then if isinstance(problem.rule, TopK) else problem.rule
        self._over_lists = replace(problem, rule=rule, mask=None).around(problem.form)

    def choose(self) -> Tensor:
        """The best keys of each row, best first, then −1: `(*batch_shape, n_queries, k)`."""
        grid = self.problem.grid
        if self._height >= grid.n_queries:
            return _chosen(self.problem, self._k)
        index = torch.empty(*grid.batch_shape, grid.n_queries, self._k, dtype=torch.int64, device=grid.device)
        for start in range(0, grid.n_queries, self._height):
            stop = min(start + self._height, grid.n_queries)
            index[..., start:stop, :] = _chosen(rows_of(self.problem, range(start, stop)), self._k)
        return index

    def pool(self) -> Pooled:
        index = self.choose()
        pooled = self._listing(index).pool()
        statistics = (index,) if self._is_one_hot else (index, *pooled.statistics)
        return Pooled(pooled.output, statistics, pooled.slope_mean)

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        index, *inner = statistics
        problem, asked = self._over_lists, list(needed)
        problem.__dict__["may_leak"] = self.problem.may_leak
        if self._is_one_hot:
            # Which key is the best does not change with scores that change a little.
            inner = [torch.zeros(1, 1, device=gradient.device)] * 2  # which nobody reads
            values = len(problem.tensors) - 1
            asked = [each and place == values for place, each in enumerate(needed)]
        found = self._listing(index).gradients(asked, tuple(inner), centre, gradient)
        return [
            torch.zeros_like(tensor) if need and each is None else each
            for tensor, need, each in zip((*problem.tensors, *problem.rule.learned()), needed, found, strict=True)
        ]

    @property
    def _is_one_hot(self) -> bool:
        return isinstance(self.problem.rule, OneHot)

    def _listing(self, index: Tensor) -> CudaProblem:
        """The rule over chosen keys: along lists of them or, where the problem is small, with a byte for each pair."""
        if is_small(self.problem.grid):
            mask = MaskTensors(pairs=(pairs_of(index, self.problem.grid.n_keys),))
        else:
            mask = MaskTensors(lists=(index.contiguous(),))
        rule = codes.ONE_HOT if self._is_one_hot else None
        return CudaProblem(translate(self._over_lists, rule=rule, mask=mask))

    def sums(self) -> Sums:
        raise AssertionError("a rule that chooses keys has no sums of one pass")

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return ReadableChoices(self, advance)

    def statistics(self) -> Statistics:
        """Those of every row, without the output."""
        return ChoosingProblem(without_values(self.problem), self._k, self._height).pool().statistics

    def settled(self, statistics: Statistics) -> tuple[AttentionProblem, Statistics]:
        """The rule over the keys that were chosen, as a problem, and its statistics."""
        index, *inner = statistics
        if self._is_one_hot:  # one key, or none
            totals = torch.where(index < 0, torch.inf, 1.0)
            inner = [torch.zeros_like(totals), totals]
        rule = Uniform() if self._is_one_hot else self._over_lists.rule
        return replace(self.problem, rule=rule, mask=Selected(index)).around(self.problem.form), tuple(inner)


class ReadableChoices(Readable):
    """A problem whose rule chooses keys: weights are those of the rule over them.

    Args:
        choosing: What chooses.
        advance: Is told which share of a pass is done.
    """

    def __init__(self, choosing: ChoosingProblem, advance: Callable[[float], None]) -> None:
        self._choosing, self._advance = choosing, advance

    def sums(self) -> Sums:
        return self._choosing.sums()

    def pool(self) -> Pooled:
        pooled = self._choosing.pool()
        self._advance(1.0)
        return pooled

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        return self._choosing.gradients(needed, statistics, centre, gradient)

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return self._choosing.readable(advance)

    def statistics(self) -> Statistics:
        found = self._choosing.statistics()
        self._advance(1.0)
        return found

    def takes(self, targets: Mapping[str, Tensor]) -> bool:
        return fits(targets)

    def read(self, statistics: Statistics, targets: Mapping[str, Tensor]) -> None:
        settled, inner = self._choosing.settled(statistics)
        self._over(settled).read(inner, targets)

    @property
    def finds_heaviest(self) -> bool:
        return False

    def pool_and_find(self, targets: Mapping[str, Tensor], *, values: bool) -> Pooled:
        raise AssertionError("the heaviest are read in a pass of their own")

    def weights(self, statistics: Statistics, rows: range, columns: range) -> Tensor:
        settled, inner = self._choosing.settled(statistics)
        return self._over(settled).weights(inner, rows, columns)

    def cuts(self) -> Iterator[tuple[range, range]]:
        return self._over(self._choosing.problem).cuts()

    def _over(self, problem: AttentionProblem) -> Readable:
        return readable_problem(self._choosing, problem, self._advance)


def _chosen(problem: AttentionProblem, k: int) -> Tensor:
    with on_device(problem.grid.device):
        return best_keys(Launch(translate(problem, rule=codes.SCORES)), k)
