"""The k best of each row, from strips of columns that come one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.errors import TypingError
from numba.extending import intrinsic

from regard.engines.cpu.kernels.logarithm import number_of, order_of
from regard.engines.cpu.runtime.jit import exact_helper, helper, kernel, larger

BLOCK = 32  # columns that are passed over at once where none of them matters
FEW = 32  # places among which to insert one by one is faster than to sort what enters

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_NOTHING, _INFINITY = np.float32(-np.inf), np.float32(np.inf)


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


@exact_helper
def _rank(value, without_zero):  # type: ignore[no-untyped-def]
    """What a value is compared by: NaN is +inf, −0 is 0; where zeros do not count, they are −inf."""
    rank = _INFINITY if value != value else value + _ZERO
    return _NOTHING if without_zero and value == _ZERO else rank


# A block is worked on as one vector: LLVM unrolls a loop of that length instead of vectorising it.
_VECTOR = ir.VectorType(ir.FloatType(), BLOCK)
_FLAGS = ir.VectorType(ir.IntType(1), BLOCK)


def _every(builder: Any, kind: Any, value: Any) -> Any:
    """A vector that holds one value throughout."""
    nowhere = ir.Constant(kind, None)
    first = builder.insert_element(nowhere, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nowhere, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK))


def _load(context: Any, builder: Any, row_type: Any, row: Any, start: Any) -> Any:
    """32 columns."""
    if row_type.layout != "C":
        raise TypingError(
            f"Rows must be contiguous: got {row_type}. Pass a C-contiguous array, not a part of a wider one."
        )
    data = context.make_array(row_type)(context, builder, row).data
    return builder.load(builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer()), align=4)


def _ranks(context: Any, builder: Any, row_type: Any, row: Any, start: Any, without_zero: Any) -> Any:
    """The `_rank` of 32 columns."""
    zero, infinity, nothing = (ir.Constant(_VECTOR, [n] * BLOCK) for n in (0.0, float("inf"), float("-inf")))
    block = _load(context, builder, row_type, row, start)
    ranks = builder.select(builder.fcmp_unordered("uno", block, block), infinity, block)
    dropped = builder.and_(builder.fcmp_ordered("==", block, zero), _every(builder, _FLAGS, without_zero))
    return builder.select(dropped, nothing, ranks)


@intrinsic  # type: ignore[untyped-decorator]
def _block_peak(typing: Any, row: Any, start: Any, without_zero: Any) -> Any:
    """The largest rank of 32 columns."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ranks = _ranks(context, builder, signature.args[0], *arguments)
        name, kind = f"llvm.vector.reduce.fmax.v{BLOCK}f32", ir.FunctionType(ir.FloatType(), [_VECTOR])
        return builder.call(get_or_insert_function(builder.module, kind, name), [ranks], fastmath=("nnan", "nsz"))

    return types.float32(row, types.intp, types.boolean), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _raise_lanes(typing: Any, row: Any, start: Any, without_zero: Any, peaks: Any, blocks: Any) -> Any:
    """Raise 32 peaks to the ranks of a few blocks of 32 columns, each in its own place."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, start, without_zero, peaks, _ = arguments
        kind, name = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR]), f"llvm.maxnum.v{BLOCK}f32"
        larger_of = get_or_insert_function(builder.module, kind, name)
        data = context.make_array(signature.args[3])(context, builder, peaks).data
        place = builder.bitcast(data, _VECTOR.as_pointer())
        found = builder.load(place, align=4)
        for block in range(blocks.literal_value):
            at = builder.add(start, ir.Constant(start.type, block * BLOCK))
            ranks = _ranks(context, builder, signature.args[0], row, at, without_zero)
            found = builder.call(larger_of, [found, ranks], fastmath=("nnan", "nsz"))
        builder.store(found, place, align=4)
        return context.get_dummy_value()

    return types.void(row, types.intp, types.boolean, peaks, blocks), build


@intrinsic  # type: ignore[untyped-decorator]
def _block_within(typing: Any, row: Any, start: Any, without_zero: Any, least: Any, most: Any) -> Any:
    """Which of 32 columns rank from `least` to `most`: a bit for each, the first the lowest."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ranks = _ranks(context, builder, signature.args[0], *arguments[:3])
        least, most = (_every(builder, _VECTOR, each) for each in arguments[3:])
        within = builder.and_(builder.fcmp_ordered(">=", ranks, least), builder.fcmp_ordered("<=", ranks, most))
        return builder.zext(builder.bitcast(within, ir.IntType(BLOCK)), ir.IntType(64))

    return types.uint64(row, types.intp, types.boolean, types.float32, types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def _block_reaching(typing: Any, row: Any, start: Any, least: Any) -> Any:
    """Which of 32 columns are not below `least`, which is a number: a bit for each, as `_block_within`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(context, builder, signature.args[0], *arguments[:2])
        reaching = builder.fcmp_unordered(">=", block, _every(builder, _VECTOR, arguments[2]))
        return builder.zext(builder.bitcast(reaching, ir.IntType(BLOCK)), ir.IntType(64))

    return types.uint64(row, types.intp, types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def _count_before(typing: Any, values: Any, place: Any, value: Any) -> Any:
    """How many of the first 32 values are larger, or equal and before a place."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, place, value = arguments
        bits = ir.IntType(BLOCK)
        block = _load(context, builder, signature.args[0], values, ir.Constant(place.type, 0))
        value = _every(builder, _VECTOR, value)
        larger, equal = (
            builder.bitcast(builder.fcmp_ordered(compared, block, value), bits) for compared in (">", "==")
        )
        one = ir.Constant(bits, 1)
        before = builder.sub(builder.shl(one, builder.trunc(place, bits)), one)
        return builder.zext(builder.ctpop(builder.or_(larger, builder.and_(equal, before))), ir.IntType(64))

    return types.int64(values, types.intp, types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def _clear_block(typing: Any, values: Any) -> Any:
    """Write −inf to the first 32 values."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        nothing = ir.Constant(_VECTOR, [float("-inf")] * BLOCK)
        builder.store(nothing, builder.bitcast(data, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(values), build


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there must be one."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), True))

    return types.int64(types.uint64), build


@intrinsic  # type: ignore[untyped-decorator]
def _count_bits(typing: Any, bits: Any) -> Any:
    """How many bits are set."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), build


@helper
def block_peaks(row, without_zero, peaks):  # type: ignore[no-untyped-def]
    """Write the largest of every 32 columns; return how many such blocks there are. The row must be contiguous."""
    width = row.shape[0]
    blocks = width // BLOCK
    for b in range(blocks):
        peaks[b] = _block_peak(row, b * BLOCK, without_zero)
    if blocks * BLOCK < width:
        peak = _NOTHING
        for j in range(blocks * BLOCK, width):
            peak = larger(peak, _rank(row[j], without_zero))
        peaks[blocks] = peak
        blocks += 1
    return blocks


@helper
def lane_peaks(row, without_zero, peaks):  # type: ignore[no-untyped-def]
    """Write the largest of the columns j, j + 32, j + 64 … for each j below 32. The row must be contiguous."""
    whole = row.shape[0] // BLOCK * BLOCK
    for j in range(BLOCK):
        peaks[j] = _rank(row[whole + j], without_zero) if whole + j < row.shape[0] else _NOTHING
    start = 0
    while start + 4 * BLOCK <= whole:
        _raise_lanes(row, start, without_zero, peaks, 4)
        start += 4 * BLOCK
    while start < whole:
        _raise_lanes(row, start, without_zero, peaks, 1)
        start += BLOCK


@helper
def merge_best(row, first_column, without_zero, best, index, peaks, places, values, packed):  # type: ignore[no-untyped-def]
    """Merge a row's columns into its best so far; `without_zero`: a value of 0 never enters either."""
    k = best.shape[0]
    if k <= FEW and _insert_few(row, first_column, without_zero, best, index, peaks, places, values, packed):
        return
    enough = k + min(k, 32)  # so many finds may be sorted in the end: to tell the k best apart first would take longer
    last = _NOTHING if index[k - 1] < 0 else _rank(best[k - 1], without_zero)
    floor = _next_above(last)
    blocks = block_peaks(row, without_zero, peaks)
    # The k-th largest of the blocks' peaks is at most the k-th largest of the row, and mostly not far below.
    least, _ = _bound(peaks, blocks, floor, k, k + min(k // 4, 32))
    found = _collect(row, without_zero, peaks, blocks, least, _INFINITY, places, 0, enough)
    if found > enough:
        copied = _copy_blocks(row, without_zero, peaks, blocks, least, values)
        least, exact = _bound(values, copied, least, k, k + min(k // 4, 32))
        if exact:  # many may tie with the k-th largest: those above it, then the first of its equals
            above = _next_above(least)
            found = _collect(row, without_zero, peaks, blocks, above, _INFINITY, places, 0, k)
            found = min(k, _collect(row, without_zero, peaks, blocks, least, least, places, found, k))
        else:
            found = _collect(row, without_zero, peaks, blocks, least, _INFINITY, places, 0, enough)
    if found == 0:
        return
    # One integer says both: the larger first, then the lower column.
    for i in range(found):
        rank = _rank(row[places[i]], without_zero)
        packed[i] = ((-1 - order_of(rank)) << 32) | places[i]
    _merge_sorted(row, first_column, without_zero, best, index, _sorted(packed, found, places), found)


@helper
def _insert_few(row, first_column, without_zero, best, index, peaks, places, values, packed):  # type: ignore[no-untyped-def]
    """`merge_best` where few columns may enter; False, with nothing done, where many may.

    Which columns those are, nobody can foresee, nor can the processor: there are as few branches as may be.
    """
    k, blocks, least = best.shape[0], (row.shape[0] + BLOCK - 1) // BLOCK, _NOTHING
    if blocks > 64:
        return False
    if index[k - 1] >= 0:
        least = _next_above(_rank(best[k - 1], without_zero))
    else:
        # Nothing to compare with yet, but at least k columns reach the k-th largest of what every 32nd column reaches.
        if k > BLOCK or 2 * k > row.shape[0]:
            return False
        lane_peaks(row, without_zero, peaks)
        for b in range(BLOCK):
            reach = _count_bits(_block_reaching(peaks, 0, peaks[b]))
            least = larger(least, peaks[b] if reach >= k else _NOTHING)
        least = larger(least, _next_above(_NOTHING))
    if least != least:  # the best are all +inf
        return True
    # A bit for each column that may enter, and one for each block that has any.
    found, some = 0, np.uint64(0)
    for b in range(blocks):
        if without_zero or (b + 1) * BLOCK > row.shape[0]:
            bits = block_bits(row, b, without_zero, least, _INFINITY)
        else:
            bits = _block_reaching(row, b * BLOCK, least)
        packed[b] = np.int64(bits)
        found += _count_bits(bits)
        some |= np.uint64(bits != np.uint64(0)) << np.uint64(b)
    if found > 4 * k:
        return False
    at_once = index[0] < 0 and found <= BLOCK
    if at_once:
        _clear_block(values)
    for i in range(found):
        b = lowest_bit(some)
        bits = np.uint64(packed[b])
        column = b * BLOCK + lowest_bit(bits)
        bits &= bits - np.uint64(1)
        packed[b] = np.int64(bits)
        some &= ~(np.uint64(bits == np.uint64(0)) << np.uint64(b))
        if at_once:
            places[i], values[i] = column, _rank(row[column], without_zero)
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
        places[BLOCK + _count_before(values, i, values[i])] = places[i]
    for at in range(min(best.shape[0], found)):
        column = places[BLOCK + at]
        best[at], index[at] = row[column], first_column + column


@helper
def _insert(value, place, without_zero, best, index):  # type: ignore[no-untyped-def]
    """Put a value among the best, after its equals, whose columns are lower; the last one leaves."""
    rank = _rank(value, without_zero)
    for at in range(best.shape[0] - 1, 0, -1):
        after = _rank(best[at - 1], without_zero) < rank
        here = _rank(best[at], without_zero) < rank
        best[at] = best[at - 1] if after else value if here else best[at]
        index[at] = index[at - 1] if after else place if here else index[at]
    if _rank(best[0], without_zero) < rank:
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
    top, bottom, reach = _NOTHING, _NOTHING, _ZERO
    for j in range(count):
        inside = values[j] >= floor
        top = larger(top, values[j])
        bottom = larger(bottom, -values[j] if inside else _NOTHING)
        reach += _ONE if inside else _ZERO
    if reach < k:
        return floor, False
    # Halve in the order of all float32 numbers: 32 steps at most, whatever the values are.
    low, high = order_of(-bottom), order_of(top) + 1
    while high - low > 1 and reach > enough:
        middle = (low + high) >> 1
        least = number_of(middle)
        more = _ZERO
        for j in range(count):
            more += _ONE if values[j] >= least else _ZERO
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
def block_bits(row, b, without_zero, least, most):  # type: ignore[no-untyped-def]
    """Which columns of a block rank from `least` to `most`: a bit for each, the first the lowest."""
    start = b * BLOCK
    if start + BLOCK <= row.shape[0]:
        return _block_within(row, start, without_zero, least, most)
    bits = np.uint64(0)
    for j in range(start, row.shape[0]):
        rank = _rank(row[j], without_zero)
        bits |= np.uint64(rank >= least and rank <= most) << np.uint64(j - start)
    return bits


@helper
def _copy_blocks(row, without_zero, peaks, blocks, least, values):  # type: ignore[no-untyped-def]
    """Copy the ranks of the blocks that reach `least`; return how many numbers that is."""
    copied = 0
    for b in range(blocks):
        if peaks[b] >= least:
            start = b * BLOCK
            width = min(BLOCK, row.shape[0] - start)
            for j in range(width):
                values[copied + j] = _rank(row[start + j], without_zero)
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
            if rank > _rank(best[old], without_zero):
                new += 1
            else:
                old += 1
    # From the back, so that nothing is overwritten before it has moved.
    for place in range(old + new - 1, -1, -1):
        column = packed[new - 1] & 0xFFFFFFFF if new > 0 else 0
        if new > 0 and (old == 0 or _rank(row[column], without_zero) <= _rank(best[old - 1], without_zero)):
            new -= 1
            best[place], index[place] = row[column], first_column + column
        else:
            old -= 1
            best[place], index[place] = best[old], index[old]
