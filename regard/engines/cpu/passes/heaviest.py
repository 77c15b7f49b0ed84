"""The heaviest keys of each row, found in the pass that finds the statistics of rows.

Where a tile has room for all keys of a row, the pass writes them (`kernels/heaviest_rows.py`). Elsewhere what a key
weighs is known after it alone, but a larger score has a larger weight: the keys with the best scores are kept, a few
more than are wanted, because rounding may swap weights that are all but equal.
"""

from __future__ import annotations

from functools import cached_property, partial
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
        top_weights, top_index: `(n_entries, n_queries, k)`, for the heaviest and their keys; 0 and −1 at first.
    """

    def __init__(self, program: Program, top_weights: Tensor, top_index: Tensor) -> None:
        self.program, self.top_weights, self.top_index = program, top_weights, top_index
        self.is_settled = False  # whether the pass itself writes the heaviest

    @cached_property
    def scores(self) -> Tensor:
        """The best scores so far, −inf in empty places."""
        return torch.full(self._kept, -torch.inf, **FLOATS)

    @cached_property
    def keys(self) -> Tensor:
        """Their keys, −1 in empty places."""
        return torch.full(self._kept, -1, device="cpu")

    @property
    def _kept(self) -> tuple[int, ...]:
        *rows, k = self.top_index.shape
        return (*rows, k + SPARE)

    def settled_of(self, places: slice) -> tuple[Any, Any]:
        """Where the heaviest of some entries, and their keys, are written."""
        return self.top_weights[places].numpy(), self.top_index[places].numpy()

    def of(self, place: int, rows: range) -> tuple[Any, Any]:
        """Scores and keys of a block of rows of a batch entry."""
        block = (place, slice(rows.start, rows.stop))
        return self.scores[block].numpy(), self.keys[block].numpy()

    def settle(self, blocks: list[range], offsets: Tensor, scales: Tensor) -> Tensor:
        """Write the heaviest of every row; returns which rows must be read again, `(n_entries, n_queries)`.

        Args:
            blocks: The rows, in blocks.
            offsets, scales: What makes scores weights, `(n_entries, n_queries)`: see `row_steps.weigh_row`.
        """
        doubtful = torch.zeros(offsets.shape, dtype=torch.bool, device="cpu")

        def work(place: int, rows: range) -> None:
            block = (place, slice(rows.start, rows.stop))
            facts = (each[block].numpy() for each in (offsets, scales, self.top_weights, self.top_index, doubtful))
            settle_best(*self.of(place, rows), self.program.rule, *facts)

        thread_pool.run([partial(work, place, rows) for place in range(len(doubtful)) for rows in blocks])
        return doubtful
