"""Passes: how a view computes weights again. One pass finds the statistics of rows; another shows weights to readers.

Compiled kernels do both where they can; plain torch does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engines import Engine
from regard.engines.reference import define_weights
from regard.engines.strips import strips_of
from regard.engines.sums import Pooled
from regard.engines.tiled import Tiled, pool_stream
from regard.engines.tiles import Stream, Tile
from regard.problem import AttentionProblem
from regard.progress import Progress
from regard.readers import Reader, TopWeights
from regard.tensors import without_autocast
from regard.weights import Statistics

if TYPE_CHECKING:
    from regard.engines.cpu.reading import Readable


class Passes:
    """What is computed for a view, each at most once but for the weights; without gradients.

    Args:
        problem: Whose weights they are.
        engine: Says how tiles are cut and whether kernels are used, if it is `Tiled`.
    """

    def __init__(self, problem: AttentionProblem, engine: Engine) -> None:
        self._problem = problem
        self._tiled = engine if isinstance(engine, Tiled) else Tiled()
        self._progress = Progress(f"{problem.grid.n_queries:,} × {problem.grid.n_keys:,} weights")

    @cached_property
    def pooled(self) -> Pooled:
        """The pooled output, and the statistics with it."""
        with self._passes(1):
            return pool_stream(self._stream) if self._compiled is None else self._compiled.pool()

    @property
    def statistics(self) -> Statistics:
        """Those of every row."""
        return self.pooled.statistics if self.have_pooled else self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        """The statistics alone, from a pass without the values: half of the work."""
        problem = self._problem
        with self._passes(1):
            if self._compiled is not None:
                return self._compiled.statistics()
            bare = problem.rebuilt((*problem.form.tensors(), problem.values[..., :0]))
            return pool_stream(replace(self._stream, parts=(bare,))).statistics

    def weights_of(self, tile: Tile) -> Tensor:
        """α of a tile, `(*batch_shape, rows, columns)`, in the dtype of computation."""
        rows = slice(tile.rows.start, tile.rows.stop)
        statistics = tuple(each[..., rows, :] for each in self.statistics)
        return self._problem.weights.weights(tile.scores(), statistics, tile.positions)

    def read(self, readers: Sequence[Reader[Any]], *, pool: bool = False) -> None:
        """Show every weight that is not masked to every reader, once.

        Args:
            readers: Who wants to see them.
            pool: Whether `pooled` will be asked for, too: then statistics are found in the same pass as it.
        """
        problem = self._problem
        for reader in readers:
            reader.start(problem.grid, problem.compute_dtype)
        if not readers:
            return
        compiled = [reader for reader in readers if self.compiles and reader.targets()]
        plain = [reader for reader in readers if reader not in compiled]
        known = self._knows(pool)
        together = not known and len(compiled) == 1 and self._finds(compiled[0])
        with self._passes((not known) + (bool(compiled) and not together) + bool(plain)):
            if together:
                self._find(compiled.pop(), pool)
            elif pool:
                _ = self.pooled  # first, so that it has the statistics
            if self._compiled is not None and compiled:
                targets = {name: target for reader in compiled for name, target in reader.targets().items()}
                self._compiled.read(self.statistics, targets)
            for weights, rows, columns in self._blocks() if plain else ():
                for reader in plain:
                    reader.absorb(weights, rows, columns)

    def _knows(self, pool: bool) -> bool:
        """Whether statistics are there, or will not be asked for; and the output, if that is wanted."""
        if pool:
            return self.have_pooled
        return not self._problem.weights.streams or self.have_pooled or "_statistics" in self.__dict__

    @property
    def have_pooled(self) -> bool:
        """Whether the output is there."""
        return "pooled" in self.__dict__

    @property
    def compiles(self) -> bool:
        """Whether compiled kernels do what they can."""
        return self._compiled is not None

    def _finds(self, reader: Reader[Any]) -> bool:
        """Whether what a reader wants can be found in the pass that finds the statistics."""
        return isinstance(reader, TopWeights) and self._compiled is not None and self._compiled.finds_heaviest

    def _find(self, reader: Reader[Any], pool: bool) -> None:
        """One pass for the statistics and a reader; and for the output, if it is wanted."""
        assert self._compiled is not None
        if pool:
            self.__dict__["pooled"] = self._compiled.pool_and_find(reader.targets())
        else:
            self.__dict__["_statistics"] = self._compiled.bare().pool_and_find(reader.targets()).statistics

    def _blocks(self) -> Iterator[tuple[Tensor, range, range]]:
        if not self._problem.weights.streams:  # a rule of a user's that has a definition alone
            for rows in strips_of(self._problem):
                yield define_weights(self._problem, rows), rows, self._problem.grid.columns
                self._progress.advance(len(rows) / self._problem.grid.n_queries)
            return
        for rows in self._stream.row_blocks():
            for tile in self._stream.tiles(rows):
                yield self.weights_of(tile), tile.rows, tile.columns

    @cached_property
    def _stream(self) -> Stream:
        # Kernels do not keep NaN and infinity with those alone who see them.
        kernels = False if self._problem.may_leak else self._tiled.kernels
        return _WatchedStream((self._problem,), self._tiled.tile_elements, kernels, self._progress.advance)

    @cached_property
    def _compiled(self) -> Readable | None:
        if self._stream.compiled is None:
            return None
        from regard.engines.cpu.reading import Readable

        return Readable(self._stream.compiled.program, self._progress.advance)

    @contextmanager
    def _passes(self, count: int) -> Iterator[None]:
        """Around some passes: no gradients, no autocast, and a bar if they take long."""
        device = self._problem.grid.device.type
        with torch.no_grad(), without_autocast(device), self._progress.over(count):
            yield


@dataclass(frozen=True)
class _WatchedStream(Stream):
    """A stream that tells which share of a pass each block of rows was."""

    advance: Callable[[float], None] = lambda share: None

    def row_blocks(self) -> Iterator[range]:
        for rows in super().row_blocks():
            yield rows
            self.advance(len(rows) / self.grid.n_queries)
