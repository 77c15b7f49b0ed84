"""Rows that attend to a list of keys each: keys are gathered, and nothing else is read.

A program has one row and goes along its list; on the way back one more has a column, and goes along the rows that list
it. A pair is a dot product of two vectors, too few for matrix units; what has weight 0 is selected, not multiplied.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channels import channel_slopes, channel_values
from regard.engines.cuda.kernels.elementary import LOG2_E
from regard.engines.cuda.kernels.forward import finished, unfinished
from regard.engines.cuda.kernels.pair_scores import DOT, load_tile, load_weights
from regard.engines.cuda.kernels.products import weighted_sum
from regard.engines.cuda.kernels.thresholds import (
    ENTMAX_ANY,
    add_weights,
    alpha_less_one,
    entropies,
    goes_on,
    largest_two,
    level_of,
    next_bracket,
    no_sums,
    none_so_far,
    threshold_of_two,
    threshold_weights,
)
from regard.engines.cuda.kernels.tile_gradients import (
    added,
    load_facts,
    nothing_learned,
    store_learned,
    tile_gradients,
    without_broken,
)
from regard.engines.cuda.kernels.tile_scores import (
    load_line,
    load_numbers,
    load_origins,
    place_of,
    start_of,
    stepped,
    tile_terms,
)
from regard.engines.cuda.kernels.tile_weights import (
    PROPORTIONAL,
    UNIFORM,
    any_negative,
    keep_factors,
    next_tile,
    row_hashes,
)


@triton.jit
def load_list(pointer, strides, at, row, start, width, n_keys, LISTED: tl.constexpr):
    """Some entries of a row's list, int64; `n_keys` for an empty slot."""
    slots = start + tl.arange(0, LISTED)
    base = pointer + start_of(strides, at) - tl.cast(row, tl.int64) * strides[3]
    found = tl.load(base - slots * strides[4], mask=slots < width, other=-1).to(tl.int64)
    return tl.where(found < 0, n_keys, found)


@triton.jit
def vector_scores(vector, vectors, weight, inputs, scale, FORM: tl.constexpr):
    """The scores of one vector and some others before any step, `(1, vectors)`."""
    if FORM != DOT:
        scores = tl.sum(channel_values(vector, vectors, inputs, FORM) * weight[None, :], 1)
    else:
        scores = tl.sum(vector * vectors, 1)
    return scores[None, :] * scale


@triton.jit
def differences(vector, vectors, slopes, weight, inputs, FORM: tl.constexpr):
    """What pairs give to the gradient of `vector`, `(1, dim)`, for slopes `(1, vectors)` of scores before any step."""
    if FORM != DOT:
        vectors = channel_slopes(vector, vectors, inputs, FORM) * weight[None, :]
    return weighted_sum(slopes, vectors)


