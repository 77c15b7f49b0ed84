"""By lists: each row attends to a few keys, which are gathered for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels import list_loops
from regard.engines.cpu.kernels.records import Gradients, RowSums
from regard.engines.cpu.program import Entry, Program, pick
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.traversal import (
    Answers,
    BlockFacts,
    KeySums,
    by_row_of,
    cut,
    dropout_of,
    scaled_left,
    steps_of,
)
from regard.problem import AttentionProblem

# Listed pairs that one compiled call takes, so that Ctrl-C is heard: some 20 ms forward and 50 backward, where vectors
# have 64 numbers. Longer ones are more work.
BLOCK_PAIRS = 1 << 18
PAIR_SECONDS = 12e-9  # what a listed pair costs

_UNKNOWN = torch.zeros(0, 0, dtype=torch.float32, device="cpu")


@dataclass(frozen=True)
class Lists:
    """The way by lists.

    Args:
        problem: What is computed.
        index: The keys of some rows, `(..., n_rows, width)`, then −1; batch axes broadcast.
        longest: How many keys a row lists at most.
    """

    problem: AttentionProblem
    index: Callable[[range], Tensor]
    longest: int
    _answers: Answers = field(default_factory=Answers, repr=False, compare=False)
    transposed = False

    def blocks(self) -> list[range]:
        height = min(max(_call_pairs(self.problem) // max(self.longest, 1), 1), 1024)
        return list(cut(self.problem.grid.rows, height))

    def seconds(self, program: Program) -> float:
        return program.n_entries * self.problem.grid.n_queries * self.longest * PAIR_SECONDS

    def long_blocks(self) -> list[range]:
        return self.blocks()

    def parts(self, program: Program) -> int:
        return 1

    def _index(self, entry: Entry, rows: range) -> Tensor:
        index = self._answers.get((rows,), lambda: self.index(rows))
        return pick(index, entry.index, 2).expand(len(rows), -1).contiguous()

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        least, matrices = 0.0, _matrices(program, entry, rows, entry.values)
        dropout = dropout_of(program, entry, rows)
        for (index,) in cut_lists(self.problem, self._index(entry, rows)):
            lowest = list_loops.pool_listed(
                *matrices,
                index.numpy(),
                *_steps(entry, rows, index),
                program.rule,
                *dropout,
                *sums,
            )
            least = min(least, float(lowest))
        return least

    def scores(self, program: Program, entry: Entry, rows: range) -> tuple[Any, Any]:
        """The scores of the lists of some rows, −inf after their ends, and the lists: `(n_rows, width)` each."""
        lists = self._index(entry, rows)
        pieces = [np.empty((len(rows), 0), np.float32)]
        for (index,) in cut_lists(self.problem, lists):
            pieces.append(np.empty(index.shape, np.float32))
            steps = _steps(entry, rows, index)
            list_loops.score_listed(*_matrices(program, entry, rows), index.numpy(), *steps, pieces[-1])
        return pieces[-1] if len(pieces) == 2 else np.concatenate(pieces, 1), lists.numpy()

    def differentiate(self, program: Program, entry: Entry, rows: range, facts: BlockFacts, sums: KeySums) -> None:
        lists = ((index, _UNKNOWN) for (index,) in cut_lists(self.problem, self._index(entry, rows)))
        differentiate_lists(program, entry, rows, lists, facts, sums)


def _call_pairs(problem: AttentionProblem) -> int:
    dims = problem.form.tensors()[0].shape[-1] + problem.values.shape[-1]
    return max(BLOCK_PAIRS * 256 // (dims + 128), 1)


def cut_lists(problem: AttentionProblem, *lists: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The lists of some rows, and what belongs to them, cut where they are too long for one call."""
    n_rows, width = lists[0].shape
    for piece in cut(range(width), max(_call_pairs(problem) // max(n_rows, 1), 1)):
        thread_pool.check_stopped()
        yield tuple(each[:, piece.start : piece.stop].contiguous() for each in lists)


def differentiate_lists(
    program: Program, entry: Entry, rows: range, lists: Iterable[tuple[Tensor, ...]], facts: BlockFacts, sums: KeySums
) -> None:
    """Add what the lists of a block give to the gradients.

    Args:
        program, entry, rows, facts, sums: As for `ways.WayBack.differentiate`.
        lists: The rows' keys and their scores, in as many pieces as they come; the scores `(0, 0)` where they are not
            known. Where they are, they must be used: weights are sharp, and another order of adding up makes a large
            score differ from its row's peak.
    """
    to_by_row, to_left = np.zeros((len(entry.codes), len(rows)), np.float32), sums.left[rows.start : rows.stop]
    to_left.fill(0)
    left, right, values = _matrices(program, entry, rows, entry.values)
    gradient, dropout = facts.gradient.contiguous().numpy(), dropout_of(program, entry, rows)
    gradients = Gradients(to_left, sums.right, sums.values, to_by_row, sums.by_column, sums.numbers, sums.table)
    for index, scores in lists:
        list_loops.differentiate_listed(
            left,
            right,
            np.float32(program.scale),
            values,
            gradient,
            index.numpy(),
            scores.numpy(),
            *_steps(entry, rows, index),
            program.rule,
            entry.alpha,
            *facts.known,
            *dropout,
            *gradients,
        )
    sums.by_row[:, rows.start : rows.stop] += to_by_row


def _matrices(program: Program, entry: Entry, rows: range, *more: Tensor) -> tuple[Any, ...]:
    left = scaled_left(program, entry, rows).contiguous().numpy()
    return (left, *(each.contiguous().numpy() for each in (entry.right, *more)))


def _steps(entry: Entry, rows: range, index: Tensor) -> tuple[Any, ...]:
    """The steps of some rows against those that they list, and scratch for them."""
    scratch = np.empty((2, len(entry.codes), max(index.shape[-1], 1)), np.float32)
    return *steps_of(entry, rows, index, by_row_of(entry, rows)), scratch
