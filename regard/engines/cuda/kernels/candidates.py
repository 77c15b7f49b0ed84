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
from regard.engines.cuda.kernels.tile_scores import (
    flag_place,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    start_of,
)
from regard.engines.cuda.kernels.tile_weights import SCORES

EQUAL = tl.constexpr(2.0**-22)  # of a number: others that are closer may be equal to it in another unit


@triton.jit
def set_bits(bits):
    """How many bits of 32 are set."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def store_words(found, floor, count, to, inside, start, WORDS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the words of a tile after as many as `count`; returns how many each row has."""
    wide: tl.constexpr = COLUMNS if COLUMNS < 32 else 32
    bit = tl.full((COLUMNS,), 1, tl.int32) << tl.arange(0, COLUMNS) % wide
    words = tl.arange(0, COLUMNS // wide)[None, :]  # one or two
    below = found < floor[:, None]  # as NaN is not
    bits = tl.sum(tl.reshape(tl.where(below, 0, bit[None, :]), (ROWS, COLUMNS // wide, wide)), 2)
    there = ((bits != 0) & inside[:, None]).to(tl.int32)
    more = tl.sum(there, 1)
    place = count[:, None] + (more[:, None] - there) * words
    made = (bits.to(tl.int64) << 32) | (start + words * wide)
    tl.store(to[:, None] + place, made, mask=(there != 0) & (place < WORDS))
    return more


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
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, KNOWN: tl.constexpr, FOLDS: tl.constexpr, WORDS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Which columns may be among the best of a block of rows.

    `KNOWN`: whether floors are. `FOLDS`: whether scores are compared before they are multiplied by the scale.
    """
    of_program, tiles = load_rows(
        inputs, terms, mask, n_queries, n_keys, low, high, n1, n2, 1,
        FORM, STEPS, MASK, DIM, BLOCK_DIM, False, ROWS, COLUMNS,
    )  # fmt: skip
    sizes = (n_queries, n_keys)
    unit = scale
    if FOLDS:
        unit = 1.0
    rows = of_program[2] + tl.arange(0, ROWS)
    inside = rows < n_queries
    lines = tl.cast(of_program[0][7], tl.int64) * n_queries + rows
    if KNOWN:
        floor = tl.load(outputs[3] + lines, mask=inside, other=0.0)
        if FOLDS:
            floor = tl.where(floor <= LOWEST, LOWEST, tl.maximum(floor / scale, LOWEST))
    else:
        tops = tl.full((ROWS, COLUMNS), -float("inf"), tl.float32)
        for tile in range(tiles[0], tiles[1]):
            found = seen_tile(
                tile, of_program, inputs, terms, mask, sizes, unit, MASK, DIM,
                FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, False, True,
            )  # fmt: skip
            tops = tl.maximum(tops, found)
        floor = floor_of(tops, chosen)
        if FOLDS:
            floor = tl.maximum(floor - tl.abs(floor) * EQUAL, LOWEST)  # what is equal when it is multiplied
        tl.store(outputs[3] + lines, floor, mask=inside)
    to = outputs[0] + lines * WORDS
    count = tl.zeros((ROWS,), tl.int32)
    from_whole, to_whole = of_program[4], of_program[5]
    for tile in range(from_whole, to_whole):
        found = seen_tile(
            tile, of_program, inputs, terms, mask, sizes, unit, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, True, True,
        )  # fmt: skip
        count += store_words(found, floor, count, to, inside, tile * COLUMNS, WORDS, ROWS, COLUMNS)
    before = from_whole - tiles[0]
    for place in range(0, before + tl.maximum(tiles[1] - to_whole, 0)):
        tile = tl.where(place < before, tiles[0] + place, to_whole + place - before)
        found = seen_tile(
            tile, of_program, inputs, terms, mask, sizes, unit, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, False, True,
        )  # fmt: skip
        count += store_words(found, floor, count, to, inside, tile * COLUMNS, WORDS, ROWS, COLUMNS)
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
    """The columns of words, in their order; how many there are takes the place of how many words. Sets flags."""
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


@triton.jit
def settle_row(
    inputs, outputs, lists, terms, at, row, line, n_queries, n_keys, scale, chosen,
    FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The best keys of a row among its candidates."""
    sizes, one = (n_queries, n_keys), tl.arange(0, 1)
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


@triton.jit
def product_scores(
    columns, there, at, start, span, inputs, n_queries, scale,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The products of some rows and columns of each, `(rows, columns)`."""
    keys = inputs[2] + start_of(inputs[3], at) - columns.to(tl.int64) * inputs[3][3]
    scores = tl.zeros(columns.shape, tl.float32)
    for first in tl.static_range(0, BLOCK_DIM, AT_ONCE):
        dims = first + tl.arange(0, AT_ONCE)
        query = load_tile(inputs[0], inputs[1], at, start, span, n_queries, dims, DIM, False).to(tl.float32)
        inside = there[:, :, None] & (dims < DIM)[None, None, :]
        key = tl.load(keys[:, :, None] + dims[None, None, :], mask=inside, other=0.0).to(tl.float32)
        scores += tl.sum(query[:, None, :] * key, 2)
    return scores * scale


@triton.jit
def store_placed(
    lists, count, at, start, lines, inside, inputs, outputs, n_queries, scale, chosen,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, AT_ONCE: tl.constexpr, ROOM: tl.constexpr, SORTED: tl.constexpr,
):  # fmt: skip
    """As `store_sorted`, of several rows, whose scores are products: the place of a key is how many are before it."""
    rows: tl.constexpr = count.shape[0]
    span = tl.arange(0, SORTED)[None, :]
    there = span < count[:, None]
    columns = tl.load(lists + lines[:, None] * ROOM + span, mask=there, other=0)
    scores = product_scores(
        columns, there, at, start, tl.arange(0, rows), inputs, n_queries, scale, DIM, BLOCK_DIM, AT_ONCE
    )
    scores = ranked(scores, there)
    # Of equal scores that of the lowest column is the larger number; no two are equal.
    both = (ordered(scores).to(tl.int64) << 32) + tl.where(there, 0x7FFFFFFF - columns, SORTED - span).to(tl.int64)
    place = tl.sum((both[:, None, :] > both[:, :, None]).to(tl.int32), 2)
    columns = tl.where(scores > -float("inf"), columns, -1).to(tl.int64)
    wanted = (place < chosen) & inside[:, None]
    to = lines[:, None] * chosen + place
    tl.store(outputs[0] + to, columns, mask=wanted)
    if len(outputs) > 1:
        tl.store(outputs[1] + to, scores, mask=wanted)


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
    ROWS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The best keys of rows among their candidates, of which there may be more than there was room for.

    `ROWS`: of a program; only where scores are products, may it be several. `AT_ONCE`: channels of all their keys.
    """
    n_blocks = tl.cdiv(n_queries, ROWS)
    entry, start = tl.program_id(0) // n_blocks, tl.program_id(0) % n_blocks * ROWS
    at, most, placed = place_of(entry, n1, n2), ROOM, 0
    if ROWS > 1:
        placed = ROOM >> 2  # those of all rows that have no more, at once
        rows = start + tl.arange(0, ROWS)
        lines = tl.cast(entry, tl.int64) * n_queries + rows
        counts = tl.load(lists[1] + lines, mask=rows < n_queries, other=0)
        most = tl.max(counts, 0)
        store_placed(
            lists[0], counts, at, start, lines, (rows < n_queries) & (counts <= placed), inputs, outputs, n_queries,
            scale, chosen, DIM, BLOCK_DIM, AT_ONCE, ROOM, ROOM >> 2,
        )  # fmt: skip
    if (ROWS == 1) | (most > placed):
        for row in range(start, tl.minimum(start + ROWS, n_queries)):
            line = tl.cast(entry, tl.int64) * n_queries + row
            if (ROWS == 1) | (tl.load(lists[1] + line) > placed):
                settle_row(
                    inputs, outputs, lists, terms, at, row, line, n_queries, n_keys, scale, chosen,
                    FORM, STEPS, DIM, BLOCK_DIM, ROOM,
                )  # fmt: skip
