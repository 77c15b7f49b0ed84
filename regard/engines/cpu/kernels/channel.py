"""One tile of the channel form, Σ_c w_c · φ(left_c, right_c) · scale, and its gradients: float32, one thread.

    branch, smallest, keys = prepare_keys(right, FUNCTIONS["tanh"])            # once a batch entry
    queries = prepare_queries(left, smallest, weight, branch)                  # once a block of queries
    channel_scores(queries, keys, weight, scale, branch, scores)               # once a tile
    channel_gradients(queries, keys, weight, scale, branch, d_scores, d_left, d_right, d_weight)

Keys are packed in blocks, `(blocks, groups of four channels, factors, width)`; a tile is any number of whole blocks,
`keys[first:last]`, and only the last block of all may have fewer keys than `width`. Missing channels and keys are
filled up so that they add nothing.

Arrays should be contiguous in rows: other strides are right, but are compiled for once more.
"""

# Compiled functions have no types that mypy could read.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from regard.engines.cpu.kernels.channel_loops import (
    absolute,
    absolute_slope,
    differ,
    differ_slope,
    gradients_of,
    grouped,
    pack_keys,
    pack_queries,
    rows_of,
    scores_of,
    slopes_of,
    square,
    square_slope,
)
from regard.engines.cpu.kernels.channel_tanh import (
    KEY_FACTORS,
    QUERY_FACTORS,
    SHARED_SPREAD,
    SINGLE_SPREAD,
    factored_slopes,
    largest_weight,
    pack_tanh_keys,
    pack_tanh_queries,
    shared_rows,
    single_rows,
    take_in,
    tanh_slope,
    tanh_value,
)
from regard.engines.cpu.runtime.jit import kernel
from regard.engines.cpu.runtime.signatures import CHANNELS
from regard.engines.cpu.runtime.thread_pool import check_stopped
from regard.scores.form import ChannelFunction

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

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
CALL_ELEMENTS = 1 << 22  # keys times channels that one compiled call takes: some 60 ms, so that Ctrl-C is heard


