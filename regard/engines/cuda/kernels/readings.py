"""What a view reads, from weights that are computed again: a block of rows against all tiles, and sums over rows.

A program has a share of the rows of a batch entry, and walks over it block by block. What it adds up over rows lies in
global memory, in places of its own, to which it alone adds: whoever launched it adds the shares up, in their order. A
place is always read and written by the same thread of a block, or on both sides of a barrier.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channels import summed_channels
from regard.engines.cuda.kernels.elementary import LOG2_E, binary_logarithm
from regard.engines.cuda.kernels.pair_scores import (
    DOT,
    SQUARE,
    load_tile,
    load_weights,
    pair_scores,
    squared_norms,
)
from regard.engines.cuda.kernels.products import scored_product
from regard.engines.cuda.kernels.tile_gradients import load_facts
from regard.engines.cuda.kernels.tile_scores import (
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
    PROPORTIONAL,
    RAW,
    SOFTMAX,
    UNIFORM,
    allowed_pairs,
    at_most_zero,
    mask_rows,
    tile_ranges,
    weights_and_slopes,
    whole_within,
)

LN_2 = tl.constexpr(0.6931471805599453)
LEAST_EXPONENT = tl.constexpr(-1000.0)  # of a weight of 0, in place of −∞: times 0 it is 0
NOWHERE = tl.constexpr(2**31 - 1)  # no key has this number


@triton.jit
def load_block(
    inputs, facts, terms, mask, at, entry, row_start, row_span, sizes, line,
    RULE, MASK, DIM, FORM: tl.constexpr, STEPS: tl.constexpr, ROUGH: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """What rows have for every tile, and the positions that others are told relative to.

    They need not follow each other: `row_span` says how far each is from the first.
    """
    dims = tl.arange(0, BLOCK_DIM)
    queries = load_tile(inputs[0], inputs[1], at, row_start, row_span, sizes[0], dims, DIM, False)
    norms = row_span
    if FORM != DOT:
        norms = squared_norms(queries)
    origins = load_origins(terms, at, row_start, STEPS, False)
    of_rows = load_line(terms, origins, at, row_start, row_span, sizes[0], STEPS, False, True, False)
    numbers = load_numbers(terms, at, STEPS)
    bounds = mask_rows(mask, line, at, row_start, row_span, sizes, MASK)
    by_row = load_facts(facts, entry, row_start, row_span, sizes[0], RULE, False, ROUGH, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    return (row_span, queries, norms, of_rows, numbers, bounds, by_row, weight), origins


@triton.jit
def weigh_tile(
    block, origins, inputs, terms, mask, at, row_start, column_start, sizes, scale,
    RULE, MASK, DIM, FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr,
    MASKED: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(α of a tile, log₂ α, of which 0 has a number).

    Args:
        block, origins: As `load_block` has them.
        EXCLUDES: Whether a step may exclude a pair.
        FOLDS: Whether the scale is part of exponentials.
        SAFE: Whether scores are computed as the kernels for any rule and mask compute them.
    """
    row_span, queries, norms, of_rows, numbers, bounds, by_row, weight = block
    level, inverse, _, less_one = by_row
    column_span, dims = tl.arange(0, COLUMNS), tl.arange(0, BLOCK_DIM)
    selects: tl.constexpr = MASKED or EXCLUDES
    allowed = tl.full((ROWS, COLUMNS), 1, tl.int1)
    if MASKED:
        allowed = allowed_pairs(
            mask, bounds, at, row_start, row_span, column_start, column_span, sizes, MASK, TURNED=False
        )
    of_columns = load_line(terms, origins, at, column_start, column_span, sizes[1], STEPS, True, True, not MASKED)
    scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    unit = LOG2_E
    if RULE != UNIFORM:
        keys = load_tile(inputs[2], inputs[3], at, column_start, column_span, sizes[1], dims, DIM, not MASKED)
        if FOLDS:
            scores = scored_product(queries, keys, PRECISION)
            unit = scale * LOG2_E
        else:
            sides = (
                (inputs[0], inputs[1], row_start, row_span, sizes[0]),
                (inputs[2], inputs[3], column_start, column_span, sizes[1]),
            )
            scores = pair_scores(queries, keys, norms, sides, weight, inputs, at, scale, DIM, FORM, EXACT, PRECISION)
            if FORM == SQUARE and not EXACT:
                # What a product would have cancelled: differences first, for this tile.
                if tl.max(tl.where(scores != scores, 1, 0)) > 0:
                    scores = summed_channels(sides, inputs, at, DIM, FORM) * scale
    of_tile = tile_terms(
        terms, of_rows, of_columns, at, row_start, row_span, column_start, column_span, sizes, 1.0, STEPS,
        False, True,
    )  # fmt: skip
    scores, allowed = stepped(scores, allowed, numbers, of_tile, terms, len(STEPS), STEPS, ROUGH and not SAFE, EXCLUDES)
    if selects:
        allowed = allowed & (scores != -float("inf"))
    weights, _ = weights_and_slopes(
        scores, allowed, level[:, None], inverse[:, None], unit, RULE, selects, ROUGH, less_one
    )
    if not (MASKED or RULE == SOFTMAX or RULE == PROPORTIONAL or RULE == UNIFORM):
        # Rows that there are not; elsewhere their facts say so.
        weights = tl.where((row_start + row_span < sizes[0])[:, None], weights, 0.0)
    if RULE == SOFTMAX:
        # As it was made a weight of: the compiler finds it there.
        if ROUGH:
            exponents = at_most_zero(scores * unit - level[:, None])
        else:
            exponents = at_most_zero(scores - level[:, None]) * unit + binary_logarithm(inverse)[:, None]
    else:
        exponents = binary_logarithm(weights)
    if selects or RULE != SOFTMAX:  # elsewhere −∞ is of rows that there are not
        exponents = tl.maximum(exponents, LEAST_EXPONENT)
    return weights, exponents


