"""The way back, over tiles whose scores are computed again: gradients of queries by rows, of keys and values by columns

    dP = keep · dO vᵀ        dS = slope · (dP − δ)        dV = (keep · α)ᵀ dO

Each sum is made by one program, in the order of tiles: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import LOG2_E
from regard.engines.cuda.kernels.pair_scores import (
    DOT,
    add_differences,
    load_tile,
    load_weights,
    pair_scores,
    squared_norms,
    store_tile,
)
from regard.engines.cuda.kernels.products import pooled_product, scored_product, slope_product
from regard.engines.cuda.kernels.tile_scores import (
    CHUNK,
    across,
    block_of,
    flag_place,
    load_flags,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    start_of,
    step_slopes,
    stepped,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    DOCUMENTS,
    LINE,
    PAIRS,
    PROPORTIONAL,
    SOFTMAX,
    UNIFORM,
    allowed_pairs,
    keep_factors,
    mask_rows,
    row_hashes,
    tile_ranges,
    weights_and_slopes,
    whole_within,
)


@triton.jit(do_not_specialize=["n_queries", "n1", "n2"])
def row_facts(
    gradient, gradient_strides, centre, centre_strides, statistics, facts, flag, n_queries, n1, n2,
    RULE: tl.constexpr, CENTRED: tl.constexpr, ROUGH: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """What each row is differentiated with, in float32: level and inverse, as `weights_and_slopes` has them; δ = dO·u.

    `statistics`: peaks and totals; `facts`: levels, inverses and deltas, (entries, n_queries) each. The peaks are the
    levels, unless `ROUGH`. `flag`: where there is one, nothing is done unless it is set.
    """
    n_blocks = tl.cdiv(n_queries, ROWS)
    program = tl.program_id(0)
    if len(flag) > 0:
        if tl.load(flag[0]) == 0:
            return
    entry = program // n_blocks
    at = place_of(entry, n1, n2)
    start, span, dims = program % n_blocks * ROWS, tl.arange(0, ROWS), tl.arange(0, BLOCK_WIDTH)
    rows = start + span
    place, inside = tl.cast(entry, tl.int64) * n_queries + rows, rows < n_queries
    if RULE == SOFTMAX or RULE == PROPORTIONAL or RULE == UNIFORM:
        total = tl.load(statistics[1] + place, mask=inside, other=1.0)
        if RULE == SOFTMAX and ROUGH:
            # A fully masked row has a total of +inf, and no peak.
            peak = tl.load(statistics[0] + place, mask=inside, other=0.0)
            level = tl.where(total == float("inf"), total, peak * LOG2_E + tl.log2(total))
            tl.store(facts[0] + place, level, mask=inside)
        else:
            tl.store(facts[1] + place, 1.0 / total, mask=inside)
    if CENTRED:
        one = load_tile(gradient, gradient_strides, at, start, span, n_queries, dims, WIDTH, False).to(tl.float32)
        other = load_tile(centre, centre_strides, at, start, span, n_queries, dims, WIDTH, False).to(tl.float32)
        tl.store(facts[2] + place, tl.sum(one * other, 1), mask=inside)


@triton.jit
def without_broken(gradients, vectors):
    """The gradients of vectors, 0 for those that are not finite: as everywhere, nothing is learned from them."""
    broken = tl.sum(vectors.to(tl.float32) * 0.0, 1) != 0
    return tl.where(broken[:, None], 0.0, gradients)


@triton.jit
def load_facts(
    facts, entry, start, span, n_queries, RULE: tl.constexpr, CENTRED: tl.constexpr, ROUGH: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """(level, inverse, δ) of rows. Those beyond the last have no weight."""
    place = tl.cast(entry, tl.int64) * n_queries + start
    inside = start + span < n_queries
    if WHOLE:
        inside = tl.full(span.shape, 1, tl.int1)
    level = tl.zeros(span.shape, tl.float32)
    inverse = tl.zeros(span.shape, tl.float32)
    delta = tl.zeros(span.shape, tl.float32)
    if RULE == SOFTMAX:
        level = tl.load(facts[0] + place + span, mask=inside, other=float("inf"))
    if (RULE == SOFTMAX and not ROUGH) or RULE == PROPORTIONAL or RULE == UNIFORM:
        inverse = tl.load(facts[1] + place + span, mask=inside, other=0.0)
    if CENTRED:
        delta = tl.load(facts[2] + place + span, mask=inside, other=0.0)
    return level, inverse, delta


@triton.jit
def nothing_learned(SIZE: tl.constexpr, LEARNS: tl.constexpr):
    """Sums for each step whose parameter learns, and one number for others."""
    learned = ()
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            learned = learned + (tl.zeros((SIZE,), tl.float32),)
        else:
            learned = learned + (tl.zeros((1,), tl.float32),)
    return learned


@triton.jit
def added(learned, more, LEARNS: tl.constexpr):
    """What parameters get of one tile more."""
    total = ()
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            total = total + (learned[i] + more[i],)
        else:
            total = total + (learned[i],)
    return total


@triton.jit
def store_learned(learned, pointer, place, inside, LEARNS: tl.constexpr):
    """Write the sums of steps: `(…, steps)`, `place` is that of each line."""
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            tl.store(pointer + place * len(LEARNS) + i, learned[i], mask=inside)


@triton.jit
def tile_gradients(
    raw, over_values, keep, numbers, of_tile, allowed, facts, terms, scale,
    STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr, LEARNS: tl.constexpr,
    MASKED: tl.constexpr, SAFE: tl.constexpr, ROUGH: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """(α, dS before the steps, what each step's parameter gets of each line) of a tile.

    Args:
        raw: The scores before any step.
        over_values: dO vᵀ.
        keep: What dropout multiplies weights by; 1 without it.
        facts: Level, inverse and δ of rows.
        LEARNS: Of which steps the parameters' gradients are summed, along the second axis of the tile.
        SAFE: Whether something may be infinite or no number.
    """
    selects: tl.constexpr = MASKED or EXCLUDES or SAFE
    unit = LOG2_E
    if FOLDS and len(STEPS) == 0 and not SAFE:
        unit = scale * LOG2_E
    scores, allowed = stepped(raw, allowed, numbers, of_tile, terms, len(STEPS), STEPS, ROUGH, EXCLUDES or SAFE)
    if selects:
        allowed = allowed & (scores != -float("inf"))
    level, _ = across(facts[0], facts[0], TURNED)
    inverse, _ = across(facts[1], facts[1], TURNED)
    delta, _ = across(facts[2], facts[2], TURNED)
    weights, slopes = weights_and_slopes(scores, allowed, level, inverse, unit, RULE, selects, ROUGH)
    if SAFE:
        # A value that is not finite gives nothing to a weight of 0.
        over_values = tl.where((weights == 0) & (over_values - over_values != 0), 0.0, over_values)
    slopes = slopes * (over_values * keep - delta)
    if selects:
        # Selected, not multiplied: what a masked pair would give may be NaN.
        slopes = tl.where(allowed, slopes, 0.0)
    learned = ()
    for place in tl.static_range(len(STEPS) - 1, -1, -1):
        before, _ = stepped(raw, allowed, numbers, of_tile, terms, place, STEPS, ROUGH, EXCLUDES or SAFE)
        slopes, pairs = step_slopes(before, slopes, numbers, of_tile, terms, place, STEPS, ROUGH)
        if selects:
            slopes = tl.where(allowed, slopes, 0.0)
        if LEARNS[place]:
            if selects:
                pairs = tl.where(allowed, pairs, 0.0)
            learned = (tl.sum(pairs, 1),) + learned
        else:
            learned = (0.0,) + learned
    return weights * keep, slopes * scale, learned


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
        terms,
        of_rows,
        of_columns,
        at,
        row_start,
        row_span,
        column_start,
        column_span,
        sizes,
        1.0,
        STEPS,
        False,
        SAFE or not ROUGH,
    )
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


@triton.jit
def differentiate_column_tile(
    found, block, of_rows, facts, inputs, gradient, terms, mask, line, dropout, at, entry, row_start,
    column_start, sizes, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, MASKED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr, SAFE: tl.constexpr,
    EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is found for some columns with one more tile: for keys, values, Σ dS, and steps."""
    to_keys, to_values, sums, learned = found
    keys, norms, values, of_columns, numbers, weight = block
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    rows = row_start + row_span
    allowed = tl.full((COLUMNS, ROWS), 1, tl.int1)
    if MASKED:
        bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=True
        )
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, sizes[0], dims, DIM, not MASKED)
    to_output = load_tile(
        gradient[0], gradient[1], at, row_start, row_span, sizes[0], value_dims, VALUE_DIM, not MASKED
    )
    sides = (
        (inputs[2], inputs[3], column_start, column_span, sizes[1]),
        (inputs[0], inputs[1], row_start, row_span, sizes[0]),
    )
    raw = tl.zeros((COLUMNS, ROWS), tl.float32)
    if RULE != UNIFORM:
        if FOLDS and len(STEPS) == 0 and not SAFE:
            raw = scored_product(keys, queries, PRECISION)
        else:
            raw = pair_scores(keys, queries, norms, sides, weight, inputs, at, scale, FORM, EXACT, PRECISION, DIM)
    over_values = scored_product(values, to_output, PRECISION)
    keep = 1.0
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, rows)
        keep = keep_factors(hashes, column_start + column_span, dropout[1], dropout[2], TURNED=True)
    of_tile = tile_terms(
        terms,
        of_rows,
        of_columns,
        at,
        row_start,
        row_span,
        column_start,
        column_span,
        sizes,
        1.0,
        STEPS,
        True,
        SAFE or not ROUGH,
    )
    weights, slopes, more = tile_gradients(
        raw, over_values, keep, numbers, of_tile, allowed, facts, terms, scale,
        STEPS, EXCLUDES, FOLDS, RULE, LEARNS, MASKED, SAFE, ROUGH, True,
    )  # fmt: skip
    learned = added(learned, more, LEARNS)
    to_values = pooled_product(weights, to_output, to_values, PRECISION, SAFE)
    if FORM != DOT:
        to_keys, _, sums = add_differences(
            to_keys, to_keys, sums, slopes, queries, sides, at, dims, DIM, False, EXACT, PRECISION
        )
    elif RULE != UNIFORM:
        to_keys = slope_product(slopes, queries, to_keys, PRECISION, SAFE)
    return to_keys, to_values, sums, learned


