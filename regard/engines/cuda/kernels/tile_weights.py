"""The weights of a tile: mask, rule, dropout."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import exp2, reciprocal, rough_reciprocals
from regard.engines.cuda.kernels.thresholds import ENTMAX_ANY, threshold_weights
from regard.engines.cuda.kernels.tile_scores import across, decoded, load_pairs, load_vector
from regard.engines.kernels import codes

SOFTMAX = tl.constexpr(codes.SOFTMAX)
PROPORTIONAL = tl.constexpr(codes.PROPORTIONAL)
CONIC = tl.constexpr(codes.CONIC)
RAW = tl.constexpr(codes.RAW)
SIGMOID = tl.constexpr(codes.SIGMOID)
UNIFORM = tl.constexpr(codes.UNIFORM)
ONE_HOT = tl.constexpr(codes.ONE_HOT)
SCORES = tl.constexpr(codes.SCORES)

BOUNDS = tl.constexpr(codes.BOUNDS)
PAIRS = tl.constexpr(codes.PAIRS)
DOCUMENTS = tl.constexpr(codes.DOCUMENTS)
LINE = tl.constexpr(codes.LINE)


@triton.jit
def mask_rows(mask, line, at, start, span, sizes, MASK):
    """(first column, the one after the last, document) of rows, where the mask has them. None is beyond the last row.

    `mask`: bounds, pairs and documents; what it has not is not read. `line`: bounds of row 0, which go with rows.
    """
    first, stop, document = span, span, span.to(tl.int64)
    if MASK[LINE] != 0:
        first = tl.minimum(tl.maximum(start + span + line[0], 0), sizes[1])
        stop = tl.minimum(tl.maximum(start + span + line[1], 0), sizes[1])
    if MASK[BOUNDS] != 0:
        # A mask may say that a row attends to more than there is.
        first = load_vector(mask[0][0], mask[0][1], at, start, span, sizes[0], False)
        stop = load_vector(mask[0][2], mask[0][3], at, start, span, sizes[0], False)
        first = tl.minimum(tl.maximum(first, 0), sizes[1]).to(tl.int32)
        stop = tl.minimum(tl.maximum(stop, 0), sizes[1]).to(tl.int32)
    if MASK[DOCUMENTS] != 0:
        document = load_vector(mask[2][0], mask[2][1], at, start, span, sizes[0], False)
    return first, stop, document


@triton.jit
def tile_ranges(bounds, rows, sizes, MASK, COLUMNS: tl.constexpr):
    """(from, to) of the tiles that some rows see anything of, then of those that all of them see whole."""
    nothing = sizes[1] * 0
    from_tile, to_tile = nothing, tl.cdiv(sizes[1], COLUMNS)
    from_whole, to_whole = nothing, sizes[1] // COLUMNS
    if MASK[BOUNDS] != 0 or MASK[LINE] != 0:
        seen = (rows < sizes[0]) & (bounds[0] < bounds[1])
        from_tile = tl.min(tl.where(seen, bounds[0], sizes[1])) // COLUMNS
        to_tile = tl.cdiv(tl.max(tl.where(seen, bounds[1], 0)), COLUMNS)
        # A row that sees nothing leaves no tile whole.
        from_whole = tl.cdiv(tl.max(tl.where(seen | (rows >= sizes[0]), bounds[0], sizes[1])), COLUMNS)
        to_whole = tl.min(tl.where(rows < sizes[0], bounds[1], sizes[1])) // COLUMNS
    if MASK[PAIRS] != 0 or MASK[DOCUMENTS] != 0:
        to_whole = nothing
    return from_tile, to_tile, from_whole, to_whole


@triton.jit
def line_range(line, start, sizes, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(from, to) of the tiles that some rows see anything of, by a line alone."""
    last = tl.minimum(start + ROWS, sizes[0]) - 1
    from_tile = tl.minimum(tl.maximum(start + line[0], 0), sizes[1]) // COLUMNS
    to_tile = tl.cdiv(tl.minimum(tl.maximum(last + line[1], 0), sizes[1]), COLUMNS)
    return from_tile, to_tile


