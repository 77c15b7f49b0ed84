"""What kernels take in memory beside inputs and output, in a forward pass; an estimate that imports no Numba."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.engines.kernels.support import inner_rule
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax

_FLOAT, _WHOLE = 4, 8  # bytes
_TILE = 256 * 512  # numbers in a tile of a thread: `tiles.ROWS` times `tiles.COLUMNS`
_CHANNEL_TILE = 256 * 1024
_STRIP = 1 << 19  # numbers in a strip of rows whose thresholds are found: `choosing.STRIP_ELEMENTS`
_CANDIDATES = 256 * (512 + 512)  # of the rows of a tile under entmax: `supports.MOST_CANDIDATES`, and a tile's width
_QUERY_FACTORS, _KEY_FACTORS = 5.5, 1.5  # numbers for each channel of tanh


def kernel_bytes(problem: AttentionProblem) -> int:
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
