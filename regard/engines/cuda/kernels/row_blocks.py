"""What a block of rows has for every tile of its columns."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import DOT, load_tile, load_weights, norms_of
from regard.engines.cuda.kernels.tile_scores import (
    block_of,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    scaled_first,
)
from regard.engines.cuda.kernels.tile_weights import mask_rows, row_hashes


@triton.jit
def load_block(
    program, inputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale, n_splits, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, FOLDS: tl.constexpr, DROPOUT: tl.constexpr, SAFE: tl.constexpr,
    ROUGH: tl.constexpr, REVERSED: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What a block of rows has for every tile, and which it is: (that, as tiles take it; the positions that others are
    told relative to; its place among batch axes, which share of the keys it looks at, its first row).
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    entry, block, split = block_of(program, n_queries, n_splits, ROWS, REVERSED)
    at = place_of(entry, n1, n2)
    row_start, row_span = block * ROWS, tl.arange(0, ROWS)
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, tl.arange(0, BLOCK_DIM), DIM, False)
    norms = row_span
    origins = load_origins(terms, at, row_start, STEPS, False)
    of_rows = load_line(terms, origins, at, row_start, row_span, n_queries, STEPS, False, by_sum, False)
    numbers = load_numbers(terms, at, STEPS)
    if FORM != DOT:
        weight = load_weights(inputs, at, tl.arange(0, BLOCK_DIM), DIM, FORM)
        norms = norms_of(queries, weight, numbers, scale, inputs, DIM, STEPS, FORM)
    bounds = mask_rows(mask, (low, high), at, row_start, row_span, (n_queries, n_keys), MASK)
    hashes = (row_start + row_span).to(tl.uint32)
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, row_start + row_span)
    one = 1.0
    if FOLDS and len(STEPS) > 0 and not SAFE:
        # scale · σ(g + h) = 1 / (1/scale + e^−g/scale · e^−h)
        one = 1.0 / scale
        of_rows = scaled_first(of_rows, one)
    return (queries, norms, of_rows, numbers, bounds, hashes, one, entry), origins, at, split, row_start