@triton.jit
def listed_scores(
    query, columns, weight, origins, numbers, of_rows, inputs, terms, at, row, sizes, scale, RULE,
    FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """(scores, which are allowed) of one row and some keys that it lists, `(1, keys)`."""
    one, dims = tl.arange(0, 1), tl.arange(0, BLOCK_DIM)
    scores = tl.zeros((1, columns.shape[0]), tl.float32)
    if RULE != UNIFORM:
        keys = load_tile(inputs[2], inputs[3], at, 0, columns, sizes[1], dims, DIM, False).to(tl.float32)
        scores = vector_scores(query, keys, weight, inputs, scale, FORM)
    of_columns = load_line(terms, origins, at, 0, columns, sizes[1], STEPS, True, True, False)
    of_tile = tile_terms(terms, of_rows, of_columns, at, row, one, 0, columns, sizes, 1.0, STEPS, False, True)
    allowed = (columns < sizes[1])[None, :]
    return stepped(scores, allowed, numbers, of_tile, terms, len(STEPS), STEPS, False, True)


@triton.jit
def walk_list(
    found, level, threshold, query, weight, origins, numbers, of_rows, inputs, terms, lists, at, row, sizes, width,
    scale, unit, RULE, FORM: tl.constexpr, STEPS: tl.constexpr, LOOKS: tl.constexpr, DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """What is found of one row along its list, as `walk` finds it along tiles."""
    for start in range(0, width, LISTED):
        columns = load_list(lists[0], lists[1], at, row, start, width, sizes[1], LISTED)
        scores, allowed = listed_scores(
            query, columns, weight, origins, numbers, of_rows, inputs, terms, at, row, sizes, scale, RULE,
            FORM, STEPS, DIM, BLOCK_DIM,
        )  # fmt: skip
        if LOOKS:
            found = largest_two(found, scores, allowed, True)
        else:
            found = add_weights(found, scores, allowed, level, threshold, unit, RULE, True, False)
    return found


@triton.jit
def solve_list(
    query, weight, origins, numbers, of_rows, inputs, terms, lists, at, row, sizes, width, scale, unit, RULE,
    FORM: tl.constexpr, STEPS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """(largest score, threshold) of one row."""
    nothing = tl.zeros((1,), tl.float32)
    found = walk_list(
        none_so_far(1, LISTED), nothing, nothing, query, weight, origins, numbers, of_rows, inputs, terms, lists, at,
        row, sizes, width, scale, unit, RULE, FORM, STEPS, True, DIM, BLOCK_DIM, LISTED,
    )  # fmt: skip
    peak, bracket = threshold_of_two(found, width, unit, RULE, False)
    n_passes = width * 0
    while goes_on(bracket, n_passes):
        sums = walk_list(
            no_sums(1), level_of(peak), bracket[0].to(tl.float32), query, weight, origins, numbers, of_rows, inputs,
            terms, lists, at, row, sizes, width, scale, unit, RULE, FORM, STEPS, False, DIM, BLOCK_DIM, LISTED,
        )  # fmt: skip
        bracket = next_bracket(sums, bracket, n_passes, unit, RULE, False)
        n_passes += 1
    return peak, bracket[0].to(tl.float32)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "width", "n1", "n2"])
def pool_listed(
    inputs, outputs, terms, lists, sink, dropout, n_queries, n_keys, width, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, RULE: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr,
    FINISH: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """The output and the statistics of one row; unless `FINISH`, its sums.

    `outputs`: the output, peaks and totals, errors; alpha − 1 of entries; what `store_slopes` writes, if it is wanted.
    """
    centred: tl.constexpr = len(outputs) > 5
    program = tl.program_id(0)
    row, entry = program % n_queries, program // n_queries
    at, sizes, one = place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, 1)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    query = load_tile(inputs[0], inputs[1], at, row, one, n_queries, dims, DIM, False).to(tl.float32)
    origins, numbers = load_origins(terms, at, row, STEPS, False), load_numbers(terms, at, STEPS)
    of_rows = load_line(terms, origins, at, row, one, n_queries, STEPS, False, True, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    hashes = one
    if DROPOUT:
        hashes = row_hashes(tl.load(dropout[0]), entry, row + one)
    peak = tl.full((1,), -float("inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    pooled = tl.zeros((1, BLOCK_VALUE_DIM), tl.float32)
    threshold, unit, slope_total, entropy, slope_pooled = total, 1.0, total, total, pooled
    if RULE >= ENTMAX_ANY:
        unit = alpha_less_one(outputs[4], entry, RULE)
        if unit != unit:
            tl.store(outputs[3], 2)
        peak, threshold = solve_list(
            query, weight, origins, numbers, of_rows, inputs, terms, lists, at, row, sizes, width, scale, unit, RULE,
            FORM, STEPS, DIM, BLOCK_DIM, LISTED,
        )  # fmt: skip
    for start in range(0, width, LISTED):
        columns = load_list(lists[0], lists[1], at, row, start, width, n_keys, LISTED)
        scores, allowed = listed_scores(
            query, columns, weight, origins, numbers, of_rows, inputs, terms, at, row, sizes, scale, RULE,
            FORM, STEPS, DIM, BLOCK_DIM,
        )  # fmt: skip
        if RULE == PROPORTIONAL:
            if any_negative(scores, allowed):
                tl.store(outputs[3], 1)  # somebody looks there later, and raises
        found, factor, peak = next_tile(scores, allowed, peak, LOG2_E, RULE, True, False)
        slopes = found
        if RULE >= ENTMAX_ANY:
            found, slopes = threshold_weights(scores, level_of(peak)[:, None], threshold[:, None], unit, RULE, False)
            found, slopes = tl.where(allowed, found, 0.0), tl.where(allowed, slopes, 0.0)
            slope_total += tl.sum(slopes, 1)
            entropy += entropies(found, False)
        total = total * factor + tl.sum(found, 1)
        if DROPOUT:
            keep = keep_factors(hashes, columns, dropout, TURNED=False)
            found, slopes = found * keep, slopes * keep
        values = load_tile(inputs[4], inputs[5], at, 0, columns, n_keys, value_dims, VALUE_DIM, False).to(tl.float32)
        pooled = pooled * factor[:, None] + weighted_sum(found, values)
        if centred:
            slope_pooled += weighted_sum(slopes, values)
    if RULE >= ENTMAX_ANY:
        total = threshold
    if FINISH:
        peak, total, pooled = finished(peak, total, pooled, sink, at, RULE, SINK)
    else:
        peak, total, pooled = unfinished(peak, total, pooled, RULE)
    facts = tl.cast(entry, tl.int64) * n_queries + row
    inside = (value_dims < VALUE_DIM)[None, :]
    result = pooled.to(outputs[0].dtype.element_ty)
    tl.store(outputs[0] + facts * VALUE_DIM + value_dims[None, :], result, mask=inside)
    tl.store(outputs[1] + facts + one, peak)
    tl.store(outputs[2] + facts + one, total)
    if centred:
        slope_pooled = slope_pooled / tl.where(slope_total == 0, 1.0, slope_total)[:, None]
        tl.store(outputs[5] + facts * VALUE_DIM + value_dims[None, :], slope_pooled, mask=inside)
        tl.store(outputs[6] + 2 * facts + one, slope_total)
        tl.store(outputs[6] + 2 * facts + 1 + one, entropy)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "width", "n1", "n2"])
def differentiate_listed_rows(
    inputs, gradient, facts, outputs, terms, lists, dropout, n_queries, n_keys, width, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, RULE: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr,
    DROPOUT: tl.constexpr, LEARNS: tl.constexpr, LEARNS_WEIGHT: tl.constexpr, DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE_DIM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """The gradient of one query, and what steps' parameters get of its row."""
    program = tl.program_id(0)
    row, entry = program % n_queries, program // n_queries
    at, sizes, one = place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, 1)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    query = load_tile(inputs[0], inputs[1], at, row, one, n_queries, dims, DIM, False).to(tl.float32)
    to_output = load_tile(gradient[0], gradient[1], at, row, one, n_queries, value_dims, VALUE_DIM, False).to(
        tl.float32
    )
    origins, numbers = load_origins(terms, at, row, STEPS, False), load_numbers(terms, at, STEPS)
    of_rows = load_line(terms, origins, at, row, one, n_queries, STEPS, False, True, False)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    by_row = load_facts(facts, entry, row, one, n_queries, RULE, CENTRED, False, False)
    found = tl.zeros((1, BLOCK_DIM), tl.float32)
    squares = tl.zeros((1, BLOCK_DIM), tl.float32)
    learned = nothing_learned(1, LEARNS)
    for start in range(0, width, LISTED):
        columns = load_list(lists[0], lists[1], at, row, start, width, n_keys, LISTED)
        keys = load_tile(inputs[2], inputs[3], at, 0, columns, n_keys, dims, DIM, False).to(tl.float32)
        values = load_tile(inputs[4], inputs[5], at, 0, columns, n_keys, value_dims, VALUE_DIM, False).to(tl.float32)
        keep = 1.0
        if DROPOUT:
            hashes = row_hashes(tl.load(dropout[0]), entry, row + one)
            keep = keep_factors(hashes, columns, dropout, TURNED=False)
        of_columns = load_line(terms, origins, at, 0, columns, n_keys, STEPS, True, True, False)
        of_tile = tile_terms(terms, of_rows, of_columns, at, row, one, 0, columns, sizes, 1.0, STEPS, False, True)
        raw = vector_scores(query, keys, weight, inputs, scale, FORM)
        over_values = tl.sum(to_output * values, 1)[None, :]
        _, slopes, more = tile_gradients(
            raw, over_values, keep, numbers, of_tile, (columns < n_keys)[None, :], by_row, terms, scale, RULE,
            STEPS, True, False, LEARNS, True, True, False, TURNED=False,
        )  # fmt: skip
        learned = added(learned, more, LEARNS)
        found += differences(query, keys, slopes, weight, inputs, FORM)
        if LEARNS_WEIGHT:
            squares += weighted_sum(slopes, channel_values(query, keys, inputs, FORM))
    if not PROJECTED:
        found = without_broken(found, query)
    vector = (tl.cast(entry, tl.int64) * n_queries + row) * DIM + dims[None, :]
    inside = (dims < DIM)[None, :]
    tl.store(outputs[0] + vector, found.to(outputs[0].dtype.element_ty), mask=inside)
    if LEARNS_WEIGHT:
        tl.store(outputs[3] + vector, squares, mask=inside)
    line = tl.cast(entry, tl.int64) * n_queries + row + one
    store_learned(learned, outputs[2], line, line >= 0, len(LEARNS), LEARNS)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "n1", "n2"])
