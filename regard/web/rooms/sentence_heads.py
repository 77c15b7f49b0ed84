"""Maps of one head, at the level of detail that is looked at: pooled, and computed where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.masks import KeyMask
from regard.nn.recorded_slices import of_heads, part_of_mask
from regard.nn.recording import _Recorded
from regard.planner import choose
from regard.view.weights_view import WeightsView

FINEST = 2048  # cells on a side of the map that is computed once; what is finer is computed where it is looked at
STRIP = 1 << 22  # weights that are computed at once
SAMPLED = 256  # queries of which the share of hidden keys is read


@dataclass(frozen=True)
class Pooled:
    """A part of a map: what the average query of a cell gives to as many keys as the average cell has, together."""

    weights: Tensor  # (height, width)
    rows: tuple[int, int]
    columns: tuple[int, int]


def pool(weights: Tensor, rows: range, columns: range, height: int, width: int) -> Pooled:
    """A part of a dense map, pooled to at most that size."""
    part = weights[rows.start : rows.stop, columns.start : columns.stop]
    down, across = _bins(len(rows), min(height, len(rows))), _bins(len(columns), min(width, len(columns)))
    sums = _summed(_summed(part, down, -2), across, -1)
    pairs = torch.outer(torch.bincount(down), torch.bincount(across))
    return Pooled(sums / pairs * (len(columns) / sums.shape[1]), (rows.start, rows.stop), (columns.start, columns.stop))


class LongHead:
    """One head of one layer of a long text, from its recorded queries and keys: never all of its weights at once.

    Args:
        view: Of all heads of the layer, `(1, heads, n_queries, n_keys)`.
        head: Which of them.
        hidden: Keys that are set aside: each query attends to the others alone.
    """

    def __init__(self, view: WeightsView, head: int, hidden: Sequence[int]) -> None:
        self._whole = one_head(view, head)
        self._hidden = list(hidden)
        self.view = without_keys(self._whole, hidden) if hidden else self._whole
        self.n_queries, self.n_keys = self.view.shape[-2:]

    @cached_property
    def hidden_share(self) -> float:
        """Of the weight, that on hidden keys: the mean over some queries, evenly spaced."""
        if not self._hidden:
            return 0.0
        step = max(self.n_queries // SAMPLED, 1)
        return float(self._whole.rows(slice(None, None, step))[0, 0][:, self._hidden].sum(-1).mean())

    def row(self, place: int) -> Tensor:
        """The weights of one query, `(n_keys,)`."""
        return self.view.rows([place])[0, 0, 0]

    def part(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        """A part of the map, pooled to at most that size; a little more of it where its cells would be cut."""
        cell_height, cell_width = (max(size / FINEST, 1) for size in (self.n_queries, self.n_keys))
        if len(rows) / height >= cell_height and len(columns) / width >= cell_width:
            return self._of_finest(rows, columns, height, width)
        return self._computed(rows, columns, min(height, len(rows)), min(width, len(columns)))

    @cached_property
    def _finest(self) -> Tensor:
        """The whole, as fine as it is kept: the sum of the weights in each cell."""
        return self.view.map(FINEST, FINEST)[0, 0]

    def _of_finest(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        finest = self._finest
        down = _Level(rows, self.n_queries, finest.shape[0], height)
        across = _Level(columns, self.n_keys, finest.shape[1], width)
        part = finest[down.first : down.last, across.first : across.last]
        sums = _summed(_summed(part, down.bins, -2), across.bins, -1)
        pairs = torch.outer(down.counts, across.counts)
        return Pooled(sums / pairs * (across.group * self.n_keys / finest.shape[1]), down.span, across.span)

    def _computed(self, rows: range, columns: range, height: int, width: int) -> Pooled:
        down, across = _bins(len(rows), height), _bins(len(columns), width)
        sums = torch.zeros(height, width)
        at_once = max(STRIP // len(columns), 1)
        for start in range(0, len(rows), at_once):
            strip = range(start, min(start + at_once, len(rows)))
            tile = self.view.tile(range(rows.start + strip.start, rows.start + strip.stop), columns)[0, 0]
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
        # A cell has the queries i with ⌊i · cells / size⌋ of its number.
        starts = [-(-cell * size // cells) for cell in range(self.first, self.last + 1)]
        self.span = (starts[0], starts[-1])
        self.counts = torch.zeros(int(self.bins[-1]) + 1)  # of queries in each group: cells may differ by one
        self.counts.index_add_(0, self.bins, torch.tensor(starts).diff().float())


@torch.no_grad()
def one_head(view: WeightsView, head: int) -> WeightsView:
    """The view of one head of a recorded layer, of the first entry of the batch."""
    problem = view._problem
    n_heads, heads = problem.grid.batch_shape[-1], torch.tensor([head], device=problem.grid.device)
    form = problem.form.rebuilt(iter([of_heads(each, heads, n_heads) for each in problem.form.tensors()]))
    queries, keys, values = (of_heads(each, heads, n_heads) for each in (problem.queries, problem.keys, problem.values))
    mask = None if problem.mask is None else part_of_mask(problem.mask, None, heads, problem.grid)
    part = replace(problem, queries=queries, keys=keys, values=values, mask=mask).around(form)
    return _Recorded(part, choose(part, None))


@torch.no_grad()
def without_keys(view: WeightsView, hidden: Sequence[int]) -> WeightsView:
    """The same where nobody attends to some keys: each row's weights are those of the others."""
    problem = view._problem
    shown = torch.ones(view.shape[-1], dtype=torch.bool)
    shown[list(hidden)] = False
    mask = KeyMask(shown) if problem.mask is None else problem.mask & KeyMask(shown)
    part = replace(problem, mask=mask).around(problem.form)
    return _Recorded(part, choose(part, None))


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
