"""The way back, over tiles whose scores are computed again: gradients of queries by rows, of keys and values by columns

    dP = keep · dO vᵀ        dS = slope · (dP − δ)        dV = (keep · α)ᵀ dO

Each sum is made by one program, in the order of tiles: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import DOT, add_differences, load_tile, load_weights, pair_scores
from regard.engines.cuda.kernels.products import pooled_product, scored_product, slope_product
from regard.engines.cuda.kernels.tile_scores import (
    place_of,
    row_terms,
    start_of,
    step_slopes,
    stepped,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    PROPORTIONAL,
    SOFTMAX,
    UNIFORM,
    allowed_pairs,
    keep_factors,
    mask_rows,
    row_hashes,
    weights_and_slopes,
)


@triton.jit
def row_deltas(gradient, gradient_strides, centre, centre_strides, deltas, n_queries, n1, n2, WIDTH: tl.constexpr,
               BLOCK_WIDTH: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """δ = dO·u of every row, in float32."""
    n_blocks = tl.cdiv(n_queries, ROWS)
    program = tl.program_id(0)
    entry = program // n_blocks
    at = place_of(entry, n1, n2)
    start, span, dims = program % n_blocks * ROWS, tl.arange(0, ROWS), tl.arange(0, BLOCK_WIDTH)
    one = load_tile(gradient, gradient_strides, at, start, span, n_queries, dims, WIDTH).to(tl.float32)
    other = load_tile(centre, centre_strides, at, start, span, n_queries, dims, WIDTH).to(tl.float32)
    rows = start + span
    tl.store(deltas + tl.cast(entry, tl.int64) * n_queries + rows, tl.sum(one * other, 1), mask=rows < n_queries)


@triton.jit
def without_broken(gradients, vectors):
    """The gradients of vectors, 0 for those that are not finite: as everywhere, nothing is learned from them."""
    broken = tl.sum(vectors.to(tl.float32) * 0.0, 1) != 0
    return tl.where(broken[:, None], 0.0, gradients)


@triton.jit
def load_facts(facts, entry, rows, n_queries, RULE: tl.constexpr, CENTRED: tl.constexpr):
    """(peak, 1/Z, δ) of rows; 0 for those beyond the last."""
    place, inside = tl.cast(entry, tl.int64) * n_queries + rows, rows < n_queries
    peak = tl.zeros(rows.shape, tl.float32)
    inverse = tl.zeros(rows.shape, tl.float32)
    delta = tl.zeros(rows.shape, tl.float32)
    if RULE == SOFTMAX:
        peak = tl.load(facts[0] + place, mask=inside, other=0.0)
    if RULE == SOFTMAX or RULE == PROPORTIONAL or RULE == UNIFORM:
        # A fully masked row has a total of +inf.
        inverse = 1.0 / tl.load(facts[1] + place, mask=inside, other=float("inf"))
    if CENTRED:
        delta = tl.load(facts[2] + place, mask=inside, other=0.0)
    return peak, inverse, delta


@triton.jit
def tile_gradients(
    raw, over_values, keep, of_rows, of_tile, allowed, facts, terms, at, scale,
    STEPS: tl.constexpr, RULE: tl.constexpr, LEARNS: tl.constexpr, SAFE: tl.constexpr, AXIS: tl.constexpr,
    WIDTH: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """(α, dS before the steps, what each step's parameter gets of each row or column) of a tile.

    Args:
        raw: The scores before any step.
        over_values: dO vᵀ.
        keep: What dropout multiplies weights by; 1 without it.
        facts: Peak, 1/Z and δ, shaped to broadcast over the tile.
        SAFE: Whether something may be infinite or no number.
        AXIS: Over which axis of the tile the parameters' gradients are summed.
        WIDTH, SUMS: Of the result: `(WIDTH, SUMS)`.
    """
    scores, allowed = stepped(raw, allowed, of_rows, of_tile, terms, at, len(STEPS), STEPS)
    allowed = allowed & (scores != -float("inf"))
    weights, slopes = weights_and_slopes(scores, allowed, facts[0], facts[1], RULE)
    if SAFE:
        # A value that is not finite gives nothing to a weight of 0.
        over_values = tl.where((weights == 0) & (over_values - over_values != 0), 0.0, over_values)
    # Selected, not multiplied: what a masked pair would give may be NaN.
    slopes = tl.where(allowed, slopes * (over_values * keep - facts[2]), 0.0)
    learned = tl.zeros((WIDTH, SUMS), tl.float32)
    places = tl.arange(0, SUMS)
    for place in tl.static_range(len(STEPS) - 1, -1, -1):
        before, _ = stepped(raw, allowed, of_rows, of_tile, terms, at, place, STEPS)
        slopes, pairs = step_slopes(before, slopes, of_rows, of_tile, terms, at, place, STEPS)
        slopes = tl.where(allowed, slopes, 0.0)
        if LEARNS:
            pairs = tl.where(allowed, pairs, 0.0)
            learned = tl.where((places == place)[None, :], tl.sum(pairs, AXIS)[:, None], learned)
    return weights * keep, slopes * scale, learned


@triton.jit
def differentiate_rows(
    inputs, gradient, facts, outputs, terms, mask, dropout, n_queries, n_keys, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, RULE: tl.constexpr, MASK: tl.constexpr, CENTRED: tl.constexpr,
    PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr, LEARNS_WEIGHT: tl.constexpr,
    SAFE: tl.constexpr,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries, and what steps' parameters get of each of its rows."""
    program = tl.program_id(0)
    if SAFE:
        if tl.load(outputs[3] + program) == 0:
            return
    sizes = (n_queries, n_keys)
    n_blocks = tl.cdiv(n_queries, ROWS)
    block, entry = program % n_blocks, program // n_blocks
    if BOUNDS & MASK != 0:
        block = n_blocks - 1 - block
    at = place_of(entry, n1, n2)
    row_start, row_span, column_span = block * ROWS, tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    rows = row_start + row_span
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, dims, DIM)
    to_output = load_tile(gradient[0], gradient[1], at, row_start, row_span, n_queries, value_dims, VALUE_DIM)
    of_rows = row_terms(terms, at, row_start, row_span, n_queries, STEPS)
    bounds = mask_rows(mask, at, row_start, row_span, sizes, MASK)
    peak, inverse, delta = load_facts(facts, entry, rows, n_queries, RULE, CENTRED)
    by_row = (peak[:, None], inverse[:, None], delta[:, None])
    weight = load_weights(inputs, at, dims, FORM, DIM)
    from_tile, to_tile = 0, tl.cdiv(n_keys, COLUMNS)
    if BOUNDS & MASK != 0:
        seen = (rows < n_queries) & (bounds[0] < bounds[1])
        from_tile = tl.min(tl.where(seen, bounds[0], n_keys)) // COLUMNS
        to_tile = tl.cdiv(tl.max(tl.where(seen, bounds[1], 0)), COLUMNS)
    found = tl.zeros((ROWS, BLOCK_DIM), tl.float32)
    squares = tl.zeros((ROWS, BLOCK_DIM), tl.float32)
    learned = tl.zeros((ROWS, SUMS), tl.float32)
    for tile in range(from_tile, to_tile):
        column_start = tile * COLUMNS
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
        keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, n_keys, dims, DIM)
        values = load_tile(inputs[4], inputs[5], at, column_start, column_span, n_keys, value_dims, VALUE_DIM)
        over_values = scored_product(to_output, values, PRECISION)
        keep = 1.0
        if DROPOUT:
            hashes = row_hashes(tl.load(dropout[0]), entry, rows)
            keep = keep_factors(hashes, column_start + column_span, dropout[1], dropout[2], TURNED=False)
        of_tile = tile_terms(
            terms, of_rows, at, row_start, row_span, column_start, column_span, sizes, STEPS, TURNED=False
        )
        sides = (
            (inputs[0], inputs[1], row_start, row_span, n_queries),
            (inputs[2], inputs[3], column_start, column_span, n_keys),
        )
        raw = tl.zeros_like(over_values)
        if RULE != UNIFORM:
            raw = pair_scores(queries, keys, sides, weight, inputs, at, scale, FORM, SAFE, PRECISION, DIM)
        _, slopes, more = tile_gradients(
            raw, over_values, keep, of_rows, of_tile, allowed, by_row, terms, at, scale,
            STEPS, RULE, LEARNS, SAFE, 1, ROWS, SUMS,
        )  # fmt: skip
        if LEARNS:
            learned += more
        if FORM != DOT:
            found, squares = add_differences(found, squares, slopes, sides, at, dims, DIM, LEARNS_WEIGHT)
        else:
            found = slope_product(slopes, keys, found, PRECISION, SAFE)
    inside = (rows < n_queries)[:, None] & (dims < DIM)[None, :]
    place = (tl.cast(entry, tl.int64) * n_queries + rows)[:, None] * DIM + dims[None, :]
    if not PROJECTED:
        found = without_broken(found, queries)
    if FORM != DOT:
        found = found * (2.0 * weight)[None, :]
        if LEARNS_WEIGHT:
            tl.store(outputs[2] + place, squares, mask=inside)
    tl.store(outputs[0] + place, found.to(outputs[0].dtype.element_ty), mask=inside)
    if LEARNS:
        places = tl.arange(0, SUMS)[None, :]
        place = (tl.cast(entry, tl.int64) * n_queries + rows)[:, None] * SUMS + places
        tl.store(outputs[1] + place, learned, mask=(rows < n_queries)[:, None])
    if not SAFE:
        tl.store(outputs[3] + program, tl.max(tl.where(inside & (found - found != 0), 1, 0)))


