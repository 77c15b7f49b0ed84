"""Passes: how a view computes weights again. One pass finds the statistics of rows; another shows weights to readers.

Compiled kernels do both where they can; plain torch does the rest. Where the rounding of scores would show in weights
that are computed twice, everything comes from strips of the definition, which are the same for every reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.engines import Engine
from regard.engines.kernels.protocol import Readable
from regard.engines.reference import Reference, define_weights
from regard.engines.rounding import Rounding
from regard.engines.state import Pooled
from regard.engines.strips import pool_by_strips, strips_of
from regard.engines.tile_stream import Stream, Tile
from regard.engines.tiled import in_range, need_no_look, pool_stream
from regard.masks import Cover, Selected
from regard.problem import AttentionProblem
from regard.progress import Progress
from regard.scores.form import DotForm
from regard.tensors import without_autocast
from regard.view.readings import Reader, TopWeights
from regard.weights import OneHot, Statistics, TopK, Uniform
from regard.weights.rule import over_one_tile


class Passes:
    """What is computed for a view, each at most once but for the weights; without gradients.

    Args:
        problem: Whose weights they are.
        engine: Says how tiles are cut and whether kernels are used.
    """

    def __init__(self, problem: AttentionProblem, engine: Engine) -> None:
        self._problem = problem
        self._engine = engine
        self._by_reference = isinstance(engine, Reference)
        self._handed_over = False
        self._progress = Progress(f"{problem.grid.n_queries:,} × {problem.grid.n_keys:,} weights")

    def undisturbed(self) -> AbstractContextManager[None]:
        """Around readings: where kernels compute them, torch leaves the cores to those."""
        compiled = None if self._by_reference else self._compiled
        return nullcontext() if compiled is None else compiled.undisturbed()

    def _disturbed(self) -> AbstractContextManager[None]:
        """Around what plain torch does: it has the cores again, if readings are `undisturbed`."""
        compiled = self.__dict__.get("_compiled")  # if nobody asked for it, nobody took the cores
        return nullcontext() if compiled is None else compiled.disturbed()

    @property
    def pools(self) -> bool:
        """Whether the engine's output is that of these passes."""
        return self._engine.pools_by_tiles

    @cached_property
    def pooled(self) -> Pooled:
        """The pooled output, and the statistics with it."""
        if not self._defined:
            with self._passes(1):
                if self._compiled is None:
                    pooled = pool_stream(self._stream)
                else:
                    pooled = in_range(self._stream, self._compiled.pool())
            if not self._shows(pooled.statistics):
                return pooled
        with self._passes(1), self._disturbed():
            return Pooled(pool_by_strips(self._problem), self._statistics_by_strips, None)

    def hand_over(self) -> Tensor:
        """The pooled output, which is not kept: whoever takes it may change it."""
        pooled = self.pooled
        if not self.by_strips:
            self.__dict__["_statistics"] = pooled.statistics
        del self.__dict__["pooled"]
        self._handed_over = True
        return pooled.output

    @property
    def statistics(self) -> Statistics:
        """Those of every row."""
        if self.have_pooled:
            return self.pooled.statistics
        return self._statistics_by_strips if self.by_strips else self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        """The statistics alone, from a pass without the values: half of the work."""
        problem = self._problem
        with self._passes(1):
            if self._compiled is not None:
                return self._compiled.statistics()
            bare = problem.rebuilt((*problem.form.tensors(), problem.values[..., :0]))
            return pool_stream(replace(self._stream, parts=(bare,))).statistics

    @cached_property
    def _statistics_by_strips(self) -> Statistics:
        problem, grid = self._problem, self._problem.grid
        if not problem.rule.streams:
            return ()
        columns = torch.arange(grid.n_keys, device=grid.device)
        if not grid.n_keys:  # a column that is not allowed stands for none
            columns = torch.full((1,), -1, device=grid.device)
        found = []
        with self._passes(1), self._disturbed():
            for rows in [*strips_of(problem)] or [range(0)]:
                scores = problem.scores(rows).expand(*grid.batch_shape, len(rows), grid.n_keys)
                if not grid.n_keys:
                    scores = scores.new_full((*grid.batch_shape, len(rows), 1), -torch.inf)
                found.append(problem.rule.solve(over_one_tile(scores, columns)))
        return tuple(torch.cat(each, dim=-2) for each in zip(*found, strict=True))

    @property
    def by_strips(self) -> bool:
        """Whether all weights come from strips of the definition: slower, and the same whenever they are computed."""
        return self._defined or self.is_sharp

    @cached_property
    def is_sharp(self) -> bool:
        """Whether the rounding of scores would show in weights that are computed twice."""
        if self._rounding.is_small or self._rounding.is_large:
            return not self._rounding.is_small
        return self._problem.rule.streams and self._rounding.shows(self._statistics)

    @cached_property
    def _defined(self) -> bool:
        """Whether it is known beforehand that tiles do not serve."""
        problem = self._problem
        # Tiles do not keep NaN and infinity with those alone who see them; and the reference is asked for its own.
        if not problem.rule.streams or self._by_reference:
            return True
        self._look()
        return problem.may_leak or self._rounding.is_large

    def _look(self) -> None:
        """Have kernels look at all numbers at once: whether they are finite, and how large scores may be."""
        problem, form = self._problem, self._problem.form
        plain = type(form) is DotForm and form.left is problem.queries and form.right is problem.keys
        if not plain or "may_leak" in problem.__dict__ or not need_no_look(self._stream) or self._compiled is None:
            return
        longest = self._compiled.longest()
        if longest is not None and all(map(math.isfinite, longest)):  # else a sum of squares may have overflowed
            problem.__dict__["may_leak"] = False
            self.__dict__["_rounding"] = Rounding(problem, longest[:2])

    @cached_property
    def _rounding(self) -> Rounding:
        return Rounding(self._problem)

    def _shows(self, statistics: Statistics) -> bool:
        """Whether the rounding of scores shows where rows have these statistics; what is known of it is kept."""
        self.__dict__["is_sharp"] = self._rounding.shows(statistics)
        return self.is_sharp

    def define(self, problem: AttentionProblem, rows: Tensor | None = None) -> Tensor:
        """α of some rows, or all, against all keys, `(*batch_shape, rows, n_keys)`.

        Args:
            problem: This one, perhaps with projections that have a gradient.
            rows: Which; negative ones are not understood.
        """
        shows = not self._rounding.is_small and self._rounding.shows_in(problem.scores(rows))
        chooses = isinstance(problem.rule, OneHot | TopK)
        decides = chooses and (self._knows(pool=False) or self._rounding.decides(problem.scores(rows)))
        if shows or (decides and self.by_strips):
            return self._strips(problem, problem.grid.rows if rows is None else rows)
        return define_weights(self.settled(problem) if decides else problem, rows)

    def settled(self, problem: AttentionProblem) -> AttentionProblem:
        """A problem whose rule chooses keys, with those chosen that every other reading has: a tie may be rounded away.

        Args:
            problem: This one, perhaps with projections that have a gradient.
        """
        rule = problem.rule
        if not isinstance(rule, OneHot | TopK) or self.by_strips:
            return problem
        then = Uniform() if isinstance(rule, OneHot) else rule.then
        return replace(problem, rule=then, mask=Selected(self.statistics[0])).around(problem.form)

    def _strips(self, problem: AttentionProblem, rows: range | Tensor) -> Tensor:
        """α of some rows, each cut out of its strip; a copy, which is the caller's to change."""
        found, order = [define_weights(problem, range(0))], []
        for strip in strips_of(problem):
            if isinstance(rows, range):
                mine = range(max(strip.start, rows.start), min(strip.stop, rows.stop))
                if mine:
                    weights = define_weights(problem, strip)
                    found.append(weights[..., mine.start - strip.start : mine.stop - strip.start, :])
            else:
                (places,) = torch.where((rows >= strip.start) & (rows < strip.stop))
                if len(places):
                    found.append(define_weights(problem, strip).index_select(-2, rows[places] - strip.start))
                    order.append(places)
        weights = torch.cat(found, -2)
        return weights.index_select(-2, torch.cat(order).argsort()) if order else weights

    def weights_of_tile(self, rows: range, columns: range) -> Tensor:
        """α of a tile, `(*batch_shape, rows, columns)`, in the dtype of computation."""
        problem = self._problem
        with self._passes(1):
            if self.by_strips:
                return self._strips(problem, rows)[..., columns.start : columns.stop]
            if self._compiled is not None:
                return self._compiled.weights(self.statistics, rows, columns)
            return self._weights_of_aligned_tiles(rows, columns)

    def _weights_of_aligned_tiles(self, rows: range, columns: range) -> Tensor:
        """α of a tile, cut out of those that readers are shown: other tiles round scores otherwise."""
        problem, (height, width) = self._problem, self._stream.tile_shape
        grid, mask = problem.grid, problem.mask
        found = problem.values.new_zeros(
            *grid.batch_shape, len(rows), len(columns), dtype=problem.compute_dtype, requires_grad=False
        )
        for top in range(rows.start // height * height, rows.stop, height):
            block = range(top, min(top + height, grid.n_queries))
            for left in range(columns.start // width * width, columns.stop, width):
                across = range(left, min(left + width, grid.n_keys))
                cover = Cover.ALL if mask is None else mask.cover(block, across, grid)
                if cover is not Cover.NONE:
                    weights = self.weights_of(Tile(problem, block, across, 0, cover))
                    _overlap(found, rows, columns, block, across).copy_(_overlap(weights, block, across, rows, columns))
        return found

    def weights_of(self, tile: Tile) -> Tensor:
        """α of a tile, `(*batch_shape, rows, columns)`, in the dtype of computation."""
        rows = slice(tile.rows.start, tile.rows.stop)
        statistics = tuple(each[..., rows, :] for each in self.statistics)
        return self._problem.rule.weights(tile.scores(), statistics, tile.positions)

    def read(self, readers: Sequence[Reader[Any]], *, pool: bool = False) -> None:
        """Show every weight that is not masked to every reader, once.

        Args:
            readers: Who wants to see them.
            pool: Whether `pooled` will be asked for, too: then statistics are found in the same pass as it.
        """
        if not readers:
            return
        self._start(readers)
        compiled = [reader for reader in readers if self._takes(reader)]
        plain = [reader for reader in readers if reader not in compiled]
        known = self._knows(pool)
        began = bool(compiled)
        found = None if known else next((each for each in compiled if self._finds(each, len(compiled) == 1)), None)
        compiled = [reader for reader in compiled if reader is not found]
        with self._passes((not known) + bool(compiled) + bool(plain)):
            if found is not None:
                self._find(found, pool)
            elif pool:
                _ = self.pooled  # first, so that it has the statistics
            if began and self.by_strips:
                self._start(readers)
                compiled, plain = [], list(readers)
            if compiled and self._compiled is not None:
                targets = {name: target for reader in compiled for name, target in reader.targets().items()}
                self._compiled.read(self.statistics, targets)
            if plain:
                with self._disturbed():
                    for weights, rows, columns in self._blocks():
                        for reader in plain:
                            reader.absorb(weights, rows, columns)

    def _takes(self, reader: Reader[Any]) -> bool:
        """Whether compiled kernels gather what a reader wants."""
        targets = reader.targets() if self.compiles else {}
        return bool(targets) and self._compiled is not None and self._compiled.takes(targets)

    def _start(self, readers: Sequence[Reader[Any]]) -> None:
        for reader in readers:
            reader.start(self._problem.grid, self._problem.compute_dtype)

    def _knows(self, pool: bool) -> bool:
        """Whether statistics are there, or will not be asked for; and the output, if that is wanted."""
        if pool:
            return self.have_pooled
        return self._defined or self.have_pooled or "_statistics" in self.__dict__

    @property
    def have_pooled(self) -> bool:
        """Whether the output is there."""
        return "pooled" in self.__dict__

    @property
    def had_pooled(self) -> bool:
        """Whether the output was there, if it was not handed over."""
        return self._handed_over or self.have_pooled

    @property
    def compiles(self) -> bool:
        """Whether compiled kernels do what they can."""
        return not self._defined and self._compiled is not None

    def _finds(self, reader: Reader[Any], alone: bool) -> bool:
        """Whether what a reader wants is found in the pass that finds the statistics. `alone`: if nobody else reads."""
        if not isinstance(reader, TopWeights) or self._compiled is None:
            return False
        return self._compiled.finds_heaviest if alone else self._compiled.finds_apart

    def _find(self, reader: Reader[Any], pool: bool) -> None:
        """One pass for the statistics and a reader; and for the output, if it is wanted."""
        assert self._compiled is not None
        pooled = self._compiled.pool_and_find(reader.targets(), values=pool)
        self.__dict__["_statistics"] = pooled.statistics
        if pool and not self._shows(pooled.statistics):
            self.__dict__["pooled"] = in_range(self._stream, pooled)

    def _blocks(self) -> Iterator[tuple[Tensor, range, range]]:
        if self.by_strips:
            for rows in strips_of(self._problem) if self._problem.grid.n_keys else ():
                yield define_weights(self._problem, rows), rows, self._problem.grid.columns
                self._progress.advance(len(rows) / self._problem.grid.n_queries)
            return
        if self._compiled is None:
            for rows in self._stream.row_blocks():
                for tile in self._stream.tiles(rows):
                    yield self.weights_of(tile), tile.rows, tile.columns
            return
        mask, grid = self._problem.mask, self._problem.grid
        for rows, columns in self._compiled.cuts():
            if mask is None or mask.cover(rows, columns, grid) is not Cover.NONE:
                yield self._compiled.weights(self.statistics, rows, columns), rows, columns
            self._progress.advance(len(rows) / grid.n_queries * len(columns) / grid.n_keys)

    @cached_property
    def _stream(self) -> Stream:
        engine = self._engine
        return _WatchedStream((self._problem,), engine.tile_elements, engine.kernels, self._progress.advance)

    @cached_property
    def _compiled(self) -> Readable | None:
        compiled = self._stream.compiled
        return None if compiled is None else compiled.readable(self._progress.advance)

    @contextmanager
    def _passes(self, count: int) -> Iterator[None]:
        """Around some passes: no gradients, no autocast, and a bar if they take long."""
        device = self._problem.grid.device.type
        with torch.no_grad(), without_autocast(device), self._progress.over(count):
            yield


def _overlap(tile: Tensor, rows: range, columns: range, other_rows: range, other_columns: range) -> Tensor:
    """The part of a tile of these rows and columns that another has too."""
    top, left = max(rows.start, other_rows.start), max(columns.start, other_columns.start)
    end, right = min(rows.stop, other_rows.stop), min(columns.stop, other_columns.stop)
    return tile[..., top - rows.start : end - rows.start, left - columns.start : right - columns.start]


@dataclass(frozen=True)
class _WatchedStream(Stream):
    """A stream that tells which share of a pass each block of rows was."""

    advance: Callable[[float], None] = lambda share: None
    reads: ClassVar[bool] = True

    def row_blocks(self) -> Iterator[range]:
        for rows in super().row_blocks():
            yield rows
            self.advance(len(rows) / self.grid.n_queries)
