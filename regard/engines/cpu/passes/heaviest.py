"""The heaviest keys of each row, found in the pass that finds the statistics of rows.

What a key weighs is known after that pass alone, but a larger score has a larger weight: the keys with the best scores
are kept, a few more than are wanted, because rounding may swap weights that are all but equal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engines.cpu.kernels.row_readings import settle_best
from regard.engines.cpu.program import Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.traversal import FLOATS

SPARE = 2  # keys that are kept beside those that are wanted


class Heaviest:
    """The keys with the best scores of every row, while a pass gathers them.

    Args:
        program: Whose rows they are.
        k: How many keys are wanted of each.
    """

    def __init__(self, program: Program, k: int) -> None:
        self.program = program
        shape = (program.n_entries, program.problem.grid.n_queries, k + SPARE)
        self.scores = torch.full(shape, -torch.inf, **FLOATS)
        self.keys = torch.full(shape, -1, device="cpu")

    def of(self, place: int, rows: range) -> tuple[Any, Any]:
        """Scores and keys of a block of rows of a batch entry."""
        block = (place, slice(rows.start, rows.stop))
        return self.scores[block].numpy(), self.keys[block].numpy()

    def settle(
        self, blocks: list[range], offsets: Tensor, scales: Tensor, top_weights: Tensor, top_index: Tensor
    ) -> Tensor:
        """Write the heaviest of every row; returns which rows must be read again, `(n_entries, n_queries)`.

        Args:
            blocks: The rows, in blocks.
            offsets, scales: What makes scores weights, `(n_entries, n_queries)`: see `row_steps.weigh_row`.
            top_weights, top_index: `(n_entries, n_queries, k)`, to write on.
        """
        doubtful = torch.zeros(offsets.shape, dtype=torch.bool, device="cpu")

        def work(place: int, rows: range) -> None:
            block = (place, slice(rows.start, rows.stop))
            facts = (each[block].numpy() for each in (offsets, scales, top_weights, top_index, doubtful))
            settle_best(*self.of(place, rows), self.program.rule, *facts)

        thread_pool.run([partial(work, place, rows) for place in range(len(doubtful)) for rows in blocks])
        return doubtful
