"""The weights of a tile: mask, rule, dropout."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.tile_scores import LOG2_E, across, load_vector, start_of
from regard.engines.kernels import codes

SOFTMAX = tl.constexpr(codes.SOFTMAX)
PROPORTIONAL = tl.constexpr(codes.PROPORTIONAL)
CONIC = tl.constexpr(codes.CONIC)
RAW = tl.constexpr(codes.RAW)
SIGMOID = tl.constexpr(codes.SIGMOID)
UNIFORM = tl.constexpr(codes.UNIFORM)

BOUNDS = tl.constexpr(codes.BOUNDS)
PAIRS = tl.constexpr(codes.PAIRS)
DOCUMENTS = tl.constexpr(codes.DOCUMENTS)


@triton.jit
def mask_rows(mask, at, start, span, sizes, MASK: tl.constexpr):
    """(first column, the one after the last, document) of rows, where the mask has them. None is beyond the last row.

    `mask`: bounds, pairs and documents, each empty unless the mask has it.
    """
    first, stop, document = span, span, span
    if BOUNDS & MASK != 0:
        # A mask may say that a row attends to more than there is.
        first = load_vector(mask[0][0], mask[0][1], at, start, span, sizes[0])
        stop = load_vector(mask[0][2], mask[0][3], at, start, span, sizes[0])
        first = tl.minimum(tl.maximum(first, 0), sizes[1]).to(tl.int32)
        stop = tl.minimum(tl.maximum(stop, 0), sizes[1]).to(tl.int32)
    if DOCUMENTS & MASK != 0:
        document = load_vector(mask[2][0], mask[2][1], at, start, span, sizes[0])
    return first, stop, document


@triton.jit
def allowed_pairs(
    mask, of_rows, at, row_start, row_span, column_start, column_span, sizes, MASK: tl.constexpr, TURNED: tl.constexpr
):
    """Which pairs of a tile exist and the mask allows."""
    row, column = across(row_start + row_span, column_start + column_span, TURNED)
    inside = (row < sizes[0]) & (column < sizes[1])
    if BOUNDS & MASK != 0:
        first, _ = across(of_rows[0], column_span, TURNED)
        stop, _ = across(of_rows[1], column_span, TURNED)
        inside = inside & (column >= first) & (column < stop)
    if DOCUMENTS & MASK != 0:
        of_columns = load_vector(mask[2][2], mask[2][3], at, column_start, column_span, sizes[1])
        one, other = across(of_rows[2], of_columns, TURNED)
        inside = inside & (one == other)
    if PAIRS & MASK != 0:
        row, column = across(row_span, column_span, TURNED)
        strides = mask[1][1]
        base = mask[1][0] + start_of(strides, at)
        base -= tl.cast(row_start, tl.int64) * strides[3] + tl.cast(column_start, tl.int64) * strides[4]
        row, column = row.to(tl.int64), column.to(tl.int64)
        inside = inside & (tl.load(base - row * strides[3] - column * strides[4], mask=inside, other=0) != 0)
    return inside


@triton.jit
def numerators(scores, allowed, RULE: tl.constexpr):
    """The numerators of a rule that is not softmax, 0 where a pair is not allowed."""
    allowed = allowed & (scores != -float("inf"))
    if RULE == CONIC:
        scores = tl.where(scores < 0, 0.0, scores)
    elif RULE == SIGMOID:
        scores = 1.0 / (1.0 + tl.exp2(scores * -LOG2_E))
    elif RULE == UNIFORM:
        scores = scores * 0.0 + 1.0
    elif RULE == PROPORTIONAL:
        # Such weights do not exist; the host is told by what is no number.
        scores = tl.where(scores < 0, float("nan"), scores)
    return tl.where(allowed, scores, 0.0)


@triton.jit
def next_tile(scores, allowed, peak, RULE: tl.constexpr):
    """(numerators, what earlier sums are multiplied by, the peak) where one more tile follows.

    Numerators of softmax are relative to the largest score so far, as are those of proportional weights: neither a sum
    of them nor of values times them then leaves float32 before it is divided.
    """
    if RULE == SOFTMAX:
        scores = tl.where(allowed, scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # Where nothing was allowed so far, e^(−inf − 0) is 0.
        level = tl.where(higher == -float("inf"), 0.0, higher)
        found = tl.exp2((scores - level[:, None]) * LOG2_E)
        factor = tl.exp2((peak - level) * LOG2_E)
    elif RULE == PROPORTIONAL:
        found = numerators(scores, allowed, RULE)
        higher = tl.maximum(peak, tl.max(found, 1))
        found = found * unit_of(higher)[:, None]
        factor = tl.where(peak > 0, peak * unit_of(higher), 1.0)
    else:
        found, factor, higher = numerators(scores, allowed, RULE), tl.full(peak.shape, 1.0, tl.float32), peak
    return found, factor, higher


@triton.jit
def unit_of(peak):
    """1/peak; 1 where nothing was above 0."""
    return 1.0 / tl.where(peak > 0, peak, 1.0)


@triton.jit
def weights_and_slopes(scores, allowed, peak, inverse, RULE: tl.constexpr):
    """α of a tile, and the diagonal part of dα/da.

    Args:
        scores: The tile.
        allowed: Which pairs are.
        peak: The largest score of each row; used by softmax.
        inverse: 1/Z of each row, of numerators e^(a − peak) under softmax; used by the rules that divide by a sum.
    """
    if RULE == SOFTMAX:
        # The peak was one of these scores, so that none is above it but by another rounding.
        weights = tl.where(allowed, tl.exp2(tl.minimum(scores - peak, 0.0) * LOG2_E) * inverse, 0.0)
        slopes = weights
    else:
        weights = numerators(scores, allowed, RULE)
        if RULE == SIGMOID:
            slopes = weights * (1.0 - weights)
        elif RULE == CONIC:
            slopes = tl.where(allowed & (scores > 0), 1.0, 0.0)
        elif RULE == UNIFORM:
            slopes = tl.zeros_like(weights)
        else:
            slopes = tl.where(allowed, 1.0, 0.0)
        if RULE == PROPORTIONAL or RULE == UNIFORM:
            weights, slopes = weights * inverse, slopes * inverse
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
def keep_factors(of_rows, columns, threshold, factor, TURNED: tl.constexpr):
    """What dropout multiplies the weights of a tile by."""
    by_row, by_column = across(of_rows, mix(columns.to(tl.uint32)), TURNED)
    return tl.where(mix(by_row + by_column) >= threshold.to(tl.uint32), factor, 0.0)
