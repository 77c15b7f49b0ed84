"""The way back by rows: gradients of queries, and of what steps and channels have learned.

Each sum is made by one program, in the order of tiles: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import (
    DOT,
    add_differences,
    load_tile,
    load_weights,
    pair_scores,
    squared_norms,
    store_tile,
)
from regard.engines.cuda.kernels.products import scored_product, slope_product
from regard.engines.cuda.kernels.tile_gradients import (
    added,
    load_facts,
    nothing_learned,
    store_learned,
    tile_gradients,
    without_broken,
)
from regard.engines.cuda.kernels.tile_scores import (
    CHUNK,
    block_of,
    flag_place,
    load_flags,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    LINE,
    UNIFORM,
    allowed_pairs,
    keep_factors,
    mask_rows,
    row_hashes,
    tile_ranges,
    whole_within,
)


@triton.jit
def differentiate_row_tile(
    found, block, of_columns, inputs, terms, mask, dropout, at, entry, row_start, column_start, sizes, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, MASKED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    LEARNS_WEIGHT: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is found for some rows with one more tile: for queries, channels, Σ dS, and steps."""
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    to_queries, squares, sums, learned = found
    queries, norms, to_output, of_rows, numbers, bounds, hashes, facts, weight = block
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    allowed = tl.full((ROWS, COLUMNS), 1, tl.int1)
    if MASKED:
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
    keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, sizes[1], dims, DIM, not MASKED)
    values = load_tile(inputs[4], inputs[5], at, column_start, column_span, sizes[1], value_dims, VALUE_DIM, not MASKED)
    sides = (
        (inputs[0], inputs[1], row_start, row_span, sizes[0]),
        (inputs[2], inputs[3], column_start, column_span, sizes[1]),
    )
    raw = tl.zeros((ROWS, COLUMNS), tl.float32)
    if RULE != UNIFORM:
        if FOLDS and len(STEPS) == 0 and not SAFE:
            raw = scored_product(queries, keys, PRECISION)
        else:
            raw = pair_scores(queries, keys, norms, sides, weight, inputs, at, scale, FORM, EXACT, PRECISION, DIM)
    over_values = scored_product(to_output, values, PRECISION)
    keep = 1.0
    if DROPOUT:
        keep = keep_factors(hashes, column_start + column_span, dropout[1], dropout[2], TURNED=False)
    of_tile = tile_terms(
        terms, of_rows, of_columns, at, row_start, row_span, column_start, column_span, sizes, 1.0, STEPS,
        False, by_sum,
    )  # fmt: skip
    _, slopes, more = tile_gradients(
        raw, over_values, keep, numbers, of_tile, allowed, facts, terms, scale,
        STEPS, EXCLUDES, FOLDS, RULE, LEARNS, MASKED, SAFE, ROUGH, False,
    )  # fmt: skip
    learned = added(learned, more, LEARNS)
    if FORM != DOT:
        to_queries, squares, sums = add_differences(
            to_queries, squares, sums, slopes, keys, sides, at, dims, DIM, LEARNS_WEIGHT, EXACT, PRECISION
        )
    else:
        to_queries = slope_product(slopes, keys, to_queries, PRECISION, SAFE)
    return to_queries, squares, sums, learned


