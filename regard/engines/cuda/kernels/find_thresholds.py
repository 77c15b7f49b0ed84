"""Walks over the keys that find the thresholds of a block of rows, before it is pooled."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.row_blocks import load_block
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
    load_line,
)
from regard.engines.cuda.kernels.tile_weights import BOUNDS, LINE, tile_ranges, whole_within


@triton.jit
def walk(
    found, level, threshold, block, origins, ranges, inputs, terms, mask, at, row_start, sizes, scale, unit, RULE, MASK,
    DIM, FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, LOOKS: tl.constexpr,
    EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is found over all tiles in some ranges, of whole tiles and of all: the largest scores, where it `LOOKS` for
    them, else sums at thresholds.
    """
    by_sum: tl.constexpr = not ROUGH  # how gates are computed
    from_tile, to_tile, from_whole, to_whole = ranges
    column_span = tl.arange(0, COLUMNS)
    for tile in range(from_whole, to_whole):
        of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, sizes[1], STEPS, True, by_sum, True)
        scores, allowed = masked_tile(
            of_columns, block, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale, RULE, MASK, DIM,
            FORM, STEPS, EXCLUDES, FOLDS, False, False, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
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
            FORM, STEPS, EXCLUDES, FOLDS, True, False, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
        )  # fmt: skip
        if LOOKS:
            found = largest_two(found, scores, allowed, True)
        else:
            found = add_weights(found, scores, allowed, level, threshold, unit, RULE, True, ROUGH)
    return found


@triton.jit
def solve_rows(
    block, origins, ranges, inputs, terms, mask, at, row_start, sizes, scale, unit, RULE, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, EXACT: tl.constexpr,
    ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(largest score, threshold) of every row of a block; +inf is the threshold of a row without a key."""
    nothing = tl.zeros((ROWS,), tl.float32)
    found = walk(
        none_so_far(ROWS, COLUMNS), nothing, nothing, block, origins, ranges, inputs, terms, mask, at, row_start, sizes,
        scale, unit, RULE, MASK, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, True, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    peak, bracket = threshold_of_two(found, sizes[1], unit, RULE, ROUGH)
    level = level_of(peak)
    n_passes = sizes[1] * 0
    while goes_on(bracket, n_passes):
        sums = walk(
            no_sums(ROWS), level, bracket[0].to(tl.float32), block, origins, ranges, inputs, terms, mask, at, row_start,
            sizes, scale, unit, RULE, MASK, DIM,
            FORM, STEPS, EXCLUDES, FOLDS, False, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
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
    sizes = (n_queries, n_keys)
    block, origins, at, _, row_start = load_block(
        tl.program_id(0), inputs, terms, mask, (), n_queries, n_keys, low, high, n1, n2, scale, 1,
        MASK, DIM, FORM, STEPS, FOLDS, False, False, ROUGH, reverse, BLOCK_DIM, ROWS,
    )  # fmt: skip
    entry, rows = block[7], row_start + tl.arange(0, ROWS)
    from_tile, to_tile, from_whole, to_whole = tile_ranges(block[4], rows, sizes, MASK, COLUMNS)
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)
    peak, threshold = solve_rows(
        block, origins, (from_tile, to_tile, from_whole, to_whole), inputs, terms, mask, at, row_start, sizes, scale,
        alpha_less_one(units, entry, RULE), RULE, MASK, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    facts = tl.cast(entry, tl.int64) * n_queries + rows
    tl.store(outputs[0] + facts, peak, mask=rows < n_queries)
    tl.store(outputs[1] + facts, threshold, mask=rows < n_queries)
