"""The forward pass for any rule: turns over the keys, of which each computes the scores again.

Most rules take one turn. A rule with a threshold looks for the largest scores first, then for the thresholds, as often
as that takes; then it pools, and once more by slope where somebody asks. All turns share one loop: what computes scores
is most of a kernel, and so is compiled once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.forward import add_tile, store_slopes, store_sums
from regard.engines.cuda.kernels.row_blocks import load_block
from regard.engines.cuda.kernels.scored_tiles import masked_tile
from regard.engines.cuda.kernels.thresholds import (
    ENTMAX_ANY,
    add_weights,
    alpha_less_one,
    goes_on,
    largest_two,
    level_of,
    next_bracket,
    no_sums,
    none_so_far,
    threshold_of_two,
    widest_bracket,
)
from regard.engines.cuda.kernels.tile_scores import load_line
from regard.engines.cuda.kernels.tile_weights import line_range

LOOKS, ADDS, POOLS, AVERAGES, ENDS = (tl.constexpr(turn) for turn in range(5))


@triton.jit
def pool_any_block(
    program, inputs, outputs, terms, mask, sink, dropout, n_queries, n_keys, low, high, n1, n2, scale, n_splits,
    RULE, MASK, SINK, SPLIT, CENTRED, DIM, VALUE_DIM, FLAG_COLUMNS,
    FORM: tl.constexpr, STEPS: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The output and the statistics of a block of rows; its sums, where `SPLIT`, over one share of the keys.

    Rule, mask and the like are numbers. `CENTRED`: whether values are also averaged by slope.
    """
    sizes = (n_queries, n_keys)
    known, origins, at, split, row_start = load_block(
        program, inputs, terms, mask, dropout, n_queries, n_keys, low, high, n1, n2, scale, n_splits, MASK, DIM,
        FORM, STEPS, False, True, True, ROUGH, False, BLOCK_DIM, ROWS,
    )  # fmt: skip
    entry, column_span = known[7], tl.arange(0, COLUMNS)
    rows = row_start + tl.arange(0, ROWS)
    from_tile, to_tile = line_range((low, high), row_start, sizes, ROWS, COLUMNS)
    if SPLIT:
        share = tl.cdiv(tl.cdiv(n_keys, FLAG_COLUMNS), n_splits) * (FLAG_COLUMNS // COLUMNS)
        from_tile, to_tile = tl.maximum(from_tile, split * share), tl.minimum(to_tile, (split + 1) * share)
    less_one = alpha_less_one(outputs[6], entry, RULE)
    if less_one != less_one:
        tl.store(outputs[5], 2)  # somebody looks there later, and raises

    nothing, peak = tl.zeros((ROWS,), tl.float32), tl.full((ROWS,), -float("inf"), tl.float32)
    bracket = widest_bracket(peak, n_keys, less_one)
    n_passes = n_keys * 0
    turn = tl.where(RULE >= ENTMAX_ANY, LOOKS, POOLS)
    while turn != ENDS:
        threshold = bracket[0].to(tl.float32)
        two, sums = none_so_far(ROWS, COLUMNS), no_sums(ROWS)
        by_slope = (turn == AVERAGES).to(tl.int32)
        beside = (threshold, less_one, by_slope, nothing, nothing)
        state = (peak, nothing, tl.zeros((ROWS, BLOCK_VALUE_DIM), tl.float32), beside)
        for tile in range(from_tile, to_tile):
            of_columns = load_line(terms, origins, at, tile * COLUMNS, column_span, n_keys, STEPS, True, True, False)
            scores, allowed = masked_tile(
                of_columns, known, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale, RULE, MASK, DIM,
                FORM, STEPS, True, False, True, True, True, ROUGH, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
            )  # fmt: skip
            if turn == LOOKS:
                two = largest_two(two, scores, allowed, True)
            elif turn == ADDS:
                sums = add_weights(sums, scores, allowed, level_of(peak), threshold, less_one, RULE, True, ROUGH)
            else:
                state = add_tile(
                    state, scores, allowed, known, inputs, outputs, dropout, at, row_start, tile * COLUMNS, sizes,
                    scale, RULE, VALUE_DIM,
                    STEPS, True, False, True, True, True, ROUGH, PRECISION, BLOCK_VALUE_DIM, ROWS, COLUMNS, 0,
                )  # fmt: skip
        if turn == LOOKS:
            peak, bracket = threshold_of_two(two, n_keys, less_one, RULE, ROUGH)
            turn = tl.where(goes_on(bracket, n_passes), ADDS, POOLS)
        elif turn == ADDS:
            bracket = next_bracket(sums, bracket, n_passes, less_one, RULE, ROUGH)
            n_passes += 1
            turn = tl.where(goes_on(bracket, n_passes), ADDS, POOLS)
        else:
            total = tl.where(RULE >= ENTMAX_ANY, threshold, state[1])
            value_dims = tl.arange(0, BLOCK_VALUE_DIM)
            inside = (rows < n_queries)[:, None] & (value_dims < VALUE_DIM)[None, :]
            facts = (tl.cast(entry, tl.int64) * n_splits + split) * n_queries + rows
            if turn == POOLS:
                store_sums(
                    state[0], total, state[2], outputs, sink, at, entry, split, row_start, n_queries, n_splits,
                    RULE, SINK, SPLIT, VALUE_DIM, BLOCK_VALUE_DIM, ROWS,
                )  # fmt: skip
                turn = tl.where((RULE >= ENTMAX_ANY) & (CENTRED != 0), AVERAGES, ENDS)
            else:
                store_slopes(state[2], state[3], outputs, at, row_start, inside, facts, BLOCK_VALUE_DIM)
                turn = tl.where(turn == AVERAGES, ENDS, turn)
