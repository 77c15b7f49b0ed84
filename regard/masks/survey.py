"""How full a mask is, and what it looks like: passes over its tiles for people, not for engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from regard.masks.index import broadcast_shape
from regard.positions import Grid

if TYPE_CHECKING:
    from regard.masks.base import Mask

_TILE = 1 << 18  # Pairs in the largest tile that is counted at once.
_DRAWN = 4  # Batch entries that a picture shows.


def own_grid(mask: Mask, n_queries: int, n_keys: int | None) -> Grid:
    """The problem of that size whose batch axes are those of the mask's own tensors; the mask is checked against it."""
    tensors = mask.tensors()
    device = tensors[0].device if tensors else torch.device("cpu")
    batch_shape = _merge_batch(*mask.batch_axes())
    grid = Grid(batch_shape, n_queries, n_queries if n_keys is None else n_keys, device)
    mask.check(grid)
    return grid


def density(mask: Mask, n_queries: int, n_keys: int | None) -> float:
    """The share of allowed pairs, streamed."""
    grid = own_grid(mask, n_queries, n_keys)
    n_pairs = math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys
    if n_pairs == 0:
        return 0.0
    bound = mask.count_bound(grid)
    few = bound is not None and 8 * bound <= grid.n_keys
    return (_count_by_row(mask, grid, bound or 1) if few else _count_by_tile(mask, grid)) / n_pairs


def picture(mask: Mask, n_queries: int, n_keys: int | None) -> str:
    """A line a row; batch entries side by side."""
    grid = own_grid(mask, n_queries, n_keys)
    shape = (*grid.batch_shape, grid.n_queries, grid.n_keys)
    n_entries = math.prod(grid.batch_shape)
    tile = mask.tile(grid.rows, grid.columns, grid).expand(shape)
    entries = tile.reshape(n_entries, grid.n_queries, grid.n_keys)[:_DRAWN].tolist()
    lines = [
        "  ".join("".join("#" if allowed else "·" for allowed in entry[row]) for entry in entries) for row in grid.rows
    ]
    if n_entries > _DRAWN:
        lines.append(f"… and {n_entries - _DRAWN} more")
    return "\n".join(lines)


def _count_by_row(mask: Mask, grid: Grid, bound: int) -> int:
    from regard.masks.base import blocks

    total = 0
    for rows in blocks(grid.rows, _TILE // bound):
        indices = mask.indices(rows, grid)
        same = math.prod(grid.batch_shape) // math.prod(indices.shape[:-2])  # Entries that broadcasting leaves out.
        total += int((indices >= 0).sum()) * same
    return total


def _count_by_tile(mask: Mask, grid: Grid) -> int:
    from regard.masks.base import Cover

    n_entries = math.prod(grid.batch_shape)
    total = 0
    todo = [(grid.rows, grid.columns)]
    while todo:
        rows, columns = todo.pop()
        cover = mask.cover(rows, columns, grid)
        n_pairs = n_entries * len(rows) * len(columns)
        if cover is Cover.ALL:
            total += n_pairs
        elif cover is Cover.SOME and len(rows) * len(columns) <= _TILE:
            tile = mask.tile(rows, columns, grid)
            total += int(tile.sum()) * (n_pairs // tile.numel())
        elif cover is Cover.SOME:
            # Halving the longer side leaves squares, and whole tiles are settled by `cover` as early as can be.
            if len(rows) > len(columns):
                half = len(rows) // 2
                todo += [(rows[:half], columns), (rows[half:], columns)]
            else:
                half = len(columns) // 2
                todo += [(rows, columns[:half]), (rows, columns[half:])]
    return total


def merge_left(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Batch axes that line up from the left, broadcast. Sizes that clash are left for `check` to name."""
    return broadcast_shape(*(shape[::-1] for shape in shapes))[::-1]


def merge_right(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Batch axes that line up from the right, broadcast."""
    return broadcast_shape(*shapes)


def _merge_batch(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest batch that holds both: they share axes where they can, otherwise one stands beside the other."""
    rank = max(len(left), len(right))
    from_left = left + (1,) * (rank - len(left))
    from_right = (1,) * (rank - len(right)) + right
    if all(a == b or 1 in (a, b) for a, b in zip(from_left, from_right, strict=True)):
        return broadcast_shape(from_left, from_right)
    return left + right
