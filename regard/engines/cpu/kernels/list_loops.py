"""Compiled passes over rows that look at a few listed keys each: scattered selections, and the best k.

Keys and values are gathered row by row, so that a row costs what it lists. `index` is `(n_rows, width)`: the keys of
each row, then −1. What belongs to a pair is kept in lists of the same width.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.row_steps import (
    NOTHING,
    ZERO,
    differentiate_row,
    drop,
    pool_row,
    step_row,
    step_row_back,
)
from regard.engines.cpu.runtime.jit import fetch, helper, kernel
from regard.engines.cpu.runtime.signatures import SINGLE

_AHEAD = 8  # how many places earlier a listed row is asked for
_LINE = 16  # numbers that come from memory together


@helper
def _length(listed):  # type: ignore[no-untyped-def]
    length = 0
    while length < listed.shape[0] and listed[length] >= 0:
        length += 1
    return length


@helper
def _fetch_ahead(matrix, listed, t):  # type: ignore[no-untyped-def]
    """Ask for the row that is listed a few places later: rows lie anywhere, and memory is slow to answer."""
    if t + _AHEAD < listed.shape[0]:
        for c in range(0, matrix.shape[1], _LINE):
            fetch(matrix, listed[t + _AHEAD], c)


@helper
def _dots(vector, matrix, listed, out):  # type: ignore[no-untyped-def]
    """The product of a vector with each listed row of a matrix."""
    for t in range(out.shape[0]):
        _fetch_ahead(matrix, listed, t)
        row = matrix[listed[t]]
        total = ZERO
        for c in range(vector.shape[0]):
            total += vector[c] * row[c]
        out[t] = total


@helper
def _add_listed(factors, matrix, listed, out):  # type: ignore[no-untyped-def]
    """Add the listed rows of a matrix, each times its factor."""
    for t in range(factors.shape[0]):
        _fetch_ahead(matrix, listed, t)
        factor, row = factors[t], matrix[listed[t]]
        if factor != ZERO:
            for c in range(out.shape[0]):
                out[c] += factor * row[c]


@helper
def _spread_listed(factors, vector, listed, matrix):  # type: ignore[no-untyped-def]
    """Add a vector, times each factor, to the listed rows of a matrix."""
    for t in range(factors.shape[0]):
        _fetch_ahead(matrix, listed, t)
        factor, row = factors[t], matrix[listed[t]]
        if factor != ZERO:
            for c in range(vector.shape[0]):
                row[c] += factor * vector[c]


@helper
def _score(vector, right, listed, row, i, steps, scratch):  # type: ignore[no-untyped-def]
    """The scores of row i's list; `scratch` receives the numbers of its columns, and what each step was given."""
    columns, kept = scratch[0], scratch[1]
    _dots(vector, right, listed, row)
    length = row.shape[0]
    for k in range(steps.codes.shape[0]):
        for t in range(length):
            columns[k, t] = steps.by_column[k, listed[t]]
        kept[k, :length] = row
        step_row(
            steps.codes[k], row, steps.by_row[k, i], columns[k, :length], steps.numbers[k],
            steps.pairs[i % steps.pairs.shape[0], :length], steps.table,
        )  # fmt: skip


@kernel
def score_listed(left, right, index, steps, scratch, scores):  # type: ignore[no-untyped-def]
    """The scores of every list, −inf after its end."""
    for i in range(index.shape[0]):
        length = _length(index[i])
        scores[i, length:] = NOTHING
        _score(left[i], right, index[i, :length], scores[i, :length], i, steps, scratch)


