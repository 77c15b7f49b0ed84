"""The best of each row in two looks at its scores: a floor that none of the k best is below, then what is not below it.

The columns that stand at one place of their tiles are a group. The k groups with the highest tops hold k scores that
are not below the lowest of those tops, which is the floor. Of scores in no order about 1.4 · k are not below it, where
there are 2 · k groups. The second look writes a bit for each pair, and keeps the words that have any: to find a place
for each candidate there would take longer than all products. Words become lists of columns, whose scores are computed
again, one by one, and sorted. Where there is no room for them, as where many scores are equal, a flag asks for the loop
of `choose_columns`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.best import ranked
from regard.engines.cuda.kernels.choosing import load_rows, seen_tile
from regard.engines.cuda.kernels.floors import LOWEST, floor_of, number_of, ordered
from regard.engines.cuda.kernels.listed import listed_scores
from regard.engines.cuda.kernels.pair_scores import load_tile, load_weights
from regard.engines.cuda.kernels.tile_scores import flag_place, load_line, load_numbers, load_origins, place_of
from regard.engines.cuda.kernels.tile_weights import SCORES


@triton.jit
def set_bits(bits):
    """How many bits of 32 are set."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24).to(tl.int32)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "chosen"])
def find_candidates(
    inputs,
    # Words, which hold a bit for each of some columns that follow each other and, below it, the first of these,
    # (entries, n_queries, room); how many of each row; flags of blocks; floors, (entries, n_queries).
    outputs,
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
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, KNOWN: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Which columns may be among the best of a block of rows. `KNOWN`: whether floors are."""
    of_program, tiles = load_rows(
        inputs, terms, mask, n_queries, n_keys, low, high, n1, n2, 1,
        FORM, STEPS, MASK, DIM, BLOCK_DIM, False, ROWS, COLUMNS,
    )  # fmt: skip
    sizes = (n_queries, n_keys)
    rows = of_program[2] + tl.arange(0, ROWS)
    inside = rows < n_queries
    lines = tl.cast(of_program[0][7], tl.int64) * n_queries + rows
    if KNOWN:
        floor = tl.load(outputs[3] + lines, mask=inside, other=0.0)
    else:
        tops = tl.full((ROWS, COLUMNS), -float("inf"), tl.float32)
        for tile in range(tiles[0], tiles[1]):
            found = seen_tile(
                tile, of_program, inputs, terms, mask, sizes, scale, MASK, DIM,
                FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, True,
            )  # fmt: skip
            tops = tl.maximum(tops, found)
        floor = floor_of(tops, chosen)
        tl.store(outputs[3] + lines, floor, mask=inside)
    wide: tl.constexpr = COLUMNS if COLUMNS < 32 else 32
    span = tl.arange(0, COLUMNS)
    bit = tl.full((COLUMNS,), 1, tl.int32) << span % wide
    words = tl.arange(0, COLUMNS // wide)[None, :]  # one or two
    to = outputs[0] + lines * WORDS
    count = tl.zeros((ROWS,), tl.int32)
    for tile in range(tiles[0], tiles[1]):
        found = seen_tile(
            tile, of_program, inputs, terms, mask, sizes, scale, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, True,
        )  # fmt: skip
        below = found < floor[:, None]  # as NaN is not
        bits = tl.sum(tl.reshape(tl.where(below, 0, bit[None, :]), (ROWS, COLUMNS // wide, wide)), 2)
        there = ((bits != 0) & inside[:, None]).to(tl.int32)
        more = tl.sum(there, 1)
        place = count[:, None] + (more[:, None] - there) * words
        made = (bits.to(tl.int64) << 32) | (tile * COLUMNS + words * wide)
        tl.store(to[:, None] + place, made, mask=(there != 0) & (place < WORDS))
        count += more
    tl.store(outputs[1] + lines, count, mask=inside)
    tl.store(outputs[2] + tl.program_id(0), 0)


@triton.jit(do_not_specialize=["n_rows", "n_queries", "chosen", "flagged"])
def list_candidates(
    words,  # and how many of each row, flags and floors, as `find_candidates` has them
    lists,  # (entries, n_queries, room)
    n_rows,
    n_queries,
    chosen,
    flagged,  # rows that share a flag
    WORDS: tl.constexpr,
    ROOM: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The columns of words, ascending; how many there are takes the place of how many words. Sets flags."""
    rows, span = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WORDS)
    inside = rows < n_rows
    found = tl.load(words[1] + rows, mask=inside, other=0)
    there = span[None, :] < found[:, None]
    made = tl.load(words[0] + rows.to(tl.int64)[:, None] * WORDS + span[None, :], mask=there, other=0)
    first, bits = made.to(tl.int32), (made >> 32).to(tl.int32)
    many = set_bits(bits.to(tl.uint32))
    total = tl.sum(many, 1)
    place = tl.cumsum(many, 1) - many
    to = lists + rows.to(tl.int64)[:, None] * ROOM
    while tl.max(tl.max((bits != 0).to(tl.int32), 1), 0) != 0:
        rest = bits & (bits - 1)
        column = first + set_bits(((bits ^ rest) - 1).to(tl.uint32))
        tl.store(to + place, column, mask=(bits != 0) & (place < ROOM))
        bits, place = rest, place + 1
    # Scores that were compared with floors were computed elsewhere.
    floors = tl.load(words[3] + rows, mask=inside, other=0.0)
    lacks = (found > WORDS) | (total > ROOM) | ((total < chosen) & (floors > LOWEST))
    tl.store(words[1] + rows, tl.minimum(total, ROOM), mask=inside)
    block = flag_place(rows // n_queries, rows % n_queries, n_queries, flagged)
    tl.store(words[2] + block, 1, mask=inside & lacks)


@triton.jit
def store_sorted(
    columns, count, query, weight, origins, numbers, of_rows, inputs, outputs, terms, at, row, line, sizes, scale,
    chosen, FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    SORTED: tl.constexpr,
):  # fmt: skip
    """Write the best of some candidates, best first, then −1 and −∞."""
    span = tl.arange(0, SORTED)
    there = span < count
    columns = tl.load(columns + span, mask=there, other=0)
    scores, allowed = listed_scores(
        query, tl.where(there, columns.to(tl.int64), sizes[1]), weight, origins, numbers, of_rows, inputs, terms, at,
        row, sizes, scale, SCORES, FORM, STEPS, DIM, BLOCK_DIM,
    )  # fmt: skip
    scores = tl.reshape(ranked(scores, allowed), (SORTED,))
    # Of equal scores that of the lowest column is the larger number.
    both = (ordered(scores).to(tl.int64) << 32) | (0x7FFFFFFF - columns).to(tl.int64)
    both = tl.sort(both, descending=True)
    scores = number_of((both >> 32).to(tl.int32))
    columns = tl.where(scores > -float("inf"), 0x7FFFFFFF - (both & 0x7FFFFFFF), -1)
    tl.store(outputs[0] + line * chosen + span, columns, mask=span < chosen)
    if len(outputs) > 1:
        tl.store(outputs[1] + line * chosen + span, scores, mask=span < chosen)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "n1", "n2", "chosen"])
