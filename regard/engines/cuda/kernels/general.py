"""Kernels for any rule and mask, which are numbers here: they are compiled for the steps of a score and its dtypes.

They are right where something is infinite or no number, and not fast. Behind the kernels that are compiled for one kind
of problem they compute again what those have flagged; small problems they compute alone. Whole numbers come coded
(`program.coded`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.backward_columns import differentiate_column_block
from regard.engines.cuda.kernels.backward_rows import differentiate_row_block
from regard.engines.cuda.kernels.channels import CHANNELS
from regard.engines.cuda.kernels.tile_scores import (
    CHUNK,
    decoded,
    decoded_all,
    decoded_pairs,
    decoded_terms,
    load_flags,
)
from regard.engines.cuda.kernels.turns import pool_any_block


@triton.jit
def pool_any_rows(
    inputs,
    outputs,
    terms,
    mask,
    sink,
    dropout,
    sizes,  # n_queries, n_keys, low, high, n1, n2, as `pool_rows` has them
    scale,
    # Rule, whether there is a sink, whether keys are split, dim, value_dim, shares of keys, blocks of all batch entries
    # and shares, rows that share a flag (0: all; less: there are no flags), columns of a tile that shares are counted
    # in, whether values are averaged by slope; then of what the mask is made.
    codes,
    FORM: tl.constexpr, STEPS: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Blocks of rows: those that are flagged, or all."""
    n_queries, n_keys, low, high, n1, n2 = decoded_all(sizes)
    rule, has_sink, is_split, dim, value_dim, n_splits, n_programs, flag_rows, flag_columns, centred = decoded_all(
        codes[:10]
    )
    kinds = decoded_all(codes[10:])
    inputs, mask, sink = decoded_inputs(inputs, FORM), decoded_mask(mask), decoded_pairs(sink)
    terms = decoded_terms(terms, STEPS)
    outputs = (outputs[0], decoded_all(outputs[1])) + outputs[2:]
    first, stop = blocks_here(outputs[4], n_queries, n_splits, n_programs, flag_rows, ROWS)
    for each in range(first, stop):
        if load_flags(outputs[4], each, n_queries, n_splits, n_programs, flag_rows, ROWS) != 0:
            pool_any_block(
                each, inputs, outputs, terms, mask, sink, dropout, n_queries, n_keys, low, high, n1, n2, scale,
                n_splits, rule, kinds, has_sink, is_split, centred, dim, value_dim, flag_columns,
                FORM, STEPS, ROUGH, PRECISION, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip


@triton.jit
def differentiate_any_rows(
    inputs,
    gradient,
    facts,
    outputs,
    terms,
    mask,
    dropout,
    sizes,
    scale,
    # Rule, whether u is subtracted, whether what is not finite gets a gradient, dim, value_dim, steps whose
    # parameters learn, whether weights of channels do, blocks of all batch entries, rows that share a flag (as above);
    # then of what the mask is made.
    codes,
    FORM: tl.constexpr, STEPS: tl.constexpr, LEARNS: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of blocks of queries: of those that are flagged, or all."""
    n_queries, n_keys, low, high, n1, n2 = decoded_all(sizes)
    rule, centred, projected, dim, value_dim, n_learned, weighed, n_programs, flagged = decoded_all(codes[:9])
    kinds = decoded_all(codes[9:])
    inputs, mask, gradient = decoded_inputs(inputs, FORM), decoded_mask(mask), decoded_pairs(gradient)
    terms = decoded_terms(terms, STEPS)
    outputs = (outputs[0], decoded_all(outputs[1]), outputs[2], outputs[3], outputs[4])
    first, stop = blocks_here(outputs[4], n_queries, 1, n_programs, flagged, ROWS)
    for each in range(first, stop):
        if load_flags(outputs[4], each, n_queries, 1, n_programs, flagged, ROWS) != 0:
            differentiate_row_block(
                each, inputs, gradient, facts, outputs, terms, mask, dropout,
                n_queries, n_keys, low, high, n1, n2, scale,
                n_learned, rule, kinds, centred, projected, weighed, dim, value_dim, flagged,
                FORM, STEPS, True, False, True, LEARNS, len(inputs) >= 8, True, True, ROUGH, PRECISION, False,
                BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip


@triton.jit
def differentiate_any_columns(
    inputs,
    gradient,
    facts,
    outputs,
    terms,
    mask,
    dropout,
    sizes,
    scale,
    codes,
    FORM: tl.constexpr, STEPS: tl.constexpr, LEARNS: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of blocks of keys and their values: of those that are flagged, or all."""
    n_queries, n_keys, low, high, n1, n2 = decoded_all(sizes)
    rule, centred, projected, dim, value_dim, n_learned, _, n_programs, flagged = decoded_all(codes[:9])
    kinds = decoded_all(codes[9:])
    inputs, mask, gradient = decoded_inputs(inputs, FORM), decoded_mask(mask), decoded_pairs(gradient)
    terms = decoded_terms(terms, STEPS)
    outputs = (outputs[0], decoded_all(outputs[1]), outputs[2], decoded_all(outputs[3]), outputs[4], outputs[5])
    first, stop = blocks_here(outputs[5], n_keys, 1, n_programs, flagged, COLUMNS)
    for each in range(first, stop):
        if load_flags(outputs[5], each, n_keys, 1, n_programs, flagged, COLUMNS) != 0:
            differentiate_column_block(
                each, inputs, gradient, facts, outputs, terms, mask, (), dropout,
                n_queries, n_keys, low, high, n1, n2, scale,
                n_learned, rule, kinds, centred, projected, dim, value_dim, flagged,
                FORM, STEPS, True, False, True, LEARNS, True, True, ROUGH, PRECISION,
                BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip


@triton.jit
def decoded_inputs(inputs, FORM: tl.constexpr):
    """Queries, keys, values, and what a sum over channels has: weights, if any, and which function."""
    known = decoded_pairs(inputs)
    if FORM == CHANNELS:
        known = known + (decoded(inputs[len(inputs) - 1]),)
    return known


@triton.jit
def decoded_mask(mask):
    """Bounds, pairs and documents."""
    return decoded_pairs(mask[0]), decoded_pairs(mask[1]), decoded_pairs(mask[2])


@triton.jit
def blocks_here(flags, length, n_splits, n_programs, flagged, SIZE: tl.constexpr):
    """(from, to) of the blocks that this program looks after: one, or several where most have nothing to be done."""
    program = tl.program_id(0)
    first, stop = program, tl.minimum(program + 1, n_programs)
    if flagged >= 0:
        first = program * CHUNK
        found = load_flags(flags, first + tl.arange(0, CHUNK), length, n_splits, n_programs, flagged, SIZE)
        stop = tl.where(tl.max(found) == 0, first, tl.minimum(first + CHUNK, n_programs))
    return first, stop
