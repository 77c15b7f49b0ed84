"""Rules that need a number of each row found first: the threshold of entmax, the best k.

α = [(alpha − 1)·(a − peak) − τ]₊^(1/(alpha − 1)), with τ such that the row sums to 1; see `regard/weights/entmax.py`.

A row of scores stays in cache while it is worked on. The largest of every 32 columns come first: the threshold of a
part of a row is at most that of the whole, so theirs is a start close to it. Single scores are float32, and so are sums
over them. That is enough, because a score is compared with the threshold itself, kept in two parts: what the sum is off
by is then a small number, which corrects a threshold in float64.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import best_strip
from regard.engines.cpu.kernels.blocks import BLOCK, block_peaks
from regard.engines.cpu.kernels.logarithm import exact_inline, logarithm
from regard.engines.cpu.runtime.jit import exact_helper, exponential, helper, kernel, larger

__all__ = ["best_strip", "entmax_row", "entmax_strip"]

# No row needs so many; it ends what rounding would let go on.
_MAX_PASSES = 60
_CHUNK = 256  # columns of which it is asked at once whether any has a weight
_NEAR_ONE = 2e-7  # a sum of float32 numbers that is 1, as far as it can tell

_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_NOTHING, _INFINITY, _NAN = np.float32(-np.inf), np.float32(np.inf), np.float32(np.nan)


@kernel
def entmax_strip(strip, alpha, peak, threshold, slopes, total_slope, entropy):  # type: ignore[no-untyped-def]
    """Turn the scores of a strip into entmax weights, in place, and write the statistics of its rows.

    A row that allows nothing gets zeros, the peak −inf and the threshold +inf. NaN makes the row's allowed keys NaN.

    Args:
        strip: float32 `(rows, columns)`, C-contiguous; −inf means "not allowed".
        alpha: float64, in (1, 4].
        peak: float32 `(rows,)` for the largest score of each row.
        threshold: float64 `(rows,)` for τ.
        slopes: float32 `(rows, columns)` for α^(2 − alpha) on the support and 0 elsewhere; `(0, 0)` for none.
        total_slope: float64 `(rows,)` for Σ slope; `(0,)` for none.
        entropy: float64 `(rows,)` for −Σ α ln α; `(0,)` for none.
    """
    rows, columns = strip.shape
    peaks = np.empty(columns // BLOCK + 1, np.float32)
    candidates = np.empty(columns, np.float32)
    no_slopes = np.empty(0, np.float32)
    for i in range(rows):
        row = strip[i]
        blocks = block_peaks(row, False, peaks)
        peak[i], threshold[i] = _solve(row, peaks[:blocks], alpha, candidates)
        row_slopes = slopes[i] if slopes.shape[0] else no_slopes
        if total_slope.shape[0] or entropy.shape[0]:
            # They need every weight: take a pass of their own, since few rules learn their alpha.
            slope_sum, surprise = _slope_and_entropy(row, peak[i], threshold[i], alpha)
            if total_slope.shape[0]:
                total_slope[i] = slope_sum
            if entropy.shape[0]:
                entropy[i] = surprise
        entmax_row(row, peak[i], threshold[i], alpha, row_slopes)


# One row, its threshold known -----------------------------------------------------------------------------------------


@helper
def entmax_row(row, peak, threshold, alpha, slopes):  # type: ignore[no-untyped-def]
    """Turn a row of scores, or a part of one, into weights, in place.

    Args:
        row: float32, contiguous; −inf means "not allowed".
        peak: The largest score of the whole row.
        threshold: Its τ.
        alpha: The order, in (1, 4].
        slopes: float32, as long as the row, for α^(2 − alpha) on the support; of length 0 for none.
    """
    if not np.isfinite(peak):
        _fill_odd_row(row, peak, slopes)
        return
    width = row.shape[0]
    sloped = slopes.shape[0] > 0
    if alpha == 2.0:
        high, low = _cut(peak, threshold, 1.0)
        for j in range(width):
            excess = _excess(row[j], high, low)
            inside = not excess <= _ZERO
            row[j] = excess if inside else _ZERO
            if sloped:
                slopes[j] = _ONE if inside else _ZERO
    elif alpha == 1.5:
        high, low = _cut(peak, threshold, 0.5)
        for j in range(width):
            excess = _excess(row[j], high, low)
            root = _ZERO if excess <= _ZERO else _HALF * excess
            row[j] = root * root
            if sloped:
                slopes[j] = root
    else:
        terms = _terms(peak, threshold, alpha)
        for start in range(0, width, _CHUNK):
            part = row[start : start + _CHUNK]
            part_slopes = slopes[start : start + _CHUNK]
            # Most parts of a sparse row are empty, and a power takes thirty operations.
            reached = _ZERO
            for j in range(part.shape[0]):
                reached += _ZERO if _base(part[j], terms) <= _ZERO else _ONE
            if reached == _ZERO:
                part[:] = _ZERO
                part_slopes[:] = _ZERO
            elif sloped:
                for j in range(part.shape[0]):
                    _, part[j], part_slopes[j] = _power(part[j], terms)
            else:
                for j in range(part.shape[0]):
                    _, part[j], _ = _power(part[j], terms)


@helper
def _fill_odd_row(row, peak, slopes):  # type: ignore[no-untyped-def]
    """Weights where the peak is not finite: NaN where ∞ − ∞ or NaN would be, 0 elsewhere."""
    for j in range(row.shape[0]):
        odd = row[j] != _NOTHING if peak != peak else row[j] == _INFINITY
        row[j] = _NAN if odd else _ZERO
        if slopes.shape[0]:
            slopes[j] = row[j]


@helper
def _slope_and_entropy(row, peak, threshold, alpha):  # type: ignore[no-untyped-def]
    """(Σ slope, −Σ α ln α) of a row of scores, in float64."""
    if not np.isfinite(peak):
        return (0.0, 0.0) if peak == _NOTHING else (np.nan, np.nan)
    slope_sum, surprise = 0.0, 0.0
    # The logarithm of a weight is at hand in the general form, which is right for every alpha.
    terms = _terms(peak, threshold, alpha)
    for j in range(row.shape[0]):
        log_weight, weight, slope = _power(row[j], terms)
        slope_sum += np.float64(slope)
        surprise -= np.float64(weight * log_weight)
    return slope_sum, surprise


@exact_helper
def _cut(peak, threshold, scale):  # type: ignore[no-untyped-def]
    """The score at which weights end, peak + τ/scale, as a float32 and what is left of it.

    The rest is found from the exact difference to the peak: their sum would lose τ where scores are large.
    """
    high = np.float32(np.float64(peak) + threshold / scale)
    return high, np.float32((np.float64(peak) - np.float64(high)) + threshold / scale)


@exact_helper
def _excess(score, high, low):  # type: ignore[no-untyped-def]
    """How far a score is above the cut, to the last place or two. Reassociated, it would lose `low`."""
    return (score - high) - low


@helper
def _terms(peak, threshold, alpha):  # type: ignore[no-untyped-def]
    """What `_power` needs of a row: (from, rest, scale, one, unit, start, power).

    x = (alpha − 1)·(a − peak) − τ. Where a high power follows (alpha < 1.5), it is −τ·(1 + r) with a small r, so that
    a difference of scores keeps its digits; else it is a multiple of the score's distance to the cut, so that a small x
    does.
    """
    scale = alpha - 1.0
    power = 1.0 / scale
    if alpha < 1.5:
        start = np.float32(power * np.log(-threshold))
        return peak, _ZERO, np.float32(scale / -threshold), _ONE, np.float32(-threshold), start, np.float32(power)
    high, low = _cut(peak, threshold, scale)
    return high, low, np.float32(scale), _ZERO, _ONE, _ZERO, np.float32(power)


@exact_helper
def _base(score, terms):  # type: ignore[no-untyped-def]
    """x / unit."""
    return ((score - terms[0]) - terms[1]) * terms[2] + terms[3]


@exact_inline
def _power(score, terms):  # type: ignore[no-untyped-def]
    """(ln α, α, slope) of a score: α = x^power and slope = α/x; zeros outside the support."""
    centre, rest, scale, one, unit, start, power = terms
    part = ((score - centre) - rest) * scale
    base = part + one
    outside = base <= _ZERO
    safe = _ONE if outside else base
    lost = part - (safe - one)  # what base was rounded by; NaN if the score is
    log_weight = start + power * (logarithm(safe) + (_ZERO if outside else lost * (_TWO - safe)))
    weight = _ZERO if outside else exponential(log_weight)
    return (_ZERO if outside else log_weight), weight, weight / (safe * unit)


# The threshold of a row -----------------------------------------------------------------------------------------------


@helper
def _solve(row, peaks, alpha, candidates):  # type: ignore[no-untyped-def]
    """(largest score, threshold) of a row; `peaks` are the largest of its blocks, +inf for NaN."""
    peak = _NOTHING
    for b in range(peaks.shape[0]):
        peak = peaks[b] if peaks[b] > peak else peak
    if peak == _NOTHING:
        return peak, np.inf
    if peak == _INFINITY:
        for j in range(row.shape[0]):
            if row[j] != row[j]:
                peak = _NAN
        return peak, -1.0
    if alpha == 2.0:
        return peak, _sparsemax(row, peak, _sparsemax(peaks, peak, -1.0))
    if alpha == 1.5:
        return peak, _entmax_one_and_half(row, peak, _entmax_one_and_half(peaks, peak, -1.0))
    # A little lower than the threshold of the peaks, so that no rounding hides a key of the support.
    low = max(-1.0, _entmax(peaks, peak, alpha, -1.0) - 1e-5)
    high, rest = _cut(peak, low, alpha - 1.0)
    found = 0
    for b in range(peaks.shape[0]):
        if _excess(peaks[b], high, rest) > _ZERO:
            for j in range(b * BLOCK, min((b + 1) * BLOCK, row.shape[0])):
                candidates[found] = row[j]
                found += 1 if _excess(row[j], high, rest) > _ZERO else 0
    return peak, _entmax(candidates[:found], peak, alpha, low)


@helper
def solve_scores(scores, peak, alpha):  # type: ignore[no-untyped-def]
    """The threshold of some scores of which the largest is known, and finite."""
    if alpha == 2.0:
        return _sparsemax(scores, peak, -1.0)
    if alpha == 1.5:
        return _entmax_one_and_half(scores, peak, -1.0)
    return _entmax(scores, peak, alpha, -1.0)


@helper
def _sparsemax(scores, peak, threshold):  # type: ignore[no-untyped-def]
    """τ for alpha = 2, by Newton's steps (Michelot), each exact on a support: it is done when one repeats."""
    before = _ZERO
    for _ in range(_MAX_PASSES):
        high, low = _cut(peak, threshold, 1.0)
        count, total = _ZERO, _ZERO
        for j in range(scores.shape[0]):
            excess = _excess(scores[j], high, low)
            count += _ONE if excess > _ZERO else _ZERO
            total += larger(excess, _ZERO)
        off = np.float64(total) - 1.0
        threshold += off / np.float64(count)
        if count == before or abs(off) <= _NEAR_ONE:
            break
        before = count
    return threshold


