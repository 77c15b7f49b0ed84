"""The best keys of each row, for rules that take these alone: `(…, n_queries, k)`, best first, then −1.

Scores are compared as they are. Equal keys have equal scores: one loop computes all of them, whole tiles and others, by
the same instructions in the same order, so that nobody need look for keys that are equal (`engines/ties.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.best import merged, nothing_best, ranked, store_best, store_places
from regard.engines.cuda.kernels.listed import load_list, vector_scores
from regard.engines.cuda.kernels.pair_scores import DOT, SQUARE, load_tile, load_weights, squared_norms
from regard.engines.cuda.kernels.scored_tiles import scored_tile
from regard.engines.cuda.kernels.tile_scores import (
    block_of,
    flag_place,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    stepped,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    BOUNDS,
    LINE,
    SCORES,
    allowed_pairs,
    mask_rows,
    tile_ranges,
    whole_within,
)


@triton.jit
def ranked_tile(
    of_columns, block, inputs, terms, mask, at, row_start, column_start, is_whole, sizes, scale,
    MASK, DIM, FORM: tl.constexpr, STEPS: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, LOOSE: tl.constexpr,
):  # fmt: skip
    """What some rows and a tile's columns are compared by. `is_whole`: whether the mask allows every pair.

    `WHOLE`: whether it is known to. `LOOSE`: whether NaN may stay.
    """
    row_span, column_span = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    everywhere = tl.full((ROWS, COLUMNS), 1, tl.int1)
    scores, allowed = scored_tile(
        everywhere, of_columns, block, inputs, terms, at, row_start, column_start, sizes,
        scale, SCORES, DIM, FORM, STEPS, True, False, WHOLE, False, EXACT, False, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    if FORM == SQUARE and not EXACT:
        # Where products would cancel, which each pair says by itself, whatever stands beside it.
        if tl.max(tl.where(scores != scores, 1, 0)) != 0:
            exact, _ = scored_tile(
                everywhere, of_columns, block, inputs, terms, at, row_start, column_start, sizes, scale, SCORES, DIM,
                FORM, STEPS, True, False, WHOLE, False, True, False, PRECISION, BLOCK_DIM, ROWS, COLUMNS,
            )  # fmt: skip
            scores = tl.where(scores != scores, exact, scores)
    if LOOSE:
        found = tl.where(allowed, scores, -float("inf"))
    else:
        found = ranked(scores, allowed)
    if not WHOLE:
        if is_whole == 0:
            seen = allowed_pairs(
                mask, block[4], at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
            )
            found = tl.where(seen, found, -float("inf"))
    return found


@triton.jit
def load_rows(
    inputs, terms, mask, n_queries, n_keys, low, high, n1, n2, n_splits,
    FORM: tl.constexpr, STEPS: tl.constexpr, MASK: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What a program has of its rows, as `ranked_tiles` takes it; and tiles that they see, (from, to)."""
    sizes, line = (n_queries, n_keys), (low, high)
    reverse: tl.constexpr = MASK[BOUNDS] != 0 or MASK[LINE] != 0
    entry, place, split = block_of(tl.program_id(0), n_queries, n_splits, ROWS, reverse)
    at = place_of(entry, n1, n2)
    start, span = place * ROWS, tl.arange(0, ROWS)
    queries = load_tile(inputs[0], inputs[1], at, start, span, n_queries, tl.arange(0, BLOCK_DIM), DIM, False)
    norms = span
    if FORM != DOT:
        norms = squared_norms(queries)
    origins = load_origins(terms, at, start, STEPS, False)
    of_rows = load_line(terms, origins, at, start, span, n_queries, STEPS, False, True, False)
    bounds = mask_rows(mask, line, at, start, span, sizes, MASK)
    known = (queries, norms, of_rows, load_numbers(terms, at, STEPS), bounds, span, 1.0, entry)
    from_tile, to_tile, from_whole, to_whole = tile_ranges(bounds, start + span, sizes, MASK, COLUMNS)
    if SPLIT:
        share = tl.cdiv(tl.cdiv(n_keys, COLUMNS), n_splits)
        from_tile, to_tile = tl.maximum(from_tile, split * share), tl.minimum(to_tile, (split + 1) * share)
    from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)
    return (known, at, start, origins, from_whole, to_whole, split), (from_tile, to_tile)


