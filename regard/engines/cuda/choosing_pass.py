"""Launches that find the best keys of each row."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.cuda.best_pass import best_listed, best_of_shares, best_scored, kept
from regard.engines.cuda.forward_pass import LEAST_TILES, PROGRAMS, PROGRAMS_OF_ONE
from regard.engines.cuda.general_pass import scores_of
from regard.engines.cuda.kernels.choosing import choose_columns
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import Settings, blocks_of, choice_settings, shared_memory

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
    n_splits = layout.keep("choice splits", lambda: _n_splits(launch, settings))
    outputs: tuple[Tensor, ...] = (index,)
    if n_splits > 1:
        shape = launch.n_entries, n_splits, launch.n_queries, places
        outputs = launch.empty(*shape), launch.empty(*shape, dtype=torch.int32)
    launch.run(
        choose_columns,
        launch.n_entries * blocks_of(launch.n_queries, settings.rows) * n_splits,
        (
            launch.inputs,
            outputs,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            n_splits,
            index.shape[-1],
        ),
        {
            "SPLIT": n_splits > 1,
            "K": places,
            "ROWS": settings.rows,
            "COLUMNS": settings.columns,
            **{name: launch.codes[name] for name in NEEDED},
        },
        settings.options,
        variant=(places, n_splits > 1),
    )
    if n_splits > 1:
        best_of_shares(launch, outputs, (index,))


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
