"""The way back by columns: gradients of keys, of values (dV = (keep · α)ᵀ dO), and of what steps learn for each key.

Each sum is made by one program, in the order of tiles: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channel_tiles import side_of
from regard.engines.cuda.kernels.elementary import is_not_finite
from regard.engines.cuda.kernels.pair_scores import (
    DOT,
    add_differences,
    all_differences,
    load_summed,
    load_tile,
    load_weights,
    no_differences,
    norms_of,
    pair_scores,
    store_tile,
)
from regard.engines.cuda.kernels.products import pooled_product, scored_product, slope_product
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
    start_of,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    DOCUMENTS,
    LINE,
    PAIRS,
    UNIFORM,
    allowed_pairs,
    keep_factors,
    mask_rows,
    row_hashes,
    whole_within,
)


@triton.jit
def load_output_gradient(
    inputs, gradient, at, row_start, row_span, length, DIM, BLOCK_DIM: tl.constexpr, WHOLE: tl.constexpr
):
    """dO of a tile's rows."""
    if len(inputs) % 2 == 1 and gradient[0].dtype.element_ty == tl.float32:
        found = load_summed(gradient[0], gradient[1], at, row_start, row_span, length, DIM, BLOCK_DIM, WHOLE)
    else:
        dims = tl.arange(0, BLOCK_DIM)
        found = load_tile(gradient[0], gradient[1], at, row_start, row_span, length, dims, DIM, WHOLE)
    return found