@triton.jit
def seen_tile(
    tile, of_program, inputs, terms, mask, sizes, scale, MASK, DIM,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, LOOSE: tl.constexpr,
):  # fmt: skip
    """What the rows of a program and a tile's columns are compared by. `WHOLE`, `LOOSE`: as of `ranked_tile`."""
    known, at, row_start, origins, from_whole, to_whole, _ = of_program
    start = tile * COLUMNS
    of_columns = load_line(terms, origins, at, start, tl.arange(0, COLUMNS), sizes[1], STEPS, True, True, WHOLE)
    is_whole = ((tile >= from_whole) & (tile < to_whole)).to(tl.int32)
    return ranked_tile(
        of_columns, known, inputs, terms, mask, at, row_start, start, is_whole, sizes, scale, MASK, DIM,
        FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, WHOLE, LOOSE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2", "n_splits", "chosen"])
def choose_columns(
    inputs,
    outputs,  # indices (entries, n_queries, k); or, of each share, the best scores and columns
    flags,  # of blocks of rows, if nothing is to be done where they are 0
    terms,
    mask,
    n_queries,
    n_keys,
    low,
    high,
    n1,
    n2,
    scale,
    n_splits,
    chosen,
    FORM: tl.constexpr, STEPS: tl.constexpr, MASK: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, SPLIT: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """The best keys of a block of rows, of all or of one share of the keys."""
    if len(flags) > 0:
        entry, block, _ = block_of(tl.program_id(0), n_queries, 1, ROWS, MASK[BOUNDS] != 0 or MASK[LINE] != 0)
        if tl.load(flags[0] + flag_place(entry, block * ROWS, n_queries, ROWS)) == 0:
            return
    of_program, tiles = load_rows(
        inputs, terms, mask, n_queries, n_keys, low, high, n1, n2, n_splits,
        FORM, STEPS, MASK, DIM, BLOCK_DIM, SPLIT, ROWS, COLUMNS,
    )  # fmt: skip
    best = nothing_best(ROWS, K)
    for tile in range(tiles[0], tiles[1]):
        found = seen_tile(
            tile, of_program, inputs, terms, mask, (n_queries, n_keys), scale, MASK, DIM,
            FORM, STEPS, EXACT, PRECISION, BLOCK_DIM, ROWS, COLUMNS, False, False,
        )  # fmt: skip
        best = merged(best, found, tile * COLUMNS + tl.arange(0, COLUMNS)[None, :], True)
    entry, split = tl.cast(of_program[0][7], tl.int64), of_program[6]
    rows = of_program[2] + tl.arange(0, ROWS)
    if SPLIT:
        lines = (entry * n_splits + split) * n_queries + rows
        store_places(best[0], best[1], outputs[0], outputs[1], lines, rows < n_queries)
    else:
        store_best(best, outputs, entry * n_queries + rows, rows < n_queries, chosen)


@triton.jit(do_not_specialize=["n_queries", "n_splits", "chosen"])
def merge_choices(shares, outputs, n_queries, n_splits, chosen, K: tl.constexpr):
    """The best keys of a row from those of each share of the keys, in their order."""
    program = tl.program_id(0)
    row, entry = program % n_queries, tl.cast(program // n_queries, tl.int64)
    one = tl.arange(0, 1)
    best = nothing_best(1, K)
    for split in range(0, n_splits):
        places = ((entry * n_splits + split) * n_queries + row) * K + tl.arange(0, K)[None, :]
        best = merged(best, tl.load(shares[0] + places), tl.load(shares[1] + places), True)
    store_best(best, outputs, entry * n_queries + row + one, one == 0, chosen)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "width", "n1", "n2", "chosen"])
def choose_listed(
    inputs, outputs, terms, lists, n_queries, n_keys, width, n1, n2, scale, chosen,
    FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, LISTED: tl.constexpr,
    K: tl.constexpr,
):  # fmt: skip
    """The best keys of one row along its list."""
    program = tl.program_id(0)
    row, entry = program % n_queries, program // n_queries
    at, sizes, one = place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, 1)
    dims = tl.arange(0, BLOCK_DIM)
    query = load_tile(inputs[0], inputs[1], at, row, one, n_queries, dims, DIM, False).to(tl.float32)
    origins, numbers = load_origins(terms, at, row, STEPS, False), load_numbers(terms, at, STEPS)
    of_rows = load_line(terms, origins, at, row, one, n_queries, STEPS, False, True, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    best = nothing_best(1, K)
    for start in range(0, width, LISTED):
        columns = load_list(lists[0], lists[1], at, row, start, width, n_keys, LISTED)
        keys = load_tile(inputs[2], inputs[3], at, 0, columns, n_keys, dims, DIM, False).to(tl.float32)
        of_columns = load_line(terms, origins, at, 0, columns, n_keys, STEPS, True, True, False)
        of_tile = tile_terms(terms, of_rows, of_columns, at, row, one, 0, columns, sizes, 1.0, STEPS, False, True)
        scores, allowed = stepped(
            vector_scores(query, keys, weight, inputs, scale, FORM), (columns < n_keys)[None, :], numbers, of_tile,
            terms, len(STEPS), STEPS, False, True,
        )  # fmt: skip
        best = merged(best, ranked(scores, allowed), columns.to(tl.int32)[None, :], False)
    store_best(best, outputs, tl.cast(entry, tl.int64) * n_queries + row + one, one == 0, chosen)


@triton.jit(do_not_specialize=["n_rows", "n_keys", "chosen"])
def choose_scored(scores, outputs, n_rows, n_keys, chosen, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The best keys of some rows whose scores `(n_rows, n_keys)` are there."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    best = nothing_best(ROWS, K)
    for start in range(0, n_keys, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)[None, :]
        places = rows.to(tl.int64)[:, None] * n_keys + columns
        there = inside[:, None] & (columns < n_keys)
        best = merged(best, ranked(tl.load(scores + places, mask=there, other=-float("inf")), there), columns, True)
    store_best(best, outputs, rows, inside, chosen)
