"""What a view reads from a tile of weights, in one go: entropy, weight received, the heaviest keys, a picture."""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import best_scratch, merge_best
from regard.engines.cpu.kernels.logarithm import exact_inline, logarithm
from regard.engines.cpu.runtime.jit import helper, kernel

_CHUNK = 512  # terms that are added up in float32, in several sums at once, before float64 takes over
_ZERO, _ONE, _NAN = np.float32(0.0), np.float32(1.0), np.float32(np.nan)


@kernel
def read_tile(  # type: ignore[no-untyped-def]
    weights, first_column, entropy, received, top_weights, top_index, picture, row_bins, column_bins
):
    """Add what a tile says to what was read before it. `regard/view/readings.py` defines each reading.

    Args:
        weights: float32 `(rows, columns)`, C-contiguous.
        first_column: Which key its first column is; above all columns that these rows were read with before.
        entropy: float64 `(rows,)`, for −Σ α ln α; `(0,)` for none.
        received: float64 `(columns,)`, for Σ α over rows; `(0,)` for none.
        top_weights: float32 `(rows, k)`, best first; 0 in empty places, all of them at first. k may be 0.
        top_index: int64 `(rows, k)`; −1 in empty places.
        picture: float64 `(height, width)`, for sums of weights; `(0, 0)` for none.
        row_bins: int64 `(rows,)`, the picture's row of each row, ascending; `(0,)` without a picture.
        column_bins: int64 `(columns,)`, its column of each column, ascending.
    """
    rows, columns = weights.shape
    drawn = picture.shape[0] > 0
    summed = drawn or received.shape[0] > 0
    sums = np.zeros(columns if summed else 0)
    peaks, places, values, packed = best_scratch(columns)
    for i in range(rows):
        row = weights[i]
        if entropy.shape[0]:
            entropy[i] += _entropy(row)
        if top_index.shape[1]:
            merge_best(row, first_column, True, top_weights[i], top_index[i], peaks, places, values, packed)
        if summed:
            for j in range(columns):
                sums[j] += np.float64(row[j])
            # Rows of one line of the picture are added up first, so that its bins are looked up once a line.
            if i + 1 == rows or (drawn and row_bins[i] != row_bins[i + 1]):
                _spread(sums, received, picture, row_bins[i] if drawn else 0, column_bins)


@helper
def _entropy(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(0, row.shape[0], _CHUNK):
        part = row[start : start + _CHUNK]
        terms = _ZERO
        for j in range(part.shape[0]):
            terms += _surprise(part[j])
        total += np.float64(terms)
    return total


@exact_inline
def _surprise(weight):  # type: ignore[no-untyped-def]
    """−α ln α; 0 for 0, NaN below."""
    term = -weight * logarithm(_ONE if weight == _ZERO else weight)
    return _NAN if weight < _ZERO else term


@helper
def _spread(sums, received, picture, line, column_bins):  # type: ignore[no-untyped-def]
    """Add sums of columns to where they are wanted, and start again at 0."""
    columns = sums.shape[0]
    if received.shape[0]:
        for j in range(columns):
            received[j] += sums[j]
    if picture.shape[0] and columns:
        place, total = column_bins[0], 0.0
        for j in range(columns):
            if column_bins[j] != place:
                picture[line, place] += total
                place, total = column_bins[j], 0.0
            total += sums[j]
        picture[line, place] += total
    for j in range(columns):
        sums[j] = 0.0
