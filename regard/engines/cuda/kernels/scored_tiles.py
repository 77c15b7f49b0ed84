"""The scores of a tile: its products, then every step."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channel_tiles import side_of
from regard.engines.cuda.kernels.pair_scores import load_tile, load_weights, pair_scores
from regard.engines.cuda.kernels.products import scored_product
from regard.engines.cuda.kernels.tile_scores import stepped, tile_terms
from regard.engines.cuda.kernels.tile_weights import UNIFORM, allowed_pairs


@triton.jit
def scored_tile(
    allowed, of_columns, block, inputs, terms, at, row_start, column_start, sizes, scale, RULE, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, WHOLE: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(scores, which pairs are allowed) of some rows and a tile's columns. Scores that fold the scale are without it.

    Args:
        allowed: Those that the mask allows.
        of_columns: What steps need of the tile's columns.
        block: What the rows have: queries, their squared norms, what steps need of them and of their batch entry, the
            bounds of the mask, anything, what a gate divides.
        WHOLE: Whether all of the tile's columns are there.
        EXCLUDES: Whether a step may exclude a pair of which more is asked than to have a score of −inf.
        FOLDS: Whether the scale is part of exponentials, or of a gate.
        EXACT: Whether differences come first in squared distances.
        ROUGH: Whether half precision is exact enough.
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    queries, norms, of_rows, numbers, one = block[0], block[1], block[2], block[3], block[6]
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims = tl.arange(0, BLOCK_DIM)
    scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    if RULE != UNIFORM:
        keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, sizes[1], dims, DIM, WHOLE)
        if FOLDS and not SAFE:
            scores = scored_product(queries, keys, PRECISION)
        else:
            weight = load_weights(inputs, at, dims, DIM, FORM)
            sides = (
                side_of(inputs, row_start, row_span, sizes[0], 0, FORM),
                side_of(inputs, column_start, column_span, sizes[1], 1, FORM),
            )
            scores = pair_scores(queries, keys, norms, sides, weight, inputs, at, scale, DIM, FORM, EXACT, PRECISION)
    of_tile = tile_terms(
        terms, of_rows, of_columns, at, row_start, row_span, column_start, column_span, sizes, one, STEPS,
        False, by_sum,
    )  # fmt: skip
    scores, allowed = stepped(
        scores, allowed, numbers, of_tile, terms, len(STEPS), STEPS, ROUGH and not SAFE, EXCLUDES or SAFE
    )
    return scores, allowed


@triton.jit
def masked_tile(
    of_columns, block, inputs, terms, mask, at, row_start, column_start, sizes, scale, RULE, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`scored_tile` where the mask is asked, if there may be pairs that are not allowed, or that do not exist."""
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    allowed = tl.full((ROWS, COLUMNS), 1, tl.int1)
    if MASKED:
        allowed = allowed_pairs(
            mask, block[4], at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
    return scored_tile(
        allowed, of_columns, block, inputs, terms, at, row_start, column_start, sizes, scale, RULE, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, not MASKED, SAFE, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip


@triton.jit
def store_scores(scores, allowed, pointer, entry, rows, columns, sizes):
    """Write the scores of the pairs that are allowed to `(entries, n_queries, n_keys)`."""
    place = (tl.cast(entry, tl.int64) * sizes[0] + rows)[:, None] * sizes[1] + columns[None, :]
    tl.store(pointer + place, scores, mask=allowed)
