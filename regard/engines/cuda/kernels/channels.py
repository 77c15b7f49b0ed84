"""Scores that are sums over channels, Σ_c w_c φ(left_c, right_c), and their gradients: one channel after the other.

φ is tanh(l + r), |l − r|, (l − r)² or [l ≠ r]; what differs between them is in `channel_values` and `channel_slopes`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import tanh
from regard.engines.cuda.kernels.tile_scores import start_of
from regard.engines.kernels import codes

SQUARE = tl.constexpr(codes.SQUARE)
TANH = tl.constexpr(codes.TANH)
ABSOLUTE = tl.constexpr(codes.ABSOLUTE)
CHANNELS = tl.constexpr(codes.CHANNELS)


@triton.jit
def channel_values(one, other, inputs, FORM: tl.constexpr):
    """φ of coordinates. Which it is says the form or, where that is `CHANNELS`, a number behind the inputs."""
    function = FORM
    if FORM == CHANNELS:
        function = inputs[len(inputs) - 1]
    if function == TANH:
        values = tanh(one + other, False)
    elif function == ABSOLUTE:
        values = tl.abs(one - other)
    elif function == SQUARE:
        values = (one - other) * (one - other)
    else:
        values = (one != other).to(tl.float32)
    return values


@triton.jit
def channel_slopes(one, other, inputs, FORM: tl.constexpr):
    """∂φ/∂one."""
    function = FORM
    if FORM == CHANNELS:
        function = inputs[len(inputs) - 1]
    if function == TANH:
        slopes = tanh(one + other, False)
        slopes = 1.0 - slopes * slopes
    elif function == ABSOLUTE:
        slopes = (one > other).to(tl.float32) - (one < other).to(tl.float32)
    elif function == SQUARE:
        slopes = 2.0 * (one - other)
    else:
        slopes = tl.zeros_like(one - other)
    return slopes


@triton.jit
def load_coordinate(side, at, channel):
    """One coordinate of some vectors, in float32. `side`: a pointer, strides, the first vector, a span, how many."""
    base = side[0] + start_of(side[1], at) - tl.cast(side[2], tl.int64) * side[1][3] + channel
    span = side[3].to(tl.int64)
    return tl.load(base - span * side[1][3], mask=side[2] + side[3] < side[4], other=0.0).to(tl.float32)


@triton.jit
def load_coordinates(sides, at, channel):
    """One coordinate of the vectors of a tile, shaped to broadcast over it."""
    return load_coordinate(sides[0], at, channel)[:, None], load_coordinate(sides[1], at, channel)[None, :]


@triton.jit
def summed_channels(sides, inputs, at, DIM, FORM: tl.constexpr):
    """Σ_c w_c φ(left_c, right_c) of a tile."""
    scores = tl.zeros((sides[0][3].shape[0], sides[1][3].shape[0]), tl.float32)
    for channel in range(0, DIM):
        one, other = load_coordinates(sides, at, channel)
        values = channel_values(one, other, inputs, FORM)
        if len(inputs) >= 8:
            values = values * tl.load(inputs[6] + start_of(inputs[7], at) - channel * inputs[7][3]).to(tl.float32)
        scores += values
    return scores


@triton.jit
def add_channels(found, values, slopes, sides, inputs, at, dims, DIM, FORM: tl.constexpr, VALUES: tl.constexpr):
    """found + Σ_j dS ∂φ/∂left, and values + Σ_j dS φ, for each channel."""
    for channel in range(0, DIM):
        one, other = load_coordinates(sides, at, channel)
        here = (dims == channel)[None, :]
        # Selected, not multiplied: what is masked may be infinitely far.
        terms = tl.where(slopes == 0, 0.0, slopes * channel_slopes(one, other, inputs, FORM))
        found += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
        if VALUES:
            terms = tl.where(slopes == 0, 0.0, slopes * channel_values(one, other, inputs, FORM))
            values += tl.where(here, tl.sum(terms, 1)[:, None], 0.0)
    return found, values
