"""The forward pass: sums of every row over all keys, or over shares of them that are merged in a fixed order."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.cuda.general_pass import pool_any
from regard.engines.cuda.kernels.forward import merge_splits, pool_rows
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import (
    Settings,
    block_of,
    blocks_of,
    forward_settings,
    shared_memory,
    walked_settings,
)
from regard.engines.cuda.listed_pass import pool_lists
from regard.engines.cuda.threshold_pass import Slopes, find

# Programs for each multiprocessor that few queries, and one alone, are split for; and tiles that a share has at least.
PROGRAMS, PROGRAMS_OF_ONE, LEAST_TILES = 2, 8, 4
MERGED = 64  # shares that are merged at a time


def sum_rows(launch: Launch) -> tuple[Tensor, Tensor, Tensor]:
    """(pooled, peaks, totals) of every row, unfinished, (entries, n_queries, …)."""
    if launch.program.mask.lists:
        rows = launch.n_entries, launch.n_queries
        pooled, (peaks, totals) = launch.empty(*rows, launch.value_dim), launch.empty(2, *rows)
        pool_lists(launch, pooled, peaks, totals, finish=False)
        return pooled, peaks, totals
    pooled, peaks, totals = _sum_shares(launch, _settings(launch), 1)
    return pooled.squeeze(1), peaks.squeeze(1), totals.squeeze(1)


def pool(launch: Launch, slopes: Slopes | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(output, peaks, totals): the output has the shape and dtype of the problem's.

    Of a rule with a threshold, the totals are those; `slopes` is what it averages by slope, where that is wanted.
    """
    if launch.program.mask.lists:
        found = _room(launch)
        pool_lists(launch, *found, finish=True, slopes=slopes)
        return found
    return _pool(launch, _splits(launch), slopes=slopes)


