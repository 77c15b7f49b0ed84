"""Softmax of dot products where a block holds all pairs of a batch entry: one launch forward, and one back.

Nothing is kept between the two but the inputs: scores are computed again, and with them what rows are differentiated
with. Right where something is infinite or no number, as the kernels of `general.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import LOG2_E
from regard.engines.cuda.kernels.pair_scores import load_tile, store_tile
from regard.engines.cuda.kernels.products import pooled_product, scored_product, slope_product
from regard.engines.cuda.kernels.tile_gradients import without_broken
from regard.engines.cuda.kernels.tile_scores import load_pairs, place_of
from regard.engines.cuda.kernels.tile_weights import SOFTMAX, keep_factors, next_tile, row_hashes


@triton.jit
def tile_of_entry(
    inputs, pairs, dropout, entry, at, n_queries, n_keys, low, high, scale,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(queries, keys, values, pairs with a weight, numerators of softmax, their sum in each row, factors of dropout).

    Row i sees columns from i + low to before i + high, and of those what `pairs` allows: bytes with their strides, 0
    where a pair is not allowed; () for all. The sum of a fully masked row is infinite.
    """
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    queries = load_tile(inputs[0], inputs[1], at, 0, rows, n_queries, dims, DIM, False)
    keys = load_tile(inputs[2], inputs[3], at, 0, columns, n_keys, dims, DIM, False)
    values = load_tile(inputs[4], inputs[5], at, 0, columns, n_keys, value_dims, VALUE_DIM, False)
    first, stop = (rows + low)[:, None], (rows + high)[:, None]
    allowed = (columns[None, :] >= first) & (columns[None, :] < stop)
    allowed = allowed & ((rows < n_queries)[:, None] & (columns < n_keys)[None, :])
    if len(pairs) > 0:
        known = load_pairs(pairs[0], pairs[1], at, 0, rows, 0, columns, allowed, TURNED=False)
        allowed = allowed & (known != 0)
    scores = scored_product(queries, keys, PRECISION) * scale
    weighs = allowed & (scores != -float("inf"))
    peak = tl.full((ROWS,), -float("inf"), tl.float32)
    weights, _, _ = next_tile(scores, weighs, peak, LOG2_E, SOFTMAX, True, False)
    total = tl.sum(weights, 1)
    total = tl.where(total == 0, float("inf"), total)
    keep = tl.full((ROWS, COLUMNS), 1.0, tl.float32)
    if len(dropout) > 0:
        keep = keep_factors(row_hashes(tl.load(dropout[0]), entry, rows), columns, dropout, TURNED=False)
    return queries, keys, values, weighs, weights, total, keep


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2"])
def pool_entry(
    inputs,  # queries, keys, values, each with its strides
    output,
    strides,  # of the output
    pairs,
    dropout,  # as `keep_factors` takes it; () without
    n_queries, n_keys, low, high, n1, n2, scale,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The output of a batch entry."""
    entry = tl.program_id(0)
    at = place_of(entry, n1, n2)
    _, _, values, _, weights, total, keep = tile_of_entry(
        inputs, pairs, dropout, entry, at, n_queries, n_keys, low, high, scale,
        PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    nothing = tl.zeros((ROWS, BLOCK_VALUE_DIM), tl.float32)
    pooled = pooled_product(weights * keep, values, nothing, PRECISION, True) / total[:, None]
    rows, dims = tl.arange(0, ROWS), tl.arange(0, BLOCK_VALUE_DIM)
    store_tile(pooled, output, strides, at, 0, rows, dims, (rows < n_queries)[:, None] & (dims < VALUE_DIM)[None, :])


@triton.jit(do_not_specialize=["n_queries", "n_keys", "low", "high", "n1", "n2"])
def differentiate_entry(
    inputs,
    gradient,  # dO
    strides,
    found,  # where the gradients of queries, keys and values are written, each with its strides
    pairs,
    dropout,
    n_queries, n_keys, low, high, n1, n2, scale,
    PRECISION: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_VALUE_DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of a batch entry."""
    entry = tl.program_id(0)
    at = place_of(entry, n1, n2)
    queries, keys, values, weighs, weights, total, keep = tile_of_entry(
        inputs, pairs, dropout, entry, at, n_queries, n_keys, low, high, scale,
        PRECISION, DIM, VALUE_DIM, BLOCK_DIM, BLOCK_VALUE_DIM, ROWS, COLUMNS,
    )  # fmt: skip
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    dims, value_dims = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE_DIM)
    to_output = load_tile(gradient, strides, at, 0, rows, n_queries, value_dims, VALUE_DIM, False)
    # Not by numerators of 0: in a row whose sum is NaN, those that a score of inf left to finite ones are broken, too.
    weights = tl.where(weighs, weights / total[:, None], 0.0)
    kept = weights * keep
    to_weights = scored_product(to_output, values, PRECISION)
    # What is not finite gives nothing to a weight of 0.
    delta = tl.sum(tl.where(kept == 0, 0.0, kept * to_weights), 1)
    slopes = tl.where(weights == 0, 0.0, weights * (to_weights * keep - delta[:, None])) * scale
    by_row = tl.zeros((ROWS, BLOCK_DIM), tl.float32)
    by_column = tl.zeros((COLUMNS, BLOCK_DIM), tl.float32)
    to_queries = without_broken(slope_product(slopes, keys, by_row, PRECISION, True), queries)
    to_keys = without_broken(slope_product(tl.trans(slopes), queries, by_column, PRECISION, True), keys)
    nothing = tl.zeros((COLUMNS, BLOCK_VALUE_DIM), tl.float32)
    to_values = pooled_product(tl.trans(kept), to_output, nothing, PRECISION, True)
    here, there = (rows < n_queries)[:, None], (columns < n_keys)[:, None]
    store_tile(to_queries, found[0], found[1], at, 0, rows, dims, here & (dims < DIM)[None, :])
    store_tile(to_keys, found[2], found[3], at, 0, columns, dims, there & (dims < DIM)[None, :])
    store_tile(to_values, found[4], found[5], at, 0, columns, value_dims, there & (value_dims < VALUE_DIM)[None, :])
