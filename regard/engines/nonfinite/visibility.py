"""Who sees whom: a mask as a matrix of true and false, times a vector of marked queries or keys.

Nothing is computed of scores. Only tiles that hold something are asked for, and no n × m is built.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.masks import Cover
from regard.problem import AttentionProblem

ROWS = 256


def any_seen(problem: AttentionProblem) -> Tensor:
    """Whether each query sees any key: bool, `(..., n_queries or 1, 1)`."""
    grid = problem.grid
    if problem.mask is None or problem.visibility is Cover.ALL:
        return torch.full((1, 1), grid.n_keys > 0, device=grid.device)
    return problem.mask.any_allowed(grid.rows, grid).unsqueeze(-1)


def sees(problem: AttentionProblem, keys: Tensor) -> Tensor:
    """Whether each query sees a marked key: bool `(..., n_keys or 1, 1)` to `(..., n_queries or 1, 1)`."""
    marked = _whole(keys, problem.grid.n_keys)
    span = _span(marked)
    if problem.mask is None or problem.visibility is Cover.ALL or not span:
        return marked.any(-2, keepdim=True)
    if bool(marked.all()):
        return any_seen(problem)
    found = []
    for rows in _blocks(problem.grid.rows):
        seen = torch.zeros(len(rows), 1, dtype=torch.bool, device=keys.device)
        for columns, allowed in _tiles(problem, rows, span):
            here = marked[..., columns.start : columns.stop, :].mT
            seen = seen | (allowed & here).any(-1, keepdim=True)
        found.append(seen)
    shape = torch.broadcast_shapes(*(each.shape[:-2] for each in found))
    return torch.cat([each.expand(*shape, *each.shape[-2:]) for each in found], -2)


def seen_by(problem: AttentionProblem, queries: Tensor) -> Tensor:
    """Whether each key is seen by a marked query: bool `(..., n_queries or 1, 1)` to `(..., n_keys or 1, 1)`."""
    grid = problem.grid
    marked = _whole(queries, grid.n_queries)
    span = _span(marked)
    if problem.mask is None or problem.visibility is Cover.ALL or not span:
        return marked.any(-2, keepdim=True)
    seen = torch.zeros(grid.n_keys, 1, dtype=torch.bool, device=queries.device)
    for rows in reversed(list(_blocks(span))):  # the last rows of a causal mask see most
        here = marked[..., rows.start : rows.stop, :]
        for columns, allowed in _tiles(problem, rows, grid.columns):
            found = (allowed & here).any(-2).unsqueeze(-1)
            seen = seen.expand(*torch.broadcast_shapes(seen.shape[:-2], found.shape[:-2]), *seen.shape[-2:]).clone()
            seen[..., columns.start : columns.stop, :] |= found
        if bool(seen.all()):
            break
    return seen


def _tiles(problem: AttentionProblem, rows: range, span: range) -> Iterator[tuple[range, Tensor]]:
    """The tiles of some rows within a span of columns that hold something, and what they allow."""
    assert problem.mask is not None
    for live in problem.mask.live(rows, problem.grid):
        columns = range(max(live.start, span.start), min(live.stop, span.stop))
        if columns:
            yield columns, problem.mask.tile(rows, columns, problem.grid)


def _blocks(rows: range) -> Iterator[range]:
    for start in range(rows.start, rows.stop, ROWS):
        yield range(start, min(start + ROWS, rows.stop))


def _whole(marked: Tensor, length: int) -> Tensor:
    """Marks with one entry for each query or key, and without batch axes where all batch entries have the same."""
    marked = marked.expand(*marked.shape[:-2], length, 1)
    first = marked.reshape(-1, length, 1)[:1] if marked.numel() else marked
    return first.reshape(length, 1) if marked.numel() and bool((marked == first[0]).all()) else marked


def _span(marked: Tensor) -> range:
    """From the first to the last that is marked in some batch entry."""
    places = marked.reshape(-1, marked.shape[-2]).any(0).nonzero().flatten()
    return range(int(places[0]), int(places[-1]) + 1) if places.numel() else range(0)
