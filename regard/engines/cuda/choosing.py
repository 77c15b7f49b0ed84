"""Rules that take the best keys of each row alone: these are found, and then listed for the rule over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.cuda.choosing_pass import best_keys, pairs_of
from regard.engines.cuda.cuda_problem import CudaProblem
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launcher import on_device
from regard.engines.cuda.masks import MaskTensors
from regard.engines.cuda.program import is_small, translate
from regard.engines.cuda.row_chunks import rows_of
from regard.engines.kernels import codes
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.state import Pooled, Sums
from regard.problem import AttentionProblem
from regard.weights import OneHot, Statistics, TopK


class ChoosingProblem(Compiled):
    """A problem whose rule chooses keys. Its mask has had its say with the choice.

    Args:
        problem: What is computed.
        k: How many keys are chosen.
        height: How many rows there is room for the mask of.
    """

    def __init__(self, problem: AttentionProblem, k: int, height: int) -> None:
        self._problem, self._k, self._height = problem, k, height
        rule = problem.rule.then if isinstance(problem.rule, TopK) else problem.rule
        self._over_lists = replace(problem, rule=rule, mask=None).around(problem.form)

    def choose(self) -> Tensor:
        """The best keys of each row, best first, then −1: `(*batch_shape, n_queries, k)`."""
        grid = self._problem.grid
        if self._height >= grid.n_queries:
            return _chosen(self._problem, self._k)
        index = torch.empty(*grid.batch_shape, grid.n_queries, self._k, dtype=torch.int64, device=grid.device)
        for start in range(0, grid.n_queries, self._height):
            stop = min(start + self._height, grid.n_queries)
            index[..., start:stop, :] = _chosen(rows_of(self._problem, range(start, stop)), self._k)
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
        problem.__dict__["may_leak"] = self._problem.may_leak
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
        return isinstance(self._problem.rule, OneHot)

    def _listing(self, index: Tensor) -> CudaProblem:
        """The rule over chosen keys: along lists of them or, where the problem is small, with a byte for each pair."""
        if is_small(self._problem.grid):
            mask = MaskTensors(pairs=(pairs_of(index, self._problem.grid.n_keys),))
        else:
            mask = MaskTensors(lists=(index.contiguous(),))
        rule = codes.ONE_HOT if self._is_one_hot else None
        return CudaProblem(translate(self._over_lists, rule=rule, mask=mask))

    def sums(self) -> Sums:
        raise AssertionError("a rule that chooses keys has no sums of one pass")

    def readable(self, advance: Callable[[float], None]) -> Readable:
        raise AssertionError("the CUDA kernels read no weights")


def _chosen(problem: AttentionProblem, k: int) -> Tensor:
    with on_device(problem.grid.device):
        return best_keys(Launch(translate(problem, rule=codes.SCORES)), k)