@kernel
def pool_listed(left, right, values, index, steps, scratch, rule, dropout, row_sums):  # type: ignore[no-untyped-def]
    """Take every list into the sums of its row; returns the least numerator."""
    least = ZERO
    row_scratch, hash_scratch = np.empty(index.shape[1], np.float32), np.empty(index.shape[1], np.uint32)
    for i in range(index.shape[0]):
        length = _length(index[i])
        listed, row = index[i, :length], row_scratch[:length]
        _score(left[i], right, listed, row, i, steps, scratch)
        row_sums.peaks[i], row_sums.totals[i], lowest = pool_row(
            row, rule, row_sums.peaks[i], row_sums.totals[i], row_sums.pooled[i]
        )
        least = min(least, lowest)
        if dropout.row_hashes.size:
            _drop_listed(row, i, listed, hash_scratch, dropout)
        _add_listed(row, values, listed, row_sums.pooled[i])
    return least


@kernel
def pool_weights(values, index, weights, pooled):  # type: ignore[no-untyped-def]
    """Add the listed values of each row, times their weights."""
    for i in range(index.shape[0]):
        length = _length(index[i])
        _add_listed(weights[i, :length], values, index[i, :length], pooled[i])


@kernel(**SINGLE)
def differentiate_listed(  # type: ignore[no-untyped-def]
    left, right, scale, values, gradient, index, scores, steps, scratch, rule, alpha, facts, dropout, gradients
):
    """Add what every list gives to the gradients, those of keys and values `(n_keys, dim)`.

    `scale` is what `left` was multiplied by; `scores` are those of the lists, `(0, 0)` to compute them.
    """
    n_steps, most = steps.codes.shape[0], index.shape[1]
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table = gradients
    row_scratch, change_scratch = np.empty(most, np.float32), np.empty(most, np.float32)
    hash_scratch, to_columns = np.empty(most, np.uint32), np.empty(most, np.float32)
    for i in range(index.shape[0]):
        length = _length(index[i])
        listed, row, change = index[i, :length], row_scratch[:length], change_scratch[:length]
        known = scores.shape[0] > 0
        if n_steps or not known:  # the way back through a step needs what it was given
            _score(left[i], right, listed, row, i, steps, scratch)
        if known:
            row[:] = scores[i, :length]
        _dots(gradient[i], values, listed, change)
        if dropout.row_hashes.size:
            _drop_listed(change, i, listed, hash_scratch, dropout)
        differentiate_row(
            row, change, rule, alpha, facts.offsets[i], facts.scales[i], facts.deltas[i], to_columns[:length]
        )
        if dropout.row_hashes.size:
            _drop_listed(row, i, listed, hash_scratch, dropout)
        if to_values.size:
            _spread_listed(row, gradient[i], listed, to_values)
        for back in range(n_steps):
            k = n_steps - 1 - back
            to_columns[:length] = ZERO
            to_of_row, to_number = step_row_back(
                steps.codes[k], scratch[1, k, :length], change, steps.by_row[k, i], scratch[0, k, :length],
                steps.numbers[k], steps.table, to_columns[:length], to_table,
            )  # fmt: skip
            to_by_row[k, i] += to_of_row
            to_numbers[k] += to_number
            for t in range(length):
                to_by_column[k, listed[t]] += to_columns[t]
        if to_right.size:
            _spread_listed(change, left[i], listed, to_right)
        if to_left.size:
            change *= scale
            _add_listed(change, right, listed, to_left[i])


@helper
def _drop_listed(row, i, listed, scratch, dropout):  # type: ignore[no-untyped-def]
    """Dropout of row i's list; `scratch` receives the hashes of its columns."""
    for t in range(row.shape[0]):
        scratch[t] = dropout.column_hashes[listed[t]]
    drop(row, dropout.row_hashes[i], scratch[: row.shape[0]], dropout.limit, dropout.factor)


@kernel
def drop_strip(weights, index, dropout):  # type: ignore[no-untyped-def]
    """Dropout of a strip of weights, in place: against all keys, or those that `index` lists."""
    scratch = np.empty(index.shape[1], np.uint32)
    for i in range(weights.shape[0]):
        if index.shape[0]:
            length = _length(index[i])
            _drop_listed(weights[i, :length], i, index[i, :length], scratch, dropout)
        else:
            drop(weights[i], dropout.row_hashes[i], dropout.column_hashes, dropout.limit, dropout.factor)
