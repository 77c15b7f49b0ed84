"""The raw scores of a block of rows: what a tile holds before steps, mask and rule."""

from __future__ import annotations

from typing import Any

from regard.engines.cpu.kernels.channel import channel_gradients, channel_scores, prepare_queries
from regard.engines.cpu.kernels.records import Products
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.traversal import KeySums, place, scaled_left
from regard.engines.torch_internals import sgemm_address


class DotProducts:
    """The raw scores of a block, before steps: dot products, which the compiled loop does itself."""

    step = 1

    def __init__(self, program: Program, entry: Entry, rows: range) -> None:
        self.n_rows = len(rows)
        self.left = scaled_left(program, entry, rows)  # kept, since its address alone is handed on
        self.record = Products(sgemm_address(), *place(self.left), *place(entry.right), self.left.shape[1])

    def tile(self, columns: range, height: int, width: int) -> Any:
        """Scratch for the loop, which cuts rows and columns by it."""
        return thread_pool.scratch("tile", min(self.n_rows, height), width)

    def whole(self, columns: range) -> Any:
        """Scratch for all rows and columns at once."""
        return thread_pool.scratch("tile", self.n_rows, len(columns))

    def differentiate(self, columns: range, change: Any, to_left: Any, sums: KeySums) -> None:
        """Nothing is left to do."""


class ChannelProducts:
    """The raw scores of a block, before steps: sums over channels, which come before the compiled loop."""

    def __init__(self, program: Program, entry: Entry, rows: range) -> None:
        assert program.channel is not None
        self.n_rows, self.weight, self.scale = len(rows), entry.weight, program.channel.scale
        self.branch, smallest, self.keys = entry.packed
        self.step = self.keys.shape[-1]
        left = entry.left[rows.start : rows.stop].contiguous().numpy()
        self.queries = prepare_queries(left, smallest, self.weight, self.branch)
        self.record = Products(sgemm_address(), 0, 0, 0, 0, -1)

    def tile(self, columns: range, height: int, width: int) -> Any:
        """The scores of some columns."""
        return self.whole(columns)

    def whole(self, columns: range) -> Any:
        """The scores of some columns."""
        scores = thread_pool.scratch("tile", self.n_rows, len(columns))
        channel_scores(self.queries, self._keys(columns), self.weight, self.scale, self.branch, scores)
        return scores

    def differentiate(self, columns: range, change: Any, to_left: Any, sums: KeySums) -> None:
        """Add the gradients of queries, keys and weights of channels."""
        to_right = sums.right[columns.start : columns.stop]
        channel_gradients(
            self.queries,
            self._keys(columns),
            self.weight,
            self.scale,
            self.branch,
            change,
            to_left,
            to_right,
            sums.weight,
        )

    def _keys(self, columns: range) -> Any:
        return self.keys[columns.start // self.step : -(-columns.stop // self.step)]


def step_of(program: Program, entry: Entry) -> int:
    """How many keys come together: those of channel scores come in blocks."""
    return 1 if program.channel is None else int(entry.packed[2].shape[-1])


def products_of(program: Program, entry: Entry, rows: range) -> DotProducts | ChannelProducts:
    """The raw scores of these rows, by dot products or by channels."""
    return DotProducts(program, entry, rows) if program.channel is None else ChannelProducts(program, entry, rows)
