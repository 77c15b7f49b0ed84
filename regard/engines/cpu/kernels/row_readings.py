"""Kernels for readings of weights, beside `tile_readings.py`: weights of scores, sums of rows, lists."""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.row_steps import ONE, ZERO, weigh_row
from regard.engines.cpu.runtime.jit import kernel, larger


@kernel
def weigh_rows(scores, rule, alpha, offsets, scales):  # type: ignore[no-untyped-def]
    """Rows of scores become weights, in place; see `row_steps.weigh_row`."""
    for i in range(scores.shape[0]):
        weigh_row(scores[i], rule, alpha, offsets[i], scales[i])


@kernel
def settle_best(scores, keys, rule, offsets, scales, top_weights, top_index, doubtful):  # type: ignore[no-untyped-def]
    """The heaviest keys of each row, from those with its best scores: a few more than are wanted.

    A larger score has no smaller weight, but for rounding: weights that differ by less may swap, or be equal, and then
    the lower key is first. Where a key that was not kept may so belong to the heaviest, the row is doubtful.

    Args:
        scores: float32 `(rows, kept)`, best first, −inf in empty places; lost.
        keys: int64 `(rows, kept)`, −1 in empty places; lost.
        rule, offsets, scales: What makes them weights, see `row_steps.weigh_row`.
        top_weights: float32 `(rows, k)`, for the heaviest; 0 in empty places.
        top_index: int64 `(rows, k)`; −1 in empty places.
        doubtful: bool `(rows,)`, whether what was written may be wrong.
    """
    kept, k = scores.shape[1], top_weights.shape[1]
    for i in range(scores.shape[0]):
        row, places = scores[i], keys[i]
        complete = places[kept - 1] < 0
        weigh_row(row, rule, 1.0, offsets[i], scales[i])
        last, unknown = row[kept - 1], scales[i] != scales[i]
        for j in range(kept):  # an insertion sort, of what is all but sorted
            weight, place, at = row[j], places[j], j
            unknown |= weight != weight
            while at > 0 and (row[at - 1] < weight or (row[at - 1] == weight and places[at - 1] > place)):
                row[at], places[at] = row[at - 1], places[at - 1]
                at -= 1
            row[at], places[at] = weight, place
        for j in range(k):
            top_weights[i, j] = row[j]
            top_index[i, j] = -1 if row[j] == ZERO else places[j]
        # What was not kept weighs no more than the last, and nothing if that weighs nothing. The margin is some units
        # in the last place, among the smallest numbers too.
        least = np.float64(row[k - 1])
        below = np.float64(last) + 1e-6 * least + 1e-44 < least
        doubtful[i] = unknown or not (complete or last == ZERO or below)


@kernel
def sum_tile(weights, least, total, most, count):  # type: ignore[no-untyped-def]
    """Add what a tile says of its rows: the least weight, their sum, the largest, how many are not 0; float64 each."""
    for i in range(weights.shape[0]):
        row = weights[i]
        negated, peak, added, there = ZERO, ZERO, ZERO, ZERO
        for j in range(row.shape[0]):
            negated, peak = larger(negated, -row[j]), larger(peak, row[j])
            added += row[j]
            there += ONE if row[j] != ZERO else ZERO
        least[i], most[i] = min(least[i], -np.float64(negated)), max(most[i], np.float64(peak))
        total[i] += np.float64(added)
        count[i] += np.float64(there)


@kernel
def spread_lists(weights, index, received, picture, row_bins, column_bins):  # type: ignore[no-untyped-def]
    """Add the weights of listed keys to what keys receive, and to a picture; as `readings.read_tile` does for tiles.

    Args:
        weights: float32 `(rows, width)`.
        index: int64, the key of each; −1 after the end of a list.
        received: float64 `(n_keys,)`; `(0,)` for none.
        picture: float64 `(height, width)`; `(0, 0)` for none.
        row_bins: The picture's row of each row.
        column_bins: Its column of each key.
    """
    for i in range(index.shape[0]):
        for t in range(index.shape[1]):
            key = index[i, t]
            if key < 0:
                break
            if received.shape[0]:
                received[key] += np.float64(weights[i, t])
            if picture.shape[0]:
                picture[row_bins[i], column_bins[key]] += np.float64(weights[i, t])