@triton.jit
def merge_best(best, places, weights, columns, RULE):
    """The heaviest weights of rows and their columns with those of one more tile, whose columns follow: no order.

    A weight of 0 has no place; of equal weights the lowest column stays.

    Args:
        best: `(rows, kept)`; below any weight where there is none.
        places: Their columns; negative where there is none, each another.
        weights: Of the tile.
        columns: Its columns.
        RULE: Under raw scores alone may a weight be below 0.
    """
    if RULE == RAW:
        weights = tl.where(weights == 0, -float("inf"), weights)
    largest = tl.max(weights, 1)
    worst = tl.min(best, 1)
    more = tl.max(tl.where(largest > worst, 1, 0)) > 0
    if more:
        while more:
            # Of each row the largest that is left takes the place of the worst, if it is above it.
            taken = largest > worst
            column = tl.min(tl.where(weights == largest[:, None], columns[None, :], NOWHERE), 1)
            # Of the worst, the one that came last.
            last = tl.max(tl.where(best == worst[:, None], places, -NOWHERE), 1)
            here = (places == last[:, None]) & taken[:, None]
            best = tl.where(here, largest[:, None], best)
            places = tl.where(here, column[:, None], places)
            weights = tl.where(columns[None, :] == column[:, None], -float("inf"), weights)
            largest = tl.max(weights, 1)
            worst = tl.min(best, 1)
            more = tl.max(tl.where(largest > worst, 1, 0)) > 0
    return best, places


@triton.jit
def no_best(ROWS: tl.constexpr, KEPT: tl.constexpr, RULE):
    """The heaviest weights of rows and their columns, before any tile."""
    best = tl.zeros((ROWS, KEPT), tl.float32)
    if RULE == RAW:
        best = best - float("inf")
    return best, tl.zeros((ROWS, KEPT), tl.int32) - 1 - tl.arange(0, KEPT)[None, :]


@triton.jit
def store_best(best, places, pointers, lines, inside, k):
    """Write the k heaviest of each row, in order: `(…, k)`, `lines` says which rows these are."""
    for place in range(0, k):
        largest = tl.max(best, 1)
        column = tl.min(tl.where((best == largest[:, None]) & (places >= 0), places, NOWHERE), 1)
        there = column != NOWHERE
        tl.store(pointers[0] + lines * k + place, tl.where(there, largest, 0.0), mask=inside)
        tl.store(pointers[1] + lines * k + place, tl.where(there, column, -1).to(tl.int64), mask=inside)
        best = tl.where(places == column[:, None], -float("inf"), best)
        places = tl.where(places == column[:, None], -1, places)


