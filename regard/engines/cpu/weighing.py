"""Kernels for readings of weights, beside those for tiles in `readings.py`: weights of scores, sums of rows, lists."""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.jit import kernel, larger
from regard.engines.cpu.rows import ONE, ZERO, weigh_row


@kernel
def weigh_rows(scores, rule, alpha, offsets, scales):  # type: ignore[no-untyped-def]
    """Rows of scores become weights, in place; see `rows.weigh_row`."""
    for i in range(scores.shape[0]):
        weigh_row(scores[i], rule, alpha, offsets[i], scales[i])


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
