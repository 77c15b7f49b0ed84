"""Some rows, or one batch entry, of the records that kernels are given."""

from __future__ import annotations

from regard.engines.cpu.kernels.records import Dropout, Products, Seen, Steps
from regard.engines.cpu.runtime.jit import helper


@helper
def entry_of(products, e):  # type: ignore[no-untyped-def]
    """The products of one of several batch entries."""
    return Products(
        products.sgemm, products.left[e], products.left_stride, products.right[e], products.right_stride, products.dim
    )


@helper
def products_of(products, top):  # type: ignore[no-untyped-def]
    """The products of the rows from `top` on."""
    left = products.left + 4 * top * products.left_stride
    return Products(products.sgemm, left, products.left_stride, products.right, products.right_stride, products.dim)


@helper
def steps_of(steps, top, end):  # type: ignore[no-untyped-def]
    """The steps of some rows."""
    by_row, pairs = steps.by_row[:, top:end], _rows(steps.pairs, top, end)
    return Steps(steps.codes, by_row, steps.by_column, steps.numbers, pairs, steps.table)


@helper
def seen_of(seen, top, end):  # type: ignore[no-untyped-def]
    """What some rows see."""
    return Seen(seen.first[top:end], seen.stop[top:end], _rows(seen.allowed, top, end))


@helper
def dropout_of(dropout, top, end):  # type: ignore[no-untyped-def]
    """The dropout of some rows."""
    return Dropout(dropout.row_hashes[top:end], dropout.column_hashes, dropout.limit, dropout.factor)


@helper
def _rows(matrix, top, end):  # type: ignore[no-untyped-def]
    """Some rows of what may be empty, which is said by one row of no columns."""
    return matrix[top:end] if matrix.size else matrix[:1]


@helper
def visible(first, stop, origin, n_columns):  # type: ignore[no-untyped-def]
    """The columns of a span, counted from `origin`, that some of these rows see."""
    low, high = n_columns, 0
    for i in range(first.shape[0]):
        if first[i] < stop[i]:
            low, high = min(low, first[i] - origin), max(high, stop[i] - origin)
    low, high = max(low, 0), min(high, n_columns)
    return (low, high) if low < high else (0, 0)
