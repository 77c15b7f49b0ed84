"""Scores of pairs before any step: dot products, or sums over channels; and the gradients of the latter.

q² + k² − 2qk cancels where vectors lie far from the origin and close together. Products serve where they lose nothing
that shows; elsewhere a tile says NaN, and the safe pass, which finds it, takes differences first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.channel_tiles import (
    facts_of_weights,
    nothing_walked,
    walk_slopes,
    walked_scores,
    walked_sums,
)
from regard.engines.cuda.kernels.channels import CHANNELS, add_channels, channel_values, summed_channels
from regard.engines.cuda.kernels.products import scored_product, slope_product
from regard.engines.cuda.kernels.tile_scores import start_of
from regard.engines.kernels import codes

DOT = tl.constexpr(codes.DOT)
SQUARE = tl.constexpr(codes.SQUARE)

# ‖q‖² + ‖k‖², times what the score multiplies them by, up to which products serve: float32 then rounds a score by no
# more than half precision shows; and in float32, by as much as the definition on a CPU (`distance.FOLD_LIMIT`).
NEAR_IN_HALF = tl.constexpr(2048.0)
NEAR = tl.constexpr(32.0)


@triton.jit
def load_tile(pointer, strides, at, start, span, length, dims, DIM, WHOLE: tl.constexpr):
    """Some vectors of a batch entry, `(vectors, dims)`; 0 beyond the last vector, unless all are there, and last dim.

    The numbers of a vector lie together.
    """
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    place = base - span.to(tl.int64)[:, None] * strides[3] + dims[None, :]
    if not WHOLE:
        tile = tl.load(place, mask=(start + span < length)[:, None] & (dims < DIM)[None, :], other=0.0)
    elif dims.shape[0] == DIM:
        tile = tl.load(place)
    else:
        tile = tl.load(place, mask=(dims < DIM)[None, :], other=0.0)
    return tile


@triton.jit
def load_summed(pointer, strides, at, start, span, length, DIM, BLOCK_DIM: tl.constexpr, WHOLE: tl.constexpr):
    """The same of vectors that a product in float32 sums: it wants the numbers of a dim side by side.

    Eight threads go along vectors, not two, as threads that write numbers of one vector there wait for each other.
    """
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    dims = 16 * tl.arange(0, BLOCK_DIM // 16)[None, :, None] + tl.arange(0, 16)[None, None, :]
    place = base - span.to(tl.int64)[:, None, None] * strides[3] + dims
    place = tl.max_contiguous(place, (2, 1, 16))  # in which order threads go along axes
    if not WHOLE:
        tile = tl.load(place, mask=(start + span < length)[:, None, None] & (dims < DIM), other=0.0)
    elif BLOCK_DIM == DIM:
        tile = tl.load(place)
    else:
        tile = tl.load(place, mask=dims < DIM, other=0.0)
    return tl.reshape(tile, (span.shape[0], BLOCK_DIM))


@triton.jit
def store_tile(tile, pointer, strides, at, start, span, dims, inside):
    """Write some vectors of a batch entry, those that are inside."""
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    place = base - span.to(tl.int64)[:, None] * strides[3] + dims[None, :]
    tl.store(place, tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def load_weights(inputs, at, dims, DIM, FORM: tl.constexpr):
    """What each channel is multiplied by; anything for a product."""
    weight = dims
    if len(inputs) >= 8:
        weight = tl.load(inputs[6] + start_of(inputs[7], at) - dims * inputs[7][3], mask=dims < DIM, other=0.0)
    elif FORM != DOT:
        weight = tl.full(dims.shape, 1.0, tl.float32)
    return weight


@triton.jit
def squared_norms(vectors):
    vectors = vectors.to(tl.float32)
    return tl.sum(vectors * vectors, 1)


@triton.jit
def store_norms(
    vectors, norms, block, length, entry_stride, stride, scale, DIM, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr
):
    """Write `scaled_norms` of a block of vectors of a batch entry; 0 for what does not exist."""
    n_blocks = tl.cdiv(length, ROWS)
    entry, span, dims = tl.cast(block // n_blocks, tl.int64), tl.arange(0, ROWS), tl.arange(0, BLOCK_DIM)
    places = block % n_blocks * ROWS + span
    base = vectors + entry * entry_stride + places.to(tl.int64)[:, None] * stride + dims[None, :]
    found = tl.load(base, mask=(places < length)[:, None] & (dims < DIM)[None, :], other=0.0)
    found = scaled_norms(squared_norms(found), scale, vectors.dtype.element_ty)
    tl.store(norms + tl.cast(block, tl.int64) * ROWS + span, found)


@triton.jit(do_not_specialize=["n_queries", "n_keys", "n_left", "left_entry", "left_row", "right_entry", "right_row"])
def prepare_norms(
    left, right, of_left, of_right, n_queries, n_keys, n_left, left_entry, left_row, right_entry, right_row, scale, DIM,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What norms are in scores, of all batch entries, in blocks, of which so many are of queries."""
    program = tl.program_id(0)
    if program < n_left:
        store_norms(left, of_left, program, n_queries, left_entry, left_row, scale, DIM, BLOCK_DIM, ROWS)
    else:
        store_norms(right, of_right, program - n_left, n_keys, right_entry, right_row, scale, DIM, BLOCK_DIM, ROWS)


