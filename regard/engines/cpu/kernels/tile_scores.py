"""The scores of a tile: raw scores by products, then steps, mask and dropout of each of its rows."""

from __future__ import annotations

from regard.engines.cpu.kernels.row_steps import ONE, ZERO, block_outside, block_where, drop, step_row
from regard.engines.cpu.runtime.jit import helper, multiply


@helper
def raw_scores(products, at, scores):  # type: ignore[no-untyped-def]
    """The raw scores of a tile that starts at column `at` of all keys; those of `dim` < 0 are there already."""
    n_rows, width = scores.shape
    if products.dim >= 0:
        multiply(
            products.sgemm, n_rows, width, products.dim, products.left, products.left_stride, 0,
            products.right + 4 * at * products.right_stride, products.right_stride, 1, ONE, ZERO, scores.ctypes.data,
            width,
        )  # fmt: skip


@helper
def score_rows(products, origin, start, steps, seen, scores):  # type: ignore[no-untyped-def]
    """The scores of a tile that starts at a column of a span."""
    at = origin + start
    raw_scores(products, at, scores)
    if not are_plain(steps, seen):
        for i in range(scores.shape[0]):
            score_row(scores[i], i, at, start, steps, seen)


@helper
def are_plain(steps, seen):  # type: ignore[no-untyped-def]
    """Whether raw scores are scores: asked once a tile, since each array that a row hands on is counted."""
    return steps.codes.size == 0 and seen.first.size == 0 and seen.allowed.size == 0


@helper
def score_row(row, i, at, start, steps, seen):  # type: ignore[no-untyped-def]
    """Steps and mask of one row: from column `at` of all keys, which is column `start` of a span."""
    for k in range(steps.codes.shape[0]):
        step_once(k, row, i, at, start, steps)
    hide(row, i, at, start, seen)


@helper
def step_once(k, row, i, at, start, steps):  # type: ignore[no-untyped-def]
    """Step `k` of one row."""
    width = row.shape[0]
    step_row(
        steps.codes[k], row, steps.by_row[k, i], steps.by_column[k, at : at + width], steps.numbers[k],
        steps.pairs[i % steps.pairs.shape[0], start : start + width], steps.table,
    )  # fmt: skip


@helper
def hide(row, i, at, start, seen):  # type: ignore[no-untyped-def]
    """−inf where one row sees nothing."""
    if seen.first.size:
        block_outside(row, seen.first[i] - at, seen.stop[i] - at)
    if seen.allowed.size:
        block_where(row, seen.allowed[i, start : start + row.shape[0]])


@helper
def drop_row(row, i, at, dropout):  # type: ignore[no-untyped-def]
    """Dropout of row `i` of a tile that starts at column `at` of all keys."""
    drop(row, dropout.row_hashes[i], dropout.column_hashes[at : at + row.shape[0]], dropout.limit, dropout.factor)