@triton.jit
def differentiate_column_block(
    program, inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
    n_queries, n_keys, low, high, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, FLAGGED: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and their values, and what steps' parameters get of each of its columns.

    `ranges`: of a mask with bounds, the rows that may see anything of each block of `FLAGGED` columns: from, to.
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
    if FORM != DOT:
        norms = squared_norms(keys)
    origins = load_origins(terms, at, column_start, STEPS, True)
    of_columns = load_line(terms, origins, at, column_start, column_span, n_keys, STEPS, True, by_sum, False)
    numbers = load_numbers(terms, at, STEPS)
    weight = load_weights(inputs, at, dims, FORM, DIM)
    known = (keys, norms, values, of_columns, numbers, weight)

    # Blocks of rows that see something of these columns, and those among them that see all.
    from_tile, to_tile = 0, tl.cdiv(n_queries, ROWS)
    from_whole, to_whole = 0, n_queries // ROWS
    if LINE & MASK != 0:
        last = tl.minimum(column_start + COLUMNS, n_keys)
        # Row i sees columns from i + low to before i + high.
        from_tile = tl.minimum(tl.maximum(column_start - high + 1, 0), n_queries) // ROWS
        to_tile = tl.cdiv(tl.maximum(tl.minimum(last - low, n_queries), 0), ROWS)
        from_whole = tl.cdiv(tl.maximum(last - high, 0), ROWS)
        to_whole = tl.minimum(tl.maximum(column_start - low + 1, 0), n_queries) // ROWS
    elif BOUNDS & MASK != 0:
        base = start_of(ranges[1], at) - column_start // FLAGGED * ranges[1][3]
        from_tile = tl.minimum(tl.load(ranges[0] + base), n_queries) // ROWS
        to_tile = tl.cdiv(tl.minimum(tl.load(ranges[2] + base), n_queries), ROWS)
        to_whole = 0
    if (PAIRS | DOCUMENTS) & MASK != 0 or SAFE:
        to_whole = 0
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)

    found = (
        tl.zeros((COLUMNS, BLOCK_DIM), tl.float32),
        tl.zeros((COLUMNS, BLOCK_VALUE_DIM), tl.float32),
        tl.zeros((COLUMNS,), tl.float32),
        nothing_learned(COLUMNS, LEARNS),
    )
    if not SAFE:
        for tile in range(from_whole, to_whole):
            of_rows = load_line(terms, origins, at, tile * ROWS, row_span, n_queries, STEPS, False, by_sum, True)
            of_facts = load_facts(facts, entry, tile * ROWS, row_span, n_queries, RULE, CENTRED, ROUGH, True)
            found = differentiate_column_tile(
                found, known, of_rows, of_facts, inputs, gradient, terms, mask, line, dropout, at,
                entry, tile * ROWS, column_start, sizes, scale,
                FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, False, DROPOUT, LEARNS, SAFE, EXACT, ROUGH, PRECISION, DIM,
                VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
            )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_rows = load_line(terms, origins, at, tile * ROWS, row_span, n_queries, STEPS, False, by_sum, False)
        of_facts = load_facts(facts, entry, tile * ROWS, row_span, n_queries, RULE, CENTRED, ROUGH, False)
        found = differentiate_column_tile(
            found, known, of_rows, of_facts, inputs, gradient, terms, mask, line, dropout, at,
            entry, tile * ROWS, column_start, sizes, scale,
            FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, True, DROPOUT, LEARNS, SAFE, EXACT or SAFE,
            ROUGH, PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    to_keys, to_values, sums, learned = found

    if FORM != DOT:
        if not (EXACT or SAFE):
            to_keys += sums[:, None] * keys.to(tl.float32)
        to_keys = to_keys * (2.0 * weight)[None, :]
    if not PROJECTED:
        to_keys = without_broken(to_keys, keys)
    lines = tl.cast(entry, tl.int64) * n_keys + columns
    there = (columns < n_keys)[:, None]
    inside, inside_values = there & (dims < DIM)[None, :], there & (value_dims < VALUE_DIM)[None, :]
    store_tile(to_keys, outputs[0], outputs[1], at, column_start, column_span, dims, inside)
    store_tile(to_values, outputs[2], outputs[3], at, column_start, column_span, value_dims, inside_values)
    store_learned(learned, outputs[4], lines, columns < n_keys, LEARNS)
    if not SAFE:
        broken = tl.max(tl.where(inside & (to_keys - to_keys != 0), 1, 0))
        broken = tl.maximum(broken, tl.max(tl.where(inside_values & (to_values - to_values != 0), 1, 0)))
        tl.store(outputs[5] + flag_place(entry, block * COLUMNS, n_keys, FLAGGED), broken)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "n_programs"])
