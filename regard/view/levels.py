"""A map of one head at the level of detail that is looked at: pooled, and computed where it is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView

FINEST = 2048  # cells on a side of the map that is computed once; what is finer is computed where it is looked at
STRIP = 1 << 22  # weights that are computed at once


@dataclass(frozen=True)
class Pooled:
    """A part of a map: what the average query of a cell gives to as many keys as the average cell has, together.

    Cells are of one size. So the last may reach beyond the queries or keys there are; it has those there are.

    Args:
        weights: `(height, width)`
        rows: Where the first cell begins and the last ends: cell y has the queries from ⌈begin + y · size⌉ to before
            ⌈begin + (y + 1) · size⌉, where size is that of a cell, (end - begin) / height.
        columns: Likewise of keys.
    """

    weights: Tensor
    rows: tuple[float, float]
    columns: tuple[float, float]


def pool(weights: Tensor, rows: range, columns: range, height: int, width: int) -> Pooled:
    """A part of a dense map, pooled to at most that size."""
    part = weights[rows.start : rows.stop, columns.start : columns.stop]
    down, across = _bins(len(rows), min(height, len(rows))), _bins(len(columns), min(width, len(columns)))
    sums = _summed(_summed(part, down, -2), across, -1)
    pairs = torch.outer(torch.bincount(down), torch.bincount(across))
    return Pooled(sums / pairs * (len(columns) / sums.shape[1]), (rows.start, rows.stop), (columns.start, columns.stop))


class Levels:
    """One head, from the view that computes its weights: never all of them at once.

    Args:
        view: Of one head, or of several.
        entry: Which, where it is of several: an index for each batch axis.
        most_read: Weights that are all read for the whole map, at most; of more, parts alone are computed.
    """

    def __init__(self, view: WeightsView, entry: tuple[int, ...] | None = None, most_read: int | None = None) -> None:
        self.view = view
        self._entry = (0,) * (len(view.shape) - 2) if entry is None else entry
        self.n_queries, self.n_keys = view.shape[-2:]
        self.entries = math.prod(view.shape[:-2])  # all of which are computed where one is wanted
        self.reads_whole = most_read is None or math.prod(view.shape) <= most_read
        self._side = max(FINEST // math.isqrt(max(self.entries, 1)), 1)

    @property
    def bytes(self) -> int:
        """What is kept of the map, once it was computed."""
        return self._finest.nbytes if "_finest" in self.__dict__ else 0

    @torch.no_grad()
    def row(self, place: int) -> Tensor:
        """The weights of one query, `(n_keys,)`."""
        return self._of_entry(self.view.rows([place]))[0]

    @torch.no_grad()
    def part(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        """A part of the map, pooled to at most that size; a little more of it where its cells would be cut."""
        cell_height, cell_width = (max(size / self._side, 1) for size in (self.n_queries, self.n_keys))
        if self.reads_whole and len(rows) / height >= cell_height and len(columns) / width >= cell_width:
            return self._of_finest(rows, columns, height, width)
        return self._computed(rows, columns, min(height, len(rows)), min(width, len(columns)))

    def _tile(self, rows: range, columns: range) -> Tensor:
        if self.reads_whole:
            return self._of_entry(self.view.tile(rows, columns))
        # A tile takes what was found out about every row before; these rows alone take less.
        return self._of_entry(self.view.rows(slice(rows.start, rows.stop)))[:, columns.start : columns.stop]

    def _of_entry(self, tensor: Tensor) -> Tensor:
        return tensor[self._entry].cpu()

    @cached_property
    def _finest(self) -> Tensor:
        """The whole, as fine as it is kept: the sum of the weights in each cell."""
        return self._of_entry(self.view.map(self._side, self._side))

    def _of_finest(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        finest = self._finest
        down = _Level(rows, self.n_queries, finest.shape[0], height)
        across = _Level(columns, self.n_keys, finest.shape[1], width)
        part = finest[down.first : down.last, across.first : across.last]
        sums = _summed(_summed(part, down.bins, -2), across.bins, -1)
        pairs = torch.outer(down.counts, across.counts)
        return Pooled(sums / pairs * across.sizes, down.span, across.span)

    def _computed(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        down, across = _bins(len(rows), height), _bins(len(columns), width)
        sums = torch.zeros(height, width)
        n_read = len(columns) if self.reads_whole else self.n_keys
        at_once = max(STRIP // (n_read * self.entries), 1)
        for start in range(0, len(rows), at_once):
            strip = range(start, min(start + at_once, len(rows)))
            tile = self._tile(range(rows.start + strip.start, rows.start + strip.stop), columns)
            sums.index_add_(0, down[strip.start : strip.stop], _summed(tile.float(), across, -1))
        pairs = torch.outer(torch.bincount(down), torch.bincount(across))
        return Pooled(sums / pairs * (len(columns) / width), (rows.start, rows.stop), (columns.start, columns.stop))


class _Level:
    """The cells of the finest map that a span touches, in groups of 1, 2, 4 …: at most so many, all of one size.

    Args:
        span: Of queries or keys.
        size: How many of them there are.
        cells: How many the finest map has for them.
        most: How many groups there may be.
    """

    def __init__(self, span: range, size: int, cells: int, most: int) -> None:
        first, last = span.start * cells // size, -(-span.stop * cells // size)
        self.group = 1
        while -(-last // self.group) - first // self.group > most:
            self.group *= 2
        self.first = first // self.group * self.group
        self.last = min(-(-last // self.group) * self.group, cells)
        self.bins = torch.arange(self.last - self.first) // self.group
        groups = int(self.bins[-1]) + 1
        # A cell has the queries i with ⌊i · cells / size⌋ of its number.
        starts = [-(-cell * size // cells) for cell in range(self.first, self.last + 1)]
        self.span = (self.first * size / cells, (self.first + groups * self.group) * size / cells)
        self.counts = torch.zeros(groups)  # of queries in each group: cells may differ by one
        self.counts.index_add_(0, self.bins, torch.tensor(starts).diff().float())
        self.sizes = torch.bincount(self.bins) * (size / cells)  # the last may have fewer cells


def _bins(length: int, size: int) -> Tensor:
    """For each of some neighbours, which of so many cells it is in."""
    return torch.arange(length) * size // max(length, 1)


def _summed(tile: Tensor, bins: Tensor, axis: int) -> Tensor:
    """Sums of those along an axis that are in one cell."""
    count = int(bins[-1]) + 1
    if count == tile.shape[axis]:
        return tile
    shape = list(tile.shape)
    shape[axis] = count
    return tile.new_zeros(shape).index_add_(axis, bins, tile)
