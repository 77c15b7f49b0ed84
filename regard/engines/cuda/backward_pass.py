"""The backward pass: a launch over blocks of rows and one over blocks of columns; each computes scores again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.general_pass import differentiate_any
from regard.engines.cuda.kernels.backward_columns import differentiate_columns
from regard.engines.cuda.kernels.backward_rows import differentiate_rows
from regard.engines.cuda.kernels.tile_gradients import row_facts
from regard.engines.cuda.launch import Facts, Launch, Strided
from regard.engines.cuda.launch_settings import (
    Settings,
    block_of,
    blocks_of,
    column_settings,
    row_settings,
    shared_memory,
    walked_back_settings,
)
from regard.engines.cuda.listed_pass import differentiate_lists_by_columns, differentiate_lists_by_rows
from regard.engines.cuda.masks import row_blocks
from regard.engines.kernels import codes

FACT_ROWS = 32
DIVIDING = frozenset({codes.SOFTMAX, codes.PROPORTIONAL, codes.UNIFORM})  # rules whose numerators are divided by a sum
FLAGGED = 128  # rows or columns that share a flag, of what others have computed


class RowGradients(NamedTuple):
    """By batch entry and row; None for what was not asked for."""

    to_left: Tensor  # (entries, n_queries, dim)
    sums: Tensor | None  # (entries, n_queries, steps): what each step's parameter gets of each row; alpha at the end
    squares: Tensor | None  # (entries, n_queries, dim): what the weights of channels get


class ColumnGradients(NamedTuple):
    """By batch entry and column."""

    to_right: Tensor  # (entries, n_keys, dim)
    to_values: Tensor  # (entries, n_keys, value_dim)
    sums: Tensor | None  # (entries, n_keys, steps)


def facts_of(
    launch: Launch,
    statistics: Sequence[Tensor],
    gradient: Strided,
    centre: Strided | None,
    *,
    flag: Tensor | None = None,
) -> Facts:
    """What every row is differentiated with.

    Args:
        launch: The problem.
        statistics: Peaks and totals, (entries, n_queries) each.
        gradient: dO.
        centre: u in dS = slope · (dP − dO·u); None for 0.
        flag: One number on the device, if nothing is to be done where it is 0.
    """
    levels, inverses, deltas = launch.empty(3, launch.n_entries, launch.n_queries)
    if launch.has_threshold:
        levels, inverses = statistics
    facts = Facts(levels if launch.is_rough else statistics[0], inverses, deltas, launch.units)
    if centre is None and launch.program.rule not in DIVIDING:
        return facts
    other = gradient if centre is None else centre
    launch.run(
        row_facts,
        launch.n_entries * blocks_of(launch.n_queries, FACT_ROWS),
        (
            *gradient,
            *other,
            tuple(statistics),
            tuple(facts),
            () if flag is None else (flag,),
            launch.n_queries,
            *launch.batch_sizes,
        ),
        {
            "RULE": launch.program.rule,
            "CENTRED": centre is not None,
            "ROUGH": launch.is_rough,
            "WIDTH": launch.value_dim,
            "BLOCK_WIDTH": block_of(launch.value_dim),
            "ROWS": FACT_ROWS,
        },
        variant=(*_kinds(gradient), *_kinds(other), centre is None, flag is None),
        fresh=(gradient[0], other[0], *statistics),
    )
    return facts


def differentiate_by_rows(
    launch: Launch,
    gradient: Strided,
    facts: Facts,
    *,
    learns: Sequence[bool],
    learns_weight: bool,
    into: Strided | None = None,
    flags: Tensor | None = None,
) -> RowGradients:
    """Gradients of queries, and of what steps and channels have learned.

    Args:
        launch: The problem.
        gradient: dO.
        facts: Of the rows.
        learns: Of each step, whether its parameter needs what rows give it; of alpha, in two places at the end.
        learns_weight: Whether the weights of channels need theirs.
        into: Where gradients of queries are written; a new tensor, if left out.
        flags: Of blocks of rows, if nothing is to be done where they are 0.
    """
    settings, program = _row_settings(launch), launch.program
    rows = launch.n_entries, launch.n_queries
    if into is None:
        to_left = launch.empty(*rows, launch.dim, dtype=_gradient_dtype(program.left, launch.n_entries))
        into = to_left, launch.strides_of(to_left)
    sums = launch.empty(*rows, len(learns)) if any(learns) else None
    squares = launch.empty(*rows, launch.dim) if learns_weight else None
    outputs = (*into, sums, squares)
    learning = {"LEARNS": tuple(learns), "LEARNS_WEIGHT": learns_weight}
    if program.mask.lists:
        differentiate_lists_by_rows(launch, gradient, facts, _filled(outputs), **learning)
    else:
        _differentiate(differentiate_rows, settings, launch, gradient, facts, outputs, flags=flags, **learning)
    return RowGradients(into[0], sums, squares)


def differentiate_by_columns(
    launch: Launch,
    gradient: Strided,
    facts: Facts,
    *,
    learns: Sequence[bool],
    into: tuple[Strided | None, Strided | None] = (None, None),
    flags: Tensor | None = None,
) -> ColumnGradients:
    """Gradients of keys and values, and of what steps have learned for each key; arguments as above."""
    settings, program, grid = _column_settings(launch), launch.program, launch.program.problem.grid
    columns = launch.n_entries, launch.n_keys
    to_right, to_values = into
    if to_right is None:
        new = launch.empty(*columns, launch.dim, dtype=_gradient_dtype(program.right, launch.n_entries))
        to_right = new, launch.strides_of(new)
    if to_values is None:
        new = launch.empty(*columns, launch.value_dim, dtype=_gradient_dtype(program.values, launch.n_entries))
        to_values = new, launch.strides_of(new)
    sums = launch.empty(*columns, len(learns)) if any(learns) else None
    outputs = (*to_right, *to_values, sums)
    found = ColumnGradients(to_right[0], to_values[0], sums)
    if program.mask.lists:
        differentiate_lists_by_columns(launch, gradient, facts, _filled(outputs), learns=tuple(learns))
        return found
    blocks: tuple[object, ...] = ()
    if program.mask.bounds and flags is None and not program.is_small:
        first, stop = row_blocks(program.mask.bounds, grid, settings.rows, settings.columns)
        blocks = (first, program.batch.strides(first, 1), stop)
    learning = {"LEARNS": tuple(learns)}
    _differentiate(differentiate_columns, settings, launch, gradient, facts, outputs, blocks, flags=flags, **learning)
    return found


def _differentiate(
    kernel: Any,
    settings: Settings,
    launch: Launch,
    gradient: Strided,
    facts: Facts,
    outputs: tuple[Any, ...],
    *more: tuple[object, ...],
    flags: Tensor | None,
    **learns: Any,
) -> None:
    """Launch a kernel over blocks of rows or of columns, and one for any rule over those that are not finite.

    Over these alone, where flags are given.
    """
    program, by_rows = launch.program, kernel is differentiate_rows
    general: dict[str, Any] = {
        "by_rows": by_rows,
        "n_learned": len(learns["LEARNS"]) if any(learns["LEARNS"]) else 0,
        "weighed": bool(learns.get("LEARNS_WEIGHT")),
    }
    if flags is not None or program.is_small:
        given = None if flags is None else (flags, FLAGGED)
        differentiate_any(launch, gradient, facts, outputs, flags=given, **general)
        return
    length = launch.n_queries if by_rows else launch.n_keys
    n_programs = launch.n_entries * blocks_of(length, settings.rows if by_rows else settings.columns)
    flags, filled = launch.flags(n_programs), _filled(outputs)
    inputs = launch.walked
    if program.is_walked:
        # Where each program keeps the slopes of the tile that it is at.
        inputs = *inputs[:-1], (*inputs[-1], launch.empty(n_programs, settings.rows * settings.columns))
    launch.run(
        kernel,
        n_programs,
        (
            inputs,
            gradient,
            tuple(facts),
            (*filled, flags),
            program.terms,
            launch.mask,
            *more,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            program.scale,
        ),
        {
            "ROWS": settings.rows,
            "COLUMNS": settings.columns,
            **learns,
            **launch.codes,
            **launch.backward_codes,
        },
        settings.options,
        variant=(*learns.values(), *launch.backward_codes.values(), *_kinds(gradient), *_kinds(filled)),
        fresh=(gradient[0], facts.levels, flags, *[each for each in filled if isinstance(each, Tensor)]),
    )
    differentiate_any(launch, gradient, facts, outputs, flags=(flags, settings), **general)


def _filled(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Outputs with a stand-in for those that are not wanted, which nobody writes to."""
    return tuple([outputs[0] if each is None else each for each in outputs])


def _kinds(outputs: tuple[Any, ...]) -> list[object]:
    """What kernels are compiled for of what they write into."""
    return [each.dtype if isinstance(each, Tensor) else each for each in outputs]


def _row_settings(launch: Launch) -> Settings:
    if launch.program.is_walked:
        return walked_back_settings(launch.shape)
    return row_settings(launch.shape, shared_memory(launch.device))


def _column_settings(launch: Launch) -> Settings:
    if launch.program.is_walked:
        own, other, warps, stages = walked_back_settings(launch.shape)
        return Settings(other, own, warps, stages)
    return column_settings(launch.shape, shared_memory(launch.device))


def _gradient_dtype(tensor: Tensor, n_entries: int) -> torch.dtype:
    """In which the gradient of each batch entry is written: float32 where several are summed afterwards."""
    return tensor.dtype if math.prod(tensor.shape[:-2]) == n_entries else torch.float32
