"""Blocks of 32 columns of a row, each worked on as one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.errors import TypingError
from numba.extending import intrinsic

from regard.engines.cpu.runtime.jit import exact_helper, helper, larger

BLOCK = 32

ZERO, NOTHING, INFINITY = np.float32(0.0), np.float32(-np.inf), np.float32(np.inf)

# Written out: LLVM unrolls a loop of that length instead of vectorising it.
_VECTOR, _WHOLE = ir.VectorType(ir.FloatType(), BLOCK), ir.VectorType(ir.IntType(32), BLOCK)
_FLAGS = ir.VectorType(ir.IntType(1), BLOCK)


def _every(builder: Any, kind: Any, value: Any) -> Any:
    """A vector that holds one value throughout."""
    nowhere = ir.Constant(kind, None)
    first = builder.insert_element(nowhere, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nowhere, ir.Constant(_WHOLE, [0] * BLOCK))


def _load(context: Any, builder: Any, row_type: Any, row: Any, start: Any) -> Any:
    """32 columns."""
    if row_type.layout != "C":
        raise TypingError(
            f"Rows must be contiguous: got {row_type}. Pass a C-contiguous array, not a part of a wider one."
        )
    data = context.make_array(row_type)(context, builder, row).data
    return builder.load(builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer()), align=4)


def _ranks(context: Any, builder: Any, row_type: Any, row: Any, start: Any, without_zero: Any) -> Any:
    """The `rank_of` of 32 columns."""
    zero, infinity, nothing = (ir.Constant(_VECTOR, [n] * BLOCK) for n in (0.0, float("inf"), float("-inf")))
    block = _load(context, builder, row_type, row, start)
    ranks = builder.select(builder.fcmp_unordered("uno", block, block), infinity, block)
    dropped = builder.and_(builder.fcmp_ordered("==", block, zero), _every(builder, _FLAGS, without_zero))
    return builder.select(dropped, nothing, ranks)


@intrinsic  # type: ignore[untyped-decorator]
def block_peak(typing: Any, row: Any, start: Any, without_zero: Any) -> Any:
    """The largest rank of 32 columns."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ranks = _ranks(context, builder, signature.args[0], *arguments)
        name, kind = f"llvm.vector.reduce.fmax.v{BLOCK}f32", ir.FunctionType(ir.FloatType(), [_VECTOR])
        return builder.call(get_or_insert_function(builder.module, kind, name), [ranks], fastmath=("nnan", "nsz"))

    return types.float32(row, types.intp, types.boolean), build


def _larger_of(builder: Any, left: Any, right: Any) -> Any:
    """The larger of two vectors in each place."""
    kind, name = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR]), f"llvm.maxnum.v{BLOCK}f32"
    return builder.call(get_or_insert_function(builder.module, kind, name), [left, right], fastmath=("nnan", "nsz"))


def _kth_of(builder: Any, block: Any, k: Any) -> Any:
    """The k-th largest of a vector's numbers: the least of those that fewer than k are larger than."""
    larger = ir.Constant(_WHOLE, [0] * BLOCK)
    for place in range(BLOCK):
        one = _every(builder, _VECTOR, builder.extract_element(block, ir.Constant(ir.IntType(32), place)))
        larger = builder.sub(larger, builder.sext(builder.fcmp_ordered("<", block, one), _WHOLE))
    few = builder.icmp_signed("<", larger, _every(builder, _WHOLE, builder.trunc(k, ir.IntType(32))))
    kept = builder.select(few, block, ir.Constant(_VECTOR, [float("inf")] * BLOCK))
    name, kind = f"llvm.vector.reduce.fmin.v{BLOCK}f32", ir.FunctionType(ir.FloatType(), [_VECTOR])
    return builder.call(get_or_insert_function(builder.module, kind, name), [kept], fastmath=("nnan", "nsz"))