def differentiate_columns(
    inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
    n_queries, n_keys, low, high, n1, n2, scale, n_programs,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr, DROPOUT: tl.constexpr, LEARNS: tl.constexpr,
    SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, FLAGGED: tl.constexpr,
):  # fmt: skip
    """Every block of columns; where `SAFE`, those that are flagged."""
    program = tl.program_id(0)
    if SAFE:
        reverse: tl.constexpr = False
        first = program * CHUNK
        flags = load_flags(outputs[5], first + tl.arange(0, CHUNK), n_keys, 1, n_programs, COLUMNS, FLAGGED, reverse)
        if tl.max(flags) == 0:
            return
        for each in range(first, tl.minimum(first + CHUNK, n_programs)):
            if load_flags(outputs[5], each, n_keys, 1, n_programs, COLUMNS, FLAGGED, reverse) != 0:
                differentiate_column_block(
                    each, inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
                    n_queries, n_keys, low, high, n1, n2, scale,
                    FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, CENTRED, PROJECTED, DROPOUT, LEARNS, SAFE, EXACT, ROUGH,
                    PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, FLAGGED,
                )  # fmt: skip
    else:
        differentiate_column_block(
            program, inputs, gradient, facts, outputs, terms, mask, ranges, dropout,
            n_queries, n_keys, low, high, n1, n2, scale,
            FORM, STEPS, EXCLUDES, FOLDS, RULE, MASK, CENTRED, PROJECTED, DROPOUT, LEARNS, SAFE, EXACT, ROUGH,
            PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, FLAGGED,
        )  # fmt: skip
