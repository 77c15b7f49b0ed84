"""One tile of the channel form, Σ_c w_c · φ(left_c, right_c) · scale, and its gradients: float32, one thread.

    branch, smallest, keys = prepare_keys(right, FUNCTIONS["tanh"])            # once a batch entry
    queries = prepare_queries(left, smallest, weight, branch)                  # once a block of queries
    channel_scores(queries, keys, weight, scale, branch, scores)               # once a tile
    channel_gradients(queries, keys, weight, scale, branch, d_scores, d_left, d_right, d_weight)

Keys are packed in blocks, `(blocks, groups of four channels, factors, width)`; a tile is any number of whole blocks,
`keys[first:last]`, and only the last block of all may have fewer keys than `width`. Missing channels and keys are
filled up so that they add nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.engines.cpu.channel_tanh import (
    KEY_FACTORS,
    QUERY_FACTORS,
    SHARED_SPREAD,
    SINGLE_SPREAD,
    factored_slopes,
    pack_tanh_keys,
    pack_tanh_queries,
    shared_rows,
    single_rows,
    smallest_and_spread,
    tanh_slope,
    tanh_value,
)
from regard.engines.cpu.jit import exact_helper, helper, kernel
from regard.scores.form import ChannelFunction

# What a kernel does, from `prepare_keys`: the functions, then the faster ways to tanh.
_TANH, _ABSOLUTE, _SQUARE, _DIFFER, _SINGLE, _SHARED = 0, 1, 2, 3, 4, 5

FUNCTIONS: dict[ChannelFunction, int] = {
    "tanh": _TANH,
    "absolute": _ABSOLUTE,
    "square": _SQUARE,
    "differ": _DIFFER,
}

WIDTH = 256  # the most keys in a block: long enough to hide the end of a row, short enough for the first cache
_LANES = 16  # the number of keys in a block is a multiple of it
_ROWS = 16  # queries whose sums stay in the first cache while all channels pass
_SUMMED = 64  # rows that are added up at a time: sums of sums lose fewer digits


@exact_helper
def _absolute(left, right):  # type: ignore[no-untyped-def]
    return np.abs(left - right)


@exact_helper
def _absolute_slope(left, right):  # type: ignore[no-untyped-def]
    x = left - right
    # The last is 0 or NaN.
    return np.float32(1.0) if x > np.float32(0.0) else (np.float32(-1.0) if x < np.float32(0.0) else x)


@exact_helper
def _square(left, right):  # type: ignore[no-untyped-def]
    x = left - right
    return x * x


@exact_helper
def _square_slope(left, right):  # type: ignore[no-untyped-def]
    return np.float32(2.0) * (left - right)


@exact_helper
def _differ(left, right):  # type: ignore[no-untyped-def]
    return np.float32(1.0) if left != right else np.float32(0.0)


@exact_helper
def _differ_slope(left, right):  # type: ignore[no-untyped-def]
    return np.float32(0.0)


def _rows_of(value: Callable[..., Any]) -> Callable[..., Any]:
    """A helper that adds Σ w·φ of four channels to the rows of some queries."""

    @helper
    def rows(queries, keys, w, start, stop, block, group, totals):  # type: ignore[no-untyped-def]
        w0, w1, w2, w3 = w[group, 0], w[group, 1], w[group, 2], w[group, 3]
        for i in range(start, stop):
            q0, q1, q2, q3 = queries[i, group, 0], queries[i, group, 1], queries[i, group, 2], queries[i, group, 3]
            for j in range(totals.shape[1]):
                first = w0 * value(q0, keys[block, group, 0, j]) + w1 * value(q1, keys[block, group, 1, j])
                second = w2 * value(q2, keys[block, group, 2, j]) + w3 * value(q3, keys[block, group, 3, j])
                totals[i - start, j] += first + second

    return rows


def _slopes_of(value: Callable[..., Any], slope: Callable[..., Any], side: float) -> Callable[..., Any]:
    """A helper like `factored_slopes` for any φ(l, r) whose derivative by r is `side` times the one by l."""
    sign = np.float32(side)

    @helper
    def slopes(queries, keys, w, start, stop, block, group, half, d_scores, d_left, d_value, d_right):  # type: ignore[no-untyped-def]
        a, b = 2 * half, 2 * half + 1
        w1, w2 = w[group, a], w[group, b]
        m1, m2 = sign * w1, sign * w2
        for i in range(start, stop):
            q1, q2 = queries[i, group, a], queries[i, group, b]
            s1, s2, v1, v2 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for j in range(d_scores.shape[1]):
                e, x1, x2 = d_scores[i, j], keys[block, group, a, j], keys[block, group, b, j]
                v1 += e * value(q1, x1)
                v2 += e * value(q2, x2)
                e1, e2 = e * slope(q1, x1), e * slope(q2, x2)
                s1 += e1
                s2 += e2
                d_right[0, j] += m1 * e1
                d_right[1, j] += m2 * e2
            d_left[0, i - start], d_left[1, i - start] = w1 * s1, w2 * s2
            d_value[0, i - start], d_value[1, i - start] = v1, v2

    return slopes


_tanh_rows, _tanh_slopes = _rows_of(tanh_value), _slopes_of(tanh_value, tanh_slope, 1.0)
_absolute_rows, _absolute_slopes = _rows_of(_absolute), _slopes_of(_absolute, _absolute_slope, -1.0)
_square_rows, _square_slopes = _rows_of(_square), _slopes_of(_square, _square_slope, -1.0)
_differ_rows, _differ_slopes = _rows_of(_differ), _slopes_of(_differ, _differ_slope, -1.0)


@helper
def _add_rows(branch, *tile):  # type: ignore[no-untyped-def]
    """Add Σ w·φ of four channels to the rows of some queries."""
    if branch == _SHARED:
        shared_rows(*tile)
    elif branch == _SINGLE:
        single_rows(*tile)
    elif branch == _TANH:
        _tanh_rows(*tile)
    elif branch == _ABSOLUTE:
        _absolute_rows(*tile)
    elif branch == _SQUARE:
        _square_rows(*tile)
    else:
        _differ_rows(*tile)


@helper
def _add_slopes(branch, *tile):  # type: ignore[no-untyped-def]
    """Write and add the gradients of two channels and some queries."""
    if branch >= _SINGLE:
        factored_slopes(*tile)
    elif branch == _TANH:
        _tanh_slopes(*tile)
    elif branch == _ABSOLUTE:
        _absolute_slopes(*tile)
    elif branch == _SQUARE:
        _square_slopes(*tile)
    else:
        _differ_slopes(*tile)


@helper
def _top(weight, branch):  # type: ignore[no-untyped-def]
    """The largest |w|: factored tanh divides by it, since factors of tiny weights would be no float32 any more."""
    top = 0.0
    if branch >= _SINGLE:
        for c in range(weight.shape[0]):
            size = np.abs(np.float64(weight[c]))
            top = size if size > top and size < np.inf else top
    return top if top > 0.0 else 1.0


@helper
def _grouped(weight, groups, factor):  # type: ignore[no-untyped-def]
    """The weights times a factor in fours, zeros at the end."""
    grouped = np.zeros((groups, 4), np.float32)
    for c in range(weight.shape[0]):
        grouped[c // 4, c % 4] = np.float64(weight[c]) * factor
    return grouped


@kernel
def prepare_keys(right, function):  # type: ignore[no-untyped-def]
    """The branch of the kernels, the smallest key of each channel, and all keys packed.

    Args:
        right: float32 `(n_keys, channels)`, any strides.
        function: one of `FUNCTIONS`.
    """
    n_keys, channels = right.shape
    branch = function
    smallest = np.zeros(channels)
    if function == _TANH:
        spread = smallest_and_spread(right, smallest)
        if spread <= SHARED_SPREAD:
            branch = _SHARED
        elif spread <= SINGLE_SPREAD:
            branch = _SINGLE
    blocks = (n_keys + WIDTH - 1) // WIDTH
    width = _LANES
    if blocks > 0:
        width = ((n_keys + blocks - 1) // blocks + _LANES - 1) // _LANES * _LANES
    groups = (channels + 3) // 4
    factored = branch >= _SINGLE
    packed = np.empty((blocks, groups, KEY_FACTORS if factored else 4, width), np.float32)
    if factored:
        pack_tanh_keys(right, smallest, packed)
    else:
        packed[:] = np.float32(0.0)
        for j in range(n_keys):
            for c in range(channels):
                packed[j // width, c // 4, c % 4, j % width] = right[j, c]
    return branch, smallest, packed


@kernel
def prepare_queries(left, smallest, weight, branch):  # type: ignore[no-untyped-def]
    """A block of queries packed for the keys of `prepare_keys`: `(n_queries, groups of four channels, factors)`.

    Args:
        left: float32 `(n_queries, channels)`, any strides.
        smallest: from `prepare_keys`.
        weight: float32 `(channels,)`.
        branch: from `prepare_keys`.
    """
    n_queries, channels = left.shape
    groups = (channels + 3) // 4
    factored = branch >= _SINGLE
    packed = np.empty((n_queries, groups, QUERY_FACTORS if factored else 4), np.float32)
    if factored:
        pack_tanh_queries(left, smallest, weight, _top(weight, branch), packed)
    else:
        packed[:] = np.float32(0.0)
        for i in range(n_queries):
            for c in range(channels):
                packed[i, c // 4, c % 4] = left[i, c]
    return packed


@kernel
def channel_scores(queries, keys, weight, scale, branch, scores):  # type: ignore[no-untyped-def]
    """Write the scores of a tile.

    Args:
        queries: from `prepare_queries`, any range of its first axis.
        keys: from `prepare_keys`, any range of its first axis.
        weight: float32 `(channels,)`.
        scale: a float.
        branch: from `prepare_keys`.
        scores: float32 `(n_queries, n_keys)` with n_keys of these blocks; what it holds is overwritten.
    """
    n_queries, n_keys = scores.shape
    width = keys.shape[3]
    top = _top(weight, branch)
    w = _grouped(weight, queries.shape[1], 1.0 / top)
    totals = np.empty((_ROWS, width), np.float32)
    factor = np.float32(scale * top)
    for block in range(keys.shape[0]):
        first = block * width
        count = min(width, n_keys - first)
        for start in range(0, n_queries, _ROWS):
            stop = min(start + _ROWS, n_queries)
            totals[:] = np.float32(0.0)
            for group in range(queries.shape[1]):
                _add_rows(branch, queries, keys, w, start, stop, block, group, totals)
            for i in range(start, stop):
                for j in range(count):
                    scores[i, first + j] = totals[i - start, j] * factor


@kernel
def channel_gradients(queries, keys, weight, scale, branch, d_scores, d_left, d_right, d_weight):  # type: ignore[no-untyped-def]
    """Add the gradients of a tile.

    Args:
        queries, keys, weight, scale, branch: as `channel_scores`.
        d_scores: float32 `(n_queries, n_keys)`.
        d_left: float32 `(n_queries, channels)`, added to.
        d_right: float32 `(n_keys, channels)`, added to.
        d_weight: float64 `(channels,)`, added to.
    """
    n_queries, n_keys = d_scores.shape
    channels = weight.shape[0]
    width = keys.shape[3]
    w = _grouped(weight, queries.shape[1], scale)
    sums = np.empty((2, width), np.float32)
    d_rows, d_values = np.empty((2, _SUMMED), np.float32), np.empty((2, _SUMMED), np.float32)
    totals = np.empty((4 * queries.shape[1], width), np.float32)
    padded = np.empty((n_queries, width), np.float32)
    for block in range(keys.shape[0]):
        first = block * width
        count = min(width, n_keys - first)
        for i in range(n_queries):
            padded[i, :count] = d_scores[i, first : first + count]
            padded[i, count:] = np.float32(0.0)
        totals[:] = np.float32(0.0)
        for c in range(0, channels, 2):
            for start in range(0, n_queries, _SUMMED):
                stop = min(start + _SUMMED, n_queries)
                sums[:] = np.float32(0.0)
                _add_slopes(
                    branch, queries, keys, w, start, stop, block, c // 4, c % 4 // 2, padded, d_rows, d_values, sums
                )
                for k in range(min(2, channels - c)):
                    total = 0.0
                    for i in range(start, stop):
                        d_left[i, c + k] += d_rows[k, i - start]
                        total += d_values[k, i - start]
                    d_weight[c + k] += total * scale
                    for j in range(width):
                        totals[c + k, j] += sums[k, j]
        for j in range(count):
            for c in range(channels):
                d_right[first + j, c] += totals[c, j]
