"""Compiled loops over the tiles of a span that add up gradients; see `tile_loops.py` for what they are given."""

from __future__ import annotations

from regard.engines.cpu.kernels.record_slices import dropout_of, entry_of, products_of, seen_of, steps_of, visible
from regard.engines.cpu.kernels.records import Gradients, RowFacts
from regard.engines.cpu.kernels.row_steps import ONE, ZERO, differentiate_row, step_row_back
from regard.engines.cpu.kernels.tile_scores import drop_row, hide, raw_scores, step_once
from regard.engines.cpu.runtime.jit import helper, kernel, multiply
from regard.engines.cpu.runtime.signatures import ADDRESSES, ENTRIES, SINGLE


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
            low, high = visible(seen.first[top:end], seen.stop[top:end], origin, n_columns)
        _differentiate_rows(
            products_of(products, top), scale, values, values_stride, gradient + 4 * top * gradient_stride,
            gradient_stride, value_dim, tile, second, origin + low, high - low, steps_of(steps, top, end),
            seen_of(seen, top, end), rule, alpha,
            RowFacts(facts.offsets[top:end], facts.scales[top:end], facts.deltas[top:end]),
            dropout_of(dropout, top, end), kept,
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
        raw_scores(products, at, scores)
        multiply(
            products.sgemm, n_rows, width, value_dim, gradient, gradient_stride, 0, values + 4 * at * values_stride,
            values_stride, 1, ONE, ZERO, change.ctypes.data, width,
        )  # fmt: skip
        for i in range(n_rows):
            row, to_row = scores[i], change[i]
            for k in range(n_steps):
                kept[k, :width] = row
                step_once(k, row, i, at, start, steps)
            if hidden:
                hide(row, i, at, start, seen)
            if dropped:
                drop_row(to_row, i, at, dropout)
            differentiate_row(row, to_row, rule, alpha, offsets[i], scales[i], deltas[i], kept[n_steps, :width])
            if dropped:
                drop_row(row, i, at, dropout)
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
        one = entry_of(products, e)
        to_left[e] = ZERO
        right_sum[:] = ZERO
        values_sum[:] = ZERO
        for top in range(0, to_left.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], to_left.shape[1])
            _differentiate_rows(
                products_of(one, top), scale, values[e], values_stride, gradient[e] + 4 * top * gradient_stride,
                gradient_stride, value_dim, tile, second, 0, n_columns, steps_of(steps, top, end), seen, rule, alpha,
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
