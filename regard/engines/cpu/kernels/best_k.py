"""The k best of each row, from strips of columns that come one after the other."""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.blocks import (
    BLOCK,
    INFINITY,
    NOTHING,
    ZERO,
    block_bits,
    block_peaks,
    block_reaching,
    clear_block,
    count_before,
    count_bits,
    kth_largest,
    lane_peaks,
    lowest_bit,
    rank_of,
)
from regard.engines.cpu.kernels.logarithm import number_of, order_of
from regard.engines.cpu.runtime.jit import helper, kernel, larger

FEW = 32  # places among which to insert one by one is faster than to sort what enters

ONE = np.float32(1.0)


@kernel
def best_strip(strip, first_column, best, index):  # type: ignore[no-untyped-def]
    """Merge the columns of a strip into the best k of its rows so far: best first, the lowest index among equals.

    NaN counts as +inf. A score of −inf never enters.

    Args:
        strip: float32 `(rows, columns)`.
        first_column: Which key its first column is; above all that were merged before.
        best: float32 `(rows, k)`; −inf in empty places, all of them at first.
        index: int64 `(rows, k)`; −1 in empty places.
    """
    rows, columns = strip.shape
    peaks, places, values, packed = best_scratch(columns)
    for i in range(rows):
        merge_best(strip[i], first_column, False, best[i], index[i], peaks, places, values, packed)


