"""One pass over the keys: the sums of every row, and the output."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import load_tile, load_weights, pair_scores
from regard.engines.cuda.kernels.products import pooled_product
from regard.engines.cuda.kernels.tile_scores import (
    LOG2_E,
    load_number,
    place_of,
    row_terms,
    start_of,
    stepped,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    DOCUMENTS,
    PAIRS,
    PROPORTIONAL,
    SOFTMAX,
    UNIFORM,
    allowed_pairs,
    keep_factors,
    mask_rows,
    next_tile,
    row_hashes,
    unit_of,
)


@triton.jit
def absorb(
    state,
    queries,
    of_rows,
    bounds,
    hashes,
    inputs,
    terms,
    mask,
    dropout,
    at,
    row_start,
    row_span,
    column_start,
    sizes,
    scale,
    FORM: tl.constexpr,
    STEPS: tl.constexpr,
    RULE: tl.constexpr,
    MASK: tl.constexpr,
    MASKED: tl.constexpr,
    DROPOUT: tl.constexpr,
    SAFE: tl.constexpr,
    PRECISION: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sums of some rows with one more tile."""
    peak, total, pooled = state
    column_span = tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    allowed = tl.full((ROWS, COLUMNS), 1, tl.int1)
    if MASKED:
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
    if RULE == UNIFORM:
        scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    else:
        keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, sizes[1], dims, DIM)
        weight = load_weights(inputs, at, dims, FORM, DIM)
        sides = (
            (inputs[0], inputs[1], row_start, row_span, sizes[0]),
            (inputs[2], inputs[3], column_start, column_span, sizes[1]),
        )
        scores = pair_scores(queries, keys, sides, weight, inputs, at, scale, FORM, SAFE, PRECISION, DIM)
    of_tile = tile_terms(terms, of_rows, at, row_start, row_span, column_start, column_span, sizes, STEPS, TURNED=False)
    scores, allowed = stepped(scores, allowed, of_rows, of_tile, terms, at, len(STEPS), STEPS)
    found, factor, peak = next_tile(scores, allowed, peak, RULE)
    if RULE == SOFTMAX or RULE == PROPORTIONAL:
        pooled = pooled * factor[:, None]
        total = total * factor
    total += tl.sum(found, 1)
    if DROPOUT:
        found *= keep_factors(hashes, column_start + column_span, dropout[1], dropout[2], TURNED=False)
    values = load_tile(inputs[4], inputs[5], at, column_start, column_span, sizes[1], value_dims, VALUE_DIM)
    return peak, total, pooled_product(found, values, pooled, PRECISION, SAFE)