@triton.jit
def norms_of(vectors, weight, numbers, scale, inputs, DIM, STEPS: tl.constexpr, FORM: tl.constexpr):
    """‖left‖², of squared distances; where channels are walked, facts of their weights."""
    if FORM != CHANNELS and len(inputs[len(inputs) - 1]) > 7:
        norms = facts_of_weights(weight, numbers, scale, DIM, STEPS)
    else:
        norms = squared_norms(vectors)
    return norms


@triton.jit
def scaled_norms(norms, scale, DTYPE: tl.constexpr):
    """What a norm is in a score; NaN where products do not serve. Each side has half of the room; NaN stays."""
    most = NEAR
    if tl.float32 != DTYPE:
        most = NEAR_IN_HALF
    norms = norms * scale
    return tl.where(tl.abs(norms) > most / 2, float("nan"), norms)


@triton.jit
def norms_beside(vectors, side, at, scale):
    """`scaled_norms` of a tile: as they were prepared, if they were, for more vectors than there are."""
    if len(side) > 5:
        line = tl.multiple_of(side[5] + start_of(side[6], at) + side[2], 16)
        norms = tl.load(line + side[3])
    else:
        norms = scaled_norms(squared_norms(vectors), scale, vectors.dtype)
    return norms


@triton.jit
def pair_scores(
    left,
    right,
    norms,
    sides,
    weight,
    inputs,
    at,
    scale,
    DIM,
    FORM: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """scale · left · rightᵀ, or scale · Σ_c w_c φ(left_c, right_c).

    Args:
        left, right: The tile's vectors.
        norms: As `norms_of`.
        sides: As `channels.load_coordinate` takes them.
        weight: Of each channel.
        inputs: Of the problem.
        at: The batch entry.
        scale: A number for all.
        DIM, PRECISION: As everywhere.
        EXACT: Whether channels are summed one by one.
    """
    if FORM == DOT:
        scores = scored_product(left, right, PRECISION) * scale
    elif left.shape[0] == 1:
        values = channel_values(left.to(tl.float32), right.to(tl.float32), inputs, FORM)
        scores = tl.sum(values * weight[None, :], 1)[None, :] * scale
    elif len(sides[0]) > 7:
        scores = walked_scores(sides, inputs, at, norms, DIM, FORM, left.shape[0], right.shape[0]) * scale
    elif EXACT:
        scores = summed_channels(sides, inputs, at, DIM, FORM) * scale
    else:
        of_left, of_right = scaled_norms(norms, scale, left.dtype), norms_beside(right, sides[1], at, scale)
        scores = scored_product(left, right, PRECISION) * (-2.0 * scale) + (of_left[:, None] + of_right[None, :])
    return scores


@triton.jit
def no_differences(inputs, SIZE: tl.constexpr, BLOCK_DIM: tl.constexpr, FORM: tl.constexpr):
    """Sums for each channel of some vectors, as `add_differences` has them: nothing so far."""
    if FORM != DOT and (FORM != CHANNELS and len(inputs[len(inputs) - 1]) > 7):
        found = nothing_walked(SIZE, BLOCK_DIM)
    else:
        found = tl.zeros((SIZE, BLOCK_DIM), tl.float32)
    return found


@triton.jit
def add_differences(
    found,
    squares,
    sums,
    slopes,
    right,
    sides,
    inputs,
    at,
    dims,
    DIM,
    FORM: tl.constexpr,
    SQUARES: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """found + Σ_j dS ∂φ/∂left and squares + Σ_j dS φ, for each channel; of what they are, see `all_differences`."""
    if len(sides[0]) > 7:
        found, squares = walk_slopes(found, squares, slopes, sides, inputs, at, DIM, FORM, dims.shape[0], SQUARES)
        sums += tl.sum(slopes, 1)
    elif EXACT:
        found, squares = add_channels(found, squares, slopes, sides, inputs, at, dims, DIM, FORM, SQUARES)
    else:
        found = slope_product(-slopes, right, found, PRECISION, False)
        sums += tl.sum(slopes, 1)
    return found, squares, sums


@triton.jit
def all_differences(found, sums, left, inputs, FORM: tl.constexpr, SQUARES: tl.constexpr, EXACT: tl.constexpr):
    """Σ_j dS ∂φ/∂left or, for `SQUARES`, Σ_j dS φ, `(vectors, dims)`, of all that was added; `sums`: Σ_j dS."""
    if FORM != DOT:
        if FORM != CHANNELS and len(inputs[len(inputs) - 1]) > 7:
            found = walked_sums(found, sums, FORM, SQUARES)
        elif not (EXACT or SQUARES):
            # Where products serve, half of it without what left itself gives.
            found = 2.0 * (found + sums[:, None] * left.to(tl.float32))
    return found
