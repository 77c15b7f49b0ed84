"""Matrix products, and those in which a weight of 0 annihilates NaN. One row alone is summed, without matrix units."""

from __future__ import annotations

import triton
import triton.language as tl

# Precisions beside those of `tl.dot`. Wide: operands are float32 first, as Triton's interpreter wants bfloat16. Whole:
# so are weights, which are not rounded to float16 before, where they may leave it.
WIDE = tl.constexpr("wide")
WHOLE = tl.constexpr("whole")


@triton.jit
def matrix_product(left, right, total, PRECISION: tl.constexpr):
    """total + left @ right, in float32."""
    if PRECISION == WIDE or PRECISION == WHOLE:
        # TF32 has the digits of half precision.
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision="tf32")
    else:
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit
def scored_product(left, right, PRECISION: tl.constexpr):
    """left @ rightᵀ, in float32."""
    if left.shape[0] == 1:
        result = tl.sum(left.to(tl.float32) * right.to(tl.float32), 1)[None, :]
    else:
        nothing = tl.zeros((left.shape[0], right.shape[0]), tl.float32)
        result = matrix_product(left, tl.trans(right), nothing, PRECISION)
    return result


@triton.jit
def weighted_product(weights, vectors, total, PRECISION: tl.constexpr):
    """total + weights @ vectors, of weights in float32."""
    if PRECISION != WHOLE:
        weights = weights.to(vectors.dtype)
    return matrix_product(weights, vectors, total, PRECISION)


@triton.jit
def slope_product(slopes, vectors, total, PRECISION: tl.constexpr, SAFE: tl.constexpr):
    """total + slopes @ vectors, as `pooled_product`: slopes of any size, which float16 has no room for."""
    if vectors.dtype == tl.float16:
        total = pooled_product(slopes, vectors, total, WHOLE, SAFE)
    else:
        total = pooled_product(slopes, vectors, total, PRECISION, SAFE)
    return total


@triton.jit
def weighted_sum(weights, vectors):
    """Σ w·v of weights `(1, n)` and vectors `(n, dim)`, over those that are not 0: `(1, dim)`."""
    weights = tl.trans(weights)  # (n, 1)
    return tl.sum(tl.where(weights == 0, 0.0, weights * vectors.to(tl.float32)), 0)[None, :]


@triton.jit
def ones_of(chosen):
    """1 where something holds and 0 elsewhere, in float32."""
    return tl.where(chosen, 1.0, 0.0)


@triton.jit
def pooled_product(weights, vectors, total, PRECISION: tl.constexpr, SAFE: tl.constexpr):
    """total + weights @ vectors; where `SAFE`, a weight of 0 annihilates NaN and infinity among the vectors."""
    if weights.shape[0] == 1:
        total += weighted_sum(weights, vectors)
    elif SAFE:
        large, nothing = float("inf"), tl.zeros_like(total)
        wide = vectors.to(tl.float32)  # the interpreter compares bfloat16 as if it were whole numbers
        is_nan, up, down = wide != wide, wide == large, wide == -large
        finite = tl.where(is_nan | up | down, 0.0, wide).to(vectors.dtype)
        total = weighted_product(weights, finite, total, PRECISION)
        # How many of each are visible: small whole numbers, which TF32 holds or rounds to what is not 0.
        positive, negative = ones_of(weights > 0), ones_of(weights < 0)
        unknown = matrix_product(positive + negative, ones_of(is_nan), nothing, WIDE)
        rising = matrix_product(positive, ones_of(up), nothing, WIDE)
        rising = matrix_product(negative, ones_of(down), rising, WIDE)
        falling = matrix_product(positive, ones_of(down), nothing, WIDE)
        falling = matrix_product(negative, ones_of(up), falling, WIDE)
        total = tl.where(rising > 0, total + large, total)
        total = tl.where(falling > 0, total - large, total)
        total = tl.where(unknown > 0, float("nan"), total)
    else:
        total = weighted_product(weights, vectors, total, PRECISION)
    return total