@triton.jit
def pool_rows(
    inputs,  # queries, their strides, keys, …, values, …, weights of channels, …
    outputs,  # the output, its strides; peaks and totals (entries, splits, n_queries); flags (programs,)
    terms,  # of each step
    mask,
    sink,
    dropout,  # seed, threshold, 1/(1 − p)
    n_queries,
    n_keys,
    n1,  # the last two of three batch axes
    n2,
    scale,
    n_splits,
    FORM: tl.constexpr,
    STEPS: tl.constexpr,
    RULE: tl.constexpr,
    MASK: tl.constexpr,
    SINK: tl.constexpr,
    DROPOUT: tl.constexpr,
    SPLIT: tl.constexpr,
    SAFE: tl.constexpr,
    PRECISION: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The output and the statistics of a block of rows; its sums, where `SPLIT`, over one share of the keys."""
    program = tl.program_id(0)
    if SAFE:
        if tl.load(outputs[4] + program) == 0:
            return
    sizes = (n_queries, n_keys)
    n_blocks = tl.cdiv(n_queries, ROWS)
    split = program % n_splits
    block = program // n_splits % n_blocks
    entry = program // n_splits // n_blocks
    if BOUNDS & MASK != 0:
        block = n_blocks - 1 - block  # the longest of a causal mask first
    at = place_of(entry, n1, n2)
    row_start, row_span = block * ROWS, tl.arange(0, ROWS)
    rows = row_start + row_span
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, n_queries, tl.arange(0, BLOCK_DIM), DIM)
    of_rows = row_terms(terms, at, row_start, row_span, n_queries, STEPS)
    bounds = mask_rows(mask, at, row_start, row_span, sizes, MASK)
    hashes = rows
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, rows)

    # Tiles in which every pair is allowed, and those before and after them.
    from_tile, to_tile = 0, tl.cdiv(n_keys, COLUMNS)
    from_whole, to_whole = 0, n_keys // COLUMNS
    if BOUNDS & MASK != 0:
        seen = (rows < n_queries) & (bounds[0] < bounds[1])
        from_tile = tl.min(tl.where(seen, bounds[0], n_keys)) // COLUMNS
        to_tile = tl.cdiv(tl.max(tl.where(seen, bounds[1], 0)), COLUMNS)
        # A row that sees nothing leaves no tile whole.
        from_whole = tl.cdiv(tl.max(tl.where(seen | (rows >= n_queries), bounds[0], n_keys)), COLUMNS)
        to_whole = tl.min(tl.where(rows < n_queries, bounds[1], n_keys)) // COLUMNS
    if (PAIRS | DOCUMENTS) & MASK != 0:
        to_whole = 0
    if SPLIT:
        share = tl.cdiv(tl.cdiv(n_keys, COLUMNS), n_splits)
        from_tile, to_tile = tl.maximum(from_tile, split * share), tl.minimum(to_tile, (split + 1) * share)
    from_whole = tl.minimum(tl.maximum(from_whole, from_tile), tl.maximum(to_tile, from_tile))
    to_whole = tl.minimum(tl.maximum(to_whole, from_whole), tl.maximum(to_tile, from_tile))

    state = (
        tl.full((ROWS,), -float("inf"), tl.float32),
        tl.zeros((ROWS,), tl.float32),
        tl.zeros((ROWS, BLOCK_VALUE_DIM), tl.float32),
    )
    for tile in range(from_whole, to_whole):
        state = absorb(
            state, queries, of_rows, bounds, hashes, inputs, terms, mask, dropout, at, row_start, row_span,
            tile * COLUMNS, sizes, scale, FORM, STEPS, RULE, MASK, False, DROPOUT, SAFE, PRECISION, DIM, VALUE_DIM,
            BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    before = from_whole - from_tile
    for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
        tile = tl.where(place < before, from_tile + place, to_whole + place - before)
        state = absorb(
            state, queries, of_rows, bounds, hashes, inputs, terms, mask, dropout, at, row_start, row_span,
            tile * COLUMNS, sizes, scale, FORM, STEPS, RULE, MASK, True, DROPOUT, SAFE, PRECISION, DIM, VALUE_DIM,
            BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
        )  # fmt: skip
    peak, total, pooled = state

    value_dims = tl.arange(0, BLOCK_VALUE_DIM)
    strides = outputs[1]
    base = outputs[0] + start_of(strides, at) - tl.cast(row_start, tl.int64) * strides[3]
    if SPLIT:
        base -= tl.cast(split, tl.int64) * strides[4]
        if n_splits == 1:
            peak, total, pooled = unfinished(peak, total, pooled, RULE)
    else:
        peak, total, pooled = finished(peak, total, pooled, sink, at, RULE, SINK)
    inside = (rows < n_queries)[:, None] & (value_dims < VALUE_DIM)[None, :]
    result = pooled.to(outputs[0].dtype.element_ty)
    tl.store(base - row_span.to(tl.int64)[:, None] * strides[3] + value_dims[None, :], result, mask=inside)
    facts = (tl.cast(entry, tl.int64) * n_splits + split) * n_queries + rows
    tl.store(outputs[2] + facts, peak, mask=rows < n_queries)
    tl.store(outputs[3] + facts, total, mask=rows < n_queries)
    if not SAFE:
        # x − x is 0, and NaN for what is not finite.
        broken = tl.max(tl.where(inside & (pooled - pooled != 0), 1, 0))
        tl.store(outputs[4] + program, broken)


@triton.jit
def finished(peak, total, pooled, sink, at, RULE: tl.constexpr, SINK: tl.constexpr):
    """The statistics and the output of rows from their sums: the only division."""
    if RULE == SOFTMAX:
        if SINK:
            logit = load_number(sink[0], sink[1], at)
            higher = tl.maximum(peak, logit)
            level = tl.where(higher == -float("inf"), 0.0, higher)
            factor = tl.exp2((peak - level) * LOG2_E)
            total = total * factor + tl.exp2((logit - level) * LOG2_E)
            pooled = pooled * factor[:, None]
            peak = higher
    if RULE == SOFTMAX or RULE == PROPORTIONAL or RULE == UNIFORM:
        total = tl.where(total == 0, float("inf"), total)
        pooled = pooled / total[:, None]
    if RULE == PROPORTIONAL:
        total = total / unit_of(peak)
    return peak, total, pooled


@triton.jit
def unfinished(peak, total, pooled, RULE: tl.constexpr):
    """The sums of rows as others merge them: in no unit of their own, but for softmax's peak."""
    if RULE == PROPORTIONAL:
        unit = unit_of(peak)
        total, pooled = total / unit, pooled / unit[:, None]
    return peak, total, pooled


@triton.jit
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
    ROWS: tl.constexpr,
):
    """The output of a block of rows from the sums over each share of the keys, in their order."""
    n_blocks = tl.cdiv(n_queries, ROWS)
    program = tl.program_id(0)
    entry = program // n_blocks
    at = place_of(entry, n1, n2)
    rows = program % n_blocks * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, BLOCK_VALUE_DIM)
    inside = (rows < n_queries)[:, None] & (dims < VALUE_DIM)[None, :]
    peak = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    pooled = tl.zeros((ROWS, BLOCK_VALUE_DIM), tl.float32)
    for split in range(0, n_splits):
        facts = (tl.cast(entry, tl.int64) * n_splits + split) * n_queries + rows
        others = tl.load(sums[0] + facts[:, None] * VALUE_DIM + dims[None, :], mask=inside, other=0.0)
        more = tl.load(sums[2] + facts, mask=rows < n_queries, other=0.0)
        if RULE == SOFTMAX or RULE == PROPORTIONAL:
            theirs = tl.load(sums[1] + facts, mask=rows < n_queries, other=-float("inf"))
            higher = tl.maximum(peak, theirs)
            if RULE == SOFTMAX:
                level = tl.where(higher == -float("inf"), 0.0, higher)
                mine, factor = tl.exp2((peak - level) * LOG2_E), tl.exp2((theirs - level) * LOG2_E)
            else:
                unit = unit_of(higher)
                mine, factor = tl.where(peak > 0, peak * unit, 1.0), tl.where(theirs > 0, theirs * unit, 1.0)
            pooled = pooled * mine[:, None] + others * factor[:, None]
            total = total * mine + more * factor
            peak = higher
        else:
            pooled += others
            total += more
    peak, total, pooled = finished(peak, total, pooled, sink, at, RULE, SINK)
    strides = outputs[1]
    base = outputs[0] + start_of(strides, at)
    result = pooled.to(outputs[0].dtype.element_ty)
    tl.store(base - rows[:, None].to(tl.int64) * strides[3] + dims[None, :], result, mask=inside)
    facts = tl.cast(entry, tl.int64) * n_queries + rows
    tl.store(outputs[2] + facts, peak, mask=rows < n_queries)
    tl.store(outputs[3] + facts, total, mask=rows < n_queries)