@triton.jit
def differentiate_column_tile(
    found, block, of_rows, facts, inputs, gradient, terms, mask, line, dropout, at, entry, row_start,
    column_start, sizes, scale, RULE, MASK, CENTRED, DIM, VALUE_DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr,
    DROPOUT: tl.constexpr, LEARNS: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is found for some columns with one more tile: for keys, values, Σ dS, and steps."""
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    to_keys, to_values, sums, learned = found
    keys, norms, values, of_columns, numbers, weight = block
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims = tl.arange(0, BLOCK_DIM)
    rows = row_start + row_span
    sides = (
        side_of(inputs, column_start, column_span, sizes[1], 1, FORM),
        side_of(inputs, row_start, row_span, sizes[0], 0, FORM),
    )
    # A walk along channels leaves no registers for what is only needed afterwards.
    walked: tl.constexpr = len(sides[0]) > 7
    if not walked:
        by_row = load_facts(facts, entry, row_start, row_span, sizes[0], RULE, CENTRED, ROUGH, not MASKED)
    allowed = tl.full((COLUMNS, ROWS), 1, tl.int1)
    if MASKED:
        bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=True
        )
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, sizes[0], dims, DIM, not MASKED)
    if not walked:
        to_output = load_output_gradient(
            inputs, gradient, at, row_start, row_span, sizes[0], VALUE_DIM, BLOCK_VALUE_DIM, not MASKED
        )
    raw = tl.zeros((COLUMNS, ROWS), tl.float32)
    if RULE != UNIFORM:
        if FOLDS and len(STEPS) == 0 and not SAFE:
            raw = scored_product(keys, queries, PRECISION)
        else:
            raw = pair_scores(keys, queries, norms, sides, weight, inputs, at, scale, DIM, FORM, EXACT, PRECISION)
    if walked:
        to_output = load_output_gradient(
            inputs, gradient, at, row_start, row_span, sizes[0], VALUE_DIM, BLOCK_VALUE_DIM, not MASKED
        )
        by_row = load_facts(facts, entry, row_start, row_span, sizes[0], RULE, CENTRED, ROUGH, not MASKED)
    over_values = scored_product(values, to_output, PRECISION)
    keep = 1.0
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, rows)
        keep = keep_factors(hashes, column_start + column_span, dropout, TURNED=True)
    of_tile = tile_terms(
        terms, of_rows, of_columns, at, row_start, row_span, column_start, column_span, sizes, 1.0, STEPS,
        True, by_sum,
    )  # fmt: skip
    weights, slopes, more = tile_gradients(
        raw, over_values, keep, numbers, of_tile, allowed, by_row, terms, scale,
        RULE, STEPS, EXCLUDES, FOLDS, LEARNS, MASKED, SAFE, ROUGH, True,
    )  # fmt: skip
    learned = added(learned, more, LEARNS)
    to_values = pooled_product(weights, to_output, to_values, PRECISION, SAFE)
    if FORM != DOT:
        to_keys, _, sums = add_differences(
            to_keys, to_keys, sums, slopes, queries, sides, inputs, at, dims, DIM, FORM, False, EXACT, PRECISION
        )
    elif RULE != UNIFORM:
        to_keys = slope_product(slopes, queries, to_keys, PRECISION, SAFE)
    return to_keys, to_values, sums, learned


@triton.jit
def row_ranges(ranges, at, column_start, sizes, low, high, MASK, FLAGGED, SAFE: tl.constexpr, ROWS: tl.constexpr,
               COLUMNS: tl.constexpr):  # fmt: skip
    """(from, to) of the tiles of rows that see something of some columns, then of those that see all of them.

    `ranges`: of a mask with bounds, the rows that may see anything of each block of `FLAGGED` columns: from, to.
    """
    n_queries, last = sizes[0], tl.minimum(column_start + COLUMNS, sizes[1])
    nothing = n_queries * 0
    from_tile, to_tile = nothing, tl.cdiv(n_queries, ROWS)
    from_whole, to_whole = nothing, n_queries // ROWS
    if MASK[LINE] != 0:
        # Row i sees columns from i + low to before i + high.
        from_tile = tl.minimum(tl.maximum(column_start - high + 1, 0), n_queries) // ROWS
        to_tile = tl.cdiv(tl.maximum(tl.minimum(last - low, n_queries), 0), ROWS)
        from_whole = tl.cdiv(tl.maximum(last - high, 0), ROWS)
        to_whole = tl.minimum(tl.maximum(column_start - low + 1, 0), n_queries) // ROWS
    if SAFE:
        to_whole = nothing
    else:
        if MASK[BOUNDS] != 0:
            base = start_of(ranges[1], at) - column_start // FLAGGED * ranges[1][3]
            from_tile = tl.minimum(tl.load(ranges[0] + base), n_queries) // ROWS
            to_tile = tl.cdiv(tl.minimum(tl.load(ranges[2] + base), n_queries), ROWS)
        if (MASK[BOUNDS] != 0 or MASK[PAIRS] != 0) or MASK[DOCUMENTS] != 0:
            to_whole = nothing
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)
    return from_tile, to_tile, from_whole, to_whole


@triton.jit
def differentiate_column_block(
    program, inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
    n_queries, n_keys, low, high, n1, n2, scale, n_learned, RULE, MASK, CENTRED, PROJECTED, DIM, VALUE_DIM, FLAGGED,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, DROPOUT: tl.constexpr,
    LEARNS: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and their values, and what parameters of steps get of each of its columns.

    Arguments as `differentiate_row_block` and `row_ranges`.
    """
    by_sum: tl.constexpr = SAFE or not ROUGH  # how gates are computed
    sizes, line = (n_queries, n_keys), (low, high)
    entry, block, _ = block_of(program, n_keys, 1, COLUMNS, False)
    at = place_of(entry, n1, n2)
    column_start, column_span, row_span = block * COLUMNS, tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    columns = column_start + column_span
    keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, n_keys, dims, DIM, False)
    values = load_tile(inputs[4], inputs[5], at, column_start, column_span, n_keys, value_dims, VALUE_DIM, False)
    norms = column_span
    origins = load_origins(terms, at, column_start, STEPS, True)
    of_columns = load_line(terms, origins, at, column_start, column_span, n_keys, STEPS, True, by_sum, False)
    numbers = load_numbers(terms, at, STEPS)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    if FORM != DOT:
        norms = norms_of(keys, weight, numbers, scale, inputs, DIM, STEPS, FORM)
    known = (keys, norms, values, of_columns, numbers, weight)

    from_tile, to_tile, from_whole, to_whole = row_ranges(
        ranges, at, column_start, sizes, low, high, MASK, FLAGGED, SAFE, ROWS, COLUMNS
    )
    found = (
        no_differences(inputs, COLUMNS, BLOCK_DIM, FORM),
        tl.zeros((COLUMNS, BLOCK_VALUE_DIM), tl.float32),
        tl.zeros((COLUMNS,), tl.float32),
        nothing_learned(COLUMNS, LEARNS),
    )
    if not SAFE:
        for tile in range(from_whole, to_whole):
            of_rows = load_line(terms, origins, at, tile * ROWS, row_span, n_queries, STEPS, False, by_sum, True)
            found = differentiate_column_tile(
                found, known, of_rows, facts, inputs, gradient, terms, mask, line, dropout, at,
                entry, tile * ROWS, column_start, sizes, scale, RULE, MASK, CENTRED, DIM, VALUE_DIM,
                FORM, STEPS, EXCLUDES, FOLDS, False, DROPOUT, LEARNS, SAFE, EXACT, ROUGH, PRECISION,
                BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_rows = load_line(terms, origins, at, tile * ROWS, row_span, n_queries, STEPS, False, by_sum, False)
        found = differentiate_column_tile(
            found, known, of_rows, facts, inputs, gradient, terms, mask, line, dropout, at,
            entry, tile * ROWS, column_start, sizes, scale, RULE, MASK, CENTRED, DIM, VALUE_DIM,
            FORM, STEPS, EXCLUDES, FOLDS, True, DROPOUT, LEARNS, SAFE, EXACT or SAFE, ROUGH, PRECISION,
            BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    to_keys, to_values, sums, learned = found

    if FORM != DOT:
        to_keys = all_differences(to_keys, sums, keys, inputs, FORM, False, EXACT or SAFE) * weight[None, :]
    if PROJECTED == 0:
        to_keys = without_broken(to_keys, keys)
    lines = tl.cast(entry, tl.int64) * n_keys + columns
    there = (columns < n_keys)[:, None]
    inside, inside_values = there & (dims < DIM)[None, :], there & (value_dims < VALUE_DIM)[None, :]
    store_tile(to_keys, outputs[0], outputs[1], at, column_start, column_span, dims, inside)
    store_tile(to_values, outputs[2], outputs[3], at, column_start, column_span, value_dims, inside_values)
    store_learned(learned, outputs[4], lines, columns < n_keys, n_learned, LEARNS)
    if not SAFE:
        broken = is_broken(to_keys, inside, learned, LEARNS)
        broken = tl.maximum(broken, tl.max(tl.where(inside_values & is_not_finite(to_values), 1, 0)))
        tl.store(outputs[5] + flag_place(entry, block * COLUMNS, n_keys, FLAGGED), broken)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2"])
def differentiate_columns(
    inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
    n_queries, n_keys, low, high, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A block of columns, for one kind of problem."""
    differentiate_column_block(
        tl.program_id(0), inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
        n_queries, n_keys, low, high, n1, n2, scale,
        len(STEPS), RULE, MASK, CENTRED, PROJECTED, DIM, VALUE_DIM, COLUMNS,
        FORM, STEPS, EXCLUDES, FOLDS, DROPOUT, LEARNS, False, EXACT, ROUGH, PRECISION,
        BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
    )  # fmt: skip
