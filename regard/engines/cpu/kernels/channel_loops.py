"""Loops over a tile of the channel form, for any φ(l, r): they are given compiled functions, and return others.

Numba keeps on disk no kernel that is given a function as an argument, but does so for one that calls what is made here.
"""

# Compiled functions have no types that mypy could read.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.engines.cpu.runtime.jit import exact_helper, helper, kernel
from regard.engines.cpu.runtime.signatures import PACKED_KEYS, PACKED_QUERIES

_ROWS = 16  # queries whose sums stay in the first cache while all channels pass
_SUMMED = 16  # queries that are added up at a time: sums of sums lose fewer digits
_GROUPS = 4  # groups of channels that are


@kernel(**PACKED_KEYS)
def pack_keys(right, packed):
    """Copy the keys to `packed`, all of one channel side by side."""
    width = packed.shape[3]
    for j in range(right.shape[0]):
        for c in range(right.shape[1]):
            packed[j // width, c // 4, c % 4, j % width] = right[j, c]


@kernel(**PACKED_QUERIES)
def pack_queries(left, packed):
    """Copy the queries to `packed`, four channels side by side."""
    for i in range(left.shape[0]):
        for c in range(left.shape[1]):
            packed[i, c // 4, c % 4] = left[i, c]


@helper
def grouped(weight, factor):
    """The weights times a factor in fours, zeros at the end."""
    grouped = np.zeros(((weight.shape[0] + 3) // 4, 4), np.float32)
    for c in range(weight.shape[0]):
        grouped[c // 4, c % 4] = np.float64(weight[c]) * factor
    return grouped


def rows_of(value: Callable[..., Any]) -> Callable[..., Any]:
    """A helper that adds Σ w·φ of four channels to the rows of some queries."""

    @helper
    def rows(queries, keys, w, start, stop, block, group, totals):
        w0, w1, w2, w3 = w[group, 0], w[group, 1], w[group, 2], w[group, 3]
        for i in range(start, stop):
            q0, q1, q2, q3 = queries[i, group, 0], queries[i, group, 1], queries[i, group, 2], queries[i, group, 3]
            for j in range(totals.shape[1]):
                first = w0 * value(q0, keys[block, group, 0, j]) + w1 * value(q1, keys[block, group, 1, j])
                second = w2 * value(q2, keys[block, group, 2, j]) + w3 * value(q3, keys[block, group, 3, j])
                totals[i - start, j] += first + second

    return rows


def slopes_of(value: Callable[..., Any], slope: Callable[..., Any], side: float) -> Callable[..., Any]:
    """A helper like `factored_slopes` for any φ(l, r) whose derivative by r is `side` times the one by l."""
    sign = np.float32(side)

    @helper
    def slopes(queries, keys, w, start, stop, block, group, half, d_scores, d_left, d_value, d_right):
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


def scores_of(add_rows: Callable[..., Any]) -> Callable[..., Any]:
    """A helper that writes the scores of a tile, given one that adds four channels to the rows of some queries."""

    @helper
    def scores(queries, keys, w, factor, tile):
        n_queries, n_keys = tile.shape
        width = keys.shape[3]
        sums, totals = np.empty((_ROWS, width), np.float32), np.empty((_ROWS, width), np.float32)
        for block in range(keys.shape[0]):
            first = block * width
            for start in range(0, n_queries, _ROWS):
                stop = min(start + _ROWS, n_queries)
                for i in range(_ROWS):
                    for j in range(width):
                        sums[i, j] = totals[i, j] = np.float32(0.0)
                for group in range(keys.shape[1]):
                    add_rows(queries, keys, w, start, stop, block, group, sums)
                    if group % _GROUPS == _GROUPS - 1 or group == keys.shape[1] - 1:
                        for i in range(stop - start):
                            for j in range(width):
                                totals[i, j] += sums[i, j]
                                sums[i, j] = np.float32(0.0)
                for i in range(start, stop):
                    for j in range(min(width, n_keys - first)):
                        tile[i, first + j] = totals[i - start, j] * factor

    return scores


def gradients_of(add_slopes: Callable[..., Any]) -> Callable[..., Any]:
    """A helper that adds the gradients of a tile, given one that finds those of two channels and some queries."""

    @helper
    def gradients(queries, keys, w, scale, d_scores, d_left, d_right, d_weight):
        n_queries, n_keys = d_scores.shape
        channels = d_weight.shape[0]
        width = keys.shape[3]
        sums = np.empty((2, width), np.float32)
        d_rows, d_values = np.empty((2, _SUMMED), np.float32), np.empty((2, _SUMMED), np.float32)
        totals = np.empty((channels, width), np.float32)
        padded = np.empty((n_queries, width), np.float32)
        for block in range(keys.shape[0]):
            first = block * width
            count = min(width, n_keys - first)
            for i in range(n_queries):
                for j in range(count):
                    padded[i, j] = d_scores[i, first + j]
                for j in range(count, width):
                    padded[i, j] = np.float32(0.0)
            for c in range(0, channels, 2):
                pair = min(2, channels - c)
                for k in range(pair):
                    for j in range(width):
                        totals[c + k, j] = np.float32(0.0)
                for start in range(0, n_queries, _SUMMED):
                    stop = min(start + _SUMMED, n_queries)
                    for k in range(2):
                        for j in range(width):
                            sums[k, j] = np.float32(0.0)
                    add_slopes(queries, keys, w, start, stop, block, c // 4, c % 4 // 2, padded, d_rows, d_values, sums)
                    for k in range(pair):
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

    return gradients


@exact_helper
def absolute(left, right):
    return np.abs(left - right)


@exact_helper
def absolute_slope(left, right):
    # Of NaN 0, as torch has it.
    return np.float32(1.0) if left > right else (np.float32(-1.0) if left < right else np.float32(0.0))


@exact_helper
def square(left, right):
    x = left - right
    return x * x


@exact_helper
def square_slope(left, right):
    return np.float32(2.0) * (left - right)


@exact_helper
def differ(left, right):
    return np.float32(1.0) if left != right else np.float32(0.0)


@exact_helper
def differ_slope(left, right):
    return np.float32(0.0)