@triton.jit
def rows_of_lines(edges, line, stop, piece, n_rows, LINES: tl.constexpr, ROWS: tl.constexpr):
    """Rows of some lines that follow each other, as many of each; `n_rows` in place of one that there is not.

    Args:
        edges: The first row of each line, and the one after the last.
        line: The first of them.
        stop: The one after the last that counts.
        piece: How many rows of each line come before these.
    """
    span = tl.arange(0, ROWS)
    lines = line + span // (ROWS // LINES)
    there = lines < stop
    rows = tl.load(edges + lines, mask=there, other=0) + piece + span % (ROWS // LINES)
    after = tl.load(edges + lines + 1, mask=there, other=0)
    return tl.where(rows < after, rows, n_rows)


@triton.jit
def summed_lines(weights, LINES: tl.constexpr):
    """Sums of the rows of a tile by line: `(LINES, columns)`."""
    if LINES == 1:
        sums = tl.sum(weights, 0)[None, :]
    else:
        sums = tl.sum(tl.reshape(weights, (LINES, weights.shape[0] // LINES, weights.shape[1])), 1)
    return sums


@triton.jit
def add_bins(sums, bins, picture, width, first, last, n_lines, BINS: tl.constexpr):
    """Add sums of lines to a picture, `(LINES, columns)`: those of columns that share one of its columns together.

    Args:
        sums: Of columns that follow each other.
        bins: The picture's column of each; −1 where there is none.
        picture: Its first line that these belong to.
        width: Of the picture.
        first, last: The first and the last of its columns that these belong to.
        n_lines: How many lines count.
        BINS: Room for its columns; 0 to take them one by one.
    """
    lines = tl.arange(0, sums.shape[0])
    place = picture + lines.to(tl.int64) * width
    if BINS > 0:
        # Each place stands for columns that are so many apart, in every tile the same: one thread adds to each.
        span = tl.arange(0, BINS)
        found = first + ((span - first) & (BINS - 1))
        belongs = bins[:, None] == found[None, :]
        more = tl.sum(tl.where(belongs[None, :, :], sums[:, :, None], 0.0), 1)
        add_to(place[:, None] + found[None, :], more, (lines < n_lines)[:, None] & (found <= last)[None, :])
    else:
        for column in range(first, last + 1):
            more = tl.sum(tl.where((bins == column)[None, :], sums, 0.0), 1)
            add_to(place + column, more, lines < n_lines)


@triton.jit
def add_to(pointers, more, inside):
    """Add to what lies there."""
    before = tl.load(pointers, mask=inside, other=0.0)
    tl.store(pointers, before + more.to(before.dtype), mask=inside)


@triton.jit
def add_to_vector(pointers, more, inside, COPIES: tl.constexpr):
    """Add to what lies there, a number for each thread: of short vectors Triton would give each to several.

    So there are copies, of which one alone is written.
    """
    copies = tl.arange(0, COPIES)[:, None]
    add_to(pointers[None, :] + copies * 0, more[None, :], (copies == 0) & inside[None, :])


@triton.jit
def read_tile(
    state, weights, exponents, sums_of, drawn, column_start, n_keys,
    RULE, ENTROPY: tl.constexpr, TOTALS: tl.constexpr, KEPT: tl.constexpr, RECEIVED: tl.constexpr,
    DRAWN: tl.constexpr, LINES: tl.constexpr, BINS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What is read of some rows with one more tile; what sums over rows get of it is added to them.

    Args:
        state: Entropies, least, total and largest weights, how many are not 0, the heaviest and their columns.
        sums_of: What keys receive of this program, from key 0 on.
        drawn: The picture from the first line of these rows on, its width, how many lines they have of it, the
            picture's column of each key.
    """
    entropies, least, total, most, count, best, places = state
    columns = column_start + tl.arange(0, COLUMNS)
    if ENTROPY:
        entropies += tl.sum(weights * exponents, 1).to(tl.float64)
    if TOTALS:
        least = tl.minimum(least, tl.min(weights, 1))
        most = tl.maximum(most, tl.max(weights, 1))
        total += tl.sum(weights, 1).to(tl.float64)
        count += tl.sum((weights != 0).to(tl.int32), 1)
    if RECEIVED or DRAWN:
        sums = summed_lines(weights, LINES)
        if RECEIVED:
            add_to_vector(sums_of + columns, tl.sum(sums, 0), columns < n_keys, 128 // COLUMNS)
        if DRAWN:
            bins = tl.load(drawn[3] + columns, mask=columns < n_keys, other=-1)
            last = tl.load(drawn[3] + tl.minimum(column_start + COLUMNS, n_keys) - 1)
            if last >= 0:  # as it is
                add_bins(sums, bins, drawn[0], drawn[1], tl.load(drawn[3] + column_start), last, drawn[2], BINS)
    if KEPT > 0:
        best, places = merge_best(best, places, weights, columns, RULE)
    return entropies, least, total, most, count, best, places


@triton.jit(
    do_not_specialize=[
        "n_queries", "n_keys", "low", "high", "n1", "n2", "n_shares", "n_lines", "each", "n_parts", "all_rows",
        "first_row", "height", "width", "k",
    ]
)  # fmt: skip
def read_rows(
    inputs,  # queries, their strides, keys, …
    facts,  # levels and inverses, (entries, n_queries)
    # Of each row: entropies, least, total and largest weight, how many are not 0, the heaviest, their columns. Of
    # shares: what keys receive, and pictures.
    outputs,
    flags,  # a number that is 0 if nothing is to be done, where that may be
    edges,  # the first row of each line, and the one after the last: of a picture, or of shares
    bins,  # the picture's column of each key
    terms,
    mask,
    n_queries,
    n_keys,
    low,
    high,
    n1,
    n2,
    scale,
    n_shares,  # of each batch entry
    n_lines,  # of each batch entry
    each,  # lines of a share
    n_parts,  # pictures of each batch entry: shares have turns
    all_rows,  # of the outputs, of which these begin at
    first_row,
    height,  # of the picture
    width,
    k,  # how many of the heaviest
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ENTROPY: tl.constexpr, TOTALS: tl.constexpr, KEPT: tl.constexpr,
    RECEIVED: tl.constexpr, DRAWN: tl.constexpr, LINES: tl.constexpr, BINS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Every reading of a share of the rows.

    Args:
        ENTROPY, TOTALS, RECEIVED, DRAWN: Whether these are read.
        KEPT: Room for the heaviest; 0 for none.
        LINES: How many lines of the picture a block of rows is made of, each with as many of its rows.
        BINS: Room for its columns that a tile belongs to; 0 to take them one by one.
    """
    if len(flags) > 0:
        if tl.load(flags[0]) == 0:
            return
    program = tl.program_id(0)
    entry, share = program // n_shares, program % n_shares
    if MASK[BOUNDS] != 0 or MASK[LINE] != 0:
        share = n_shares - 1 - share  # the longest of a causal mask first
    at = place_of(entry, n1, n2)
    sizes, line = (n_queries, n_keys), (low, high)
    first_line, stop_line = share * each, tl.minimum((share + 1) * each, n_lines)
    received = outputs[7] + (tl.cast(entry, tl.int64) * n_shares + share) * n_keys
    picture = outputs[8] + (tl.cast(entry, tl.int64) * n_parts + share % n_parts) * height * width
    line_span = tl.arange(0, LINES)
    for at_line in range(first_line, stop_line, LINES):
        here = at_line + line_span
        begins = tl.load(edges + here, mask=here < stop_line, other=0)
        longest = tl.max(tl.load(edges + here + 1, mask=here < stop_line, other=0) - begins)
        drawn = (
            picture + tl.cast(at_line // n_parts, tl.int64) * width, width, tl.minimum(stop_line - at_line, LINES), bins
        )  # fmt: skip
        for piece in range(0, longest, ROWS // LINES):
            # Rows before these have added to the same sums, perhaps by other threads.
            tl.debug_barrier()
            rows = rows_of_lines(edges, at_line, stop_line, piece, n_queries, LINES, ROWS)
            row_start = tl.load(edges + at_line) + piece
            row_span = rows - row_start
            block, origins = load_block(
                inputs, facts, terms, mask, at, entry, row_start, row_span, sizes, line,
                RULE, MASK, DIM, FORM, STEPS, ROUGH, BLOCK_DIM,
            )  # fmt: skip
            from_tile, to_tile, from_whole, to_whole = tile_ranges(block[5], rows, sizes, MASK, COLUMNS)
            from_whole, to_whole = whole_within(from_tile, to_tile, from_whole, to_whole)
            best, places = no_best(ROWS, KEPT if KEPT > 0 else 1, RULE)
            nothing = tl.zeros((ROWS,), tl.float32)
            state = (
                tl.zeros((ROWS,), tl.float64), nothing, tl.zeros((ROWS,), tl.float64), nothing,
                tl.zeros((ROWS,), tl.int32), best, places,
            )  # fmt: skip
            for tile in range(from_whole, to_whole):
                weights, exponents = weigh_tile(
                    block, origins, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale,
                    RULE, MASK, DIM, FORM, STEPS, EXCLUDES, FOLDS, False, SAFE, EXACT, ROUGH, PRECISION,
                    BLOCK_DIM, ROWS, COLUMNS,
                )  # fmt: skip
                state = read_tile(
                    state, weights, exponents, received, drawn, tile * COLUMNS, n_keys,
                    RULE, ENTROPY, TOTALS, KEPT, RECEIVED, DRAWN, LINES, BINS, COLUMNS,
                )  # fmt: skip
            # Another loop may have other threads add to a place.
            tl.debug_barrier()
            before = from_whole - from_tile
            for place in range(0, before + tl.maximum(to_tile - to_whole, 0)):
                tile = tl.where(place < before, from_tile + place, to_whole + place - before)
                weights, exponents = weigh_tile(
                    block, origins, inputs, terms, mask, at, row_start, tile * COLUMNS, sizes, scale,
                    RULE, MASK, DIM, FORM, STEPS, EXCLUDES, FOLDS, True, SAFE, EXACT, ROUGH, PRECISION,
                    BLOCK_DIM, ROWS, COLUMNS,
                )  # fmt: skip
                state = read_tile(
                    state, weights, exponents, received, drawn, tile * COLUMNS, n_keys,
                    RULE, ENTROPY, TOTALS, KEPT, RECEIVED, DRAWN, LINES, BINS, COLUMNS,
                )  # fmt: skip
            entropies, least, total, most, count, best, places = state
            inside = rows < n_queries
            at_row = tl.cast(entry, tl.int64) * all_rows + first_row + rows
            if ENTROPY:
                # No less than 0, but for the rounding of a weight of 1.
                entropies = (entropies * -LN_2).to(tl.float32)
                tl.store(outputs[0] + at_row, tl.where(entropies < 0, 0.0, entropies), mask=inside)
            if TOTALS:
                tl.store(outputs[1] + at_row, least, mask=inside)
                tl.store(outputs[2] + at_row, total.to(tl.float32), mask=inside)
                tl.store(outputs[3] + at_row, most, mask=inside)
                tl.store(outputs[4] + at_row, count.to(tl.float32), mask=inside)
            if KEPT > 0:
                store_best(best, places, (outputs[5], outputs[6]), at_row, inside, k)


@triton.jit(
    do_not_specialize=[
        "n_queries", "n_keys", "low", "high", "n1", "n2", "row", "column", "n_rows", "n_columns", "all_rows",
        "first_row",
    ]
)  # fmt: skip
def weigh_rows(
    inputs,
    facts,
    found,  # (entries, all_rows, n_columns)
    terms,
    mask,
    n_queries,
    n_keys,
    low,
    high,
    n1,
    n2,
    scale,
    row,  # the first that is wanted, and how many
    n_rows,
    column,
    n_columns,
    all_rows,  # of what is found, of which these begin at
    first_row,
    FORM: tl.constexpr, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, RULE: tl.constexpr,
    MASK: tl.constexpr, SAFE: tl.constexpr, EXACT: tl.constexpr, ROUGH: tl.constexpr, PRECISION: tl.constexpr,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """α of some rows and columns, those of one tile."""
    sizes, line = (n_queries, n_keys), (low, high)
    row_blocks, column_blocks = tl.cdiv(n_rows, ROWS), tl.cdiv(n_columns, COLUMNS)
    program = tl.program_id(0)
    entry = program // column_blocks // row_blocks
    row_start = row + program // column_blocks % row_blocks * ROWS
    column_start = column + program % column_blocks * COLUMNS
    at = place_of(entry, n1, n2)
    block, origins = load_block(
        inputs, facts, terms, mask, at, entry, row_start, tl.arange(0, ROWS), sizes, line,
        RULE, MASK, DIM, FORM, STEPS, ROUGH, BLOCK_DIM,
    )  # fmt: skip
    weights, _ = weigh_tile(
        block, origins, inputs, terms, mask, at, row_start, column_start, sizes, scale,
        RULE, MASK, DIM, FORM, STEPS, EXCLUDES, FOLDS, True, SAFE, EXACT, ROUGH, PRECISION,
        BLOCK_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    rows, columns = row_start - row + tl.arange(0, ROWS), column_start - column + tl.arange(0, COLUMNS)
    lines = tl.cast(entry, tl.int64) * all_rows + first_row + rows
    inside = (rows < n_rows)[:, None] & (columns < n_columns)[None, :]
    tl.store(found + lines[:, None] * n_columns + columns[None, :], weights, mask=inside)
