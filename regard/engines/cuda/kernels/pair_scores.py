"""Scores of pairs before any step: dot products, or sums of squared differences; and the gradients of the latter.

q² + k² − 2qk cancels where vectors lie far from the origin and close together. Products serve where they lose nothing
that shows; elsewhere a tile says NaN, and the safe pass, which finds it, takes differences first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.products import scored_product, slope_product
from regard.engines.cuda.kernels.tile_scores import start_of
from regard.engines.kernels import codes

DOT = tl.constexpr(codes.DOT)
SQUARE = tl.constexpr(codes.SQUARE)
WEIGHTED_SQUARE = tl.constexpr(codes.WEIGHTED_SQUARE)

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
def store_tile(tile, pointer, strides, at, start, span, dims, inside):
    """Write some vectors of a batch entry, those that are inside."""
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    place = base - span.to(tl.int64)[:, None] * strides[3] + dims[None, :]
    tl.store(place, tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def load_weights(inputs, at, dims, DIM, FORM: tl.constexpr):
    """What each channel of a squared distance is multiplied by; anything for a product."""
    weight = dims
    if FORM == WEIGHTED_SQUARE:
        weight = tl.load(inputs[6] + start_of(inputs[7], at) - dims * inputs[7][3], mask=dims < DIM, other=0.0)
    elif FORM == SQUARE:
        weight = tl.full(dims.shape, 1.0, tl.float32)
    return weight


@triton.jit
def load_coordinate(side, at, channel):
    """One coordinate of some vectors, in float32. `side`: a pointer, strides, the first vector, a span, how many."""
    base = side[0] + start_of(side[1], at) - tl.cast(side[2], tl.int64) * side[1][3] + channel
    span = side[3].to(tl.int64)
    return tl.load(base - span * side[1][3], mask=side[2] + side[3] < side[4], other=0.0).to(tl.float32)


@triton.jit
def difference_of(one, other, at, channel):
    """left_c − right_c of every pair of a tile."""
    return load_coordinate(one, at, channel)[:, None] - load_coordinate(other, at, channel)[None, :]


@triton.jit
def squared_norms(vectors):
    vectors = vectors.to(tl.float32)
    return tl.sum(vectors * vectors, 1)


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
    """scale · left · rightᵀ, or scale · Σ_c w_c (left_c − right_c)².

    Args:
        left, right: The tile's vectors.
        norms: ‖left‖², of squared distances.
        sides: As `load_coordinate` takes them.
        weight: Of each channel.
        inputs: Of the problem.
        at: The batch entry.
        scale: A number for all.
        DIM, PRECISION: As everywhere.
        EXACT: Whether differences come first.
    """
    if FORM == DOT:
        scores = scored_product(left, right, PRECISION) * scale
    elif left.shape[0] == 1:
        difference = left.to(tl.float32) - right.to(tl.float32)
        scores = tl.sum(difference * difference * weight[None, :], 1)[None, :] * scale
    elif EXACT:
        scores = summed_squares(sides, inputs, at, left, right, DIM, FORM) * scale
    else:
        most = NEAR
        if left.dtype != tl.float32:
            most = NEAR_IN_HALF
        of_left, of_right = norms * scale, squared_norms(right) * scale
        # Half of the room for each side. NaN stays.
        of_left = tl.where(tl.abs(of_left) > most / 2, float("nan"), of_left)
        of_right = tl.where(tl.abs(of_right) > most / 2, float("nan"), of_right)
        scores = scored_product(left, right, PRECISION) * (-2.0 * scale) + (of_left[:, None] + of_right[None, :])
    return scores


@triton.jit
def summed_squares(sides, inputs, at, left, right, DIM, FORM: tl.constexpr):
    """Σ_c w_c (left_c − right_c)², differences first."""
    scores = tl.zeros((left.shape[0], right.shape[0]), tl.float32)
    for channel in range(0, DIM):
        difference = difference_of(sides[0], sides[1], at, channel)
        if FORM == WEIGHTED_SQUARE:
            scores += tl.load(inputs[6] + start_of(inputs[7], at) - channel * inputs[7][3]) * difference * difference
        else:
            scores += difference * difference
    return scores


@triton.jit
def add_differences(
    found,
    squares,
    sums,
    slopes,
    right,
    sides,
    at,
    dims,
    DIM,
    SQUARES: tl.constexpr,
    EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """found + Σ_j dS (left − right), and squares + Σ_j dS (left − right)², for each channel.

    Where products serve, sums + Σ_j dS is to be multiplied by left in the end, and added to what is found.
    """
    if EXACT:
        for channel in range(0, DIM):
            difference = difference_of(sides[0], sides[1], at, channel)
            here = (dims == channel)[None, :]
            # Selected, not multiplied: what is masked may be infinitely far.
            terms = tl.where(slopes == 0, 0.0, slopes * difference)
            found += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
            if SQUARES:
                terms = tl.where(slopes == 0, 0.0, terms * difference)
                squares += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
    else:
        found = slope_product(-slopes, right, found, PRECISION, False)
        sums += tl.sum(slopes, 1)
    return found, squares, sums
