"""Thresholds of entmax: τ of every row such that Σ [z − τ]₊^(1/(alpha − 1)) = 1, of z = (alpha − 1)·(a − max a).

A pass over the keys keeps the two largest scores of every place in a tile, of all tiles. Few others have weight, and
what few keys say is a bound for all: their threshold, found in registers, is no more than that of the row, and for most
rows it is that. Further passes add up weights and slopes at a trial threshold. They compute scores again, which costs
less than to keep them. Sparsemax needs one as a rule, alpha 1.5 two or three, and none more than `MOST_PASSES`.

With f = Σ x^p and g = Σ x^(p−1), of x = [z − τ]₊ and p = 1/(alpha − 1), the norm f^(1/p) is all but a line in τ: it is
one for equal scores, and for one key alone. Newton's step on it is (f^(1/p) − 1) · f^(1 − 1/p) / g. For p ≥ 1 the norm
is convex, and no step goes too far; for p < 1, f has an edge at every key. Wherever a step leaves its bracket, the
bracket is cut.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import INSTRUCTIONS, exp2
from regard.engines.kernels import codes

ENTMAX_ANY = tl.constexpr(codes.ENTMAX_ANY)
ENTMAX_ONE = tl.constexpr(codes.ENTMAX_ONE)
ENTMAX_TWO = tl.constexpr(codes.ENTMAX_TWO)

MOST_PASSES = tl.constexpr(40)
FIRST_STEPS = tl.constexpr(2)  # of alpha > 2 that are taken on the norm; those that follow, on the sum
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def log2(x, ROUGH: tl.constexpr):
    """log₂ x; where `ROUGH`, by one instruction, to 2⁻²²."""
    if ROUGH and INSTRUCTIONS:
        x = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.log2(x)
    return x


@triton.jit
def alpha_less_one(pointer, entry, RULE):
    """alpha − 1 of a batch entry. `pointer` has one for each; it is not read where the rule says what it is."""
    unit = tl.cast(entry * 0, tl.float32) + 1.0
    if RULE == ENTMAX_TWO:
        unit = unit * 0.5
    if RULE == ENTMAX_ANY:
        unit = tl.load(pointer + entry)
    return unit


@triton.jit
def threshold_weights(scores, level, threshold, unit, RULE, ROUGH: tl.constexpr):
    """(α, slopes) of a tile, slope = α^(2 − alpha): 0 for both outside of the support; NaN stays.

    Args:
        scores: The tile.
        level: The largest score of each row, 0 where it has none.
        threshold: Of each row; +inf where it has no key.
        unit: alpha − 1.
        RULE, ROUGH: As everywhere.
    """
    excess = tl.maximum((scores - level) * unit - threshold, 0.0, propagate_nan=tl.PropagateNan.ALL)
    weights, slopes = excess, tl.where(excess > 0, 1.0, excess)
    if RULE == ENTMAX_TWO:
        weights, slopes = excess * excess, excess
    if RULE == ENTMAX_ANY:
        logarithm = log2(excess, ROUGH) * (1.0 / unit)
        weights = exp2(logarithm)
        slopes = tl.where(excess == 0, 0.0, exp2(logarithm * (1.0 - unit)))
    return weights, slopes


@triton.jit
def turned_sums(scores, weights, level, threshold, to_weights, unit, ROUGH: tl.constexpr):
    """What each row of a tile gives to the gradient of alpha: Σ (dP − δ)·(α/unit² − α ln α/unit)."""
    if not ROUGH:
        # Their difference is what counts where unit is small: float32 would leave few digits of it.
        excess = tl.maximum((scores.to(tl.float64) - level) * unit - threshold, 1e-30)
        weights = tl.where(weights > 0, tl.exp2(tl.log2(excess) / unit), weights.to(tl.float64))
    logarithm = tl.log2(tl.where(weights == 0, 1.0, weights)) * LN_2
    turned = weights * (1.0 - unit * logarithm) * (1.0 / (unit * unit)) * to_weights
    return tl.sum(turned, 1).to(tl.float32)


@triton.jit
def entropies(weights, ROUGH: tl.constexpr):
    """−Σ α ln α of each row of a tile."""
    return tl.sum(weights * (-LN_2 * log2(tl.where(weights == 0, 1.0, weights), ROUGH)), 1)


@triton.jit
def level_of(peak):
    """The largest score of rows, 0 where there is none: what scores are held against."""
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def none_so_far(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The two largest scores of every place in a tile, before any."""
    nothing = tl.full((ROWS, COLUMNS), -float("inf"), tl.float32)
    return nothing, nothing


@triton.jit
def largest_two(found, scores, allowed, MASKED: tl.constexpr):
    """The two largest scores of every place, with one more tile. NaN stays the largest."""
    best, second = found
    if MASKED:
        scores = tl.where(allowed, scores, -float("inf"))
    second = tl.maximum(second, tl.minimum(best, scores))
    return tl.maximum(best, scores, propagate_nan=tl.PropagateNan.ALL), second


