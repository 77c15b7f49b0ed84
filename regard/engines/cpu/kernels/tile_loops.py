"""Compiled loops over the tiles of a span: a block of rows against columns `origin` to `origin + n_columns`.

Products are done by the BLAS that torch itself uses, called from inside, so that Python is not asked between tiles.
Matrices that only products touch come as addresses with the distance of their rows. What belongs to columns is given
for all keys (`by_column`, `right`, `values` …), but for `pairs` and `allowed`, which hold the span alone. With dim = −1
there are no products to do: the raw scores of the span are in `tile` already. See `records.py` for what comes together.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import BLOCK, best_scratch, merge_best
from regard.engines.cpu.kernels.entmax_candidates import CALL_CANDIDATES, gather_tile, list_tile
from regard.engines.cpu.kernels.records import Dropout, Gradients, Products, RowFacts, RowSums, Seen, Steps
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
    products, values, values_stride, tile, origin, n_columns, steps, seen, rule, dropout, row_sums
):
    """Take the columns of a span into the sums of each row; returns the least numerator.

    Args:
        tile: Scratch, `(height, width)`: as many rows and columns as are worked on together.
        row_sums: Where the best of each row are wanted, spans must come in the order of their columns.
    """
    least = ZERO
    peaks, totals, pooled, best, best_keys = row_sums
    scratch = best_scratch(tile.shape[1] if best.shape[1] else 0)
    for top in range(0, pooled.shape[0], tile.shape[0]):
        end = min(top + tile.shape[0], pooled.shape[0])
        low, high = 0, n_columns
        if seen.first.size and products.dim >= 0 and steps.pairs.size == 0:
            low, high = _visible(seen.first[top:end], seen.stop[top:end], origin, n_columns)
        lowest = _pool_rows(
            _products_of(products, top), values, values_stride, tile, origin + low, high - low,
            _steps_of(steps, top, end), _seen_of(seen, top, end), rule, _dropout_of(dropout, top, end),
            RowSums(peaks[top:end], totals[top:end], pooled[top:end], best[top:end], best_keys[top:end]), scratch,
        )  # fmt: skip
        least = min(least, lowest)
    return least


@kernel(**ENTRIES)
def pool_entries(  # type: ignore[no-untyped-def]
    products, values, values_stride, tile, n_columns, steps, seen, rule, dropout, row_sums
):
    """`pool_span` for several batch entries that see all keys and have no steps: one call in place of many."""
    least = ZERO
    scratch = best_scratch(0)
    peaks, totals, pooled, best, best_keys = row_sums
    for e in range(values.shape[0]):
        one = _entry_of(products, e)
        for top in range(0, pooled.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], pooled.shape[1])
            lowest = _pool_rows(
                _products_of(one, top), values[e], values_stride, tile, 0, n_columns, _steps_of(steps, top, end), seen,
                rule, dropout, RowSums(peaks[e, top:end], totals[e, top:end], pooled[e, top:end], best, best_keys),
                scratch,
            )  # fmt: skip
            least = min(least, lowest)
    return least


@helper
def _entry_of(products, e):  # type: ignore[no-untyped-def]
    """The products of one of several batch entries."""
    return Products(
        products.sgemm, products.left[e], products.left_stride, products.right[e], products.right_stride, products.dim
    )


@helper
def _products_of(products, top):  # type: ignore[no-untyped-def]
    """The products of the rows from `top` on."""
    left = products.left + 4 * top * products.left_stride
    return Products(products.sgemm, left, products.left_stride, products.right, products.right_stride, products.dim)


@helper
def _steps_of(steps, top, end):  # type: ignore[no-untyped-def]
    """The steps of some rows."""
    by_row, pairs = steps.by_row[:, top:end], _rows(steps.pairs, top, end)
    return Steps(steps.codes, by_row, steps.by_column, steps.numbers, pairs, steps.table)


@helper
def _seen_of(seen, top, end):  # type: ignore[no-untyped-def]
    """What some rows see."""
    return Seen(seen.first[top:end], seen.stop[top:end], _rows(seen.allowed, top, end))


@helper
def _dropout_of(dropout, top, end):  # type: ignore[no-untyped-def]
    """The dropout of some rows."""
    return Dropout(dropout.row_hashes[top:end], dropout.column_hashes, dropout.limit, dropout.factor)


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
    products, values, values_stride, tile, origin, n_columns, steps, seen, rule, dropout, row_sums, scratch
):
    """Take the columns of a span into the sums of as many rows as a tile has."""
    peaks, totals, pooled, best, best_keys = row_sums
    n_rows, value_dim = pooled.shape
    plain, dropped = _are_plain(steps, seen), dropout.row_hashes.size > 0
    least = ZERO
    flat = tile.reshape(-1)
    for start in range(0, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        at = origin + start
        scores = flat[: n_rows * width].reshape(n_rows, width)
        _multiply(products, at, scores)
        for i in range(n_rows):
            row = scores[i]
            if not plain:
                _score_row(row, i, at, start, steps, seen)
            if best.shape[1]:
                merge_best(row, at, False, best[i], best_keys[i], *scratch)
            peaks[i], totals[i], lowest = pool_row(row, rule, peaks[i], totals[i], pooled[i])
            least = min(least, lowest)
            if dropped:
                _drop(row, i, at, dropout)
        multiply(
            products.sgemm, n_rows, value_dim, width, scores.ctypes.data, width, 0, values + 4 * at * values_stride,
            values_stride, 0, ONE, ONE, pooled.ctypes.data, value_dim,
        )  # fmt: skip
    return least


@helper
def _multiply(products, at, scores):  # type: ignore[no-untyped-def]
    """The raw scores of a tile that starts at column `at` of all keys; those of `dim` < 0 are there already."""
    n_rows, width = scores.shape
    if products.dim >= 0:
        multiply(
            products.sgemm, n_rows, width, products.dim, products.left, products.left_stride, 0,
            products.right + 4 * at * products.right_stride, products.right_stride, 1, ONE, ZERO, scores.ctypes.data,
            width,
        )  # fmt: skip


@helper
def _drop(row, i, at, dropout):  # type: ignore[no-untyped-def]
    """Dropout of row `i` of a tile that starts at column `at` of all keys."""
    drop(row, dropout.row_hashes[i], dropout.column_hashes[at : at + row.shape[0]], dropout.limit, dropout.factor)


@kernel(**ADDRESSES)
def score_span(products, origin, steps, seen, scores):  # type: ignore[no-untyped-def]
    """The scores of a span, −inf where not allowed."""
    _score_rows(products, origin, 0, steps, seen, scores)


@helper
def _score_rows(products, origin, start, steps, seen, scores):  # type: ignore[no-untyped-def]
    """The scores of a tile that starts at a column of a span."""
    at = origin + start
    _multiply(products, at, scores)
    if not _are_plain(steps, seen):
        for i in range(scores.shape[0]):
            _score_row(scores[i], i, at, start, steps, seen)


@helper
def _are_plain(steps, seen):  # type: ignore[no-untyped-def]
    """Whether raw scores are scores: asked once a tile, since each array that a row hands on is counted."""
    return steps.codes.size == 0 and seen.first.size == 0 and seen.allowed.size == 0


@helper
def _score_row(row, i, at, start, steps, seen):  # type: ignore[no-untyped-def]
    """Steps and mask of one row: from column `at` of all keys, which is column `start` of a span."""
    for k in range(steps.codes.shape[0]):
        _step(k, row, i, at, start, steps)
    _hide(row, i, at, start, seen)


@helper
def _step(k, row, i, at, start, steps):  # type: ignore[no-untyped-def]
    """Step `k` of one row."""
    width = row.shape[0]
    step_row(
        steps.codes[k], row, steps.by_row[k, i], steps.by_column[k, at : at + width], steps.numbers[k],
        steps.pairs[i % steps.pairs.shape[0], start : start + width], steps.table,
    )  # fmt: skip


@helper
def _hide(row, i, at, start, seen):  # type: ignore[no-untyped-def]
    """−inf where one row sees nothing."""
    if seen.first.size:
        block_outside(row, seen.first[i] - at, seen.stop[i] - at)
    if seen.allowed.size:
        block_where(row, seen.allowed[i, start : start + row.shape[0]])


@kernel(**ADDRESSES, **CANDIDATES)
def gather_span(  # type: ignore[no-untyped-def]
    products, tile, origin, n_columns, steps, seen, begin, alpha, most, candidates
):
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
        _score_rows(products, origin, start, steps, seen, scores)
        more = gather_tile(scores, origin + start, alpha, most, peaks, *candidates)
        if more < 0:
            return -1
        thinned += more
    return n_columns


@kernel(**ADDRESSES)
def list_span(  # type: ignore[no-untyped-def]
    products, tile, origin, n_columns, steps, seen, begin, alpha, row_peaks, thresholds, counts, keys, found
):
    """Add the columns of a span that have a weight to each row's list; returns where the lists had no more room.

    Args:
        tile: Scratch, `(n_rows, width)`: as many columns as are worked on together.
        begin: The column of the span with which to begin.
        alpha, row_peaks, thresholds: What tells who has a weight, see `entmax_candidates.list_tile`.
        counts, keys, found: The lists, with their scores.
    """
    flat = tile.reshape(-1)
    peaks = np.empty(tile.shape[1] // BLOCK + 1, np.float32)
    for start in range(begin, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        if counts.max() + width >= keys.shape[1]:
            return start
        scores = flat[: tile.shape[0] * width].reshape(tile.shape[0], width)
        _score_rows(products, origin, start, steps, seen, scores)
        list_tile(scores, origin + start, alpha, row_peaks, thresholds, peaks, counts, keys, found)
    return n_columns


@kernel(**ADDRESSES, **SINGLE)
def differentiate_span(  # type: ignore[no-untyped-def]
    products, scale, values, values_stride, gradient, gradient_stride, value_dim, tile, second, origin, n_columns,
    steps, seen, rule, alpha, facts, dropout, kept, gradients,
):  # fmt: skip
    """Add what a span gives to the gradients; tiles are computed again from the statistics of their rows.

    Args:
        scale: What `left` was multiplied by.
        gradient: dO, `(n_rows, value_dim)`.
        tile, second: Scratch, `(height, width)` each: as many rows and columns as are worked on together.
        kept: Scratch, a row for each step and one more.
        gradients: Those of keys and values transposed, which products write faster.
    """
    n_rows = steps.by_row.shape[1]
    for top in range(0, n_rows, tile.shape[0]):
        end = min(top + tile.shape[0], n_rows)
        low, high = 0, n_columns
        if seen.first.size and products.dim >= 0 and steps.pairs.size == 0:
            low, high = _visible(seen.first[top:end], seen.stop[top:end], origin, n_columns)
        _differentiate_rows(
            _products_of(products, top), scale, values, values_stride, gradient + 4 * top * gradient_stride,
            gradient_stride, value_dim, tile, second, origin + low, high - low, _steps_of(steps, top, end),
            _seen_of(seen, top, end), rule, alpha,
            RowFacts(facts.offsets[top:end], facts.scales[top:end], facts.deltas[top:end]),
            _dropout_of(dropout, top, end), kept,
            Gradients(
                gradients.to_left[top:end], gradients.to_right, gradients.to_values, gradients.to_by_row[:, top:end],
                gradients.to_by_column, gradients.to_numbers, gradients.to_table,
            ),
        )  # fmt: skip


@helper
def _differentiate_rows(  # type: ignore[no-untyped-def]
    products, scale, values, values_stride, gradient, gradient_stride, value_dim, tile, second, origin, n_columns,
    steps, seen, rule, alpha, facts, dropout, kept, gradients,
):  # fmt: skip
    """Add what a span gives to the gradients, for as many rows as a tile has."""
    n_rows, n_steps = steps.by_row.shape[1], steps.codes.shape[0]
    hidden, dropped = seen.first.size + seen.allowed.size > 0, dropout.row_hashes.size > 0
    offsets, scales, deltas = facts
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table = gradients
    flat, flat_second = tile.reshape(-1), second.reshape(-1)
    for start in range(0, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        at = origin + start
        scores = flat[: n_rows * width].reshape(n_rows, width)
        change = flat_second[: n_rows * width].reshape(n_rows, width)
        _multiply(products, at, scores)
        multiply(
            products.sgemm, n_rows, width, value_dim, gradient, gradient_stride, 0, values + 4 * at * values_stride,
            values_stride, 1, ONE, ZERO, change.ctypes.data, width,
        )  # fmt: skip
        for i in range(n_rows):
            row, to_row = scores[i], change[i]
            for k in range(n_steps):
                kept[k, :width] = row
                _step(k, row, i, at, start, steps)
            if hidden:
                _hide(row, i, at, start, seen)
            if dropped:
                _drop(to_row, i, at, dropout)
            differentiate_row(row, to_row, rule, alpha, offsets[i], scales[i], deltas[i], kept[n_steps, :width])
            if dropped:
                _drop(row, i, at, dropout)
            for back in range(n_steps):
                k = n_steps - 1 - back
                to_of_row, to_number = step_row_back(
                    steps.codes[k], kept[k, :width], to_row, steps.by_row[k, i], steps.by_column[k, at : at + width],
                    steps.numbers[k], steps.table, to_by_column[k, at : at + width], to_table,
                )  # fmt: skip
                to_by_row[k, i] += to_of_row
                to_numbers[k] += to_number
        if to_values.size:
            multiply(
                products.sgemm, value_dim, width, n_rows, gradient, gradient_stride, 1, scores.ctypes.data, width, 0,
                ONE, ONE, to_values.ctypes.data + 4 * at, to_values.shape[1],
            )  # fmt: skip
        if to_right.size:
            multiply(
                products.sgemm, products.dim, width, n_rows, products.left, products.left_stride, 1,
                change.ctypes.data, width, 0, ONE, ONE, to_right.ctypes.data + 4 * at, to_right.shape[1],
            )  # fmt: skip
        if to_left.size:
            multiply(
                products.sgemm, n_rows, products.dim, width, change.ctypes.data, width, 0,
                products.right + 4 * at * products.right_stride, products.right_stride, 0, scale, ONE,
                to_left.ctypes.data, products.dim,
            )  # fmt: skip


@kernel(**ENTRIES, **SINGLE)
def differentiate_entries(  # type: ignore[no-untyped-def]
    products, scale, values, values_stride, gradient, gradient_stride, value_dim, tile, second, n_columns,
    steps, seen, rule, alpha, facts, dropout, kept, gradients, right_sum, values_sum,
):  # fmt: skip
    """`differentiate_span` for several batch entries that see all keys and have no steps, all gradients wanted.

    Those of `gradients` are overwritten; `right_sum` and `values_sum` are scratch, in which an entry's gradients of
    keys and values are gathered, transposed.
    """
    to_left, to_right, to_values, to_by_row, to_by_column, to_numbers, to_table = gradients
    for e in range(values.shape[0]):
        one = _entry_of(products, e)
        to_left[e] = ZERO
        right_sum[:] = ZERO
        values_sum[:] = ZERO
        for top in range(0, to_left.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], to_left.shape[1])
            _differentiate_rows(
                _products_of(one, top), scale, values[e], values_stride, gradient[e] + 4 * top * gradient_stride,
                gradient_stride, value_dim, tile, second, 0, n_columns, _steps_of(steps, top, end), seen, rule, alpha,
                RowFacts(facts.offsets[e, top:end], facts.scales[e, top:end], facts.deltas[e, top:end]), dropout, kept,
                Gradients(
                    to_left[e, top:end], right_sum, values_sum, to_by_row[:, top:end], to_by_column, to_numbers,
                    to_table,
                ),
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