def settle_candidates(
    inputs,
    outputs,  # columns (entries, n_queries, chosen), and scores, if they are wanted
    lists,  # and how many of each row
    terms,
    n_queries,
    n_keys,
    n1,
    n2,
    scale,
    chosen,
    FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The best keys of a row among its candidates, of which there may be more than there was room for."""
    program = tl.program_id(0)
    row, entry = program % n_queries, program // n_queries
    line, at, sizes, one = program.to(tl.int64), place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, 1)
    dims = tl.arange(0, BLOCK_DIM)
    query = load_tile(inputs[0], inputs[1], at, row, one, n_queries, dims, DIM, False).to(tl.float32)
    origins, numbers = load_origins(terms, at, row, STEPS, False), load_numbers(terms, at, STEPS)
    of_rows = load_line(terms, origins, at, row, one, n_queries, STEPS, False, True, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    count = tl.load(lists[1] + line)
    for halved in tl.static_range(3):
        # As few as hold all, and as are wanted.
        if (count <= ROOM >> 2 - halved) & ((count > ROOM >> 3 - halved) | (halved == 0)):
            store_sorted(
                lists[0] + line * ROOM, count, query, weight, origins, numbers, of_rows, inputs, outputs, terms, at,
                row, line, sizes, scale, chosen, FORM, STEPS, DIM, BLOCK_DIM, ROOM >> 2 - halved,
            )  # fmt: skip