@intrinsic  # type: ignore[untyped-decorator]
def kth_largest(typing: Any, values: Any, k: Any) -> Any:
    """The k-th largest of the first 32 values, of which none is NaN."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(context, builder, signature.args[0], arguments[0], ir.Constant(ir.IntType(64), 0))
        return _kth_of(builder, block, arguments[1])

    return types.float32(values, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def kth_lane(typing: Any, row: Any, start: Any, blocks: Any, k: Any) -> Any:
    """Of the largest of the columns j, j + 32, j + 64 … of some blocks, for each j below 32, the k-th largest.

    At least k columns reach it. NaN is passed over; a negative number counts as 0.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, start, blocks, k = arguments
        # In registers: what is written to memory in parts, and read at once, is waited for.
        none, nothing = ir.Constant(start.type, 0), ir.Constant(_VECTOR, [0.0] * BLOCK)
        before, loop, after = builder.block, *(builder.append_basic_block(name) for name in ("lanes", "peaks"))
        builder.cbranch(builder.icmp_signed(">", blocks, none), loop, after)
        builder.position_at_end(loop)
        b, peaks = builder.phi(start.type), builder.phi(_VECTOR)
        at = builder.add(start, builder.mul(b, ir.Constant(start.type, BLOCK)))
        raised = _larger_of(builder, peaks, _load(context, builder, signature.args[0], row, at))
        following = builder.add(b, ir.Constant(start.type, 1))
        builder.cbranch(builder.icmp_signed("<", following, blocks), loop, after)
        for phi, first, then in ((b, none, following), (peaks, nothing, raised)):
            phi.add_incoming(first, before)
            phi.add_incoming(then, loop)
        builder.position_at_end(after)
        found = builder.phi(_VECTOR)
        found.add_incoming(nothing, before)
        found.add_incoming(raised, loop)
        return _kth_of(builder, found, k)

    return types.float32(row, types.intp, types.intp, types.intp), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def raise_lanes(typing: Any, row: Any, start: Any, without_zero: Any, peaks: Any, blocks: Any) -> Any:
    """Raise 32 peaks to the ranks of a few blocks of 32 columns, each in its own place."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, start, without_zero, peaks, _ = arguments
        data = context.make_array(signature.args[3])(context, builder, peaks).data
        place = builder.bitcast(data, _VECTOR.as_pointer())
        found = builder.load(place, align=4)
        for block in range(blocks.literal_value):
            at = builder.add(start, ir.Constant(start.type, block * BLOCK))
            ranks = _ranks(context, builder, signature.args[0], row, at, without_zero)
            found = _larger_of(builder, found, ranks)
        builder.store(found, place, align=4)
        return context.get_dummy_value()

    return types.void(row, types.intp, types.boolean, peaks, blocks), build


@intrinsic  # type: ignore[untyped-decorator]
def block_within(typing: Any, row: Any, start: Any, without_zero: Any, least: Any, most: Any) -> Any:
    """Which of 32 columns rank from `least` to `most`: a bit for each, the first the lowest."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ranks = _ranks(context, builder, signature.args[0], *arguments[:3])
        least, most = (_every(builder, _VECTOR, each) for each in arguments[3:])
        within = builder.and_(builder.fcmp_ordered(">=", ranks, least), builder.fcmp_ordered("<=", ranks, most))
        return builder.zext(builder.bitcast(within, ir.IntType(BLOCK)), ir.IntType(64))

    return types.uint64(row, types.intp, types.boolean, types.float32, types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def block_reaching(typing: Any, row: Any, start: Any, least: Any) -> Any:
    """Which of 32 columns are not below `least`, which is a number: a bit for each, as `block_within`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(context, builder, signature.args[0], *arguments[:2])
        reaching = builder.fcmp_unordered(">=", block, _every(builder, _VECTOR, arguments[2]))
        return builder.zext(builder.bitcast(reaching, ir.IntType(BLOCK)), ir.IntType(64))

    return types.uint64(row, types.intp, types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def count_before(typing: Any, values: Any, place: Any, value: Any) -> Any:
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
def clear_block(typing: Any, values: Any) -> Any:
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
def count_bits(typing: Any, bits: Any) -> Any:
    """How many bits are set."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), build


@exact_helper
def rank_of(value, without_zero):  # type: ignore[no-untyped-def]
    """What a value is compared by: NaN is +inf, −0 is 0; where zeros do not count, they are −inf."""
    rank = INFINITY if value != value else value + ZERO
    return NOTHING if without_zero and value == ZERO else rank


@helper
def block_bits(row, b, without_zero, least, most):  # type: ignore[no-untyped-def]
    """Which columns of a block rank from `least` to `most`: a bit for each, the first the lowest."""
    start = b * BLOCK
    if start + BLOCK <= row.shape[0]:
        return block_within(row, start, without_zero, least, most)
    bits = np.uint64(0)
    for j in range(start, row.shape[0]):
        rank = rank_of(row[j], without_zero)
        bits |= np.uint64(rank >= least and rank <= most) << np.uint64(j - start)
    return bits


@helper
def block_peaks(row, without_zero, peaks):  # type: ignore[no-untyped-def]
    """Write the largest of every 32 columns; return how many such blocks there are. The row must be contiguous."""
    width = row.shape[0]
    blocks = width // BLOCK
    for b in range(blocks):
        peaks[b] = block_peak(row, b * BLOCK, without_zero)
    if blocks * BLOCK < width:
        peak = NOTHING
        for j in range(blocks * BLOCK, width):
            peak = larger(peak, rank_of(row[j], without_zero))
        peaks[blocks] = peak
        blocks += 1
    return blocks


@helper
def lane_peaks(row, without_zero, peaks):  # type: ignore[no-untyped-def]
    """Write the largest of the columns j, j + 32, j + 64 … for each j below 32. The row must be contiguous."""
    whole = row.shape[0] // BLOCK * BLOCK
    for j in range(BLOCK):
        peaks[j] = rank_of(row[whole + j], without_zero) if whole + j < row.shape[0] else NOTHING
    start = 0
    while start + 4 * BLOCK <= whole:
        raise_lanes(row, start, without_zero, peaks, 4)
        start += 4 * BLOCK
    while start < whole:
        raise_lanes(row, start, without_zero, peaks, 1)
        start += BLOCK