@helper
def best_scratch(columns):  # type: ignore[no-untyped-def]
    """What `merge_best` works in, for rows of so many columns."""
    return (
        np.empty(columns // BLOCK + BLOCK, np.float32),
        np.empty(max(columns, 2 * BLOCK), np.int64),
        np.empty(max(columns, BLOCK), np.float32),
        np.empty(columns, np.int64),
    )


@helper
def merge_best(row, first_column, without_zero, best, index, peaks, places, values, packed):  # type: ignore[no-untyped-def]
    """Merge a row's columns into its best so far; `without_zero`: a value of 0 never enters either."""
    k = best.shape[0]
    if k <= FEW and _insert_few(row, first_column, without_zero, best, index, peaks, places, values, packed):
        return
    enough = k + min(k, 32)  # so many finds may be sorted in the end: to tell the k best apart first would take longer
    last = NOTHING if index[k - 1] < 0 else rank_of(best[k - 1], without_zero)
    floor = _next_above(last)
    blocks = block_peaks(row, without_zero, peaks)
    # The k-th largest of the blocks' peaks is at most the k-th largest of the row, and mostly not far below.
    least, _ = _bound(peaks, blocks, floor, k, k + min(k // 4, 32))
    found = _collect(row, without_zero, peaks, blocks, least, INFINITY, places, 0, enough)
    if found > enough:
        copied = _copy_blocks(row, without_zero, peaks, blocks, least, values)
        least, exact = _bound(values, copied, least, k, k + min(k // 4, 32))
        if exact:  # many may tie with the k-th largest: those above it, then the first of its equals
            above = _next_above(least)
            found = _collect(row, without_zero, peaks, blocks, above, INFINITY, places, 0, k)
            found = min(k, _collect(row, without_zero, peaks, blocks, least, least, places, found, k))
        else:
            found = _collect(row, without_zero, peaks, blocks, least, INFINITY, places, 0, enough)
    if found == 0:
        return
    # One integer says both: the larger first, then the lower column.
    for i in range(found):
        rank = rank_of(row[places[i]], without_zero)
        packed[i] = ((-1 - order_of(rank)) << 32) | places[i]
    _merge_sorted(row, first_column, without_zero, best, index, _sorted(packed, found, places), found)


@helper
def _insert_few(row, first_column, without_zero, best, index, peaks, places, values, packed):  # type: ignore[no-untyped-def]
    """`merge_best` where few columns may enter; False, with nothing done, where many may.

    Which columns those are, nobody can foresee, nor can the processor: there are as few branches as may be.
    """
    k, blocks, least = best.shape[0], (row.shape[0] + BLOCK - 1) // BLOCK, NOTHING
    if blocks > 64:
        return False
    if index[k - 1] >= 0:
        least = _next_above(rank_of(best[k - 1], without_zero))
    else:
        # Nothing to compare with yet, but at least k columns reach the k-th largest of what every 32nd column reaches.
        if k > BLOCK or 2 * k > row.shape[0]:
            return False
        lane_peaks(row, without_zero, peaks)
        least = larger(kth_largest(peaks, k), _next_above(NOTHING))
    if least != least:  # the best are all +inf
        return True
    # A bit for each column that may enter, and one for each block that has any.
    found, some = 0, np.uint64(0)
    for b in range(blocks):
        if without_zero or (b + 1) * BLOCK > row.shape[0]:
            bits = block_bits(row, b, without_zero, least, INFINITY)
        else:
            bits = block_reaching(row, b * BLOCK, least)
        packed[b] = np.int64(bits)
        found += count_bits(bits)
        some |= np.uint64(bits != np.uint64(0)) << np.uint64(b)
    if found > 4 * k:
        return False
    at_once = index[0] < 0 and found <= BLOCK
    if at_once:
        clear_block(values)
    for i in range(found):
        b = lowest_bit(some)
        bits = np.uint64(packed[b])
        column = b * BLOCK + lowest_bit(bits)
        bits &= bits - np.uint64(1)
        packed[b] = np.int64(bits)
        some &= ~(np.uint64(bits == np.uint64(0)) << np.uint64(b))
        if at_once:
            places[i], values[i] = column, rank_of(row[column], without_zero)
        else:
            _insert(row[column], first_column + column, without_zero, best, index)
    if at_once:
        _sort_few(row, first_column, best, index, places, values, found)
    return True


@helper
def _sort_few(row, first_column, best, index, places, values, found):  # type: ignore[no-untyped-def]
    """Write the best of at most 32 columns, in ascending order, where nothing is known yet: each counts who is before.

    `values` are their ranks, then −inf; both are lost.
    """
    for i in range(found):
        # Behind the places, where nobody is: who is not among the best is written as well, and forgotten.
        places[BLOCK + count_before(values, i, values[i])] = places[i]
    for at in range(min(best.shape[0], found)):
        column = places[BLOCK + at]
        best[at], index[at] = row[column], first_column + column


@helper
def _insert(value, place, without_zero, best, index):  # type: ignore[no-untyped-def]
    """Put a value among the best, after its equals, whose columns are lower; the last one leaves."""
    rank = rank_of(value, without_zero)
    for at in range(best.shape[0] - 1, 0, -1):
        after = rank_of(best[at - 1], without_zero) < rank
        here = rank_of(best[at], without_zero) < rank
        best[at] = best[at - 1] if after else value if here else best[at]
        index[at] = index[at - 1] if after else place if here else index[at]
    if rank_of(best[0], without_zero) < rank:
        best[0], index[0] = value, place


@helper
def _next_above(number):  # type: ignore[no-untyped-def]
    """The next float32; NaN, which nothing reaches, after +inf."""
    return number_of(order_of(number) + 1)


@helper
def _bound(values, count, floor, k, enough):  # type: ignore[no-untyped-def]
    """(a number that at least k of the values reach, and at most `enough` if it can; whether it is the k-th largest).

    Where fewer than k reach the floor, it is the floor.
    """
    top, bottom, reach = NOTHING, NOTHING, ZERO
    for j in range(count):
        inside = values[j] >= floor
        top = larger(top, values[j])
        bottom = larger(bottom, -values[j] if inside else NOTHING)
        reach += ONE if inside else ZERO
    if reach < k:
        return floor, False
    # Halve in the order of all float32 numbers: 32 steps at most, whatever the values are.
    low, high = order_of(-bottom), order_of(top) + 1
    while high - low > 1 and reach > enough:
        middle = (low + high) >> 1
        least = number_of(middle)
        more = ZERO
        for j in range(count):
            more += ONE if values[j] >= least else ZERO
        if more >= k:
            low, reach = middle, more
        else:
            high = middle
    return number_of(low), reach > enough


@helper
def _collect(row, without_zero, peaks, blocks, least, most, places, found, enough):  # type: ignore[no-untyped-def]
    """Add the columns that rank from `least` to `most`; return how many there are then, `enough` + 1 if too many."""
    for b in range(blocks):
        if peaks[b] >= least:
            bits = block_bits(row, b, without_zero, least, most)
            while bits:
                if found == enough:
                    return enough + 1
                places[found] = b * BLOCK + lowest_bit(bits)
                found += 1
                bits &= bits - np.uint64(1)
    return found


@helper
def _copy_blocks(row, without_zero, peaks, blocks, least, values):  # type: ignore[no-untyped-def]
    """Copy the ranks of the blocks that reach `least`; return how many numbers that is."""
    copied = 0
    for b in range(blocks):
        if peaks[b] >= least:
            start = b * BLOCK
            width = min(BLOCK, row.shape[0] - start)
            for j in range(width):
                values[copied + j] = rank_of(row[start + j], without_zero)
            copied += width
    return copied


@helper
def _sorted(packed, count, room):  # type: ignore[no-untyped-def]
    """The first `count` numbers, all different, in ascending order: in either of the two arrays."""
    if count > 256:
        packed[:count].sort()
        return packed
    for i in range(count):
        below = 0
        for j in range(count):
            below += 1 if packed[j] < packed[i] else 0
        room[below] = packed[i]
    return room


@helper
def _merge_sorted(row, first_column, without_zero, best, index, packed, found):  # type: ignore[no-untyped-def]
    """Merge the sorted finds into the sorted best. All finds are better than the last of the best."""
    k = best.shape[0]
    known = 0
    while known < k and index[known] >= 0:
        known += 1
    # How many of either stay: equals keep the older, whose column is lower.
    old, new = 0, 0
    while old + new < k and (old < known or new < found):
        if old == known:
            new += 1
        elif new == found:
            old += 1
        else:
            rank = number_of(-1 - (packed[new] >> 32))
            if rank > rank_of(best[old], without_zero):
                new += 1
            else:
                old += 1
    # From the back, so that nothing is overwritten before it has moved.
    for place in range(old + new - 1, -1, -1):
        column = packed[new - 1] & 0xFFFFFFFF if new > 0 else 0
        if new > 0 and (old == 0 or rank_of(row[column], without_zero) <= rank_of(best[old - 1], without_zero)):
            new -= 1
            best[place], index[place] = row[column], first_column + column
        else:
            old -= 1
            best[place], index[place] = best[old], index[old]
