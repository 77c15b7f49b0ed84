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
def first_of(scores, columns):
    """The best score of each row, and its column: of equal ones the lowest."""
    top = tl.max(scores, 1)
    return top, tl.min(tl.where(scores == top[:, None], columns, BEYOND), 1)


@triton.jit
def last_of(best):
    """The worst score of the best of each row, and its column: of equal ones the highest."""
    worst = tl.min(best[0], 1)
    return worst, tl.max(tl.where(best[0] == worst[:, None], best[1], -BEYOND), 1)


@triton.jit
def enters(top, place, worst, last, ASCENDING: tl.constexpr):
    """In which rows the best of a tile is better than the worst of the best, as a number."""
    found = top > worst
    if not ASCENDING:
        found = found | ((top == worst) & (place < last))
    return found.to(tl.int32)


@triton.jit
def merged(best, scores, columns, ASCENDING: tl.constexpr):
    """The best of each row with one more tile.

    Args:
        best: Scores and columns so far.
        scores: Of the tile, `ranked`.
        columns: Of each score, broadcast to the tile; every column is seen once.
        ASCENDING: Whether all columns are higher than those that were merged before.
    """
    kept, kept_columns = best
    top, place = first_of(scores, columns)
    worst, last = last_of((kept, kept_columns))
    while tl.max(enters(top, place, worst, last, ASCENDING), 0) != 0:
        for _ in tl.static_range(AT_ONCE):
            here = (kept_columns == last[:, None]) & (enters(top, place, worst, last, ASCENDING) != 0)[:, None]
            kept = tl.where(here, top[:, None], kept)
            kept_columns = tl.where(here, place[:, None], kept_columns)
            # In a row in which this did not enter nothing else will.
            scores = tl.where(columns == place[:, None], -float("inf"), scores)
            top, place = first_of(scores, columns)
            worst, last = last_of((kept, kept_columns))
    return kept, kept_columns


@triton.jit
def store_best(best, pointer, places, inside, chosen):
    """Write the columns of so many of the best, the best first, then −1.

    `places`: where each row begins; `inside`: which rows there are.
    """
    scores, columns = best
    for place in range(0, chosen):
        top, column = first_of(scores, columns)
        column = tl.where(top == -float("inf"), -1, column)
        tl.store(pointer + places + place, column.to(pointer.dtype.element_ty), mask=inside)
        scores = tl.where(columns == column[:, None], -float("inf"), scores)
