"""The way back to a table of relative positions: Σ dS along diagonals, which lie at one distance each.

A program has some rows and a copy of the table for itself, to which it adds the diagonals of a tile after those of the
tile before. The copies are summed in the end: the same inputs give the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.general import decoded_inputs, decoded_mask
from regard.engines.cuda.kernels.pair_scores import DOT, load_tile, load_weights, pair_scores, squared_norms
from regard.engines.cuda.kernels.products import scored_product
from regard.engines.cuda.kernels.tile_gradients import load_facts, tile_gradients
from regard.engines.cuda.kernels.tile_scores import (
    decoded_all,
    decoded_pairs,
    decoded_terms,
    load_line,
    load_numbers,
    load_origins,
    place_of,
    start_of,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import allowed_pairs, keep_factors, line_range, mask_rows, row_hashes


@triton.jit
def differentiate_table(
    inputs,
    gradient,
    facts,
    outputs,  # copies of tables, zeros so far: (entries, groups of rows, distances)
    terms,
    mask,
    dropout,
    sizes,
    scale,
    codes,  # rule, whether u is subtracted, dim, value_dim, groups of rows; then of what the mask is made
    FORM: tl.constexpr, STEPS: tl.constexpr, LEARNS: tl.constexpr, TABLE: tl.constexpr, ROUGH: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """What some rows give to the table of step `TABLE`. Tiles are square."""
    n_queries, n_keys, low, high, n1, n2 = decoded_all(sizes)
    rule, centred, dim, value_dim, n_groups = decoded_all(codes[:5])
    kinds = decoded_all(codes[5:])
    inputs, mask, gradient = decoded_inputs(inputs, FORM), decoded_mask(mask), decoded_pairs(gradient)
    terms = decoded_terms(terms, STEPS)
    program = tl.program_id(0)
    entry, group = program // n_groups, program % n_groups
    at, lengths, span = place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, SIZE)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    numbers, weight = load_numbers(terms, at, STEPS), load_weights(inputs, at, dims, dim, FORM)
    reach = -terms[TABLE][6]
    copy = outputs[0] + tl.cast(program, tl.int64) * (2 * reach + 1)
    for block in range(group, tl.cdiv(n_queries, SIZE), n_groups):
        start = block * SIZE
        queries = load_tile(inputs[0], inputs[1], at, start, span, n_queries, dims, dim, False)
        to_output = load_tile(gradient[0], gradient[1], at, start, span, n_queries, value_dims, value_dim, False)
        norms = span
        if FORM != DOT:
            norms = squared_norms(queries)
        origins = load_origins(terms, at, start, STEPS, False)
        of_rows = load_line(terms, origins, at, start, span, n_queries, STEPS, False, True, False)
        bounds = mask_rows(mask, (low, high), at, start, span, lengths, kinds)
        hashes = row_hashes(tl.load(dropout[0]), entry, start + span)
        by_row = load_facts(facts, entry, start, span, n_queries, rule, centred, ROUGH, False)
        from_tile, to_tile = line_range((low, high), start, lengths, SIZE, SIZE)
        for tile in range(from_tile, to_tile):
            first = tile * SIZE
            allowed = allowed_pairs(mask, bounds, at, start, span, first, span, lengths, kinds, TURNED=False)
            keys = load_tile(inputs[2], inputs[3], at, first, span, n_keys, dims, dim, False)
            values = load_tile(inputs[4], inputs[5], at, first, span, n_keys, value_dims, value_dim, False)
            sides = (
                (inputs[0], inputs[1], start, span, n_queries),
                (inputs[2], inputs[3], first, span, n_keys),
            )
            raw = pair_scores(queries, keys, norms, sides, weight, inputs, at, scale, dim, FORM, True, PRECISION)
            over_values = scored_product(to_output, values, PRECISION)
            keep = keep_factors(hashes, first + span, dropout, TURNED=False)
            of_columns = load_line(terms, origins, at, first, span, n_keys, STEPS, True, True, False)
            of_tile = tile_terms(
                terms, of_rows, of_columns, at, start, span, first, span, lengths, 1.0, STEPS, False, True
            )
            found = tile_gradients(
                raw, over_values, keep, numbers, of_tile, allowed, by_row, terms, scale,
                rule, STEPS, True, False, LEARNS, True, True, ROUGH, False,
            )  # fmt: skip
            apart = distance_of(terms[TABLE], at, start, first)
            add_diagonals(found[2][TABLE], apart, copy, reach, SIZE)


@triton.jit
def distance_of(term, at, row, column):
    """The position of a key less that of a query."""
    of_row = tl.load(term[0] + start_of(term[1], at) + row)
    return (tl.load(term[2] + start_of(term[3], at) + column) - of_row).to(tl.int64)


@triton.jit
def add_diagonals(pairs, apart, copy, reach, SIZE: tl.constexpr):
    """Add the diagonals of a tile to a table; `apart` is the distance of its first pair."""
    span = tl.arange(0, SIZE)
    place = span[:, None] + span[None, :]
    # Row i turned by i: what was on a diagonal is in a column, those to the left of the first row beside them.
    turned = tl.gather(pairs, place % SIZE, 1)
    right = tl.sum(tl.where(place < SIZE, turned, 0.0), 0)
    left = tl.sum(tl.where(place < SIZE, 0.0, turned), 0)
    add_distances(right, apart + span, copy, reach)
    add_distances(left, apart + span - SIZE, copy, reach)


@triton.jit
def add_distances(sums, distances, copy, reach):
    """Add sums of pairs at some distances, one of each; those beyond a table's reach are at its ends."""
    tl.debug_barrier()  # what was added last is there
    inside = (distances > -reach) & (distances < reach)
    places = copy + distances + reach
    tl.store(places, tl.load(places, mask=inside, other=0.0) + sums, mask=inside)
    before = tl.sum(tl.where(distances <= -reach, sums, 0.0))
    beyond = tl.sum(tl.where((distances >= reach) & (distances > -reach), sums, 0.0))  # a table may have one number
    tl.store(copy, tl.load(copy) + before)
    tl.store(copy + 2 * reach, tl.load(copy + 2 * reach) + beyond)
