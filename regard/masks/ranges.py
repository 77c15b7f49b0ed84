"""Lists of ranges of columns: how masks say where anything is live, and how they search for it when no formula does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

import torch
from torch import Tensor

from regard.grid import Grid
from regard.masks.mask import Cover, Mask

_GAP = 16  # Ranges nearer than this become one: to start another costs more than so few columns.
_FEW = 64  # So many are joined one by one; more, as tensors.
_LEAST = 64  # A search does not cut ranges of so few columns,
_MOST_ASKED = 256  # and does not ask `cover` more often than this.

_start = attrgetter("start")


def joined(ranges: Iterable[range]) -> list[range]:
    """What the ranges hold together: ascending, those that overlap or nearly touch made one, none empty."""
    found: list[range] = []
    for each in sorted(ranges, key=_start):
        if each.stop <= each.start:
            continue
        if found and each.start - found[-1].stop < _GAP:
            if each.stop > found[-1].stop:
                found[-1] = range(found[-1].start, each.stop)
        else:
            found.append(each)
    return found


def common(left: list[range], right: list[range]) -> list[range]:
    """What two lists of ascending ranges share."""
    found = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, stop = max(left[i].start, right[j].start), min(left[i].stop, right[j].stop)
        if start < stop:
            found.append(range(start, stop))
        if left[i].stop <= right[j].stop:
            i += 1
        else:
            j += 1
    return found


def marked(flags: Tensor, size: int, n_columns: int) -> list[range]:
    """The columns whose flag is True, where flag i speaks for `size` columns from i·size on. `flags` is on the host."""
    padded = torch.zeros(flags.shape[0] + 2, dtype=torch.bool)
    padded[1:-1] = flags
    edges = (padded[1:] != padded[:-1]).nonzero().flatten() * size  # A start, then a stop, then a start …
    starts, stops = edges[::2], edges[1::2].clamp(max=n_columns)
    if len(starts) <= _FEW:
        return joined(map(range, starts.tolist(), stops.tolist()))
    apart = starts[1:] - stops[:-1] >= _GAP
    starts, stops = torch.cat([starts[:1], starts[1:][apart]]), torch.cat([stops[:-1][apart], stops[-1:]])
    return list(map(range, starts.tolist(), stops.tolist()))


def search(mask: Mask, rows: range, grid: Grid) -> list[range]:
    """Where `cover` does not say NONE, found by halving.

    Breadth first, so that what is left when the questions run out is cut evenly: a mask that is live in few places is
    followed to 64 columns at any length, and one that is live in pieces everywhere does not cost a question a tile.
    """
    found = []
    todo = deque([grid.columns])
    asked = 0
    while todo:
        columns = todo.popleft()
        cover = mask.cover(rows, columns, grid)
        asked += 1
        if cover is Cover.SOME and len(columns) > _LEAST and asked + len(todo) + 2 <= _MOST_ASKED:
            # At a multiple of 64, so that blocks of an engine are not cut.
            half = -(-len(columns) // (2 * _LEAST)) * _LEAST
            todo += [columns[:half], columns[half:]]
        elif cover is not Cover.NONE:
            found.append(columns)
    return joined(found)
