"""Ways through the live pairs of a problem: by tiles, or by the keys that each row lists.

A way cuts the rows into blocks, and runs the compiled passes over a block of one batch entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels.records import Dropout, RowFacts, RowSums, Seen, Steps
from regard.engines.cpu.program import Entry, Program, row_stride
from regard.engines.cpu.runtime import thread_pool
from regard.engines.dropout import hashes
from regard.tensors import Span

# What kernels write on. Said each time: a user may have other defaults.
FLOATS: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}

ANSWER_BYTES = 1 << 26  # of a mask's answers that a call keeps

_NO_BOUNDS = np.zeros(0, np.int64)
_NO_MASK = np.zeros((1, 0), np.bool_)
ALL_SEEN = Seen(_NO_BOUNDS, _NO_BOUNDS, _NO_MASK)
_NO_PAIRS = np.zeros((1, 0), np.float32)
_NO_HASHES = np.zeros(0, np.uint32)
NO_DROPOUT = Dropout(_NO_HASHES, _NO_HASHES, np.uint32(0), np.float32(1))
NO_BEST = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int64)
NO_BEST_OF_ENTRIES = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.int64)


@dataclass(frozen=True)
class Found:
    """Where rows under entmax write what is found of them, `(n_rows, …)` or with an axis for batch entries before."""

    peaks: Tensor
    thresholds: Tensor  # float64
    output: Tensor  # (n_rows, value_dim)
    slope_mean: Tensor  # (n_rows, value_dim): values averaged by slope

    def of(self, *which: int | slice) -> Found:
        """The part of some rows."""
        return Found(*(each[which] for each in (self.peaks, self.thresholds, self.output, self.slope_mean)))


@dataclass(frozen=True)
class Facts:
    """What a backward pass knows of every row, `(n_entries, n_queries)` each; see `row_steps.weigh_row`."""

    offsets: Tensor
    scales: Tensor
    deltas: Tensor  # dO·u
    gradient: Tensor  # (n_entries, n_queries, value_dim): dO

    def of(self, entry: Entry, rows: range) -> BlockFacts:
        """Those of a block of rows."""
        block = slice(rows.start, rows.stop)
        known = RowFacts(*(each[entry.place, block].numpy() for each in (self.offsets, self.scales, self.deltas)))
        return BlockFacts(known, self.gradient[entry.place, block])


class BlockFacts(NamedTuple):
    """What a backward pass knows of a block of rows."""

    known: RowFacts
    gradient: Tensor  # (n_rows, value_dim): dO


@dataclass(frozen=True)
class KeySums:
    """Where the blocks of a batch entry gather gradients: numpy arrays, empty where they are not wanted."""

    left: Any  # (n_queries, dim)
    right: Any  # (n_keys, dim), or transposed
    values: Any  # (n_keys, value_dim), or transposed
    by_row: Any  # (n_steps, n_queries)
    by_column: Any  # (n_steps, n_keys)
    numbers: Any  # (n_steps,)
    table: Any  # (length,)
    weight: Any  # (channels,)


class WayBack(Protocol):
    """A way to gradients."""

    transposed: bool  # how it gathers the gradients of keys and values

    def seconds(self, program: Program) -> float:
        """About how long one core computes on a forward pass over all live pairs; on gradients, twice as long."""
        ...

    def long_blocks(self) -> list[range]:
        """The rows in blocks for `pool` and `differentiate`: longer ones, where that saves calls."""
        ...

    def differentiate(self, program: Program, entry: Entry, rows: range, facts: BlockFacts, sums: KeySums) -> None:
        """Add what a block gives to the gradients."""
        ...


class Way(WayBack, Protocol):
    """A way through the live pairs of a program."""

    def blocks(self) -> list[range]:
        """The rows, in blocks."""
        ...

    def parts(self, program: Program) -> int:
        """In how many parts the keys are shared out."""
        ...

    def pool(self, program: Program, entry: Entry, rows: range, sums: RowSums, part: tuple[int, int]) -> float:
        """Take the live pairs of a block into its sums; returns the least numerator.

        Args:
            part: (which, of how many) parts of its columns.
        """
        ...


class Answers:
    """What a mask said of some rows, for every batch entry at once, kept for the entries that ask next."""

    def __init__(self) -> None:
        self._kept: dict[tuple[range, ...], Tensor] = {}
        self._bytes = 0

    def get(self, asked: tuple[range, ...], answer: Callable[[], Tensor]) -> Tensor:
        """The answer to what was asked, as it was given before or now."""
        known = self._kept.get(asked)
        if known is None:
            # Two threads may ask at once: then both work, and one answer is kept.
            known = answer()
            if self._bytes + known.nbytes <= ANSWER_BYTES:
                self._bytes += known.nbytes
                self._kept[asked] = known
        return known


def cut(span: range, size: int) -> Iterator[range]:
    """A range in pieces of at most that size."""
    for start in range(span.start, span.stop, size):
        yield range(start, min(start + size, span.stop))


def place(matrix: Tensor) -> tuple[int, int]:
    """The address of a matrix and how far apart its rows are."""
    return matrix.data_ptr(), row_stride(matrix)


def scaled_left(program: Program, entry: Entry, rows: range) -> Tensor:
    """The left side of some rows, times the scale: before the product, so that large inputs do not overflow."""
    left = entry.left[rows.start : rows.stop]
    if program.scale == 1.0:
        return left
    scaled = torch.from_numpy(thread_pool.scratch("scaled", *left.shape))
    return torch.mul(left, program.scale, out=scaled)


def by_row_of(entry: Entry, rows: range) -> Any:
    """The numbers of some rows for each step."""
    return np.ascontiguousarray(entry.by_row[:, rows.start : rows.stop])


def steps_of(entry: Entry, rows: range, columns: Span, by_row: Any) -> Steps:
    """The steps of some rows against some columns, or those that `columns` lists for each row."""
    pairs = _pairs_of(entry, rows, columns)
    return Steps(entry.codes, by_row, entry.by_column, entry.numbers, pairs, entry.table)


def _pairs_of(entry: Entry, rows: range, columns: Span) -> Any:
    """The part of a bias for each pair that a tile needs; for listed columns, `(n_rows, width)`, one for each."""
    if entry.pairs is None:
        return _NO_PAIRS
    strip = entry.pairs[rows.start : rows.stop]
    if isinstance(columns, Tensor):
        return strip.gather(-1, columns.clamp(min=0)).numpy()
    return strip[:, columns.start : columns.stop].contiguous().numpy()


def dropout_of(program: Program, entry: Entry, rows: range) -> Dropout:
    """The dropout of some rows."""
    problem = program.problem
    if not problem.dropout:
        return NO_DROPOUT
    of_rows, of_columns = hashes(
        problem.seed,
        entry.place,
        *(torch.arange(each.start, each.stop, device="cpu") for each in (rows, problem.grid.columns)),
    )
    limit, factor = np.uint32(int(problem.dropout * 2**32)), np.float32(1 / (1 - problem.dropout))
    return Dropout(of_rows.numpy().astype(np.uint32), of_columns.numpy().astype(np.uint32), limit, factor)