@triton.jit
def whole_within(from_tile, to_tile, from_whole, to_whole):
    """The range of whole tiles, within that of all, and no less than empty."""
    stop = tl.maximum(to_tile, from_tile)
    from_whole = tl.minimum(tl.maximum(from_whole, from_tile), stop)
    return from_whole, tl.minimum(tl.maximum(to_whole, from_whole), stop)


@triton.jit
def allowed_pairs(mask, of_rows, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED: tl.constexpr):
    """Which pairs of a tile exist and the mask allows."""
    row, column = across(row_start + row_span, column_start + column_span, TURNED)
    # Numbers, not truth values, which compilers do not pass out of a branch.
    inside = ((row < sizes[0]) & (column < sizes[1])).to(tl.int32)
    if MASK[BOUNDS] != 0 or MASK[LINE] != 0:
        first, _ = across(of_rows[0], column_span, TURNED)
        stop, _ = across(of_rows[1], column_span, TURNED)
        inside = inside & ((column >= first) & (column < stop)).to(tl.int32)
    if MASK[DOCUMENTS] != 0:
        of_columns = load_vector(mask[2][2], mask[2][3], at, column_start, column_span, sizes[1], False)
        one, other = across(of_rows[2], of_columns, TURNED)
        inside = inside & (one == other).to(tl.int32)
    if MASK[PAIRS] != 0:
        there = inside != 0
        pairs = load_pairs(mask[1][0], mask[1][1], at, row_start, row_span, column_start, column_span, there, TURNED)
        inside = inside & (pairs != 0).to(tl.int32)
    return inside != 0


@triton.jit
def numerators(scores, allowed, unit, RULE, MASKED: tl.constexpr, ROUGH: tl.constexpr):
    """The numerators of a rule that is not softmax; where pairs may be masked, 0 for what is not allowed.

    `unit` · score is the exponent of 2, of rules that take exponentials.
    """
    if RULE == CONIC:
        found = tl.where(scores < 0, 0.0, scores)
    elif RULE == SIGMOID:
        found = 1.0 + exp2(scores * -unit)
        if ROUGH:
            found = rough_reciprocals(found)
        else:
            found = reciprocal(found)
    elif RULE == UNIFORM:
        found = tl.full(scores.shape, 1.0, tl.float32)
    elif RULE == ONE_HOT:
        # Nobody knows that a key is the best whose score is NaN.
        found = tl.where(scores != scores, scores, 1.0)
    elif RULE == PROPORTIONAL:
        # Such weights do not exist; the host is told by what is no number.
        found = tl.where(scores < 0, float("nan"), scores)
    else:
        found = scores
    if MASKED:
        found = tl.where(allowed & (scores != -float("inf")), found, 0.0)
    return found


