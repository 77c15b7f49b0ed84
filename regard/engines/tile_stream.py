"""Tiles: a problem cut into blocks of rows and columns that are small enough to compute and forget.

A `Stream` is one problem, or several whose keys follow each other (shards): the rows are shared, the columns are
concatenated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from regard.engines.block_sizes import block_sizes
from regard.engines.dropout import keep_factors
from regard.engines.kernels.dispatch import compile_problem
from regard.engines.kernels.protocol import Compiled
from regard.engines.nan_safe import pool
from regard.engines.ties import twins_of, with_ties_settled
from regard.grid import Grid
from regard.masks import Cover
from regard.problem import AttentionProblem
from regard.scores.form import Form
from regard.tensors import product
from regard.weights import Fold, Monoid, OnePass, Weights
from regard.weights.rule import State


@dataclass(frozen=True)
class Tile:
    """Some rows and some columns of a problem."""

    problem: AttentionProblem
    rows: range
    columns: range
    offset: int  # how many keys the problems before this one have
    cover: Cover

    @property
    def positions(self) -> Tensor:
        """The position of each column among all keys, `(n_columns,)`."""
        start = self.offset + self.columns.start
        return torch.arange(start, start + len(self.columns), device=self.problem.grid.device)

    @property
    def form(self) -> Form:
        """The pairwise form of this tile, in its own dtype."""
        return self.problem.settled_form.narrow(self.rows, self.columns)

    def scores(self, form: Form | None = None) -> Tensor:
        """The scores, `(*batch_shape, rows, columns)`, −inf where not allowed; of another form, if given."""
        problem = self.problem
        allowed = None
        if self.cover is Cover.SOME:
            assert problem.mask is not None
            allowed = problem.mask.tile(self.rows, self.columns, problem.grid)
        scores = (self.form if form is None else form).to(problem.compute_dtype).scores(allowed)
        return scores.expand(*problem.grid.batch_shape, len(self.rows), len(self.columns))

    @property
    def values(self) -> Tensor:
        """The values of the columns, `(..., columns, value_dim)`, in the dtype of computation."""
        columns = self.columns
        return self.problem.values[..., columns.start : columns.stop, :].to(self.problem.compute_dtype)

    def pool(self, weights: Tensor, keep: Tensor | None) -> Tensor:
        """The values summed by weight, those that dropout keeps: `(*batch_shape, rows, value_dim)`."""
        weights = weights if keep is None else weights * keep
        return pool(weights, self.values) if self.problem.may_leak else product(weights, self.values)

    def keep(self) -> Tensor | None:
        """What dropout multiplies the weights by; None without dropout."""
        problem = self.problem
        if not problem.dropout:
            return None
        return keep_factors(problem.seed, problem.dropout, problem.grid, self.rows, self.columns, problem.compute_dtype)


@dataclass(frozen=True)
class Stream:
    """The tiles of problems that share their rows and whose keys follow each other."""

    parts: tuple[AttentionProblem, ...]
    tile_elements: int | None = None  # of the widest intermediate; as suits the device, if None
    kernels: bool | None = None  # whether compiled kernels are used: where they pay and are compiled, if None
    reads: ClassVar[bool] = False  # whether weights are read, as by a view

    @cached_property
    def compiled(self) -> Compiled | None:
        """The whole stream for compiled kernels; None where plain torch serves it."""
        if self.kernels is False or len(self.parts) > 1:
            return None
        return compile_problem(self.parts[0], self.kernels, reads=self.reads)

    @property
    def rule(self) -> Weights:
        return self.parts[0].rule

    @cached_property
    def grid(self) -> Grid:
        """The size of the whole."""
        first = self.parts[0].grid
        return Grid(first.batch_shape, first.n_queries, sum(part.grid.n_keys for part in self.parts), first.device)

    @cached_property
    def tile_shape(self) -> tuple[int, int]:
        """How many rows and columns a tile has."""
        width, sizes = max(part.form.width for part in self.parts), block_sizes(self.grid.device)
        elements = self.tile_elements
        if elements is None:
            elements = sizes.custom_tile if any(part.form.captures for part in self.parts) else sizes.tile
        area = max(elements // max(math.prod(self.grid.batch_shape) * width, 1), 64)
        rows = max(min(self.grid.n_queries, math.isqrt(area)), 1)
        columns = max(min(self.grid.n_keys, area // rows), 1)
        rows = max(min(self.grid.n_queries, area // columns), 1)
        if not isinstance(self.rule, OnePass):
            # A strip of these rows against all keys is kept while thresholds are solved; as one tensor for a choice.
            held = area if self.rule.choices else sizes.held // max(math.prod(self.grid.batch_shape), 1)
            rows = max(min(rows, held // max(self.grid.n_keys, 1)), 1)
        return rows, columns

    def row_blocks(self) -> Iterator[range]:
        """All rows, in blocks."""
        height, _ = self.tile_shape
        for start in range(0, self.grid.n_queries, height):
            yield range(start, min(start + height, self.grid.n_queries))

    def tiles(self, rows: range) -> Iterator[Tile]:
        """The tiles of a block of rows in which something is allowed."""
        _, width = self.tile_shape
        offset = 0
        for part in self.parts:
            n_keys = part.grid.n_keys
            for start in range(0, n_keys, width):
                columns = range(start, min(start + width, n_keys))
                cover = Cover.ALL if part.mask is None else part.mask.cover(rows, columns, part.grid)
                if cover is not Cover.NONE:
                    yield Tile(part, rows, columns, offset, cover)
            offset += n_keys

    def nothing(self, rows: range) -> Tensor:
        """A tile in which nothing is allowed, one column wide: every monoid lifts it to its identity."""
        dtype, device = self.parts[0].compute_dtype, self.grid.device
        return torch.full((*self.grid.batch_shape, len(rows), 1), -torch.inf, dtype=dtype, device=device)

    def fold_of(self, rows: range) -> Fold:
        """A fold over the tiles of some rows; their scores are computed once and kept for as long as the fold is."""
        strip = [(tile.scores(), tile.positions) for tile in self.tiles(rows)]
        if self.rule.choices and strip:
            scores, columns = (
                strip[0] if len(strip) == 1 else (torch.cat(each, -1) for each in zip(*strip, strict=True))
            )
            first = self.parts[0]
            form = first.form.narrow(rows, first.grid.columns)
            strip = [(with_ties_settled(scores, columns, self.rule.choices, form, lambda: self._twins), columns)]
        nothing, nowhere = self.nothing(rows), torch.full((1,), -1, device=self.grid.device)

        def fold(monoid: Monoid[State]) -> State:
            state = monoid.lift(nothing, nowhere)
            for scores, positions in strip:
                state = monoid.merge(state, monoid.lift(scores, positions))
            return state

        return fold

    @cached_property
    def _twins(self) -> Tensor | None:
        """Which keys of all parts are equal, see `ties.twins_of`."""
        return twins_of(*self.parts)
