"""The way back by rows: gradients of queries, and of what steps and channels have learned.

Each sum is made by one program, in the order of tiles: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channel_tiles import side_of
from regard.engines.cuda.kernels.pair_scores import (
    DOT,
    add_differences,
    all_differences,
    load_tile,
    load_weights,
    no_differences,
    norms_of,
    pair_scores,
    store_tile,
)
from regard.engines.cuda.kernels.products import scored_product, slope_product
from regard.engines.cuda.kernels.tile_gradients import (
    added,
    is_broken,
    load_facts,
    nothing_learned,
    store_learned,
    tile_gradients,
    without_broken,
)
from regard.engines.cuda.kernels.tile_scores import (
    block_of,
    flag_place,
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
    line_range,
    mask_rows,
    row_hashes,
    tile_ranges,
    whole_within,
)


@triton.jit
def differentiate_row_tile(
    found, block, of_columns, inputs, terms, mask, dropout, at, entry, row_start, column_start, sizes, scale,
    RULE, MASK, DIM, VALUE_DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr,
    DROPOUT: tl.constexpr, LEARNS: tl.constexpr, LEARNS_WEIGHT: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr,
    ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
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
    sides = (
        side_of(inputs, row_start, row_span, sizes[0], 0, FORM),
        side_of(inputs, column_start, column_span, sizes[1], 1, FORM),
    )
    # A walk along channels leaves no registers for what is only needed afterwards.
    walked: tl.constexpr = len(sides[0]) > 7
    if not walked:
        values = load_tile(
            inputs[4], inputs[5], at, column_start, column_span, sizes[1], value_dims, VALUE_DIM, not MASKED
        )
    raw = tl.zeros((ROWS, COLUMNS), tl.float32)
    if RULE != UNIFORM:
        if FOLDS and len(STEPS) == 0 and not SAFE:
            raw = scored_product(queries, keys, PRECISION)
        else:
            raw = pair_scores(queries, keys, norms, sides, weight, inputs, at, scale, DIM, FORM, EXACT, PRECISION)
    if walked:
        values = load_tile(
            inputs[4], inputs[5], at, column_start, column_span, sizes[1], value_dims, VALUE_DIM, not MASKED
        )
    over_values = scored_product(to_output, values, PRECISION)
    keep = 1.0
    if DROPOUT:
        keep = keep_factors(hashes, column_start + column_span, dropout, TURNED=False)
    of_tile = tile_terms(
        terms, of_rows, of_columns, at, row_start, row_span, column_start, column_span, sizes, 1.0, STEPS,
        False, by_sum,
    )  # fmt: skip
    _, slopes, more = tile_gradients(
        raw, over_values, keep, numbers, of_tile, allowed, facts, terms, scale,
        RULE, STEPS, EXCLUDES, FOLDS, LEARNS, MASKED, SAFE, ROUGH, False,
    )  # fmt: skip
    learned = added(learned, more, LEARNS)
    if FORM != DOT:
        to_queries, squares, sums = add_differences(
            to_queries,
            squares,
            sums,
            slopes,
            keys,
            sides,
            inputs,
            at,
            dims,
            DIM,
            FORM,
            LEARNS_WEIGHT,
            EXACT,
            PRECISION,
        )
    else:
        to_queries = slope_product(slopes, keys, to_queries, PRECISION, SAFE)
    return to_queries, squares, sums, learned


@triton.jit
def differentiate_row_block(
    program, inputs, gradient, facts, outputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale,
    n_learned, RULE, MASK, CENTRED, PROJECTED, WEIGHED, DIM, VALUE_DIM, FLAGGED,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, DROPOUT: tl.constexpr,
    LEARNS: tl.constexpr, LEARNS_WEIGHT: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, REVERSED: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries, and what the parameters of `n_learned` steps get of each of its rows.

    Rule, mask and the like are constants, or numbers where the kernel is for any of them (`general.py`). `WEIGHED`:
    whether what the weights of channels get is written.
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    sizes, line = (n_queries, n_keys), (low, high)
    entry, block, _ = block_of(program, n_queries, 1, ROWS, REVERSED)
    at = place_of(entry, n1, n2)
    row_start, row_span, column_span = block * ROWS, tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    rows = row_start + row_span
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, dims, DIM, False)
    to_output = load_tile(gradient[0], gradient[1], at, row_start, row_span, n_queries, value_dims, VALUE_DIM, False)
    norms = row_span
    origins = load_origins(terms, at, row_start, STEPS, False)
    of_rows = load_line(terms, origins, at, row_start, row_span, n_queries, STEPS, False, by_sum, False)
    numbers = load_numbers(terms, at, STEPS)
    bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
    hashes = rows.to(tl.uint32)
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, rows)
    by_row = load_facts(facts, entry, row_start, row_span, n_queries, RULE, CENTRED, ROUGH, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    if FORM != DOT:
        norms = norms_of(queries, weight, numbers, scale, inputs, DIM, STEPS, FORM)
    known = (queries, norms, to_output, of_rows, numbers, bounds, hashes, by_row, weight)

    if SAFE:
        from_tile, to_tile = line_range(line, row_start, sizes, ROWS, COLUMNS)
        from_whole, to_whole = from_tile, from_tile
    else:
        from_tile, to_tile, from_whole, to_whole = tile_ranges(bounds, rows, sizes, MASK, COLUMNS)
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)

    found = (
        no_differences(inputs, ROWS, BLOCK_DIM, FORM),
        no_differences(inputs, ROWS, BLOCK_DIM if LEARNS_WEIGHT else 16, FORM),
        tl.zeros((ROWS,), tl.float32),
        nothing_learned(ROWS, LEARNS),
    )
    if not SAFE:
        for tile in range(from_whole, to_whole):
            of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, by_sum, True)
            found = differentiate_row_tile(
                found, known, of_columns, inputs, terms, mask, dropout, at, entry, row_start, tile * COLUMNS, sizes,
                scale, RULE, MASK, DIM, VALUE_DIM, FORM, STEPS, EXCLUDES, FOLDS, False, DROPOUT, LEARNS,
                LEARNS_WEIGHT, SAFE, EXACT, ROUGH, PRECISION, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, by_sum, False)
        found = differentiate_row_tile(
            found, known, of_columns, inputs, terms, mask, dropout, at, entry, row_start, tile * COLUMNS, sizes,
            scale, RULE, MASK, DIM, VALUE_DIM, FORM, STEPS, EXCLUDES, FOLDS, True, DROPOUT, LEARNS,
            LEARNS_WEIGHT, SAFE, EXACT or SAFE, ROUGH, PRECISION, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    to_queries, squares, sums, learned = found

    inside = (rows < n_queries)[:, None] & (dims < DIM)[None, :]
    lines = tl.cast(entry, tl.int64) * n_queries + rows
    if FORM != DOT:
        to_queries = all_differences(to_queries, sums, queries, inputs, FORM, False, EXACT or SAFE) * weight[None, :]
        if LEARNS_WEIGHT:
            squares = all_differences(squares, sums, queries, inputs, FORM, True, EXACT or SAFE)
            if WEIGHED != 0:
                tl.store(outputs[3] + lines[:, None] * DIM + dims[None, :], squares, mask=inside)
    if PROJECTED == 0:
        to_queries = without_broken(to_queries, queries)
    store_tile(to_queries, outputs[0], outputs[1], at, row_start, row_span, dims, inside)
    store_learned(learned, outputs[2], lines, rows < n_queries, n_learned, LEARNS)
    if not SAFE:
        tl.store(
            outputs[4] + flag_place(entry, block * ROWS, n_queries, FLAGGED),
            is_broken(to_queries, inside, learned, LEARNS),
        )


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2"])
def differentiate_rows(
    inputs, gradient, facts, outputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    LEARNS_WEIGHT: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """A block of rows, for one kind of problem."""
    reverse: tl.constexpr = MASK[BOUNDS] != 0 or MASK[LINE] != 0
    differentiate_row_block(
        tl.program_id(0), inputs, gradient, facts, outputs, terms, mask, dropout,
        n_queries, n_keys, low, high, n1, n2, scale,
        len(LEARNS), RULE, MASK, CENTRED, PROJECTED, LEARNS_WEIGHT, DIM, VALUE_DIM, ROWS,
        FORM, STEPS, EXCLUDES, FOLDS, DROPOUT, LEARNS, LEARNS_WEIGHT, False, EXACT, ROUGH, PRECISION, reverse,
        BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
    )  # fmt: skip
