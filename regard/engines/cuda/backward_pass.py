"""The backward pass: a launch over blocks of rows and one over blocks of columns; each computes scores again."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regard.engines.cuda.kernels.backward import differentiate_columns, differentiate_rows, row_deltas
from regard.engines.cuda.launch import Facts, Launch
from regard.engines.cuda.launch_settings import Settings, backward_settings, block_of, shared_memory
from regard.engines.cuda.listed_pass import differentiate_lists_by_columns, differentiate_lists_by_rows
from regard.engines.cuda.masks import row_blocks

DELTA_ROWS = 32


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


def deltas_of(launch: Launch, gradient: Tensor, centre: Tensor | None) -> Tensor:
    """δ = dO·u of every row, of two tensors that lie together."""
    if centre is None:
        return launch.empty(1)
    deltas = launch.empty(launch.n_entries, launch.n_queries)
    row_deltas[(launch.n_entries * triton.cdiv(launch.n_queries, DELTA_ROWS),)](
        gradient,
        launch.strides_of(gradient),
        centre,
        launch.strides_of(centre),
        deltas,
        launch.n_queries,
        *launch.batch_sizes,
        WIDTH=launch.value_dim,
        BLOCK_WIDTH=block_of(launch.value_dim),
        ROWS=DELTA_ROWS,
    )
    return deltas


def differentiate_by_rows(
    launch: Launch, gradient: Tensor, facts: Facts, *, learns: bool, learns_weight: bool, flag: Tensor | None = None
) -> RowGradients:
    """Gradients of queries, and of what steps and channels have learned.

    Args:
        launch: The problem.
        gradient: dO, which lies together.
        facts: Of the rows.
        learns: Whether steps' parameters need what rows give them.
        learns_weight: Whether the weights of channels need theirs.
        flag: One number on the device, if nothing is to be done where it is 0.
    """
    settings, program = _settings(launch), launch.program
    rows = launch.n_entries, launch.n_queries
    to_left = launch.empty(*rows, launch.dim, dtype=_gradient_dtype(program.left, launch.n_entries))
    sums = launch.empty(*rows, _n_sums(launch)) if learns else None
    squares = launch.empty(*rows, launch.dim) if learns_weight else None
    outputs = (to_left, to_left if sums is None else sums, to_left if squares is None else squares)
    learning = {"LEARNS": learns, "LEARNS_WEIGHT": learns_weight}
    if program.mask.lists:
        differentiate_lists_by_rows(launch, gradient, facts, outputs, _n_sums(launch), **learning)
    else:
        n_blocks = triton.cdiv(launch.n_queries, settings.rows)
        _differentiate(differentiate_rows, launch, n_blocks, gradient, facts, outputs, flag=flag, **learning)
    return RowGradients(to_left, sums, squares)


def differentiate_by_columns(
    launch: Launch, gradient: Tensor, facts: Facts, *, learns: bool, flag: Tensor | None = None
) -> ColumnGradients:
    """Gradients of keys and values, and of what steps have learned for each key; arguments as above."""
    settings, program, grid = _settings(launch), launch.program, launch.program.problem.grid
    columns = launch.n_entries, launch.n_keys
    to_right = launch.empty(*columns, launch.dim, dtype=_gradient_dtype(program.right, launch.n_entries))
    to_values = launch.empty(*columns, launch.value_dim, dtype=_gradient_dtype(program.values, launch.n_entries))
    sums = launch.empty(*columns, _n_sums(launch)) if learns else None
    outputs = (to_right, to_values, to_right if sums is None else sums)
    if program.mask.lists:
        differentiate_lists_by_columns(launch, gradient, facts, outputs, _n_sums(launch), learns=learns)
        return ColumnGradients(to_right, to_values, sums)
    blocks: tuple[object, ...] = ()
    if program.mask.bounds:
        first, stop = row_blocks(program.mask.bounds, grid, settings.rows, settings.columns)
        blocks = (first, program.batch.strides(first, 1), stop)
    n_blocks = triton.cdiv(launch.n_keys, settings.columns)
    _differentiate(differentiate_columns, launch, n_blocks, gradient, facts, outputs, blocks, flag=flag, LEARNS=learns)
    return ColumnGradients(to_right, to_values, sums)


def _differentiate(
    kernel: Any,
    launch: Launch,
    n_blocks: int,
    gradient: Tensor,
    facts: Facts,
    outputs: tuple[Tensor, ...],
    *more: tuple[object, ...],
    flag: Tensor | None,
    **learns: bool,
) -> None:
    """Launch a kernel over blocks of rows or of columns, and the same once more for what is not finite."""
    settings, program = _settings(launch), launch.program
    n_programs = launch.n_entries * n_blocks
    flags = launch.flags(n_programs) if flag is None else flag.expand(n_programs).contiguous()
    for safe in launch.passes if flag is None else (True,):
        kernel[(n_programs,)](
            launch.inputs,
            (gradient, launch.strides_of(gradient)),
            tuple(facts),
            (*outputs, flags),
            program.terms,
            launch.mask,
            *more,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            *launch.batch_sizes,
            program.scale,
            SAFE=safe,
            ROWS=settings.rows,
            COLUMNS=settings.columns,
            SUMS=_n_sums(launch),
            **learns,
            **launch.codes,
            **launch.backward_codes,
            **settings.options,
        )


def _settings(launch: Launch) -> Settings:
    return backward_settings(launch.shape, shared_memory(launch.device))


def _n_sums(launch: Launch) -> int:
    """How many numbers a row has for the parameters of steps: a power of two."""
    return 1 << max(len(launch.program.steps) - 1, 0).bit_length()


def _gradient_dtype(tensor: Tensor, n_entries: int) -> torch.dtype:
    """In which the gradient of each batch entry is written: float32 where several are summed afterwards."""
    return tensor.dtype if math.prod(tensor.shape[:-2]) == n_entries else torch.float32