@triton.jit
def differentiate_columns(
    inputs, gradient, facts, outputs, terms, mask, blocks, dropout, n_queries, n_keys, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, RULE: tl.constexpr, MASK: tl.constexpr, CENTRED: tl.constexpr,
    PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr, SAFE: tl.constexpr, PRECISION: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and their values, and what steps' parameters get of each of its columns."""
    program = tl.program_id(0)
    if SAFE:
        if tl.load(outputs[3] + program) == 0:
            return
    sizes = (n_queries, n_keys)
    n_blocks = tl.cdiv(n_keys, COLUMNS)
    block, entry = program % n_blocks, program // n_blocks
    at = place_of(entry, n1, n2)
    column_start, column_span, row_span = block * COLUMNS, tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    columns = column_start + column_span
    keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, n_keys, dims, DIM)
    values = load_tile(inputs[4], inputs[5], at, column_start, column_span, n_keys, value_dims, VALUE_DIM)
    weight = load_weights(inputs, at, dims, FORM, DIM)
    from_tile, to_tile = 0, tl.cdiv(n_queries, ROWS)
    if BOUNDS & MASK != 0:
        # Which blocks of rows see anything of these columns.
        base = start_of(blocks[1], at) - block * blocks[1][3]
        from_tile, to_tile = tl.load(blocks[0] + base), tl.load(blocks[2] + base)
    to_keys = tl.zeros((COLUMNS, BLOCK_DIM), tl.float32)
    to_values = tl.zeros((COLUMNS, BLOCK_VALUE_DIM), tl.float32)
    learned = tl.zeros((COLUMNS, SUMS), tl.float32)
    for tile in range(from_tile, to_tile):
        row_start = tile * ROWS
        rows = row_start + row_span
        queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, dims, DIM)
        to_output = load_tile(gradient[0], gradient[1], at, row_start, row_span, n_queries, value_dims, VALUE_DIM)
        bounds = mask_rows(mask, at, row_start, row_span, sizes, MASK)
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=True
        )
        of_rows = row_terms(terms, at, row_start, row_span, n_queries, STEPS)
        of_tile = tile_terms(
            terms, of_rows, at, row_start, row_span, column_start, column_span, sizes, STEPS, TURNED=True
        )
        peak, inverse, delta = load_facts(facts, entry, rows, n_queries, RULE, CENTRED)
        by_row = (peak[None, :], inverse[None, :], delta[None, :])
        over_values = scored_product(values, to_output, PRECISION)
        keep = 1.0
        if DROPOUT:
            hashes = row_hashes(tl.load(dropout[0]), entry, rows)
            keep = keep_factors(hashes, columns, dropout[1], dropout[2], TURNED=True)
        sides = (
            (inputs[2], inputs[3], column_start, column_span, n_keys),
            (inputs[0], inputs[1], row_start, row_span, n_queries),
        )
        raw = tl.zeros_like(over_values)
        if RULE != UNIFORM:
            raw = pair_scores(keys, queries, sides, weight, inputs, at, scale, FORM, SAFE, PRECISION, DIM)
        weights, slopes, more = tile_gradients(
            raw, over_values, keep, of_rows, of_tile, allowed, by_row, terms, at, scale,
            STEPS, RULE, LEARNS, SAFE, 1, COLUMNS, SUMS,
        )  # fmt: skip
        if LEARNS:
            learned += more
        to_values = pooled_product(weights, to_output, to_values, PRECISION, SAFE)
        if FORM != DOT:
            to_keys, _ = add_differences(to_keys, to_keys, slopes, sides, at, dims, DIM, False)
        elif RULE != UNIFORM:
            to_keys = slope_product(slopes, queries, to_keys, PRECISION, SAFE)
    if not PROJECTED:
        to_keys = without_broken(to_keys, keys)
    if FORM != DOT:
        to_keys = to_keys * (2.0 * weight)[None, :]
    vectors = (tl.cast(entry, tl.int64) * n_keys + columns)[:, None]
    there = (columns < n_keys)[:, None]
    inside, inside_values = there & (dims < DIM)[None, :], there & (value_dims < VALUE_DIM)[None, :]
    tl.store(outputs[0] + vectors * DIM + dims[None, :], to_keys.to(outputs[0].dtype.element_ty), mask=inside)
    tl.store(
        outputs[1] + vectors * VALUE_DIM + value_dims[None, :],
        to_values.to(outputs[1].dtype.element_ty),
        mask=inside_values,
    )
    if LEARNS:
        places = tl.arange(0, SUMS)[None, :]
        tl.store(outputs[2] + vectors * SUMS + places, learned, mask=there)
    if not SAFE:
        broken = tl.max(tl.where(inside & (to_keys - to_keys != 0), 1, 0))
        broken = tl.maximum(broken, tl.max(tl.where(inside_values & (to_values - to_values != 0), 1, 0)))
        tl.store(outputs[3] + program, broken)
