"""One pass over the keys: the sums of every row, and the output."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import LOG2_E, exp2, is_not_finite
from regard.engines.cuda.kernels.floors import floor_of, folded, with_margin
from regard.engines.cuda.kernels.pair_scores import load_summed, load_tile, store_tile
from regard.engines.cuda.kernels.products import pooled_product, slope_product
from regard.engines.cuda.kernels.row_blocks import load_block
from regard.engines.cuda.kernels.scored_tiles import masked_tile, store_scores
from regard.engines.cuda.kernels.thresholds import (
    ENTMAX_ANY,
    alpha_less_one,
    entropies,
    level_of,
    threshold_weights,
)
from regard.engines.cuda.kernels.tile_scores import (
    flag_place,
    load_line,
    load_number,
    place_of,
    start_of,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    LINE,
    PROPORTIONAL,
    SCORES,
    SOFTMAX,
    UNIFORM,
    any_negative,
    keep_factors,
    next_tile,
    tile_ranges,
    unit_of,
    whole_within,
)


@triton.jit
def add_tile(
    state, scores, allowed, block, inputs, outputs, dropout, at, row_start, column_start, sizes, scale, RULE, VALUE_DIM,
    STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr, DROPOUT: tl.constexpr,
    SAFE: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """The sums of some rows with one more tile.

    Args:
        state: The sums so far: the largest score, the sum of numerators, values times those, and what else rows have.
            Under a rule with a threshold, that is the threshold, alpha − 1, which numerators are wanted (0: weights,
            1: slopes), the sum of slopes and the entropy; and values times slopes, where both are wanted.
        scores, allowed: Of the tile, as `masked_tile` has them.
        block: What the rows have, as `masked_tile` takes it, and all else: hashes for dropout; which batch entry it is.
        BEST: Whether the tops of groups of columns are kept beside the sums.
    """
    peak, total, pooled, beside = state[0], state[1], state[2], state[3]
    hashes = block[5]
    row_span, column_span, value_dims = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, BLOCK_VALUE_DIM)
    unit = LOG2_E
    if FOLDS and len(STEPS) == 0 and not SAFE:
        unit = scale * LOG2_E
    if SAFE:
        if RULE == PROPORTIONAL:
            # Somebody looks there later, and raises.
            if any_negative(scores, allowed):
                tl.store(outputs[5], 1)
        if RULE == SCORES:
            store_scores(scores, allowed, outputs[9], block[7], row_start + row_span, column_start + column_span, sizes)
    found, factor, peak = next_tile(scores, allowed, peak, unit, RULE, MASKED or EXCLUDES, ROUGH)
    if RULE == SOFTMAX or RULE == PROPORTIONAL:
        pooled = pooled * factor[:, None]
        total = total * factor + tl.sum(found, 1)
    elif RULE == UNIFORM:
        total += tl.sum(found, 1)
    slopes = found
    if len(beside) > 0:
        threshold, less_one, turn, slope_total, entropy = beside[0], beside[1], beside[2], beside[3], beside[4]
        if RULE >= ENTMAX_ANY:
            found, slopes = threshold_weights(
                scores, level_of(peak)[:, None], threshold[:, None], less_one, RULE, ROUGH
            )
            if MASKED or EXCLUDES:
                found, slopes = tl.where(allowed, found, 0.0), tl.where(allowed, slopes, 0.0)
            if SAFE or len(beside) > 5:
                slope_total += tl.sum(slopes, 1)
                if RULE == ENTMAX_ANY:
                    entropy += entropies(found, ROUGH)
            found = tl.where(turn != 0, slopes, found)
        beside = (threshold, less_one, turn, slope_total, entropy) + beside[5:]
    if len(inputs) % 2 == 1 and inputs[4].dtype.element_ty == tl.float32:
        values = load_summed(
            inputs[4], inputs[5], at, column_start, column_span, sizes[1], VALUE_DIM, BLOCK_VALUE_DIM, not MASKED
        )
    else:
        values = load_tile(
            inputs[4], inputs[5], at, column_start, column_span, sizes[1], value_dims, VALUE_DIM, not MASKED
        )
    if DROPOUT:
        keep = keep_factors(hashes, column_start + column_span, dropout, TURNED=False)
        found, slopes = found * keep, slopes * keep
    if len(beside) > 5:
        beside = beside[:5] + (slope_product(slopes, values, beside[5], PRECISION, SAFE),)
    sums = (peak, total, pooled_product(found, values, pooled, PRECISION, SAFE), beside)
    if BEST > 0:
        # NaN is nobody's top: whoever asks for floors looks whether there is enough above them.
        if MASKED or EXCLUDES:
            scores = tl.where(allowed, scores, -float("inf"))
        sums = sums + (tl.maximum(state[4], scores),)
    return sums


@triton.jit
def absorb(
    state, of_columns, block, inputs, outputs, terms, mask, dropout, at, row_start, column_start, sizes, scale,
    RULE, MASK, DIM, VALUE_DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, MASKED: tl.constexpr,
    DROPOUT: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BEST: tl.constexpr,
):  # fmt: skip
    """The sums of some rows with one more tile, whose scores are computed here.

    Args:
        state, block, BEST: As `add_tile` has them.
        of_columns: What steps need of the tile's columns.
    """
    scores, allowed = masked_tile(
        of_columns, block, inputs, terms, mask, at, row_start, column_start, sizes, scale, RULE, MASK, DIM,
        FORM, STEPS, EXCLUDES, FOLDS, MASKED, False, EXACT, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    return add_tile(
        state, scores, allowed, block, inputs, outputs, dropout, at, row_start, column_start, sizes, scale,
        RULE, VALUE_DIM,
        STEPS, EXCLUDES, FOLDS, MASKED, DROPOUT, False, ROUGH, PRECISION, BLOCK_VALUE_DIM, ROWS, COLUMNS, BEST,
    )  # fmt: skip


@triton.jit
def store_sums(
    peak, total, pooled, outputs, sink, at, entry, split, row_start, n_queries, n_splits,
    RULE, SINK, SPLIT, VALUE_DIM, BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the output and the statistics of a block of rows or, where `SPLIT`, its sums; returns what is written."""
    rows, value_dims = row_start + tl.arange(0, ROWS), tl.arange(0, BLOCK_VALUE_DIM)
    strides = outputs[1]
    pointer = outputs[0]
    if SPLIT:
        pointer -= tl.cast(split, tl.int64) * strides[4]
        if n_splits == 1:
            peak, total, pooled = unfinished(peak, total, pooled, RULE)
    else:
        peak, total, pooled = finished(peak, total, pooled, sink, at, RULE, SINK)
    inside = (rows < n_queries)[:, None] & (value_dims < VALUE_DIM)[None, :]
    store_tile(pooled, pointer, strides, at, row_start, tl.arange(0, ROWS), value_dims, inside)
    facts = (tl.cast(entry, tl.int64) * n_splits + split) * n_queries + rows
    tl.store(outputs[2] + facts, peak, mask=rows < n_queries)
    tl.store(outputs[3] + facts, total, mask=rows < n_queries)
    return pooled, inside, facts