@triton.jit
def add_weights(sums, scores, allowed, level, threshold, unit, RULE, MASKED: tl.constexpr, ROUGH: tl.constexpr):
    """(Σα, Σ slope) of rows with one more tile, at trial thresholds."""
    if MASKED:
        scores = tl.where(allowed, scores, -float("inf"))
    weights, slopes = threshold_weights(scores, level[:, None], threshold[:, None], unit, RULE, ROUGH)
    return sums[0] + tl.sum(weights, 1), sums[1] + tl.sum(slopes, 1)


@triton.jit
def threshold_of_two(found, n_keys, unit, RULE, ROUGH: tl.constexpr):
    """(largest score, bracket for all keys) of rows from the two largest scores of every place."""
    best, second = found
    peak = tl.max(best, 1)
    # A row that sees NaN or +inf is NaN.
    broken = tl.max(tl.where((best < float("inf")) == 0, 1, 0), 1) != 0
    peak = tl.where(broken, float("nan"), peak)
    level = level_of(peak)
    everything = tl.full(best.shape, 1, tl.int1)
    bracket = widest_bracket(peak, 2 * best.shape[1], unit)
    n_passes = tl.max(bracket[3]) * 0
    while goes_on(bracket, n_passes):
        threshold = bracket[0].to(tl.float32)
        sums = add_weights(no_sums(best.shape[0]), best, everything, level, threshold, unit, RULE, False, ROUGH)
        sums = add_weights(sums, second, everything, level, threshold, unit, RULE, False, ROUGH)
        bracket = next_bracket(sums, bracket, n_passes, unit, RULE, ROUGH)
        n_passes += 1
    threshold, low, high, settled = widest_bracket(peak, n_keys, unit)
    threshold = tl.where(settled != 0, threshold, tl.minimum(bracket[0], high))
    return peak, (threshold, low, high, settled)


@triton.jit
def no_sums(ROWS: tl.constexpr):
    """(Σα, Σ slope) of rows before any tile."""
    return tl.zeros((ROWS,), tl.float64), tl.zeros((ROWS,), tl.float64)


@triton.jit
def norm_step(total, slope, unit, RULE):
    """How far Newton's step on the norm goes."""
    if RULE == ENTMAX_ONE:
        step = (total - 1.0) / slope
    elif RULE == ENTMAX_TWO:
        root = tl.sqrt(total)
        step = (root - 1.0) * root / slope
    else:
        logarithm = tl.log2(total)
        step = (exp2(logarithm * unit) - 1.0) * exp2(logarithm * (1.0 - unit)) / slope
    return step


@triton.jit
def widest_bracket(peak, n_keys, unit):
    """(thresholds, the least and most they may be, whether they are settled) of rows of which the peak is known.

    m equal keys have the threshold −(1/m)^(alpha − 1), which is the most for m keys. A row without a key has +inf.
    """
    peak = tl.where(unit == unit, peak, float("nan"))  # of no alpha there is no threshold
    low = tl.full(peak.shape, -1.0, tl.float64)
    high = low * tl.exp2(-unit * tl.log2(tl.cast(n_keys, tl.float32)))
    empty, broken = peak == -float("inf"), peak != peak
    threshold = tl.where(broken, float("nan"), tl.where(empty, float("inf"), low))
    return threshold, low, high, (empty | broken).to(tl.int32)


@triton.jit
def next_bracket(sums, bracket, n_passes, unit, RULE, ROUGH: tl.constexpr):
    """The bracket after a pass at its thresholds. A row is settled when its own is known to float32."""
    total, slope = sums
    threshold, low, high, settled = bracket
    low, high = tl.where(total >= 1, threshold, low), tl.where(total <= 1, threshold, high)
    excess = (total - 1.0) * unit / slope
    norm = norm_step(total.to(tl.float32), slope.to(tl.float32), unit, RULE)
    # Near 1, digits of a norm in float32 would be those of its rounding. For p < 1 edges mislead it more than the sum.
    far = tl.where(unit > 1, tl.where(n_passes < FIRST_STEPS, 0.01, float("inf")), 0.01).to(tl.float64)
    moved = threshold + tl.where(tl.abs(total - 1.0) < far, excess, norm.to(tl.float64))
    # Thresholds far apart are cut by their ratio.
    cut = tl.where(low < 4 * high, -tl.sqrt(low * high), 0.5 * (low + high))
    moved = tl.where((moved >= low) & (moved <= high), moved, cut)
    # For p ≥ 2 a step leaves an error of about its square.
    near = tl.where(unit <= 0.5, 1e-4 if ROUGH else 1e-6, 4e-7).to(tl.float64)
    closed = (tl.abs(moved - threshold) <= near * tl.abs(threshold)) | (high - low <= 1e-7 * tl.abs(low))
    closed = closed | (tl.abs(total - 1.0) <= 2e-7)  # as exact as sums in float32
    moved = tl.where((settled != 0) | (total == 1), threshold, moved)
    return moved, low, high, settled | closed.to(tl.int32)


@triton.jit
def goes_on(bracket, n_passes):
    """Whether a row is not settled, and may still be."""
    return (tl.min(bracket[3]) == 0) & (n_passes < MOST_PASSES)
