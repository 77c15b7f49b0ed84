"""Launches that find the best keys of each row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.engines.cuda.best_pass import best_listed, best_of_shares, best_scored, kept
from regard.engines.cuda.forward_pass import LEAST_TILES, PROGRAMS, PROGRAMS_OF_ONE, pool_with_floors
from regard.engines.cuda.general_pass import scores_of
from regard.engines.cuda.kernels.candidates import (
    find_candidates,
    list_candidates,
    settle_candidates,
)
from regard.engines.cuda.kernels.choosing import choose_columns
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import Settings, block_of, blocks_of, choice_settings, shared_memory
from regard.engines.cuda.program import translate
from regard.engines.kernels import codes

GROUPS = 2  # of columns, for each key that is chosen by candidates
SPACE = 4  # for candidates, for each place among the best
SETTLED_ROWS, GATHERED = 8, 32  # whose products a program settles, and channels of all their keys at once
MOST_PLACED = 64  # room for candidates of a row that are settled so
LISTED_ROWS = 4  # whose words become lists in one program, of one warp

# What these kernels are compiled for, of what every kernel over tiles is.
NEEDED = ("FORM", "STEPS", "MASK", "EXACT", "PRECISION", "DIM", "BLOCK_DIM")


def best_keys(launch: Launch, k: int) -> Tensor:
    """The best keys of each row, best first, then −1: `(*batch_shape, n_queries, k)`."""
    grid = launch.program.problem.grid
    index = torch.empty(*grid.batch_shape, launch.n_queries, k, dtype=torch.int64, device=launch.device)
    _write_best(launch, (index,))
    return index


def pool_and_find(launch: Launch, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(output, peaks, totals, best scores, their columns): `(*batch_shape, n_queries, k)`, best first, then −∞ and −1.

    For rules under which a larger score weighs no less: softmax, proportional, conic, sigmoid. NaN counts as +∞.
    """
    output, peaks, totals, floors = pool_with_floors(launch, k)
    return output, peaks, totals, *best_scores(Launch(translate(launch.program.problem, rule=codes.SCORES)), k, floors)


def best_scores(launch: Launch, k: int, floors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The best scores of each row and their columns: `(*batch_shape, n_queries, k)`, best first, then −∞ and −1.

    Args:
        launch: The problem, under the rule `codes.SCORES`.
        k: How many.
        floors: Numbers that as many scores of each row are not below, (entries, n_queries), but for rounding.
    """
    shape = *launch.program.problem.grid.batch_shape, launch.n_queries, k
    columns, scores = torch.empty(shape, dtype=torch.int64, device=launch.device), launch.empty(*shape)
    _write_best(launch, (columns, scores), floors)
    return scores, columns


def _write_best(launch: Launch, outputs: tuple[Tensor, ...], floors: Tensor | None = None) -> None:
    """Write the best keys of each row, and their scores, if they are wanted."""
    if launch.program.is_small:
        best_scored(launch, scores_of(launch), outputs)
    elif launch.program.mask.lists:
        best_listed(launch, outputs)
    else:
        _best_of_tiles(launch, outputs, floors)


def _best_of_tiles(launch: Launch, outputs: tuple[Tensor, ...], floors: Tensor | None) -> None:
    k = outputs[0].shape[-1]
    layout, places = launch.program.layout, kept(k)
    settings = choice_settings(launch.shape, places, launch.n_queries, shared_memory(launch.device))
    n_splits = layout.keep(f"choice splits {places}", lambda: _n_splits(launch, settings))
    if n_splits > 1:
        shape = launch.n_entries, n_splits, launch.n_queries, places
        shares = launch.empty(*shape), launch.empty(*shape, dtype=torch.int32)
        _launch_rows(launch, settings, k, shares, n_splits=n_splits)
        best_of_shares(launch, shares, outputs)
    elif settings.rows == 1 or k > settings.columns // GROUPS or codes.RELATIVE in launch.program.steps:
        _launch_rows(launch, settings, k, outputs)
    else:
        flags = _settle_candidates(launch, settings, outputs, floors)
        _launch_rows(launch, settings, k, outputs, flags=(flags,))


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
        variant=(kept(k), n_splits > 1, len(flags), len(outputs)),
    )


def _settle_candidates(
    launch: Launch, settings: Settings, outputs: tuple[Tensor, ...], floors: Tensor | None
) -> Tensor:
    """Write the best keys of rows whose candidates there is room for; returns a flag for each block with another."""
    k, rows = outputs[0].shape[-1], (launch.n_entries, launch.n_queries)
    room, n_blocks = SPACE * kept(k), launch.n_entries * blocks_of(launch.n_queries, settings.rows)
    words = launch.empty(*rows, room // 2, dtype=torch.int64)
    counts, flags = launch.empty(*rows, dtype=torch.int32), launch.flags(n_blocks)
    known, program, scale = floors is not None, launch.program, launch.program.scale
    plain = program.form == codes.DOT and program.weight is None and not program.steps
    found = words, counts, flags, launch.empty(*rows) if floors is None else floors
    launch.run(
        find_candidates,
        n_blocks,
        (
            launch.inputs,
            found,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            k,
        ),
        {"KNOWN": known, "FOLDS": plain and 1e-6 < scale < 1e6, "WORDS": room // 2, **_constants(launch, settings)},
        settings.options,
        variant=(known, room),
    )
    lists, n_rows = launch.empty(*rows, room, dtype=torch.int32), launch.n_entries * launch.n_queries
    launch.run(
        list_candidates,
        blocks_of(n_rows, LISTED_ROWS),
        (found, lists, n_rows, launch.n_queries, k, settings.rows),
        {"WORDS": room // 2, "ROOM": room, "ROWS": LISTED_ROWS},
        {"num_warps": 1},
        variant=room,
    )
    settled = SETTLED_ROWS if plain and room <= MOST_PLACED else 1
    launch.run(
        settle_candidates,
        launch.n_entries * blocks_of(launch.n_queries, settled),
        (
            launch.inputs,
            outputs,
            (lists, counts),
            launch.program.terms,
            launch.n_queries,
            launch.n_keys,
            *launch.batch_sizes,
            launch.program.scale,
            k,
        ),
        {
            "ROOM": room,
            "ROWS": settled,
            "AT_ONCE": min(GATHERED, block_of(launch.dim)),
            **{name: launch.codes[name] for name in ("FORM", "STEPS", "DIM", "BLOCK_DIM")},
        },
        {"num_warps": 2 if settled > 1 or block_of(launch.dim) > 64 else 1},
        variant=(room, len(outputs)),
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
