"""The backward pass: a launch over blocks of rows and one over blocks of columns; each computes scores again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regard.engines.cuda.kernels.backward import differentiate_columns, differentiate_rows, row_facts
from regard.engines.cuda.launch import Facts, Launch
from regard.engines.cuda.launch_settings import (
    Settings,
    block_of,
    column_settings,
    row_settings,
    safe_settings,
    shared_memory,
)
from regard.engines.cuda.listed_pass import differentiate_lists_by_columns, differentiate_lists_by_rows
from regard.engines.cuda.masks import row_blocks

FACT_ROWS = 32


class RowGradients(NamedTuple):
    """By batch entry and row; None for what was not asked for."""

    to_left: Tensor  # (entries, n_queries, dim)
    sums: Tensor | None  # (entries, n_queries, steps): what each step's parameter gets of each row
    squares: Tensor | None  # (entries, n_queries, dim): what the weights of channels get


class ColumnGradients(NamedTuple):
    """By batch entry and column."""

    to_right: Tensor  # (entries, n_keys, dim)
    to_values: Tensor  # (entries, n_keys, value_dim)
    sums: Tensor | None  # (entries, n_keys, steps)


def facts_of(launch: Launch, statistics: Sequence[Tensor], gradient: Tensor, centre: Tensor | None) -> Facts:
    """What every row is differentiated with.

    Args:
        launch: The problem.
        statistics: Peaks and totals, (entries, n_queries) each.
        gradient: dO, which lies together.
        centre: u in dS = slope · (dP − dO·u), likewise; None for 0.
    """
    levels, inverses, deltas = launch.empty(3, launch.n_entries, launch.n_queries)
    facts = Facts(levels if launch.is_rough else statistics[0], inverses, deltas)
    other = gradient if centre is None else centre
    row_facts[(launch.n_entries * triton.cdiv(launch.n_queries, FACT_ROWS),)](
        gradient,
        launch.strides_of(gradient),
        other,
        launch.strides_of(other),
        tuple(statistics),
        tuple(facts),
        launch.n_queries,
        *launch.batch_sizes,
        RULE=launch.program.rule,
        CENTRED=centre is not None,
        ROUGH=launch.is_rough,
        WIDTH=launch.value_dim,
        BLOCK_WIDTH=block_of(launch.value_dim),
        ROWS=FACT_ROWS,
    )
    return facts


def differentiate_by_rows(
    launch: Launch,
    gradient: Tensor,
    facts: Facts,
    *,
    learns: Sequence[bool],
    learns_weight: bool,
    flag: Tensor | None = None,
) -> RowGradients:
    """Gradients of queries, and of what steps and channels have learned.

    Args:
        launch: The problem.
        gradient: dO, which lies together.
        facts: Of the rows.
        learns: Of each step, whether its parameter needs what rows give it.
        learns_weight: Whether the weights of channels need theirs.
        flag: One number on the device, if nothing is to be done where it is 0.
    """
    settings, program = _row_settings(launch), launch.program
    rows = launch.n_entries, launch.n_queries
    to_left = launch.empty(*rows, launch.dim, dtype=_gradient_dtype(program.left, launch.n_entries))
    sums = launch.empty(*rows, len(learns)) if any(learns) else None
    squares = launch.empty(*rows, launch.dim) if learns_weight else None
    outputs = (to_left, to_left if sums is None else sums, to_left if squares is None else squares)
    learning = {"LEARNS": tuple(learns), "LEARNS_WEIGHT": learns_weight}
    if program.mask.lists:
        differentiate_lists_by_rows(launch, gradient, facts, outputs, **learning)
    else:
        n_blocks = triton.cdiv(launch.n_queries, settings.rows)
        _differentiate(differentiate_rows, settings, launch, n_blocks, gradient, facts, outputs, flag=flag, **learning)
    return RowGradients(to_left, sums, squares)


def differentiate_by_columns(
    launch: Launch, gradient: Tensor, facts: Facts, *, learns: Sequence[bool], flag: Tensor | None = None
) -> ColumnGradients:
    """Gradients of keys and values, and of what steps have learned for each key; arguments as above."""
    settings, program, grid = _column_settings(launch), launch.program, launch.program.problem.grid
    columns = launch.n_entries, launch.n_keys
    to_right = launch.empty(*columns, launch.dim, dtype=_gradient_dtype(program.right, launch.n_entries))
    to_values = launch.empty(*columns, launch.value_dim, dtype=_gradient_dtype(program.values, launch.n_entries))
    sums = launch.empty(*columns, len(learns)) if any(learns) else None
    outputs = (to_right, to_values, to_right if sums is None else sums)
    if program.mask.lists:
        differentiate_lists_by_columns(launch, gradient, facts, outputs, learns=tuple(learns))
        return ColumnGradients(to_right, to_values, sums)
    blocks: tuple[object, ...] = ()
    if program.mask.bounds:
        first, stop = row_blocks(program.mask.bounds, grid, settings.rows, settings.columns)
        blocks = (first, program.batch.strides(first, 1), stop)
    n_blocks = triton.cdiv(launch.n_keys, settings.columns)
    _differentiate(
        differentiate_columns, settings, launch, n_blocks, gradient, facts, outputs, blocks, flag=flag,
        LEARNS=tuple(learns),
    )  # fmt: skip
    return ColumnGradients(to_right, to_values, sums)


def _differentiate(
    kernel: Any,
    settings: Settings,
    launch: Launch,
    n_blocks: int,
    gradient: Tensor,
    facts: Facts,
    outputs: tuple[Tensor, ...],
    *more: tuple[object, ...],
    flag: Tensor | None,
    **learns: object,
) -> None:
    """Launch a kernel over blocks of rows or of columns, and the same once more for what is not finite."""
    program = launch.program
    flags = launch.flags(launch.n_entries * n_blocks) if flag is None else flag.expand(launch.n_entries * n_blocks)
    by_rows = kernel is differentiate_rows
    for safe in launch.passes if flag is None else (True,):
        chosen = safe_settings(settings, launch.shape) if safe else settings
        size = chosen.rows if by_rows else chosen.columns
        n_blocks = triton.cdiv(launch.n_queries if by_rows else launch.n_keys, size)
        kernel[(launch.n_entries * n_blocks,)](
            launch.inputs,
            (gradient, launch.strides_of(gradient)),
            tuple(facts),
            (*outputs, flags.contiguous()),
            program.terms,
            launch.mask,
            *more,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            program.scale,
            SAFE=safe,
            ROWS=chosen.rows,
            COLUMNS=chosen.columns,
            FLAGGED=settings.rows if by_rows else settings.columns,
            **learns,
            **launch.codes,
            **launch.backward_codes,
            **chosen.options,
        )


def _row_settings(launch: Launch) -> Settings:
    return row_settings(launch.shape, shared_memory(launch.device))


def _column_settings(launch: Launch) -> Settings:
    return column_settings(launch.shape, shared_memory(launch.device))


def _gradient_dtype(tensor: Tensor, n_entries: int) -> torch.dtype:
    """In which the gradient of each batch entry is written: float32 where several are summed afterwards."""
    return tensor.dtype if math.prod(tensor.shape[:-2]) == n_entries else torch.float32