@triton.jit
def store_slopes(pooled, beside, outputs, at, row_start, inside, facts, BLOCK_VALUE_DIM: tl.constexpr):
    """Write the values averaged by slope, and (Σ slope, entropy) of rows."""
    slope_total = beside[3]
    pooled = pooled / tl.where(slope_total == 0, 1.0, slope_total)[:, None]
    row_span, value_dims = tl.arange(0, pooled.shape[0]), tl.arange(0, BLOCK_VALUE_DIM)
    store_tile(pooled, outputs[7], outputs[1], at, row_start, row_span, value_dims, inside)
    there = tl.max(inside.to(tl.int32), 1) != 0
    tl.store(outputs[8] + 2 * facts, slope_total, mask=there)
    tl.store(outputs[8] + 2 * facts + 1, beside[4], mask=there)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "n_splits"])
def pool_rows(
    inputs,  # queries, their strides, keys, …, values, …, weights of channels, …
    # The output, its strides; peaks and totals (entries, splits, n_queries); flags. Of a rule with a threshold, that is
    # the total and is there; and errors, alpha − 1 of entries; values averaged by slope, (Σ slope, entropy) of rows.
    # Floors of the best scores, if any.
    outputs,
    terms,  # of each step
    mask,
    sink,
    dropout,  # as `keep_factors` has it
    n_queries,
    n_keys,
    low,  # bounds of row 0, of a mask whose bounds go with the rows
    high,
    n1,  # the last two of three batch axes
    n2,
    scale,
    n_splits,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr, SPLIT: tl.constexpr, EXACT: tl.constexpr,
    ROUGH: tl.constexpr, PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """A block of rows, for one kind of problem: their output and statistics or, where `SPLIT`, sums over one share."""
    reverse: tl.constexpr = MASK[BOUNDS] != 0 or MASK[LINE] != 0
    by_sum: tl.constexpr = not ROUGH  # how gates are computed
    threshold: tl.constexpr = RULE >= ENTMAX_ANY
    centred: tl.constexpr = len(outputs) > 7
    sizes = (n_queries, n_keys)
    known, origins, at, split, row_start = load_block(
        tl.program_id(0), inputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale, n_splits,
        MASK, DIM, FORM, STEPS, FOLDS, DROPOUT, False, ROUGH, reverse, BLOCK_DIM, ROWS,
    )  # fmt: skip
    entry, row_span, column_span = known[7], tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    rows = row_start + row_span

    # Tiles in which every pair is allowed, and those before and after them.
    from_tile, to_tile, from_whole, to_whole = tile_ranges(known[4], rows, sizes, MASK, COLUMNS)
    if SPLIT:
        share = tl.cdiv(tl.cdiv(n_keys, COLUMNS), n_splits)
        from_tile, to_tile = tl.maximum(from_tile, split * share), tl.minimum(to_tile, (split + 1) * share)
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)

    peak, limit = tl.full((ROWS,), -float("inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    total, pooled = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, BLOCK_VALUE_DIM), tl.float32)
    beside = ()
    if threshold:
        here = tl.cast(entry, tl.int64) * n_queries + rows
        peak = tl.load(outputs[2] + here, mask=rows < n_queries, other=0.0)
        limit = tl.load(outputs[3] + here, mask=rows < n_queries, other=float("inf"))
        less_one = alpha_less_one(outputs[6], entry, RULE)
        if less_one != less_one:
            tl.store(outputs[5], 2)  # somebody looks there later, and raises
        beside = (limit, less_one, 0, total, total)
        if centred:
            beside = beside + (pooled,)
    state = (peak, total, pooled, beside)
    if BEST > 0:
        state = state + (tl.full((ROWS, COLUMNS), -float("inf"), tl.float32),)
    # What steps need of columns is asked for one tile ahead: nobody then waits for it.
    last = tl.maximum(to_whole, 1) - 1
    first = tl.minimum(from_whole, last) * COLUMNS
    following = load_line(terms, origins, at, first, column_span, n_keys, STEPS, True, by_sum, False)
    for tile in range(from_whole, to_whole):
        of_columns = following
        ahead = tl.minimum(tile + 1, last) * COLUMNS
        following = load_line(terms, origins, at, ahead, column_span, n_keys, STEPS, True, by_sum, True)
        state = absorb(
            state, of_columns, known, inputs, outputs, terms, mask, dropout, at, row_start, tile * COLUMNS, sizes,
            scale, RULE, MASK, DIM, VALUE_DIM,
            FORM, STEPS, EXCLUDES, FOLDS, False, DROPOUT, EXACT, ROUGH, PRECISION,
            BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, BEST,
        )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, by_sum, False)
        state = absorb(
            state, of_columns, known, inputs, outputs, terms, mask, dropout, at, row_start, tile * COLUMNS, sizes,
            scale, RULE, MASK, DIM, VALUE_DIM,
            FORM, STEPS, EXCLUDES, FOLDS, True, DROPOUT, EXACT, ROUGH, PRECISION,
            BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS, BEST,
        )  # fmt: skip
    peak, total, pooled, beside = state[0], state[1], state[2], state[3]
    if FOLDS and len(STEPS) == 0:
        peak = peak * scale
    if threshold:
        total = limit
    pooled, inside, facts = store_sums(
        peak, total, pooled, outputs, sink, at, entry, split, row_start, n_queries, n_splits,
        RULE, SINK, SPLIT, VALUE_DIM, BLOCK_VALUE_DIM, ROWS,
    )  # fmt: skip
    if BEST > 0:
        groups: tl.constexpr = COLUMNS // 2 if 4 * BEST <= COLUMNS else COLUMNS
        unit = 1.0
        if FOLDS and len(STEPS) == 0:
            unit = scale
        floors = with_margin(floor_of(folded(state[4], groups), BEST), unit)
        tl.store(outputs[len(outputs) - 1] + facts, floors, mask=rows < n_queries)
    broken = tl.max(tl.where(inside & is_not_finite(pooled), 1, 0))
    flag = flag_place(entry, row_start, n_queries, ROWS) * n_splits + split
    tl.store(outputs[4] + flag, broken)
    if centred:
        store_slopes(beside[5], beside, outputs, at, row_start, inside, facts, BLOCK_VALUE_DIM)


@triton.jit
def finished(peak, total, pooled, sink, at, RULE, SINK):
    """The statistics and the output of rows from their sums: the only division."""
    if RULE == SOFTMAX:
        if SINK:
            logit = load_number(sink[0], sink[1], at)
            higher = tl.maximum(peak, logit)
            level = tl.where(higher == -float("inf"), 0.0, higher)
            factor = exp2((peak - level) * LOG2_E)
            total = total * factor + exp2((logit - level) * LOG2_E)
            pooled = pooled * factor[:, None]
            peak = higher
    if (RULE == SOFTMAX or RULE == PROPORTIONAL) or RULE == UNIFORM:
        total = tl.where(total == 0, float("inf"), total)
        pooled = pooled / total[:, None]
    if RULE == PROPORTIONAL:
        total = total / unit_of(peak)
    return peak, total, pooled


@triton.jit
def unfinished(peak, total, pooled, RULE):
    """The sums of rows as others merge them: in no unit of their own, but for softmax's peak."""
    if RULE == PROPORTIONAL:
        unit = unit_of(peak)
        total, pooled = total / unit, pooled / unit[:, None]
    return peak, total, pooled


@triton.jit(do_not_specialize=["n_queries", "n1", "n2", "n_splits"])
def merge_splits(
    sums,  # pooled (entries, splits, n_queries, value_dim), peaks and totals (entries, splits, n_queries), in float32
    outputs,  # the output, its strides; peaks and totals (entries, n_queries)
    sink,
    n_queries,
    n1,
    n2,
    n_splits,
    RULE: tl.constexpr,
    SINK: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The output of a row from its sums over each share of the keys, in their order, some shares at a time."""
    program = tl.program_id(0)
    row, entry = program % n_queries, program // n_queries
    at = place_of(entry, n1, n2)
    dims = tl.arange(0, BLOCK_VALUE_DIM)
    inside = (dims < VALUE_DIM)[None, :]
    peak = tl.full((1,), -float("inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    pooled = tl.zeros((1, BLOCK_VALUE_DIM), tl.float32)
    for first in range(0, n_splits, SPLITS):
        splits = first + tl.arange(0, SPLITS)
        there = splits < n_splits
        facts = (tl.cast(entry, tl.int64) * n_splits + splits) * n_queries + row
        others = tl.load(sums[0] + facts[:, None] * VALUE_DIM + dims[None, :], mask=there[:, None] & inside, other=0.0)
        more = tl.load(sums[2] + facts, mask=there, other=0.0)
        factors = tl.full((SPLITS,), 1.0, tl.float32)
        mine = tl.full((1,), 1.0, tl.float32)
        if RULE == SOFTMAX or RULE == PROPORTIONAL:
            theirs = tl.load(sums[1] + facts, mask=there, other=-float("inf"))
            higher = tl.maximum(peak, tl.max(theirs, 0)[None])
            if RULE == SOFTMAX:
                level = tl.where(higher == -float("inf"), 0.0, higher)
                mine, factors = exp2((peak - level) * LOG2_E), exp2((theirs - level) * LOG2_E)
            else:
                unit = unit_of(higher)
                mine, factors = tl.where(peak > 0, peak * unit, 1.0), tl.where(theirs > 0, theirs * unit, 1.0)
            peak = higher
        pooled = pooled * mine[:, None] + tl.sum(others * factors[:, None], 0)[None, :]
        total = total * mine + tl.sum(more * factors, 0)[None]
    peak, total, pooled = finished(peak, total, pooled, sink, at, RULE, SINK)
    strides = outputs[1]
    base = outputs[0] + start_of(strides, at) - tl.cast(row, tl.int64) * strides[3]
    tl.store(base + dims[None, :], pooled.to(outputs[0].dtype.element_ty), mask=inside)
    facts = tl.cast(entry, tl.int64) * n_queries + row + tl.arange(0, 1)
    tl.store(outputs[2] + facts, peak)
    tl.store(outputs[3] + facts, total)