def prepare_keys(right: Array, function: int) -> tuple[int, Array, Array]:
    """The branch that the other functions are told, the smallest key of each channel, and all keys packed.

    Args:
        right: float32 `(n_keys, channels)`.
        function: one of `FUNCTIONS`.
    """
    n_keys, channels = right.shape
    blocks = max(-(-n_keys // WIDTH), 1)
    width = max(-(-n_keys // (blocks * _LANES)), 1) * _LANES
    step = max(CALL_ELEMENTS // (width * max(channels, 1)), 1)  # blocks that a call takes
    parts = [(slice(at, at + step), right[at * width : (at + step) * width]) for at in range(0, blocks, step)]
    branch, smallest = function, np.zeros(channels)
    if function == _TANH:
        smallest, spread = _range_of([part for _, part in parts], channels)
        branch = _SHARED if spread <= SHARED_SPREAD else _SINGLE if spread <= SINGLE_SPREAD else _TANH
    factored = branch >= _SINGLE
    packed = np.zeros((blocks, -(-channels // 4), KEY_FACTORS if factored else 4, width), np.float32)
    for which, part in parts:
        check_stopped()
        if factored:
            pack_tanh_keys(part, smallest, packed[which])
        else:
            pack_keys(part, packed[which])
    return branch, smallest, packed


def _range_of(parts: Sequence[Array], channels: int) -> tuple[Array, float]:
    """The smallest key of each channel, 0 where there is none, and the largest spread of one."""
    smallest, largest = np.full(channels, np.inf), np.full(channels, -np.inf)
    for part in parts:
        check_stopped()
        take_in(part, smallest, largest)
    found = smallest <= largest  # some key that is not NaN
    with np.errstate(invalid="ignore"):
        spread = np.where(found, largest - smallest, 0.0).max(initial=0.0)  # ∞ − ∞ is kept, and fits in no branch
    return np.where(found, smallest, 0.0), float(spread)


def prepare_queries(left: Array, smallest: Array, weight: Array, branch: int) -> Array:
    """A block of queries packed, `(n_queries, groups of four channels, factors)`, for keys from `prepare_keys`.

    Args:
        left: float32 `(n_queries, channels)`.
        smallest: from `prepare_keys`.
        weight: float32 `(channels,)`.
        branch: from `prepare_keys`.
    """
    n_queries, channels = left.shape
    factored = branch >= _SINGLE
    packed = np.zeros((n_queries, -(-channels // 4), QUERY_FACTORS if factored else 4), np.float32)
    if factored:
        pack_tanh_queries(left, smallest, weight, packed)
    else:
        pack_queries(left, packed)
    return packed


# A kernel for each branch, so that no one waits for the compiler longer than one score needs.


def _scores_kernel(name: str, add_rows: Callable[..., None], bounded: bool = False) -> Callable[..., None]:
    """A kernel that writes the scores of a tile, with weights divided by the largest where `bounded`."""
    write = scores_of(add_rows)

    def write_scores(queries, keys, weight, scale, scores):
        top = largest_weight(weight) if bounded else 1.0
        write(queries, keys, grouped(weight, 1.0 / top), np.float32(scale * top), scores)

    write_scores.__name__ = f"{name}_scores"
    made: Callable[..., None] = kernel(write_scores, **CHANNELS)
    return made


def _gradients_kernel(name: str, add_slopes: Callable[..., None]) -> Callable[..., None]:
    """A kernel that adds the gradients of a tile."""
    add = gradients_of(add_slopes)

    def add_gradients(queries, keys, weight, scale, d_scores, d_left, d_right, d_weight):
        add(queries, keys, grouped(weight, scale), scale, d_scores, d_left, d_right, d_weight)

    add_gradients.__name__ = f"{name}_gradients"
    made: Callable[..., None] = kernel(add_gradients, **CHANNELS)
    return made


# In the order of the branches.
_SCORES = (
    _scores_kernel("tanh", rows_of(tanh_value)),
    _scores_kernel("absolute", rows_of(absolute)),
    _scores_kernel("square", rows_of(square)),
    _scores_kernel("differ", rows_of(differ)),
    _scores_kernel("single", single_rows, bounded=True),
    _scores_kernel("shared", shared_rows, bounded=True),
)
_FACTORED_GRADIENTS = _gradients_kernel("factored", factored_slopes)
_GRADIENTS = (
    _gradients_kernel("tanh", slopes_of(tanh_value, tanh_slope, 1.0)),
    _gradients_kernel("absolute", slopes_of(absolute, absolute_slope, -1.0)),
    _gradients_kernel("square", slopes_of(square, square_slope, -1.0)),
    _gradients_kernel("differ", slopes_of(differ, differ_slope, -1.0)),
    _FACTORED_GRADIENTS,
    _FACTORED_GRADIENTS,
)


def channel_scores(queries: Array, keys: Array, weight: Array, scale: float, branch: int, scores: Array) -> None:
    """Write the scores of a tile.

    Args:
        queries: from `prepare_queries`, any range of its first axis.
        keys: from `prepare_keys`, any range of its first axis.
        weight: float32 `(channels,)`.
        scale: a float.
        branch: from `prepare_keys`.
        scores: float32 `(n_queries, n_keys)`, n_keys of these blocks; what it holds is overwritten.
    """
    _SCORES[branch](queries, keys, weight, float(scale), scores)


def channel_gradients(
    queries: Array,
    keys: Array,
    weight: Array,
    scale: float,
    branch: int,
    d_scores: Array,
    d_left: Array,
    d_right: Array,
    d_weight: Array,
) -> None:
    """Add the gradients of a tile to `d_left`, `d_right` and `d_weight`.

    Args:
        queries, keys, weight, scale, branch: as `channel_scores`.
        d_scores: float32 `(n_queries, n_keys)`.
        d_left: float32 `(n_queries, channels)`.
        d_right: float32 `(n_keys, channels)`.
        d_weight: float64 `(channels,)`: a sum over all pairs would lose digits in float32.
    """
    _GRADIENTS[branch](queries, keys, weight, float(scale), d_scores, d_left, d_right, d_weight)
