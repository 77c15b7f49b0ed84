"""The heaviest keys of each row, where all of its columns are in one tile and have become numerators: they are final.

Which columns those are nobody can foresee, nor can the processor, so there are as few branches as may be. Rows are
parts of one flat array: each array that a row would hand on is counted, which takes longer than what is done here.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.best_k import best_scratch, merge_best
from regard.engines.cpu.kernels.blocks import (
    BLOCK,
    block_reaching,
    clear_block,
    count_before,
    count_bits,
    kth_lane,
    lowest_bit,
)
from regard.engines.cpu.runtime.jit import helper

_ZERO = np.float32(0.0)
# A numerator so much below another, as a factor, weighs less than it: their weights do not round to one number, unless
# they are so small that float32 has few digits for them.
_BELOW, _SMALL = np.float32(1 - 2.0**-22), np.float32(1e-36)
_MOST_BLOCKS = 64  # one bit for each


@helper
def heaviest_scratch(columns):  # type: ignore[no-untyped-def]
    """What `heaviest_rows` works in, for rows of so many columns."""
    return best_scratch(columns), np.empty(columns, np.float32)


@helper
def heaviest_rows(numerators, width, totals, top_weights, top_index, scratch):  # type: ignore[no-untyped-def]
    """Write the heaviest keys of each row: what another pass over the weights of `row_steps.weigh_row` would find.

    Args:
        numerators: float32, rows of `width` columns one after the other, none negative.
        width: How many columns a row has: all keys.
        totals: float32 `(rows,)`, the sum of each row's numerators.
        top_weights, top_index: `(rows, k)`, as for `tile_readings.read_tile`, with nothing read before.
        scratch: See `heaviest_scratch`.
    """
    best, weights = scratch
    _, places, values, packed = best
    k, whole = top_weights.shape[1], width // BLOCK
    blocks = (width + BLOCK - 1) // BLOCK
    for i in range(totals.shape[0]):
        start = i * width
        factor = _ZERO if totals[i] == _ZERO else np.float32(1.0 / np.float64(totals[i]))
        least, found, some = _ZERO, BLOCK + 1, np.uint64(0)
        if k <= BLOCK and blocks <= _MOST_BLOCKS:
            least = kth_lane(numerators, start, whole, k) * _BELOW
        if least * factor > _SMALL:  # otherwise fewer weigh anything, or some are NaN
            # A bit for each column that may be among the heaviest, and one for each block that has any.
            found = 0
            for b in range(blocks):
                if b < whole:
                    bits = block_reaching(numerators, start + b * BLOCK, least)
                else:
                    bits = np.uint64(0)
                    for j in range(whole * BLOCK, width):
                        bits |= np.uint64(numerators[start + j] >= least) << np.uint64(j - whole * BLOCK)
                packed[b] = np.int64(bits)
                found += count_bits(bits)
                some |= np.uint64(bits != np.uint64(0)) << np.uint64(b)
        if found > BLOCK:
            for j in range(width):
                weights[j] = numerators[start + j] * factor
            merge_best(weights[:width], 0, True, top_weights[i], top_index[i], *best)
            continue
        clear_block(values)
        for at in range(found):
            b = lowest_bit(some)
            bits = np.uint64(packed[b])
            column = b * BLOCK + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            packed[b] = np.int64(bits)
            some &= ~(np.uint64(bits == np.uint64(0)) << np.uint64(b))
            places[at], values[at] = column, numerators[start + column] * factor
        # Each counts who is before. Who is not among the heaviest is placed as well, and forgotten.
        for at in range(found):
            places[BLOCK + count_before(values, at, values[at])] = at
        for place in range(k):
            at = places[BLOCK + place]
            top_weights[i, place], top_index[i, place] = values[at], places[at]
