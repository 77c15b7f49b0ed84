"""Whether somebody else's results are finite, and how long vectors are."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.pair_scores import load_tile
from regard.engines.cuda.kernels.tile_scores import flag_place, place_of


@triton.jit(do_not_specialize=["length", "n1", "n2"])
def flag_broken(
    vectors, strides, flags, length, n1, n2,
    ADDS: tl.constexpr, ANY: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ROWS: tl.constexpr,
    FLAGGED: tl.constexpr,
):  # fmt: skip
    """Write 1 where a number of some vectors is not finite, else 0.

    Args:
        vectors, strides: `(…, length, width)`.
        flags: One for each `FLAGGED` vectors of a batch entry; and one for all, which is 0 so far.
        ADDS: Whether a flag that is set stays so.
        ANY: Whether there is one for all.
    """
    n_blocks = tl.cdiv(length, FLAGGED)
    program = tl.program_id(0)
    entry, first = program // n_blocks, program % n_blocks * FLAGGED
    at, dims, span = place_of(entry, n1, n2), tl.arange(0, BLOCK_WIDTH), tl.arange(0, ROWS)
    broken = tl.zeros((ROWS, BLOCK_WIDTH), tl.float32)
    for start in range(first, first + FLAGGED, ROWS):
        tile = load_tile(vectors, strides, at, start, span, length, dims, WIDTH, False).to(tl.float32)
        broken += tile - tile  # 0, and NaN for what is not finite
    found = tl.max(tl.where(broken == 0, 0, 1))
    flag = flags[0] + flag_place(entry, first, length, FLAGGED)
    if ADDS:
        found = tl.maximum(found, tl.load(flag))
    tl.store(flag, found)
    if ANY:
        if found > 0:
            tl.atomic_max(flags[1], 1)  # whoever sets it: it is the same


@triton.jit(do_not_specialize=["length", "n1", "n2"])
def find_longest(
    vectors, strides, longest, length, n1, n2,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Raise a number to the largest Σ v² of some vectors; a number that is not finite is above all that are.

    Args:
        vectors, strides: `(…, length, width)`.
        longest: The bits of the number, which is not negative: they have its order.
        BLOCKS: How many blocks of `ROWS` vectors a program looks at.
    """
    n_blocks = tl.cdiv(length, ROWS * BLOCKS)
    program = tl.program_id(0)
    entry, first = program // n_blocks, program % n_blocks * (ROWS * BLOCKS)
    at, dims, span = place_of(entry, n1, n2), tl.arange(0, BLOCK_WIDTH), tl.arange(0, ROWS)
    found = tl.zeros((ROWS,), tl.int32)
    for start in range(first, first + ROWS * BLOCKS, ROWS):
        tile = load_tile(vectors, strides, at, start, span, length, dims, WIDTH, False).to(tl.float32)
        bits = tl.sum(tile * tile, 1).to(tl.int32, bitcast=True) & 0x7FFFFFFF  # NaN has a sign
        found = tl.maximum(found, bits)
    tl.atomic_max(longest, tl.max(found, 0))
