"""What the kernels take: memory beside inputs and output in a forward pass, and time; estimates. Imports no Numba."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.engines.kernels.support import inner_rule
from regard.engines.work import MICRO, NANO, READ, Work
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax

_FLOAT, _WHOLE = 4, 8  # bytes
_TILE = 256 * 512  # numbers in a tile of a thread: `tiles.ROWS` times `tiles.COLUMNS`
_CHANNEL_TILE = 256 * 1024
_STRIP = 1 << 19  # numbers in a strip of rows whose thresholds are found: `choosing.SOLVED_ELEMENTS`
_CANDIDATES = 256 * (512 + 512)  # of the rows of a tile under entmax: `supports.MOST_CANDIDATES`, and a tile's width
_QUERY_FACTORS, _KEY_FACTORS = 5.5, 1.5  # numbers for each channel of tanh


def cpu_bytes(problem: AttentionProblem) -> int:
    """About how many bytes a forward pass of the kernels takes."""
    form, grid, (rule, choose) = problem.form, problem.grid, inner_rule(problem.rule)
    left, right = form.tensors()[:2]
    n_rows, value_dim = math.prod(grid.batch_shape) * grid.n_queries, problem.values.shape[-1]
    threads = max(min(torch.get_num_threads(), -(-n_rows // 256)), 1)
    total = sum(_FLOAT * _copied(each) for each in (left, right, problem.values))
    total += 4 * _FLOAT * n_rows  # the largest score of each row and its sum, before and after the end
    if problem.dtype != torch.float32:
        total += _FLOAT * n_rows * value_dim  # the output before it is rounded
    tile = _CHANNEL_TILE if isinstance(form, ChannelForm) else _TILE
    height = min(grid.n_queries, 256)
    # A row of a tile is no longer than there are keys.
    total += threads * _FLOAT * min(tile, height * grid.n_keys)
    if isinstance(form, ChannelForm):
        factors = (_QUERY_FACTORS, _KEY_FACTORS) if form.function == "tanh" else (1.0, 1.0)
        queries, keys = height * left.shape[-1], grid.n_keys * right.shape[-1]
        total += int(_FLOAT * (threads * factors[0] * queries + math.prod(grid.batch_shape) * factors[1] * keys))
    else:
        total += threads * _FLOAT * height * left.shape[-1]  # rows times the scale
    if choose:
        total += n_rows * choose * (_FLOAT + _WHOLE)
    if isinstance(rule, Entmax):
        total += n_rows * (_FLOAT * value_dim + _WHOLE)  # values averaged by slope, and thresholds
        total += threads * max(2 * _FLOAT * _STRIP, (2 * _FLOAT + _WHOLE) * _CANDIDATES)
    return total


def _copied(tensor: Tensor) -> int:
    """How many numbers of a tensor are copied: to float32, or because those of a vector lie apart."""
    for axis in range(tensor.ndim - 2):
        if tensor.stride(axis) == 0:
            tensor = tensor.narrow(axis, 0, 1)
    n_rows, dim = tensor.shape[-2:]
    apart = (dim <= 1 or tensor.stride(-1) == 1) and (n_rows <= 1 or tensor.stride(-2) >= dim)
    return 0 if tensor.dtype == torch.float32 and apart else tensor.numel()


def cpu_seconds(work: Work) -> float:
    """Compiled tiles: arithmetic, and what a call, a batch entry and a row cost besides."""
    per_pair = 0.45 + 2.65 * work.depth + 0.2 * work.n_steps
    backward = 0.4 + 6.9 * work.depth + 1.0 * work.n_steps
    if work.rule == "threshold":
        backward *= 0.35  # few keys have a weight
    if work.rule == "choice":
        per_pair, backward = 1.9 + 1.9 * work.depth, 0.1
    if work.width > 1:
        channel = 11.0 if work.n_queries < 32 else 0.085  # keys are prepared for the rows that will see them
        per_pair += channel * work.width
        backward += (channel if work.n_queries < 32 else 0.28) * work.width
    row = (300 if work.training else 200) + (300 if work.training else 3) * max(work.n_keys / 512, 1)
    pairs = per_pair + (backward if work.training else 0.0)
    seconds = work.entries * work.n_queries * work.live * (work.n_keys * pairs + row) * NANO
    # Short work stays with one thread (`engines/cpu/runtime/thread_pool.py`).
    shared = seconds > 4e-3 and seconds > 1.5e-4 * work.entries
    entry = 250.0 if work.training else 74.0
    if work.rule == "sums" and not work.n_steps and work.width == 1 and not work.masked:
        entry *= 0.3  # entries that are alike share a call
    elif work.rule == "sums":
        entry *= 1.5
    else:
        entry *= 2.1 if work.rule == "choice" else 4.0
    call = (1500 if work.training else 510) + (120 if work.masked else 0) + entry * work.entries
    read = (9 if work.training else 0.2) * work.bytes * work.live / (work.threads * READ)
    return call * MICRO + seconds / (work.threads if shared else 1) + read