def pool_with_floors(launch: Launch, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """`pool`, and numbers that k scores of each row are not below, (entries, n_queries), if these come for nothing."""
    settings = _settings(launch)
    if launch.program.is_small or launch.program.mask.lists or _splits(launch) > 1 or settings.rows == 1:
        return *pool(launch), None
    floors = launch.empty(launch.n_entries, launch.n_queries)
    return *_pool(launch, 1, floors=(k, floors)), floors


def _room(launch: Launch) -> tuple[Tensor, Tensor, Tensor]:
    """Where the output, peaks and totals are written."""
    problem = launch.program.problem
    output = torch.empty(problem.output_shape, dtype=problem.dtype, device=launch.device)
    peaks, totals = launch.empty(2, *problem.output_shape[:-1], 1).unbind()
    return output, peaks, totals


def _splits(launch: Launch) -> int:
    return launch.program.layout.keep("splits", lambda: _n_splits(launch, _settings(launch)))


def _pool(
    launch: Launch, n_splits: int, floors: tuple[int, Tensor] | None = None, slopes: Slopes | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(output, peaks, totals) over tiles. `floors`: of how many scores, and where to; of one share alone."""
    output, peaks, totals = _room(launch)
    if n_splits == 1:
        given, settings = (output, launch.strides_of(output), peaks, totals), _settings(launch)
        if launch.has_threshold and not launch.program.is_small:
            find(launch, settings, peaks, totals)
        _launch_rows(launch, settings, 1, given, split=False, floors=floors, slopes=slopes)
        return output, peaks, totals
    sums = _sum_shares(launch, _settings(launch), n_splits)
    launch.run(
        merge_splits,
        launch.n_entries * launch.n_queries,
        (
            sums,
            (output, launch.strides_of(output), peaks, totals),
            launch.sink,
            launch.n_queries,
            *launch.batch_sizes,
            n_splits,
        ),
        {
            "RULE": launch.program.rule,
            "SINK": bool(launch.sink),
            "VALUE_DIM": launch.value_dim,
            "BLOCK_VALUE_DIM": block_of(launch.value_dim),
            "SPLITS": MERGED,
        },
    )
    return output, peaks, totals


def pool_flagged(
    launch: Launch, output: Tensor, strides: tuple[int, ...], flags: Tensor, flagged: int
) -> tuple[Tensor, Tensor]:
    """(peaks, totals) of every row that is flagged, and its output written again, in place.

    Args:
        launch: The problem.
        output: As the problem has it.
        strides: Of the output, as kernels take them.
        flags: On the device.
        flagged: How many rows share one; 0 where all do.
    """
    peaks, totals = launch.empty(2, launch.n_entries, launch.n_queries)
    assert not launch.program.mask.lists  # no mask of PyTorch's kernels is one
    pool_any(launch, (output, strides, peaks, totals), flags=(flags, flagged))
    return peaks, totals


def _settings(launch: Launch) -> Settings:
    return launch.program.layout.keep(
        "forward",
        lambda: (
            walked_settings(launch.shape, launch.n_queries)
            if launch.program.is_walked
            else forward_settings(launch.shape, launch.n_queries, shared_memory(launch.device))
        ),
    )


def _n_splits(launch: Launch, settings: Settings) -> int:
    """In how many shares keys are split: as few as keep the whole GPU at work."""
    if launch.device.type != "cuda" or launch.has_threshold:  # which shares of the keys would not know
        return 1
    programs = launch.n_entries * blocks_of(launch.n_queries, settings.rows)
    tiles = blocks_of(launch.n_keys, settings.columns)
    per_processor = PROGRAMS_OF_ONE if settings.rows == 1 else PROGRAMS
    room = per_processor * torch.cuda.get_device_properties(launch.device).multi_processor_count
    return int(max(min(room // programs, tiles // LEAST_TILES), 1))


def _sum_shares(launch: Launch, settings: Settings, n_splits: int) -> tuple[Tensor, Tensor, Tensor]:
    """The sums over each share of the keys: (entries, splits, n_queries, …)."""
    shape = launch.n_entries, n_splits, launch.n_queries
    pooled, (peaks, totals) = launch.empty(*shape, launch.value_dim), launch.empty(2, *shape)
    n1, n2 = launch.batch_sizes
    entry, share, row, _ = pooled.stride()
    strides = -n1 * n2 * entry, -n2 * entry, -entry, -row, -share
    _launch_rows(launch, settings, n_splits, (pooled, strides, peaks, totals), split=True)
    return pooled, peaks, totals


def _launch_rows(
    launch: Launch,
    settings: Settings,
    n_splits: int,
    outputs: tuple[Tensor, tuple[int, ...], Tensor, Tensor],
    *,
    split: bool,
    floors: tuple[int, Tensor] | None = None,
    slopes: Slopes | None = None,
) -> None:
    """Launch over all rows, then over those that are flagged. `floors`: of how many scores, and where to.

    A weight may be 0 without a mask, too: by a score of −inf, by dropout, or since nothing smaller is a number.
    """
    if launch.program.is_small:
        pool_any(launch, outputs, n_splits=n_splits, split=split, slopes=slopes)
        return
    n_best = 0 if floors is None else floors[0]
    n_programs = launch.n_entries * blocks_of(launch.n_queries, settings.rows) * n_splits
    flags = launch.flags(n_programs)
    beside = (launch.errors, launch.units, *(slopes or ())) if launch.has_threshold else ()
    launch.run(
        pool_rows,
        n_programs,
        (
            launch.walked,
            (*outputs, flags, *beside, *(() if floors is None else floors[1:])),
            launch.program.terms,
            launch.mask,
            launch.sink,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            n_splits,
        ),
        {
            "SINK": bool(launch.sink),
            "SPLIT": split,
            "ROWS": settings.rows,
            "COLUMNS": settings.columns,
            "BEST": n_best,
            **launch.codes,
        },
        settings.options,
        variant=(split, outputs[0].dtype, outputs[1], n_best, slopes is None),
        fresh=outputs[:1],
    )
    pool_any(launch, outputs, flags=(flags, settings), n_splits=n_splits, split=split, slopes=slopes)
