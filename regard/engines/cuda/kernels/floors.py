"""Numbers that so many scores of a row are not below, from the tops of groups of its columns."""

from __future__ import annotations

import triton
import triton.language as tl

HALVINGS = tl.constexpr(14)  # of an interval of float32: of tops of one sign, what is left is about 2⁻¹² of a score
LOWEST = tl.constexpr(-3.4028234663852886e38)  # finite
MARGIN = tl.constexpr(2.0**-10)  # of a score


@triton.jit
def ordered(scores):
    """Whole numbers in the order of scores, of which 0 and −0 are equal."""
    bits = tl.where(scores == 0, 0.0, scores).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def number_of(place):
    """The score of a whole number."""
    return (place ^ ((place >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def floor_of(tops, chosen):
    """A number that at least so many of each row are not below, and few more; the lowest where there are fewer.

    There are at least as many tops.
    """
    places = ordered(tops)
    high = tl.max(places, 1) + 1
    low = tl.maximum(tl.min(places, 1), ordered(tl.full(high.shape, LOWEST, tl.float32)))
    for _ in range(0, HALVINGS):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = tl.sum((places >= middle[:, None]).to(tl.int32), 1) >= chosen
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    return number_of(low)


@triton.jit
def folded(tops, GROUPS: tl.constexpr):
    """The tops of so many groups that are made of these."""
    if tops.shape[1] > GROUPS:
        tops = tl.max(tl.reshape(tops, (tops.shape[0], tops.shape[1] // GROUPS, GROUPS)), 1)
    return tops


@triton.jit
def with_margin(floors, scale):
    """Floors for scores that are computed in another way, and so many times as large."""
    scaled = floors * scale
    return tl.where(floors <= LOWEST, LOWEST, tl.maximum(scaled - tl.abs(scaled) * MARGIN, LOWEST))
