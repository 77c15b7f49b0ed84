"""How full a mask is, and what it looks like: passes over its tiles for people, not for engines."""

from __future__ import annotations

import math

import torch

from regard.grid import Grid
from regard.masks.index_arithmetic import blocks
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import whole_number

_TILE = 1 << 18  # Pairs in the largest tile that is counted at once.
_DRAWN = 4  # Batch entries that a picture shows.


def own_grid(mask: Mask, n_queries: int, n_keys: int | None, asked: str) -> Grid:
    """The problem of that size whose batch axes are those of the mask's own tensors; the mask is checked against it."""
    n_queries = whole_number(n_queries, asked, "n_queries", 0)
    n_keys = n_queries if n_keys is None else whole_number(n_keys, asked, "n_keys", 0)
    tensors = mask.tensors()
    device = tensors[0].device if tensors else torch.device("cpu")
    grid = Grid(mask.batch_axes().batch_shape, n_queries, n_keys, device)
    mask.check(grid)
    return grid


def density(mask: Mask, n_queries: int, n_keys: int | None) -> float:
    """The share of allowed pairs, streamed."""
    grid = own_grid(mask, n_queries, n_keys, "density")
    n_pairs = math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys
    if n_pairs == 0:
        return 0.0
    bound = mask.count_bound(grid)
    if mask.known_counts(range(0), grid) is not None:
        total = _sum_known_counts(mask, grid)
    elif bound is not None and 8 * bound <= grid.n_keys:
        total = _count_by_row(mask, grid, max(bound, 1))
    else:
        total = _count_by_tile(mask, grid)
    return total / n_pairs


def picture(mask: Mask, n_queries: int, n_keys: int | None) -> str:
    """A line a row; batch entries side by side."""
    grid = own_grid(mask, n_queries, n_keys, "picture")
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


def _sum_known_counts(mask: Mask, grid: Grid) -> int:
    n_entries = math.prod(grid.batch_shape)
    total = 0
    for rows in blocks(grid.rows, _TILE):
        counts = mask.known_counts(rows, grid)
        assert counts is not None
        total += int(counts.sum()) * (n_entries // math.prod(counts.shape[:-1]))  # One stands for all it broadcasts to.
    return total


def _count_by_row(mask: Mask, grid: Grid, bound: int) -> int:
    n_entries = math.prod(grid.batch_shape)
    total = 0
    for rows in blocks(grid.rows, _TILE // bound):
        indices = mask.indices(rows, grid)
        total += int((indices >= 0).sum()) * (n_entries // math.prod(indices.shape[:-2]))
    return total


def _count_by_tile(mask: Mask, grid: Grid) -> int:
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