def differentiate_listed_columns(
    inputs, gradient, facts, outputs, terms, listing, dropout, n_queries, n_keys, n1, n2, scale,
    FORM: tl.constexpr, STEPS: tl.constexpr, RULE: tl.constexpr, CENTRED: tl.constexpr, PROJECTED: tl.constexpr,
    DROPOUT: tl.constexpr, LEARNS: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """The gradients of one key and its value, and what steps' parameters get of its column.

    `listing`: rows, ascending for each key and one key after the other, and where those of each key begin.
    """
    program = tl.program_id(0)
    column, entry = program % n_keys, program // n_keys
    at, sizes, one = place_of(entry, n1, n2), (n_queries, n_keys), tl.arange(0, 1)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    key = load_tile(inputs[2], inputs[3], at, column, one, n_keys, dims, DIM, False).to(tl.float32)
    value = load_tile(inputs[4], inputs[5], at, column, one, n_keys, value_dims, VALUE_DIM, False).to(tl.float32)
    weight = load_weights(inputs, at, dims, DIM, FORM)
    origins, numbers = load_origins(terms, at, column, STEPS, True), load_numbers(terms, at, STEPS)
    of_columns = load_line(terms, origins, at, column, one, n_keys, STEPS, True, True, False)
    to_key = tl.zeros((1, BLOCK_DIM), tl.float32)
    to_value = tl.zeros((1, BLOCK_VALUE_DIM), tl.float32)
    learned = nothing_learned(1, LEARNS)
    begin = listing[2] + start_of(listing[3], at) - tl.cast(column, tl.int64) * listing[3][3]
    first, stop = tl.load(begin), tl.load(begin - listing[3][3])
    for start in range(first, stop, LISTED):
        slots = start + tl.arange(0, LISTED)
        base = listing[0] + start_of(listing[1], at)
        rows = tl.load(base - slots * listing[1][3], mask=slots < stop, other=n_queries).to(tl.int64)
        queries = load_tile(inputs[0], inputs[1], at, 0, rows, n_queries, dims, DIM, False).to(tl.float32)
        to_output = load_tile(gradient[0], gradient[1], at, 0, rows, n_queries, value_dims, VALUE_DIM, False).to(
            tl.float32
        )
        of_rows = load_line(terms, origins, at, 0, rows, n_queries, STEPS, False, True, False)
        of_tile = tile_terms(terms, of_rows, of_columns, at, 0, rows, column, one, sizes, 1.0, STEPS, True, True)
        by_row = load_facts(facts, entry, 0, rows, n_queries, RULE, CENTRED, False, False)
        keep = 1.0
        if DROPOUT:
            hashes = row_hashes(tl.load(dropout[0]), entry, rows)
            keep = keep_factors(hashes, column + one, dropout, TURNED=True)
        raw = vector_scores(key, queries, weight, inputs, scale, FORM)
        over_values = tl.sum(value * to_output, 1)[None, :]
        weights, slopes, more = tile_gradients(
            raw, over_values, keep, numbers, of_tile, (rows < n_queries)[None, :], by_row, terms, scale, RULE,
            STEPS, True, False, LEARNS, True, True, False, TURNED=True,
        )  # fmt: skip
        learned = added(learned, more, LEARNS)
        to_value += weighted_sum(weights, to_output)
        to_key += differences(key, queries, slopes, weight, inputs, FORM)
    if not PROJECTED:
        to_key = without_broken(to_key, key)
    vector = tl.cast(entry, tl.int64) * n_keys + column
    inside, inside_values = (dims < DIM)[None, :], (value_dims < VALUE_DIM)[None, :]
    tl.store(outputs[0] + vector * DIM + dims[None, :], to_key.to(outputs[0].dtype.element_ty), mask=inside)
    result = to_value.to(outputs[2].dtype.element_ty)
    tl.store(outputs[2] + vector * VALUE_DIM + value_dims[None, :], result, mask=inside_values)
    line = vector + one
    store_learned(learned, outputs[4], line, line >= 0, len(LEARNS), LEARNS)
