"""Compiled loops over the tiles of a span: a block of rows against columns `origin` to `origin + n_columns`.

Products are done by the BLAS that torch itself uses, called from inside, so that Python is not asked between tiles.
Matrices that only products touch come as addresses with the distance of their rows. What belongs to columns is given
for all keys (`by_column`, `right`, `values` …), but for `pairs` and `allowed`, which hold the span alone. With dim = −1
there are no products to do: the raw scores of the span are in `tile` already.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import BLOCK, best_scratch, merge_best
from regard.engines.cpu.kernels.entmax_candidates import CALL_CANDIDATES, gather_tile, list_tile
from regard.engines.cpu.kernels.row_steps import (
    ONE,
    ZERO,
    block_outside,
    block_where,
    differentiate_row,
    drop,
    pool_row,
    step_row,
    step_row_back,
)
from regard.engines.cpu.runtime.jit import helper, kernel, multiply
from regard.engines.cpu.runtime.signatures import ADDRESSES, CANDIDATES, ENTRIES, SINGLE


@kernel(**ADDRESSES)
def pool_span(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, values, values_stride, tile, origin, n_columns,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, row_hashes, column_hashes, limit, factor, peaks, totals, pooled, best, index,
):  # fmt: skip
    """Take the columns of a span into the sums of each row; returns the least numerator.

    Args:
        tile: Scratch, `(height, width)`: as many rows and columns as are worked on together.
        first, stop: Of each row, the columns that it sees; empty if all.
        allowed: Which pairs are allowed; empty if all.
        best, index: The best scores of each row and their keys, `(n_rows, k)`, as `best.best_strip` has them; k may be
            0. Spans must then come in the order of their columns.
    """
    least = ZERO
    scratch = best_scratch(tile.shape[1] if best.shape[1] else 0)
    for top in range(0, pooled.shape[0], tile.shape[0]):
        end = min(top + tile.shape[0], pooled.shape[0])
        low, high = 0, n_columns
        if first.size and dim >= 0 and pairs.size == 0:
            low, high = _visible(first[top:end], stop[top:end], origin, n_columns)
        lowest = _pool_rows(
            sgemm, left + 4 * top * left_stride, left_stride, right, right_stride, dim, values, values_stride, tile,
            origin + low, high - low, codes, by_row[:, top:end], by_column, numbers, _rows(pairs, top, end), table,
            first[top:end], stop[top:end], _rows(allowed, top, end), rule, row_hashes[top:end], column_hashes, limit,
            factor, peaks[top:end], totals[top:end], pooled[top:end], best[top:end], index[top:end], scratch,
        )  # fmt: skip
        least = min(least, lowest)
    return least


@kernel(**ENTRIES)
def pool_entries(  # type: ignore[no-untyped-def]
    sgemm, lefts, left_stride, rights, right_stride, dim, values, values_stride, tile, n_columns,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, row_hashes, column_hashes, limit, factor, peaks, totals, pooled,
):  # fmt: skip
    """`pool_span` for several batch entries that see all keys and have no steps: one call in place of many.

    `lefts`, `rights` and `values` are addresses, one for each entry, and `peaks`, `totals` and `pooled` have an axis
    for them.
    """
    least = ZERO
    no_best, no_index, no_scratch = np.empty((0, 0), np.float32), np.empty((0, 0), np.int64), best_scratch(0)
    for e in range(lefts.shape[0]):
        for top in range(0, pooled.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], pooled.shape[1])
            lowest = _pool_rows(
                sgemm, lefts[e] + 4 * top * left_stride, left_stride, rights[e], right_stride, dim, values[e],
                values_stride, tile, 0, n_columns, codes, by_row[:, top:end], by_column, numbers, pairs, table, first,
                stop, allowed, rule, row_hashes, column_hashes, limit, factor, peaks[e, top:end], totals[e, top:end],
                pooled[e, top:end], no_best, no_index, no_scratch,
            )  # fmt: skip
            least = min(least, lowest)
    return least


@helper
def _visible(first, stop, origin, n_columns):  # type: ignore[no-untyped-def]
    """The columns of a span, counted from `origin`, that some of these rows see."""
    low, high = n_columns, 0
    for i in range(first.shape[0]):
        if first[i] < stop[i]:
            low, high = min(low, first[i] - origin), max(high, stop[i] - origin)
    low, high = max(low, 0), min(high, n_columns)
    return (low, high) if low < high else (0, 0)


@helper
def _rows(matrix, top, end):  # type: ignore[no-untyped-def]
    """Some rows of what may be empty, which is said by one row of no columns."""
    return matrix[top:end] if matrix.size else matrix[:1]


@helper
def _pool_rows(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, values, values_stride, tile, origin, n_columns,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, row_hashes, column_hashes, limit, factor, peaks, totals, pooled, best, index, scratch,
):  # fmt: skip
    """Take the columns of a span into the sums of as many rows as a tile has."""
    n_rows, value_dim = pooled.shape
    least = ZERO
    flat = tile.reshape(-1)
    for start in range(0, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        at = origin + start
        scores = flat[: n_rows * width].reshape(n_rows, width)
        if dim >= 0:
            multiply(
                sgemm, n_rows, width, dim, left, left_stride, 0, right + 4 * at * right_stride, right_stride, 1, ONE,
                ZERO, scores.ctypes.data, width,
            )  # fmt: skip
        for i in range(n_rows):
            row = scores[i]
            _score_row(
                row, i, at, start, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed
            )  # fmt: skip
            if best.shape[1]:
                merge_best(row, at, False, best[i], index[i], *scratch)
            peaks[i], totals[i], lowest = pool_row(row, rule, peaks[i], totals[i], pooled[i])
            least = min(least, lowest)
            if row_hashes.size:
                drop(row, row_hashes[i], column_hashes[at : at + width], limit, factor)
        multiply(
            sgemm, n_rows, value_dim, width, scores.ctypes.data, width, 0, values + 4 * at * values_stride,
            values_stride, 0, ONE, ONE, pooled.ctypes.data, value_dim,
        )  # fmt: skip
    return least


@kernel(**ADDRESSES)
def score_span(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, origin,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed, scores,
):  # fmt: skip
    """The scores of a span, −inf where not allowed."""
    _score_rows(
        sgemm, left, left_stride, right, right_stride, dim, origin, 0, codes, by_row, by_column, numbers, pairs, table,
        first, stop, allowed, scores,
    )  # fmt: skip


@helper
def _score_rows(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, origin, start,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed, scores,
):  # fmt: skip
    """The scores of a tile that starts at a column of a span."""
    n_rows, width = scores.shape
    at = origin + start
    if dim >= 0:
        multiply(
            sgemm, n_rows, width, dim, left, left_stride, 0, right + 4 * at * right_stride, right_stride, 1, ONE, ZERO,
            scores.ctypes.data, width,
        )  # fmt: skip
    for i in range(n_rows):
        _score_row(scores[i], i, at, start, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed)


@helper
def _score_row(  # type: ignore[no-untyped-def]
    row, i, at, start, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed
):
    """Steps and mask of one row: from column `at` of all keys, which is column `start` of a span."""
    width = row.shape[0]
    for k in range(codes.shape[0]):
        step_row(
            codes[k], row, by_row[k, i], by_column[k, at : at + width], numbers[k],
            pairs[i % pairs.shape[0], start : start + width], table,
        )  # fmt: skip
    if first.size:
        block_outside(row, first[i] - at, stop[i] - at)
    if allowed.size:
        block_where(row, allowed[i, start : start + width])


@kernel(**ADDRESSES, **CANDIDATES)
def gather_span(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, tile, origin, n_columns,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    begin, alpha, most, candidates,
):  # fmt: skip
    """Add the columns of a span to the candidates of each row, see `entmax_candidates.py`.

    Returns:
        The column after those that were taken in, so that Ctrl-C is heard where that is much work; −1 if a row had no
        room.

    Args:
        tile: Scratch, `(n_rows, width)`: as many columns as are worked on together.
        begin: The column of the span with which to begin.
        most: How many candidates a row may keep.
        candidates: (scores, keys, counts, settled counts, cuts) of the rows.
    """
    flat = tile.reshape(-1)
    peaks = np.empty(tile.shape[1] // BLOCK + 1, np.float32)
    thinned = 0
    for start in range(begin, n_columns, tile.shape[1]):
        if thinned > CALL_CANDIDATES:
            return start
        width = min(tile.shape[1], n_columns - start)
        scores = flat[: tile.shape[0] * width].reshape(tile.shape[0], width)
        _score_rows(
            sgemm, left, left_stride, right, right_stride, dim, origin, start, codes, by_row, by_column, numbers,
            pairs, table, first, stop, allowed, scores,
        )  # fmt: skip
        more = gather_tile(scores, origin + start, alpha, most, peaks, *candidates)
        if more < 0:
            return -1
        thinned += more
    return n_columns


@kernel(**ADDRESSES)
def list_span(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, tile, origin, n_columns,
    codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    begin, alpha, row_peaks, thresholds, counts, keys, found,
):  # fmt: skip
    """Add the columns of a span that have a weight to each row's list; returns where the lists had no more room.

    Args:
        tile: Scratch, `(n_rows, width)`: as many columns as are worked on together.
        begin: The column of the span with which to begin.
        alpha, row_peaks, thresholds: What tells who has a weight, see `candidates.list_tile`.
        counts, keys, found: The lists, with their scores.
    """
    flat = tile.reshape(-1)
    peaks = np.empty(tile.shape[1] // BLOCK + 1, np.float32)
    for start in range(begin, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        if counts.max() + width >= keys.shape[1]:
            return start
        scores = flat[: tile.shape[0] * width].reshape(tile.shape[0], width)
        _score_rows(
            sgemm, left, left_stride, right, right_stride, dim, origin, start, codes, by_row, by_column, numbers,
            pairs, table, first, stop, allowed, scores,
        )  # fmt: skip
        list_tile(scores, origin + start, alpha, row_peaks, thresholds, peaks, counts, keys, found)
    return n_columns


@kernel(**ADDRESSES, **SINGLE)
def differentiate_span(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, scale, values, values_stride, gradient, gradient_stride,
    value_dim, tile, second, origin, n_columns, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, alpha, offsets, scales, deltas, row_hashes, column_hashes, limit, factor, kept,
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table,
):  # fmt: skip
    """Add what a span gives to the gradients; tiles are computed again from the statistics of their rows.

    Args:
        scale: What `left` was multiplied by.
        gradient: dO, `(n_rows, value_dim)`.
        tile, second: Scratch, `(height, width)` each: as many rows and columns as are worked on together.
        kept: Scratch, a row for each step and one more.
        to_left: `(n_rows, dim)`, or empty if not wanted; likewise
        to_right: `(dim, n_keys)`, transposed, which products write faster;
        to_values: `(value_dim, n_keys)`.
    """
    for top in range(0, by_row.shape[1], tile.shape[0]):
        end = min(top + tile.shape[0], by_row.shape[1])
        low, high = 0, n_columns
        if first.size and dim >= 0 and pairs.size == 0:
            low, high = _visible(first[top:end], stop[top:end], origin, n_columns)
        _differentiate_rows(
            sgemm, left + 4 * top * left_stride, left_stride, right, right_stride, dim, scale, values, values_stride,
            gradient + 4 * top * gradient_stride, gradient_stride, value_dim, tile, second, origin + low,
            high - low, codes, by_row[:, top:end], by_column, numbers, _rows(pairs, top, end), table, first[top:end],
            stop[top:end], _rows(allowed, top, end), rule, alpha, offsets[top:end], scales[top:end], deltas[top:end],
            row_hashes[top:end], column_hashes, limit, factor, kept, to_left[top:end], to_right, to_values,
            to_by_row[:, top:end], to_by_column, to_numbers, to_table,
        )  # fmt: skip


@helper
def _differentiate_rows(  # type: ignore[no-untyped-def]
    sgemm, left, left_stride, right, right_stride, dim, scale, values, values_stride, gradient, gradient_stride,
    value_dim, tile, second, origin, n_columns, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, alpha, offsets, scales, deltas, row_hashes, column_hashes, limit, factor, kept,
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table,
):  # fmt: skip
    """Add what a span gives to the gradients, for as many rows as a tile has."""
    n_rows, n_steps = by_row.shape[1], codes.shape[0]
    flat, flat_second = tile.reshape(-1), second.reshape(-1)
    for start in range(0, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        end, at = start + width, origin + start
        scores = flat[: n_rows * width].reshape(n_rows, width)
        change = flat_second[: n_rows * width].reshape(n_rows, width)
        if dim >= 0:
            multiply(
                sgemm, n_rows, width, dim, left, left_stride, 0, right + 4 * at * right_stride, right_stride, 1, ONE,
                ZERO, scores.ctypes.data, width,
            )  # fmt: skip
        multiply(
            sgemm, n_rows, width, value_dim, gradient, gradient_stride, 0, values + 4 * at * values_stride,
            values_stride, 1, ONE, ZERO, change.ctypes.data, width,
        )  # fmt: skip
        for i in range(n_rows):
            row, to_row = scores[i], change[i]
            for k in range(n_steps):
                kept[k, :width] = row
                step_row(
                    codes[k], row, by_row[k, i], by_column[k, at : at + width], numbers[k],
                    pairs[i % pairs.shape[0], start:end],
                    table,
                )  # fmt: skip
            if first.size:
                block_outside(row, first[i] - at, stop[i] - at)
            if allowed.size:
                block_where(row, allowed[i, start:end])
            if row_hashes.size:
                drop(to_row, row_hashes[i], column_hashes[at : at + width], limit, factor)
            differentiate_row(row, to_row, rule, alpha, offsets[i], scales[i], deltas[i], kept[n_steps, :width])
            if row_hashes.size:
                drop(row, row_hashes[i], column_hashes[at : at + width], limit, factor)
            for back in range(n_steps):
                k = n_steps - 1 - back
                to_of_row, to_number = step_row_back(
                    codes[k], kept[k, :width], to_row, by_row[k, i], by_column[k, at : at + width], numbers[k],
                    table, to_by_column[k, at : at + width], to_table,
                )  # fmt: skip
                to_by_row[k, i] += to_of_row
                to_numbers[k] += to_number
        if to_values.size:
            multiply(
                sgemm, value_dim, width, n_rows, gradient, gradient_stride, 1, scores.ctypes.data, width, 0, ONE, ONE,
                to_values.ctypes.data + 4 * at, to_values.shape[1],
            )  # fmt: skip
        if to_right.size:
            multiply(
                sgemm, dim, width, n_rows, left, left_stride, 1, change.ctypes.data, width, 0, ONE, ONE,
                to_right.ctypes.data + 4 * at, to_right.shape[1],
            )  # fmt: skip
        if to_left.size:
            multiply(
                sgemm, n_rows, dim, width, change.ctypes.data, width, 0, right + 4 * at * right_stride, right_stride,
                0, scale, ONE, to_left.ctypes.data, dim,
            )  # fmt: skip


@kernel(**ENTRIES, **SINGLE)
def differentiate_entries(  # type: ignore[no-untyped-def]
    sgemm, lefts, left_stride, rights, right_stride, dim, scale, values, values_stride, gradients, gradient_stride,
    value_dim, tile, second, n_columns, codes, by_row, by_column, numbers, pairs, table, first, stop, allowed,
    rule, alpha, offsets, scales, deltas, row_hashes, column_hashes, limit, factor, kept,
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table, right_sum, values_sum,
):  # fmt: skip
    """`differentiate_span` for several batch entries that see all keys and have no steps, all gradients wanted.

    `to_left`, `to_right` and `to_values` have an axis for entries and are overwritten; `right_sum` and `values_sum` are
    scratch, in which an entry's gradients of keys and values are gathered, transposed.
    """
    for e in range(lefts.shape[0]):
        to_left[e] = ZERO
        right_sum[:] = ZERO
        values_sum[:] = ZERO
        for top in range(0, to_left.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], to_left.shape[1])
            _differentiate_rows(
                sgemm, lefts[e] + 4 * top * left_stride, left_stride, rights[e], right_stride, dim, scale, values[e],
                values_stride, gradients[e] + 4 * top * gradient_stride, gradient_stride, value_dim, tile, second, 0,
                n_columns, codes, by_row[:, top:end], by_column, numbers, pairs, table, first, stop, allowed, rule,
                alpha, offsets[e, top:end], scales[e, top:end], deltas[e, top:end], row_hashes, column_hashes, limit,
                factor, kept, to_left[e, top:end], right_sum, values_sum, to_by_row[:, top:end], to_by_column,
                to_numbers, to_table,
            )  # fmt: skip
        _turn(right_sum, 0, to_right[e])
        _turn(values_sum, 0, to_values[e])


@kernel
def turn(matrix, start, turned):  # type: ignore[no-untyped-def]
    """Write the columns of a matrix from `start` on as rows."""
    _turn(matrix, start, turned)


@helper
def _turn(matrix, start, turned):  # type: ignore[no-untyped-def]
    """In squares that stay in cache."""
    n_rows, n_columns = turned.shape
    side = 16
    for top in range(0, n_rows, side):
        for left in range(0, n_columns, side):
            for i in range(top, min(top + side, n_rows)):
                for j in range(left, min(left + side, n_columns)):
                    turned[i, j] = matrix[j, start + i]