@helper
def _entmax_one_and_half(scores, peak, threshold):  # type: ignore[no-untyped-def]
    """τ for alpha = 1.5: each step solves Σ (x − δ)² = 1 on a support, and it is done when one repeats."""
    before = _ZERO
    for step in range(_MAX_PASSES):
        high, low = _cut(peak, threshold, 0.5)
        count, total, squares = _ZERO, _ZERO, _ZERO
        for j in range(scores.shape[0]):
            excess = _excess(scores[j], high, low)
            inside = larger(excess, _ZERO)
            count += _ONE if excess > _ZERO else _ZERO
            total += inside
            squares += inside * inside
        sum_x, sum_squares = 0.5 * np.float64(total), 0.25 * np.float64(squares)
        off = sum_squares - 1.0
        root = sum_x * sum_x - np.float64(count) * off
        solved = root >= 0.0 and step < 8
        if solved:
            threshold += off / (sum_x + np.sqrt(root))
        else:  # this support is far too large, or supports alternate: Newton's step for √Σx², which is convex
            threshold += off / (1.0 + 1.0 / np.sqrt(sum_squares)) / sum_x
        if count == before or abs(off) <= _NEAR_ONE:
            break
        before = count if solved else _ZERO  # after Newton's step, a support that repeats proves nothing
    return threshold


@helper
def _entmax(scores, peak, alpha, low):  # type: ignore[no-untyped-def]
    """τ for any alpha, by Newton's steps for (Σα)^(alpha − 1), halving where one leaves what is known."""
    # m equal keys have τ = −(1/m)^(alpha − 1); no other m keys have more.
    high = -(np.float64(scores.shape[0]) ** (1.0 - alpha))
    threshold = low
    for _step in range(_MAX_PASSES):
        terms = _terms(peak, threshold, alpha)
        total, steepness = _ZERO, _ZERO
        for j in range(scores.shape[0]):
            _, weight, slope = _power(scores[j], terms)
            total += larger(weight, _ZERO)
            steepness += larger(slope, _ZERO)
        off = np.float64(total) - 1.0
        if off >= 0.0:
            low = max(low, threshold)
        if off <= 0.0:
            high = min(high, threshold)
        following = threshold + (np.float64(total) - np.float64(total) ** (2.0 - alpha)) / np.float64(steepness)
        if not (following >= low and following <= high):
            following = 0.5 * (low + high)
        if abs(off) <= 2.0 * _NEAR_ONE or abs(following - threshold) <= 1e-15 * abs(threshold):
            break
        threshold = following
    return threshold
