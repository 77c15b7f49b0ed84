"""The best of each row in two looks at its scores: a floor that none of the k best is below, then what is not below it.

The columns that stand at one place of their tiles are a group. The k groups with the highest tops hold k scores that
are not below the lowest of those tops, which is the floor. Of scores in no order about 1.4 · k are not below it, where
there are 2 · k groups. They are written beside each other and sorted. Where there is no room for them, as where many
scores are equal, a flag asks for the loop of `choose_columns`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.choosing import load_rows, seen_tile

HALVINGS = tl.constexpr(20)  # of an interval of float32: what is left is less than 2⁻¹¹ of a score
LOWEST = tl.constexpr(-3.4028234663852886e38)  # finite


@triton.jit
def ordered(scores):
    """Whole numbers in the order of scores, of which 0 and −0 are equal."""
    bits = tl.where(scores == 0, 0.0, scores).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def number_of(place):
    """The score of a whole number."""
    return (place ^ ((place >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def floor_of(tops, chosen):
    """A number that at least so many of each row are not below, and few more; the lowest where there are fewer."""
    places = ordered(tops)
    high = tl.max(places, 1) + 1
    low = ordered(tl.full(high.shape, LOWEST, tl.float32))
    for _ in range(0, HALVINGS):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = tl.sum((places >= middle[:, None]).to(tl.int32), 1) >= chosen
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    return number_of(low)


@triton.jit
def set_bits(bits):
    """How many bits of 32 are set."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def places_among(found, COLUMNS: tl.constexpr):
    """(how many of its row there are before each, how many of each row) of what is found in a tile."""
    span = tl.arange(0, COLUMNS)
    one = tl.full((COLUMNS,), 1, tl.uint32)
    before = tl.zeros(found.shape, tl.int32)
    total = tl.zeros((found.shape[0],), tl.int32)
    for word in tl.static_range(COLUMNS // 32):
        here = span // 32 == word
        bit = tl.where(here, one << (span % 32).to(tl.uint32), 0)
        bits = tl.sum(tl.where(found, bit[None, :], 0), 1).to(tl.uint32)
        below = tl.where(here, bit - 1, tl.where(span // 32 > word, 0xFFFFFFFF, 0)).to(tl.uint32)
        before += set_bits(bits[:, None] & below[None, :])
        total += set_bits(bits)
    return before, total


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "chosen"])
def find_candidates(
    inputs,
    outputs,  # scores and columns (entries, n_queries, room), how many (entries, n_queries), flags of programs
    terms,
    mask,
    n_queries,
    n_keys,
    low,
    high,
    n1,
    n2,
    scale,
    chosen,
    FORM: tl.constexpr, STEPS: tl.constexpr, MASK: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What may be among the best of a block of rows, in the order of columns."""
    of_program, tiles = load_rows(
        inputs, terms, mask, n_queries, n_keys, low, high, n1, n2, 1,
        FORM, STEPS, MASK, DIM, BLOCK_DIM, False, ROWS, COLUMNS,
    )  # fmt: skip
    sizes = (n_queries, n_keys)
    tops = tl.full((ROWS, COLUMNS), -float("inf"), tl.float32)
    for tile in range(tiles[0], tiles[1]):
        found = seen_tile(
            tile, of_program, inputs, terms, mask, sizes, scale, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
        )  # fmt: skip
        tops = tl.maximum(tops, found)
    floor = floor_of(tops, chosen)
    rows = of_program[2] + tl.arange(0, ROWS)
    inside = rows < n_queries
    lines = tl.cast(of_program[0][7], tl.int64) * n_queries + rows
    count = tl.zeros((ROWS,), tl.int32)
    for tile in range(tiles[0], tiles[1]):
        found = seen_tile(
            tile, of_program, inputs, terms, mask, sizes, scale, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
        )  # fmt: skip
        high_enough = (found >= floor[:, None]) & inside[:, None]
        before, more = places_among(high_enough, COLUMNS)
        place = count[:, None] + before
        there = high_enough & (place < ROOM)
        columns = tl.zeros((ROWS, COLUMNS), tl.int32) + tile * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(outputs[0] + lines[:, None] * ROOM + place, found, mask=there)
        tl.store(outputs[1] + lines[:, None] * ROOM + place, columns, mask=there)
        count += more
    tl.store(outputs[2] + lines, count, mask=inside)
    tl.store(outputs[3] + tl.program_id(0), tl.max((count > ROOM).to(tl.int32)))


@triton.jit
def store_sorted(candidates, line, count, index, chosen, ROOM: tl.constexpr, SORTED: tl.constexpr):
    """Write the columns of the best of some candidates, best first, then −1."""
    span = tl.arange(0, SORTED)
    scores = tl.load(candidates[0] + line * ROOM + span, mask=span < count, other=-float("inf"))
    columns = tl.load(candidates[1] + line * ROOM + span, mask=span < count, other=0)
    # Of equal scores that of the lowest column is the larger number.
    numbers = (ordered(scores).to(tl.int64) << 32) | (0x7FFFFFFF - columns).to(tl.int64)
    numbers = tl.sort(numbers, descending=True)
    columns = tl.where(span < count, 0x7FFFFFFF - (numbers & 0x7FFFFFFF), -1)
    tl.store(index + line * chosen + span, columns.to(tl.int64), mask=span < chosen)


@triton.jit(do_not_specialize=["chosen"])
def settle_candidates(candidates, index, chosen, ROOM: tl.constexpr):
    """The best keys of a row among its candidates, of which there may be more than there was room for."""
    line = tl.program_id(0).to(tl.int64)
    count = tl.minimum(tl.load(candidates[2] + line), ROOM)
    if count <= ROOM // 2:
        store_sorted(candidates, line, count, index, chosen, ROOM, ROOM // 2)
    else:
        store_sorted(candidates, line, count, index, chosen, ROOM, ROOM)
