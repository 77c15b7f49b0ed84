"""Walks over the keys that find the thresholds of a block of rows, before it is pooled."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import DOT, load_tile, load_weights, norms_of
from regard.engines.cuda.kernels.scored_tiles import masked_tile
from regard.engines.cuda.kernels.thresholds import (
    add_weights,
    alpha_less_one,
    goes_on,
    largest_two,
    level_of,
    next_bracket,
    no_sums,
    none_so_far,
    threshold_of_two,
)
from regard.engines.cuda.kernels.tile_scores import (
    block_of,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    scaled_first,
)
from regard.engines.cuda.kernels.tile_weights import BOUNDS, LINE, mask_rows, tile_ranges, whole_within


@triton.jit
def walk(
    found, level, threshold, block, origins, ranges, inputs, terms, mask, at, row_start, sizes, scale, unit, RULE, MASK,
    DIM, FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, LOOKS: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is found over all tiles in some ranges, of whole tiles and of all: the largest scores, where it `LOOKS` for
    them, else sums at thresholds.
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    from_tile, to_tile, from_whole, to_whole = ranges
    column_span = tl.arange(0, COLUMNS)
    if not SAFE:
        for tile in range(from_whole, to_whole):
            of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, sizes[1], STEPS, True, by_sum, True)
            scores, allowed = masked_tile(
                of_columns, block, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale, RULE, MASK, DIM,
                FORM, STEPS, EXCLUDES, FOLDS, False, SAFE, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
            )  # fmt: skip
            if LOOKS:
                found = largest_two(found, scores, allowed, EXCLUDES)
            else:
                found = add_weights(found, scores, allowed, level, threshold, unit, RULE, EXCLUDES, ROUGH)
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, sizes[1], STEPS, True, by_sum, False)
        scores, allowed = masked_tile(
            of_columns, block, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale, RULE, MASK, DIM,
            FORM, STEPS, EXCLUDES, FOLDS, True, SAFE, EXACT or SAFE, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
        )  # fmt: skip
        if LOOKS:
            found = largest_two(found, scores, allowed, True)
        else:
            found = add_weights(found, scores, allowed, level, threshold, unit, RULE, True, ROUGH)
    return found


@triton.jit
def solve_rows(
    block, origins, ranges, inputs, terms, mask, at, row_start, sizes, scale, unit, RULE, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, SAFE: tl.constexpr,
    EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """(largest score, threshold) of every row of a block; +inf is the threshold of a row without a key."""
    nothing = tl.zeros((ROWS,), tl.float32)
    found = walk(
        none_so_far(ROWS, COLUMNS), nothing, nothing, block, origins, ranges, inputs, terms, mask, at, row_start, sizes,
        scale, unit, RULE, MASK, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, True, SAFE, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    peak, bracket = threshold_of_two(found, sizes[1], unit, RULE, ROUGH)
    level = level_of(peak)
    n_passes = sizes[1] * 0
    while goes_on(bracket, n_passes):
        sums = walk(
            no_sums(ROWS), level, bracket[0].to(tl.float32), block, origins, ranges, inputs, terms, mask, at, row_start,
            sizes, scale, unit, RULE, MASK, DIM,
            FORM, STEPS, EXCLUDES, FOLDS, False, SAFE, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
        )  # fmt: skip
        bracket = next_bracket(sums, bracket, n_passes, unit, RULE, ROUGH)
        n_passes += 1
    return peak, bracket[0].to(tl.float32)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2"])
def find_thresholds(
    inputs,
    outputs,  # peaks and thresholds (entries, n_queries); errors
    terms,
    mask,
    units,  # alpha − 1 of every batch entry
    n_queries,
    n_keys,
    low,
    high,
    n1,
    n2,
    scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Those of a block of rows, for one kind of problem."""
    reverse: tl.constexpr = MASK[BOUNDS] != 0 or MASK[LINE] != 0
    by_sum: tl.constexpr = not ROUGH  # how gates are computed
    sizes, line = (n_queries, n_keys), (low, high)
    entry, place, _ = block_of(tl.program_id(0), n_queries, 1, ROWS, reverse)
    at = place_of(entry, n1, n2)
    row_start, row_span = place * ROWS, tl.arange(0, ROWS)
    rows = row_start + row_span
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, tl.arange(0, BLOCK_DIM), DIM, False)
    norms, numbers = row_span, load_numbers(terms, at, STEPS)
    if FORM != DOT:
        weight = load_weights(inputs, at, tl.arange(0, BLOCK_DIM), DIM, FORM)
        norms = norms_of(queries, weight, numbers, scale, inputs, DIM, STEPS, FORM)
    origins = load_origins(terms, at, row_start, STEPS, False)
    of_rows = load_line(terms, origins, at, row_start, row_span, n_queries, STEPS, False, by_sum, False)
    bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
    one = 1.0
    if FOLDS and len(STEPS) > 0:
        one = 1.0 / scale  # as in `pool_block`
        of_rows = scaled_first(of_rows, one)
    block = (queries, norms, of_rows, numbers, bounds, row_span, one)
    from_tile, to_tile, from_whole, to_whole = tile_ranges(bounds, rows, sizes, MASK, COLUMNS)
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)
    peak, threshold = solve_rows(
        block, origins, (from_tile, to_tile, from_whole, to_whole), inputs, terms, mask, at, row_start, sizes, scale,
        alpha_less_one(units, entry, RULE), RULE, MASK, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, False, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    facts = tl.cast(entry, tl.int64) * n_queries + rows
    tl.store(outputs[0] + facts, peak, mask=rows < n_queries)
    tl.store(outputs[1] + facts, threshold, mask=rows < n_queries)