@triton.jit
def next_tile(scores, allowed, peak, unit, RULE, MASKED: tl.constexpr, ROUGH: tl.constexpr):
    """(numerators, what earlier sums are multiplied by, the peak) where one more tile follows.

    Numerators of softmax are relative to the largest score so far, as are those of proportional weights: neither a sum
    of them nor of values times them then leaves float32 before it is divided. `unit` · score is the exponent of 2;
    unless half precision is exact enough, scores are held against the peak before they are multiplied by it, so that
    large ones keep their digits.
    """
    if RULE == SOFTMAX:
        if MASKED:
            scores = tl.where(allowed, scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # Where nothing was allowed so far, 2^(−inf − 0) is 0.
        level = tl.where(higher == -float("inf"), 0.0, higher)
        if ROUGH:
            level = level * unit
            found = exp2(scores * unit - level[:, None])
            factor = exp2(peak * unit - level)
        else:
            found = exp2((scores - level[:, None]) * unit)
            factor = exp2((peak - level) * unit)
    elif RULE == PROPORTIONAL:
        found = numerators(scores, allowed, unit, RULE, MASKED, ROUGH)
        higher = tl.maximum(peak, tl.max(found, 1))
        found = found * unit_of(higher)[:, None]
        factor = tl.where(peak > 0, peak * unit_of(higher), 1.0)
    else:
        found = numerators(scores, allowed, unit, RULE, MASKED, ROUGH)
        factor, higher = tl.full(peak.shape, 1.0, tl.float32), peak
    return found, factor, higher


@triton.jit
def any_negative(scores, allowed):
    """Whether a score that proportional weights do not exist for is among those of pairs that are allowed."""
    return tl.max(tl.where(allowed & (scores < 0) & (scores != -float("inf")), 1, 0)) > 0


@triton.jit
def unit_of(peak):
    """1/peak; 1 where nothing was above 0."""
    return 1.0 / tl.where(peak > 0, peak, 1.0)


@triton.jit
def at_most_zero(x):
    """x, or 0 where that is less; NaN stays."""
    return tl.minimum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def weights_and_slopes(
    scores, allowed, level, inverse, unit, RULE, MASKED: tl.constexpr, ROUGH: tl.constexpr, less_one=1.0,
):  # fmt: skip
    """α of a tile, and the diagonal part of dα/da.

    Args:
        scores: The tile.
        allowed: Which pairs are.
        level: Of each row, under softmax: log₂ Z where half precision is exact enough, else the largest score.
        inverse: Of each row, of rules that divide by a sum Z: 1/Z; under softmax, of numerators relative to the level;
            of rules with a threshold, that.
        unit: unit · score is the exponent of 2.
        RULE, MASKED, ROUGH: As everywhere.
        less_one: alpha − 1, of rules with a threshold.
    """
    if RULE == SOFTMAX:
        # No weight exceeds 1, but by another rounding of large scores.
        if ROUGH:
            weights = exp2(at_most_zero(scores * unit - level))
        else:
            weights = exp2(at_most_zero(scores - level) * unit) * inverse
        if MASKED:
            weights = tl.where(allowed, weights, 0.0)
        slopes = weights
    elif RULE >= ENTMAX_ANY:
        weights, slopes = threshold_weights(scores, level, inverse, less_one, RULE, ROUGH)
        if MASKED:
            weights, slopes = tl.where(allowed, weights, 0.0), tl.where(allowed, slopes, 0.0)
    else:
        weights = numerators(scores, allowed, unit, RULE, MASKED, ROUGH)
        if RULE == SIGMOID:
            slopes = weights * (1.0 - weights)
        elif RULE == CONIC:
            slopes = tl.where(scores > 0, 1.0, 0.0)
        elif RULE == UNIFORM:
            slopes = tl.zeros_like(weights)
        else:
            slopes = tl.full(weights.shape, 1.0, tl.float32)
        if RULE == PROPORTIONAL or RULE == UNIFORM:
            weights, slopes = weights * inverse, slopes * inverse
        if MASKED:
            slopes = tl.where(allowed, slopes, 0.0)
    return weights, slopes


@triton.jit
def mix(bits):
    """The hash of `engines/dropout.py`, on 32 bits."""
    bits = (bits ^ (bits >> 16)) * 0x21F0AAAD
    bits = (bits ^ (bits >> 15)) * 0x735A2D97
    return bits ^ (bits >> 15)


@triton.jit
def row_hashes(seed, entry, rows):
    """What dropout's hash of a pair takes from its batch entry and row."""
    low = (seed & 0xFFFFFFFF).to(tl.uint32)
    high = (seed >> 32).to(tl.uint32)
    return mix(mix(entry.to(tl.uint32) + low) ^ mix(rows.to(tl.uint32) + high))


@triton.jit
def keep_factors(of_rows, columns, dropout, TURNED: tl.constexpr):
    """What dropout multiplies the weights of a tile by.

    `dropout`: the seed; the number below which a hash drops its weight, in two halves, coded; 1/(1 − p).
    """
    by_row, by_column = across(of_rows, mix(columns.to(tl.uint32)), TURNED)
    least = (decoded(dropout[1]).to(tl.uint32) << 16) | decoded(dropout[2]).to(tl.uint32)
    return tl.where(mix(by_row + by_column) >= least, dropout[3], 0.0)
