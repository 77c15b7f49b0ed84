"""Compiled loops over the tiles of a span: a block of rows against columns `origin` to `origin + n_columns`.

Products are done by the BLAS that torch itself uses, called from inside, so that Python is not asked between tiles.
Matrices that only products touch come as addresses with the distance of their rows. What belongs to columns is given
for all keys (`by_column`, `right`, `values` …), but for `pairs` and `allowed`, which hold the span alone. With dim = −1
there are no products to do: the raw scores of the span are in `tile` already. See `records.py` for what comes together.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import best_scratch, merge_best
from regard.engines.cpu.kernels.blocks import BLOCK
from regard.engines.cpu.kernels.entmax_candidates import CALL_CANDIDATES, gather_tile, list_tile
from regard.engines.cpu.kernels.heaviest_rows import heaviest_rows, heaviest_scratch
from regard.engines.cpu.kernels.record_slices import dropout_of, entry_of, products_of, seen_of, steps_of, visible
from regard.engines.cpu.kernels.records import RowSums
from regard.engines.cpu.kernels.row_steps import ONE, ZERO, pool_row
from regard.engines.cpu.kernels.tile_scores import are_plain, drop_row, raw_scores, score_row, score_rows
from regard.engines.cpu.runtime.jit import helper, kernel, multiply
from regard.engines.cpu.runtime.signatures import ADDRESSES, CANDIDATES, ENTRIES


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
            low, high = visible(seen.first[top:end], seen.stop[top:end], origin, n_columns)
        lowest = _pool_rows(
            products_of(products, top), values, values_stride, tile, origin + low, high - low,
            steps_of(steps, top, end), seen_of(seen, top, end), rule, dropout_of(dropout, top, end),
            RowSums(peaks[top:end], totals[top:end], pooled[top:end], best[top:end], best_keys[top:end]), scratch,
        )  # fmt: skip
        least = min(least, lowest)
    return least


@kernel(**ENTRIES)
def pool_entries(  # type: ignore[no-untyped-def]
    products, values, values_stride, tile, n_columns, steps, seen, rule, dropout, row_sums
):
    """`pool_span` for several batch entries that see all keys and have no steps: one call in place of many.

    `best` and `best_keys` get the heaviest weights and their keys, under softmax, where a tile has room for all keys.
    """
    least = ZERO
    peaks, totals, pooled, best, best_keys = row_sums
    finds = best.shape[2] > 0
    no_best, no_keys, no_scratch = np.empty((0, 0), np.float32), np.empty((0, 0), np.int64), best_scratch(0)
    scratch = heaviest_scratch(tile.shape[1] if finds else 0)
    flat = tile.reshape(-1)
    for e in range(values.shape[0]):
        one = entry_of(products, e)
        for top in range(0, pooled.shape[1], tile.shape[0]):
            end = min(top + tile.shape[0], pooled.shape[1])
            lowest = _pool_rows(
                products_of(one, top), values[e], values_stride, tile, 0, n_columns, steps_of(steps, top, end), seen,
                rule, dropout, RowSums(peaks[e, top:end], totals[e, top:end], pooled[e, top:end], no_best, no_keys),
                no_scratch,
            )  # fmt: skip
            if finds:
                heaviest_rows(flat, n_columns, totals[e, top:end], best[e, top:end], best_keys[e, top:end], scratch)
            least = min(least, lowest)
    return least


@helper
def _pool_rows(  # type: ignore[no-untyped-def]
    products, values, values_stride, tile, origin, n_columns, steps, seen, rule, dropout, row_sums, scratch
):
    """Take the columns of a span into the sums of as many rows as a tile has."""
    peaks, totals, pooled, best, best_keys = row_sums
    n_rows, value_dim = pooled.shape
    plain, dropped = are_plain(steps, seen), dropout.row_hashes.size > 0
    least = ZERO
    flat = tile.reshape(-1)
    for start in range(0, n_columns, tile.shape[1]):
        width = min(tile.shape[1], n_columns - start)
        at = origin + start
        scores = flat[: n_rows * width].reshape(n_rows, width)
        raw_scores(products, at, scores)
        for i in range(n_rows):
            row = scores[i]
            if not plain:
                score_row(row, i, at, start, steps, seen)
            if best.shape[1]:
                merge_best(row, at, False, best[i], best_keys[i], *scratch)
            peaks[i], totals[i], lowest = pool_row(row, rule, peaks[i], totals[i], pooled[i])
            least = min(least, lowest)
            if dropped:
                drop_row(row, i, at, dropout)
        multiply(
            products.sgemm, n_rows, value_dim, width, scores.ctypes.data, width, 0, values + 4 * at * values_stride,
            values_stride, 0, ONE, ONE, pooled.ctypes.data, value_dim,
        )  # fmt: skip
    return least


@kernel(**ADDRESSES)
def score_span(products, origin, steps, seen, scores):  # type: ignore[no-untyped-def]
    """The scores of a span, −inf where not allowed."""
    score_rows(products, origin, 0, steps, seen, scores)


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
        score_rows(products, origin, start, steps, seen, scores)
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
        score_rows(products, origin, start, steps, seen, scores)
        list_tile(scores, origin + start, alpha, row_peaks, thresholds, peaks, counts, keys, found)
    return n_columns
