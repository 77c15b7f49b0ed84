"""Every answer of a mask against a dense truth that the test writes down pair by pair, and a trap for large memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.grid import Grid
from regard.masks import Cover, Mask

Oracle = Callable[[tuple[int, ...], int, int], bool]
_MEGABYTE = 1 << 20


@pytest.fixture(scope="session")
def answers_match() -> Callable[..., None]:
    """`answers_match(mask, grid, truth, sharp=False)`: every method of the mask tells the truth.

    `truth` is a function of (batch index, row, column), or the dense tensor. `sharp`: `cover` misses no ALL, no NONE.
    """
    return _answers_match


@pytest.fixture(scope="session")
def plans_match() -> Callable[[Mask, range, Grid], None]:
    """`plans_match(mask, rows, grid)`: `live` holds what the tile of these rows allows, and `bounds` say it exactly."""
    return _plans_match


@pytest.fixture(scope="session")
def dense() -> Callable[[Grid, Oracle], Tensor]:
    """`dense(grid, oracle)`: the truth, a bool tensor of shape `(*batch, n_queries, n_keys)`."""
    return _dense


@pytest.fixture
def small_memory() -> Iterator[None]:
    """Fail when any operation allocates more than ten megabytes."""
    with _Trap(10 * _MEGABYTE):
        yield


def _dense(grid: Grid, oracle: Oracle) -> Tensor:
    batch = itertools.product(*map(range, grid.batch_shape))
    pairs = [[[bool(oracle(b, i, j)) for j in grid.columns] for i in grid.rows] for b in batch]
    shape = (*grid.batch_shape, grid.n_queries, grid.n_keys)
    return torch.tensor(pairs, dtype=torch.bool).reshape(shape)


def _spans(length: int) -> list[range]:
    """Every range of neighbours, and every other one of all."""
    spans = [range(a, b) for a in range(length) for b in range(a + 1, length + 1)]
    return [*spans, range(0, length, 2), range(1, length, 2)]


def _answers_match(
    mask: Mask, grid: Grid, truth: Oracle | Tensor, sharp: bool = False, own_density: bool = True
) -> None:
    truth = truth if isinstance(truth, Tensor) else _dense(grid, truth)
    mask.check(grid)
    _tiles_match(mask, grid, truth, sharp)
    _scattered_pairs_match(mask, grid, truth)
    _rows_match(mask, grid, truth)
    if own_density and math.prod(grid.batch_shape):
        share = truth.double().mean().item() if truth.numel() else 0.0
        assert mask.density(grid.n_queries, grid.n_keys) == pytest.approx(share, abs=1e-12)
        if not grid.batch_shape:
            lines = ["".join("#" if seen else "·" for seen in row) for row in truth.tolist()]
            assert mask.picture(grid.n_queries, grid.n_keys) == "\n".join(lines)
    assert repr(mask)


def _tiles_match(mask: Mask, grid: Grid, truth: Tensor, sharp: bool) -> None:
    for rows in _spans(grid.n_queries):
        for columns in _spans(grid.n_keys):
            wanted = truth[..., rows.start : rows.stop : rows.step, columns.start : columns.stop : columns.step]
            tile = mask.tile(rows, columns, grid)
            assert tile.dtype == torch.bool
            assert torch.equal(tile.expand(wanted.shape), wanted), (mask, rows, columns)
            cover = mask.cover(rows, columns, grid)
            honest = (
                wanted.numel() == 0
                or {
                    Cover.ALL: bool(wanted.all()),
                    Cover.NONE: not bool(wanted.any()),
                    Cover.SOME: not sharp or rows.step * columns.step > 1 or bool(wanted.any()) != bool(wanted.all()),
                }[cover]
            )
            assert honest, (mask, rows, columns, cover, wanted)
    for rows, columns in [(range(0), grid.columns), (grid.rows, range(0)), (range(0), range(0))]:
        assert mask.cover(rows, columns, grid) is Cover.NONE
        shape = (*grid.batch_shape, len(rows), len(columns))
        assert mask.tile(rows, columns, grid).expand(shape).shape == shape


def _scattered_pairs_match(mask: Mask, grid: Grid, truth: Tensor) -> None:
    if not grid.n_queries or not grid.n_keys:
        return
    generator = torch.Generator().manual_seed(0)

    def drawn(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    n, m, batch = grid.n_queries, grid.n_keys, grid.batch_shape
    ones = (1,) * len(batch)
    cases = [
        (drawn(n, 3, 1), drawn(m, 1, 4)),  # Scattered rows and columns.
        (drawn(n, 3, 1), drawn(m, 3, 4)),  # Columns for each row, as from indices().
        (drawn(n, 3, 1), drawn(m, *batch, 3, 4)),  # Columns for each row of each batch entry.
        (drawn(n, *batch, 3, 1), drawn(m, *batch, 3, 4)),
        (drawn(n, *batch, 3, 1), drawn(m, *ones, 1, 4)),
        (drawn(n, *batch[1:], 3, 1), drawn(m, *batch[-1:], 1, 4)),
        (drawn(n, 1, 1), drawn(m, 1, 1)),
        (drawn(n, 0, 1), drawn(m, 1, 4)),
        (drawn(n, 2, 1), drawn(m, 1, 0)),
    ]
    index = [torch.arange(size).reshape(size, *(1,) * (len(batch) - axis + 1)) for axis, size in enumerate(batch)]
    for rows, columns in cases:
        wanted = truth[(*index, rows, columns)]
        allowed = mask.allows(rows, columns, grid)
        assert allowed.dtype == torch.bool
        assert torch.equal(allowed.expand(wanted.shape), wanted), (mask, rows.shape, columns.shape)


def _rows_match(mask: Mask, grid: Grid, truth: Tensor) -> None:
    bound = mask.count_bound(grid)
    assert bound is None or (0 <= bound <= grid.n_keys or not truth.numel())
    if bound is not None and truth.numel():
        assert bound >= int(truth.sum(-1).max())
    for rows in [*_spans(grid.n_queries), range(0)]:
        wanted = truth[..., rows.start : rows.stop : rows.step, :]
        seen = mask.any_allowed(rows, grid)
        assert seen.dtype == torch.bool
        assert seen.shape[-1] == len(rows)
        assert torch.equal(seen.expand(wanted.shape[:-1]), wanted.any(-1)), (mask, rows)
        counts = mask.known_counts(rows, grid)
        if counts is not None:
            assert counts.shape[-1] == len(rows)
            assert torch.equal(counts.expand(wanted.shape[:-1]), wanted.sum(-1)), (mask, rows)
        _live_holds_all(mask, rows, grid, wanted)
        _bounds_are_exact(mask, rows, grid, wanted)
        indices = mask.indices(rows, grid)
        assert indices.dtype == torch.int64
        assert indices.shape[-2] == len(rows)
        n_rows, width = math.prod(wanted.shape[:-1]), indices.shape[-1]
        listed = indices.expand(*wanted.shape[:-1], width).reshape(n_rows, width).tolist()
        for columns, row in zip(listed, wanted.reshape(n_rows, grid.n_keys).tolist(), strict=True):
            found = [column for column, is_seen in enumerate(row) if is_seen]
            assert columns == found + [-1] * (len(columns) - len(found)), (mask, rows)


def _plans_match(mask: Mask, rows: range, grid: Grid) -> None:
    mask.check(grid)
    shape = (*grid.batch_shape, len(rows), grid.n_keys)
    wanted = mask.tile(rows, grid.columns, grid).expand(shape)
    _live_holds_all(mask, rows, grid, wanted)
    _bounds_are_exact(mask, rows, grid, wanted)


def _live_holds_all(mask: Mask, rows: range, grid: Grid, wanted: Tensor) -> None:
    live = mask.live(rows, grid)
    assert all(columns.step == 1 and 0 <= columns.start < columns.stop <= grid.n_keys for columns in live), (mask, live)
    assert all(left.stop < right.start for left, right in itertools.pairwise(live)), (mask, rows, live)
    assert rows or not live
    outside = torch.ones(grid.n_keys, dtype=torch.bool)
    for columns in live:
        outside[columns.start : columns.stop] = False
    assert not wanted[..., outside].any(), (mask, rows, live)


def _bounds_are_exact(mask: Mask, rows: range, grid: Grid, wanted: Tensor) -> None:
    bounds = mask.bounds(rows, grid)
    if bounds is None:
        return
    column = torch.arange(grid.n_keys)
    for end in bounds:
        assert end.dtype == torch.int64
        assert end.shape[-1] == len(rows)
        assert end.expand(wanted.shape[:-1]).shape == wanted.shape[:-1]
    first, stop = (end[..., None] for end in bounds)
    assert torch.equal(((first <= column) & (column < stop)).expand(wanted.shape), wanted), (mask, rows)


class _Trap(TorchDispatchMode):
    """Fails when an operation returns new memory beyond the limit. Views of what is there already are free."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known and storage.nbytes() > self.limit:
                raise AssertionError(
                    f"{func} allocated {storage.nbytes() / _MEGABYTE:.0f} MB for {tuple(tensor.shape)}"
                )
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from _tensors(part)
