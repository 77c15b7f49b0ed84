"""The keys of a row that may have a weight under entmax, gathered tile after tile. Compiled.

Entmax leaves most keys of a long row with no weight. The cut, below which a score has none, rises with every key that
comes: what is below the cut of some keys is below that of all. So one look at each tile gathers the few candidates, and
the row's threshold is solved for on them alone.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.blocks import BLOCK, block_bits, block_peaks, lowest_bit
from regard.engines.cpu.kernels.entmax_thresholds import entmax_row, solve_scores
from regard.engines.cpu.runtime.jit import helper, kernel, larger

# Candidates that one compiled call thins out, so that Ctrl-C is heard: up to 60 passes over them.
CALL_CANDIDATES = 1 << 21

_MARGIN = 1e-5  # of a threshold: no rounding may hide a key that has a weight
_ZERO = np.float32(0.0)
_NOTHING, _INFINITY = np.float32(-np.inf), np.float32(np.inf)
_LOWEST = np.finfo(np.float32).min
_LEAST = 64  # so many candidates are not worth to be thinned out


@helper
def _least_score(peak, threshold, alpha):  # type: ignore[no-untyped-def]
    """A number below every score that has a weight, and not far below; above −inf, which means "not allowed"."""
    cut = np.float64(peak) + (threshold - _MARGIN) / (alpha - 1.0)
    return larger(np.float32(cut - 2.4e-7 * abs(cut)), _LOWEST)


@helper
def _largest(scores):  # type: ignore[no-untyped-def]
    peak = _NOTHING
    for j in range(scores.shape[0]):
        peak = scores[j] if scores[j] > peak else peak
    return peak


@helper
def _thin_out(scores, keys, count, alpha):  # type: ignore[no-untyped-def]
    """(how many candidates are left, the cut) after those that are below the cut of all are gone."""
    peak = _largest(scores[:count])
    cut = _least_score(peak, solve_scores(scores[:count], peak, alpha), alpha)
    left = 0
    for j in range(count):
        scores[left], keys[left] = scores[j], keys[j]
        left += 1 if scores[j] >= cut else 0
    return left, cut


@helper
def gather_tile(  # type: ignore[no-untyped-def]
    tile, first_column, alpha, most, peaks, scores, keys, counts, settled, cuts
):
    """Add the columns of a tile to the candidates of its rows.

    Returns:
        How many candidates were gone through to thin them out; −1 if a row had no room. A score that is NaN or +inf has
        none either: such rows are for `entmax_thresholds.py`.

    Args:
        tile: Scores, `(n_rows, width)`; −inf means "not allowed".
        first_column: Which key the first column is.
        alpha: The order of entmax.
        most: How many candidates a row may keep when they have been thinned out.
        peaks: Scratch for the largest of every 32 columns.
        scores, keys: The candidates of each row, `(n_rows, most + width)` or wider.
        counts: How many there are.
        settled: How many there were when they were thinned out last.
        cuts: float32, what a score must reach.
    """
    thinned = 0
    for i in range(tile.shape[0]):
        row, cut = tile[i], cuts[i]
        blocks = block_peaks(row, False, peaks)
        top = _largest(peaks[:blocks])
        if top == _INFINITY:
            return -1
        if top == _NOTHING or top < cut:
            continue
        if counts[i] == 0:
            cut = _least_score(top, solve_scores(peaks[:blocks], top, alpha), alpha)
        count = counts[i]
        for b in range(blocks):
            if peaks[b] >= cut:
                bits = block_bits(row, b, False, cut, _INFINITY)
                while bits:
                    j = b * BLOCK + lowest_bit(bits)
                    scores[i, count], keys[i, count] = row[j], first_column + j
                    count += 1
                    bits &= bits - np.uint64(1)
        if count > 2 * settled[i] + _LEAST or count > most:
            thinned += count
            count, cut = _thin_out(scores[i], keys[i], count, alpha)
            settled[i] = count
            if count > most:
                return -1
        counts[i], cuts[i] = count, cut
    return thinned


@kernel
def weigh_candidates(scores, keys, counts, alpha, row_peaks, thresholds, slopes, total_slopes):  # type: ignore[no-untyped-def]
    """The candidates of each row become weights; keys that have none leave, and −1 follows the last.

    Args:
        scores, keys, counts: As `gather_tile` left them; scores become weights.
        alpha: The order of entmax.
        row_peaks, thresholds: Of each row, written.
        slopes: α^(2 − alpha), written.
        total_slopes: Their sum for each row, written.
    """
    for i in range(counts.shape[0]):
        count = counts[i]
        row_peaks[i], thresholds[i], total_slopes[i] = _NOTHING, np.inf, 0.0
        if count:
            peak = _largest(scores[i, :count])
            threshold = solve_scores(scores[i, :count], peak, alpha)
            entmax_row(scores[i, :count], peak, threshold, alpha, slopes[i, :count])
            left, total = 0, 0.0
            for j in range(count):
                weight, slope = scores[i, j], slopes[i, j]
                scores[i, left], slopes[i, left], keys[i, left] = weight, slope, keys[i, j]
                total += np.float64(slope)
                left += 1 if slope > _ZERO else 0
            row_peaks[i], thresholds[i], total_slopes[i], count = peak, threshold, total, left
        counts[i] = count
        keys[i, count] = -1


@helper
def list_tile(  # type: ignore[no-untyped-def]
    tile, first_column, alpha, row_peaks, thresholds, peaks, counts, keys, scores
):
    """Add the columns of a tile that have a weight to the lists of its rows, and perhaps a few that have none.

    Args:
        tile: Scores, `(n_rows, width)`; −inf means "not allowed".
        first_column: Which key the first column is.
        alpha: The order of entmax.
        row_peaks, thresholds: Of each row.
        peaks: Scratch for the largest of every 32 columns.
        counts: How long the lists are.
        keys: The lists, with room for the tile and one more; −1 follows the last key.
        scores: Of the keys.
    """
    for i in range(tile.shape[0]):
        row, count = tile[i], counts[i]
        if np.isfinite(row_peaks[i]):
            cut = _least_score(row_peaks[i], thresholds[i], alpha)
            for b in range(block_peaks(row, False, peaks)):
                if peaks[b] >= cut:
                    bits = block_bits(row, b, False, cut, _INFINITY)
                    while bits:
                        j = b * BLOCK + lowest_bit(bits)
                        keys[i, count], scores[i, count] = first_column + j, row[j]
                        count += 1
                        bits &= bits - np.uint64(1)
        elif row_peaks[i] != _NOTHING:  # NaN, or ∞ − ∞: no key is known to have no weight
            for j in range(row.shape[0]):
                keys[i, count], scores[i, count] = first_column + j, row[j]
                count += 1 if row[j] != _NOTHING else 0
        counts[i] = count
        keys[i, count] = -1
