"""The best of each row: K scores with their columns, which tiles of scores are merged into.

A tile gives its best to every row at once, again and again, while a row is left in which something enters: of n keys in
no order that is about K · ln(n/K) times for all tiles, and most tiles have nothing. What enters takes the place of the
worst. Among equal scores lower columns are better. NaN counts as +∞, and what is −∞ never enters.
"""

from __future__ import annotations

import triton
import triton.language as tl

BEYOND = tl.constexpr(2**31 - 1)  # no column
AT_ONCE = tl.constexpr(2)  # turns between two looks at whether anything enters, for which all warps wait


@triton.jit
def nothing_best(ROWS: tl.constexpr, K: tl.constexpr):
    """(scores, columns) of rows that have seen nothing, `(ROWS, K)`: −∞, and negative numbers, each another."""
    scores = tl.full((ROWS, K), -float("inf"), tl.float32)
    return scores, tl.zeros((ROWS, K), tl.int32) - 1 - tl.arange(0, K)[None, :]


@triton.jit
def ranked(scores, allowed):
    """What scores are compared by: −∞ for pairs that are not allowed."""
    scores = tl.where(scores != scores, float("inf"), scores)
    return tl.where(allowed, scores, -float("inf"))


@triton.jit
def first_where(scores, top, columns):
    """The lowest column of each row whose score is this."""
    return tl.min(tl.where(scores == top[:, None], columns, BEYOND), 1)


@triton.jit
def last_where(scores, worst, columns):
    """The highest column of each row whose score is this."""
    return tl.max(tl.where(scores == worst[:, None], columns, -BEYOND), 1)


@triton.jit
def enters(scores, top, worst, columns, kept, kept_columns, ASCENDING: tl.constexpr):
    """In which rows the best of a tile is better than the worst of the best."""
    found = top > worst
    if not ASCENDING:
        place, last = first_where(scores, top, columns), last_where(kept, worst, kept_columns)
        found = found | ((top == worst) & (place < last))
    return found


@triton.jit
def merged(best, scores, columns, ASCENDING: tl.constexpr):
    """The best of each row with one more tile.

    Args:
        best: Scores and columns so far.
        scores: Of the tile; −∞ for pairs that are not allowed.
        columns: Of each score, broadcast to the tile; every column is seen once.
        ASCENDING: Whether all columns are higher than those that were merged before.
    """
    kept, kept_columns = best
    top, worst = tl.max(scores, 1), tl.min(kept, 1)
    going = tl.max(enters(scores, top, worst, columns, kept, kept_columns, ASCENDING).to(tl.int32), 0)
    # A loop that stands in another by itself keeps Triton from loading the tiles of that ahead.
    if going != 0:
        while going != 0:
            for _ in tl.static_range(AT_ONCE):
                found = enters(scores, top, worst, columns, kept, kept_columns, ASCENDING)
                place = first_where(scores, top, columns)
                here = (kept_columns == last_where(kept, worst, kept_columns)[:, None]) & found[:, None]
                kept = tl.where(here, top[:, None], kept)
                kept_columns = tl.where(here, place[:, None], kept_columns)
                # In a row in which this did not enter nothing else will.
                scores = tl.where(columns == place[:, None], -float("inf"), scores)
                top, worst = tl.max(scores, 1), tl.min(kept, 1)
            going = tl.max(enters(scores, top, worst, columns, kept, kept_columns, ASCENDING).to(tl.int32), 0)
    return kept, kept_columns


@triton.jit
def store_places(scores, columns, to_scores, to_columns, lines, inside):
    """Write the best of rows, in no order, to `(…, K)`. `lines`: the place of each row; `inside`: which there are."""
    K: tl.constexpr = scores.shape[1]
    places = lines.to(tl.int64)[:, None] * K + tl.arange(0, K)[None, :]
    tl.store(to_scores + places, scores, mask=inside[:, None])
    tl.store(to_columns + places, columns, mask=inside[:, None])


@triton.jit
def store_best(best, outputs, lines, inside, chosen):
    """Write so many of the best, the best first: their columns, and their scores where there is a place for them.

    Where a row has fewer, −1 and −∞.

    Args:
        best: Scores and columns.
        outputs: Columns `(…, chosen)`, or also scores.
        lines: The place of each row.
        inside: Which rows there are.
        chosen: How many.
    """
    scores, columns = best
    places = lines.to(tl.int64) * chosen
    for place in range(0, chosen):
        top = tl.max(scores, 1)
        column = first_where(scores, top, columns)
        column = tl.where(top == -float("inf"), -1, column)
        tl.store(outputs[0] + places + place, column.to(outputs[0].dtype.element_ty), mask=inside)
        if len(outputs) > 1:
            tl.store(outputs[1] + places + place, top, mask=inside)
        scores = tl.where(columns == column[:, None], -float("inf"), scores)
