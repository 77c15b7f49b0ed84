"""Launches that find the best keys of each row."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from regard.engines.cuda.best_pass import best_listed, best_of_shares, best_scored, kept
from regard.engines.cuda.forward_pass import LEAST_TILES, PROGRAMS, PROGRAMS_OF_ONE
from regard.engines.cuda.general_pass import scores_of
from regard.engines.cuda.kernels.candidates import find_candidates, settle_candidates
from regard.engines.cuda.kernels.choosing import choose_columns
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import Settings, blocks_of, choice_settings, shared_memory

GROUPS = 2  # of columns, for each key that is chosen by candidates
ROOM = 128  # for the candidates of a row
# Twice the warps, each with half of a tile: two blocks then have the registers of a multiprocessor.
WIDE_OPTIONS = MappingProxyType({"num_warps": 8, "num_stages": 2, "maxnreg": 128})

# What these kernels are compiled for, of what every kernel over tiles is.
NEEDED = ("FORM", "STEPS", "MASK", "EXACT", "PRECISION", "DIM", "BLOCK_DIM")


def best_keys(launch: Launch, k: int) -> Tensor:
    """The best keys of each row, best first, then −1: `(*batch_shape, n_queries, k)`."""
    grid = launch.program.problem.grid
    index = torch.empty(*grid.batch_shape, launch.n_queries, k, dtype=torch.int64, device=launch.device)
    if launch.program.is_small:
        best_scored(launch, scores_of(launch), (index,))
    elif launch.program.mask.lists:
        best_listed(launch, (index,))
    else:
        _choose_columns(launch, index)
    return index


def _choose_columns(launch: Launch, index: Tensor) -> None:
    layout, places = launch.program.layout, kept(index.shape[-1])
    settings = choice_settings(launch.shape, places, launch.n_queries, shared_memory(launch.device))
    n_splits = layout.keep(f"choice splits {places}", lambda: _n_splits(launch, settings))
    if n_splits > 1:
        shape = launch.n_entries, n_splits, launch.n_queries, places
        shares = launch.empty(*shape), launch.empty(*shape, dtype=torch.int32)
        _launch_rows(launch, settings, index.shape[-1], shares, n_splits=n_splits)
        best_of_shares(launch, shares, (index,))
    elif settings.rows == 1 or index.shape[-1] > min(settings.columns // GROUPS, ROOM // 2):
        _launch_rows(launch, settings, index.shape[-1], (index,))
    else:
        flags = _settle_candidates(launch, settings, index)
        _launch_rows(launch, settings, index.shape[-1], (index,), flags=(flags,))


def _launch_rows(
    launch: Launch,
    settings: Settings,
    k: int,
    outputs: tuple[Tensor, ...],
    *,
    n_splits: int = 1,
    flags: tuple[Tensor, ...] = (),
) -> None:
    """Write the best of all blocks of rows, or of those that are flagged; or those of each share of the keys."""
    launch.run(
        choose_columns,
        launch.n_entries * blocks_of(launch.n_queries, settings.rows) * n_splits,
        (
            launch.inputs,
            outputs,
            flags,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            n_splits,
            k,
        ),
        {"SPLIT": n_splits > 1, "K": kept(k), **_constants(launch, settings)},
        settings.options,
        variant=(kept(k), n_splits > 1, len(flags)),
    )


def _settle_candidates(launch: Launch, settings: Settings, index: Tensor) -> Tensor:
    """Write the best keys of rows whose candidates there is room for; returns a flag for each block with another."""
    n_blocks = launch.n_entries * blocks_of(launch.n_queries, settings.rows)
    rows = launch.n_entries, launch.n_queries
    found = launch.empty(*rows, ROOM), launch.empty(*rows, ROOM, dtype=torch.int32)
    counts, flags = launch.empty(*rows, dtype=torch.int32), launch.flags(n_blocks)
    launch.run(
        find_candidates,
        n_blocks,
        (
            launch.inputs,
            (*found, counts, flags),
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            index.shape[-1],
        ),
        {"ROOM": ROOM, **_constants(launch, settings)},
        WIDE_OPTIONS,
        variant=(),
    )
    launch.run(
        settle_candidates,
        launch.n_entries * launch.n_queries,
        ((*found, counts), index, index.shape[-1]),
        {"ROOM": ROOM},
        {"num_warps": 1},
    )
    return flags


def _constants(launch: Launch, settings: Settings) -> dict[str, Any]:
    return {"ROWS": settings.rows, "COLUMNS": settings.columns, **{name: launch.codes[name] for name in NEEDED}}


def _n_splits(launch: Launch, settings: Settings) -> int:
    """In how many shares keys are split: as few as keep the whole GPU at work."""
    if launch.device.type != "cuda":
        return 1
    programs = launch.n_entries * blocks_of(launch.n_queries, settings.rows)
    tiles = blocks_of(launch.n_keys, settings.columns)
    per_processor = PROGRAMS_OF_ONE if settings.rows == 1 else PROGRAMS
    room = per_processor * torch.cuda.get_device_properties(launch.device).multi_processor_count
    return int(max(min(room // programs, tiles // LEAST_TILES), 1))


def pairs_of(index: Tensor, n_keys: int) -> Tensor:
    """A byte for each pair of a small problem, `(*batch_shape, n_queries, n_keys)`: 1 where the row has chosen the key.

    Args:
        index: `(*batch_shape, n_queries, k)`, −1 for none.
        n_keys: How many keys there are.
    """
    # One column more is for who has fewer keys.
    pairs = torch.zeros(*index.shape[:-1], n_keys + 1, dtype=torch.uint8, device=index.device)
    return pairs.scatter_(-1, torch.where(index < 0, n_keys, index), 1)[..., :n_keys]
