"""Matrix products, and those in which a weight of 0 annihilates NaN. One row alone is summed, without matrix units."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import computed_once, is_not_finite

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
def summed_one_by_one(weights, vectors, total):
    """total + weights @ vectors in which a weight of 0 annihilates NaN and infinity: a vector after the other."""
    span = tl.arange(0, weights.shape[1])
    for place in range(0, weights.shape[1]):
        of_vector = tl.sum(tl.where((span == place)[None, :], weights, 0.0), 1)
        vector = tl.sum(tl.where((span == place)[:, None], vectors, 0.0), 0)
        total += tl.where((of_vector == 0)[:, None], 0.0, of_vector[:, None] * vector[None, :])
    return total


@triton.jit
def pooled_product(weights, vectors, total, PRECISION: tl.constexpr, SAFE: tl.constexpr):
    """total + weights @ vectors; where `SAFE`, a weight of 0 annihilates NaN and infinity among the vectors."""
    if weights.shape[0] == 1:
        total += weighted_sum(weights, vectors)
    elif SAFE:
        weights = computed_once(weights)
        wide = vectors.to(tl.float32)  # the interpreter compares bfloat16 as if it were whole numbers
        if tl.max(tl.where(is_not_finite(wide), 1, 0)) == 0:
            total = weighted_product(weights, vectors, total, PRECISION)
        else:
            total = summed_one_by_one(weights, wide, total)
    else:
        total = weighted_product(weights, vectors, total, PRECISION)
    return total