@triton.jit
def differentiate_row_block(
    program, inputs, gradient, facts, outputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    LEARNS_WEIGHT: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FLAGGED: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries, and what steps' parameters get of each of its rows."""
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    sizes, line = (n_queries, n_keys), (low, high)
    entry, block, _ = block_of(program, n_queries, 1, ROWS, (BOUNDS | LINE) & MASK != 0)
    at = place_of(entry, n1, n2)
    row_start, row_span, column_span = block * ROWS, tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    rows = row_start + row_span
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, dims, DIM, False)
    to_output = load_tile(gradient[0], gradient[1], at, row_start, row_span, n_queries, value_dims, VALUE_DIM, False)
    norms = row_span
    if FORM != DOT:
        norms = squared_norms(queries)
    origins = load_origins(terms, at, row_start, STEPS, False)
    of_rows = load_line(terms, origins, at, row_start, row_span, n_queries, STEPS, False, by_sum, False)
    numbers = load_numbers(terms, at, STEPS)
    bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
    hashes = rows
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, rows)
    by_row = load_facts(facts, entry, row_start, row_span, n_queries, RULE, CENTRED, ROUGH, False)
    weight = load_weights(inputs, at, dims, FORM, DIM)
    known = (queries, norms, to_output, of_rows, numbers, bounds, hashes, by_row, weight)

    from_tile, to_tile, from_whole, to_whole = tile_ranges(bounds, rows, sizes, MASK, COLUMNS)
    if SAFE:
        to_whole = 0
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)

    found = (
        tl.zeros((ROWS, BLOCK_DIM), tl.float32),
        tl.zeros((ROWS, BLOCK_DIM if LEARNS_WEIGHT else 1), tl.float32),
        tl.zeros((ROWS,), tl.float32),
        nothing_learned(ROWS, LEARNS),
    )
    if not SAFE:
        for tile in range(from_whole, to_whole):
            of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, by_sum, True)
            found = differentiate_row_tile(
                found, known, of_columns, inputs, terms, mask, dropout, at, entry, row_start, tile * COLUMNS, sizes,
                scale, FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, False, DROPOUT, LEARNS, LEARNS_WEIGHT, SAFE, EXACT,
                ROUGH, PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, by_sum, False)
        found = differentiate_row_tile(
            found, known, of_columns, inputs, terms, mask, dropout, at, entry, row_start, tile * COLUMNS, sizes,
            scale, FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, True, DROPOUT, LEARNS, LEARNS_WEIGHT, SAFE,
            EXACT or SAFE, ROUGH, PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    to_queries, squares, sums, learned = found

    inside = (rows < n_queries)[:, None] & (dims < DIM)[None, :]
    lines = tl.cast(entry, tl.int64) * n_queries + rows
    if FORM != DOT:
        if not (EXACT or SAFE):
            to_queries += sums[:, None] * queries.to(tl.float32)
        to_queries = to_queries * (2.0 * weight)[None, :]
        if LEARNS_WEIGHT:
            tl.store(outputs[3] + lines[:, None] * DIM + dims[None, :], squares, mask=inside)
    if not PROJECTED:
        to_queries = without_broken(to_queries, queries)
    store_tile(to_queries, outputs[0], outputs[1], at, row_start, row_span, dims, inside)
    store_learned(learned, outputs[2], lines, rows < n_queries, LEARNS)
    if not SAFE:
        tl.store(
            outputs[4] + flag_place(entry, block * ROWS, n_queries, FLAGGED),
            tl.max(tl.where(inside & (to_queries - to_queries != 0), 1, 0)),
        )


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "n_programs"])
def differentiate_rows(
    inputs, gradient, facts, outputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale, n_programs,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    LEARNS_WEIGHT: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FLAGGED: tl.constexpr,
):  # fmt: skip
    """Every block of rows; where `SAFE`, those that are flagged."""
    program = tl.program_id(0)
    if SAFE:
        reverse: tl.constexpr = (BOUNDS | LINE) & MASK != 0
        first = program * CHUNK
        flags = load_flags(outputs[4], first + tl.arange(0, CHUNK), n_queries, 1, n_programs, ROWS, FLAGGED, reverse)
        if tl.max(flags) == 0:
            return
        for each in range(first, tl.minimum(first + CHUNK, n_programs)):
            if load_flags(outputs[4], each, n_queries, 1, n_programs, ROWS, FLAGGED, reverse) != 0:
                differentiate_row_block(
                    each, inputs, gradient, facts, outputs, terms, mask, dropout,
                    n_queries, n_keys, low, high, n1, n2, scale,
                    FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, CENTRED, PROJECTED, DROPOUT, LEARNS, LEARNS_WEIGHT,
                    SAFE, EXACT, ROUGH, PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, FLAGGED,
                )  # fmt: skip
    else:
        differentiate_row_block(
            program, inputs, gradient, facts, outputs, terms, mask, dropout,
            n_queries, n_keys, low, high, n1, n2, scale,
            FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, CENTRED, PROJECTED, DROPOUT, LEARNS, LEARNS_WEIGHT, SAFE, EXACT,
            ROUGH, PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, FLAGGED,
        )  # fmt: skip
