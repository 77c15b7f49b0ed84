"""The scores of a tile, from rows that stay and columns that go by: what every pass forward begins with."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channel_tiles import side_of
from regard.engines.cuda.kernels.pair_scores import load_tile, load_weights, pair_scores
from regard.engines.cuda.kernels.products import scored_product
from regard.engines.cuda.kernels.tile_scores import stepped, tile_terms
from regard.engines.cuda.kernels.tile_weights import UNIFORM, allowed_pairs


@triton.jit
def tile_scores(
    of_columns, block, inputs, terms, mask, at, row_start, column_start, sizes, scale, RULE, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(scores, which pairs are allowed) of a tile; without its scale, where it `FOLDS` and there are no steps.

    Args:
        of_columns: What steps need of the tile's columns.
        block: What the rows have: queries, their squared norms, what steps need of them and of their batch entry, the
            bounds of the mask, hashes for dropout, what a gate divides.
        MASKED: Whether there may be pairs in the tile that are not allowed, or that do not exist.
        EXCLUDES: Whether a step may exclude a pair of which more is asked than to have a score of −inf.
        FOLDS: Whether the scale is part of softmax, or of a gate.
        EXACT: Whether differences come first in squared distances.
        ROUGH: Whether half precision is exact enough.
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    queries, norms, of_rows, numbers, bounds, _, one = block
    row_span, column_span, dims = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, BLOCK_DIM)
    allowed = tl.full((ROWS, COLUMNS), 1, tl.int1)
    if MASKED:
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
    scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    if RULE != UNIFORM:
        keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, sizes[1], dims, DIM, not MASKED)
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
    return stepped(scores, allowed, numbers, of_tile, terms, len(STEPS), STEPS, ROUGH and not SAFE, EXCLUDES or SAFE)
