"""Scores of pairs before any step: dot products, or sums of squared differences; and the gradients of the latter.

Squared distances of half precision are products where those lose nothing that shows: q² + k² − 2qk cancels where
vectors lie far from the origin and close together. There, and in float32, differences come first; which it is, each
tile decides.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.products import scored_product
from regard.engines.cuda.kernels.tile_scores import start_of
from regard.engines.kernels import codes

DOT = tl.constexpr(codes.DOT)
SQUARE = tl.constexpr(codes.SQUARE)
WEIGHTED_SQUARE = tl.constexpr(codes.WEIGHTED_SQUARE)

# ‖q‖² + ‖k‖², times what the score multiplies them by, up to which products serve: float32 then rounds a score by no
# more than half precision shows.
NEAR = tl.constexpr(2048.0)


@triton.jit
def load_tile(pointer, strides, at, start, span, length, dims, DIM: tl.constexpr):
    """Some vectors of a batch entry, `(vectors, dims)`; 0 beyond the last vector and the last dim.

    The numbers of a vector lie together.
    """
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    inside = (start + span < length)[:, None] & (dims < DIM)[None, :]
    return tl.load(base - span.to(tl.int64)[:, None] * strides[3] + dims[None, :], mask=inside, other=0.0)


@triton.jit
def load_weights(inputs, at, dims, FORM: tl.constexpr, DIM: tl.constexpr):
    """What each channel of a squared distance is multiplied by; anything for a product."""
    weight = dims
    if FORM != DOT:
        weight = tl.load(inputs[6] + start_of(inputs[7], at) - dims * inputs[7][3], mask=dims < DIM, other=0.0)
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
def are_near(left, right, scale):
    """Whether products serve for the squared distances of a tile."""
    return (tl.max(squared_norms(left)) + tl.max(squared_norms(right))) * tl.abs(scale) <= NEAR


@triton.jit
def pair_scores(
    left,
    right,
    sides,
    weight,
    inputs,
    at,
    scale,
    FORM: tl.constexpr,
    SAFE: tl.constexpr,
    PRECISION: tl.constexpr,
    DIM: tl.constexpr,
):
    """scale · left · rightᵀ, or scale · Σ_c w_c (left_c − right_c)²; `sides` as in `load_coordinate`."""
    if FORM == DOT:
        scores = scored_product(left, right, PRECISION)
    elif SAFE or FORM == WEIGHTED_SQUARE or left.dtype == tl.float32:
        # Weighted, a product would be of rounded numbers. Few are safe, and Triton 3.6 cannot compile the choice there.
        scores = summed_squares(sides, inputs, at, left, right, DIM)
    else:
        # No branch: Triton 3.9 cannot compile one around a product. The loop is empty where products serve.
        near = are_near(left, right, scale)
        norms = squared_norms(left)[:, None] + squared_norms(right)[None, :]
        scores = norms - 2.0 * scored_product(left, right, PRECISION)
        scores = tl.where(near, scores, summed_squares(sides, inputs, at, left, right, tl.where(near, 0, DIM)))
    return scores * scale


@triton.jit
def summed_squares(sides, inputs, at, left, right, dim):
    """Σ_c w_c (left_c − right_c)² of so many channels, differences first."""
    scores = tl.zeros((left.shape[0], right.shape[0]), tl.float32)
    for channel in range(0, dim):
        difference = difference_of(sides[0], sides[1], at, channel)
        factor = tl.load(inputs[6] + start_of(inputs[7], at) - channel * inputs[7][3])
        scores += factor * difference * difference
    return scores


@triton.jit
def add_differences(found, squares, slopes, sides, at, dims, DIM: tl.constexpr, SQUARES: tl.constexpr):
    """found + Σ_j dS (left − right), and squares + Σ_j dS (left − right)², for each channel."""
    for channel in range(0, DIM):
        difference = difference_of(sides[0], sides[1], at, channel)
        here = (dims == channel)[None, :]
        # Selected, not multiplied: what is masked may be infinitely far.
        terms = tl.where(slopes == 0, 0.0, slopes * difference)
        found += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
        if SQUARES:
            terms = tl.where(slopes == 0, 0.0, terms * difference)
            squares += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
    return found, squares
