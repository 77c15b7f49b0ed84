"""The most common call, straight to PyTorch's kernels: softmax(scale · QKᵀ)V on a CPU, and on a GPU without a mask.

At sixteen queries a kernel takes ten microseconds, and asking who should run it four times as long. What is taken here
comes out exactly as the planner and `sdpa` would have it; all else is left to them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from regard.engines import torch_internals
from regard.engines.sdpa.fused_call import Call, Frame, are_few_rows, fold, pool_fused, pool_row_by_row
from regard.grid import Grid
from regard.masks import Causal, Mask
from regard.scores import Dot, ScaledDot, Score
from regard.tensors import SMALL, have_finite_sum, is_finite
from regard.validation import DTYPES
from regard.weights import Softmax, Weights

MATH = int(SDPBackend.MATH.value)

# Pairs, and numbers in all keys, up to which nothing beats PyTorch's kernels by `costs.py`; beyond, ask the planner.
MOST_PAIRS, MOST_TRAINED_PAIRS, MOST_ELEMENTS = 1 << 21, 1 << 15, 1 << 20


def pool_plainly(
    queries: Tensor, keys: Tensor, values: Tensor, score: Score, weights: Weights, mask: Mask | None
) -> Tensor | None:
    """The output, `(..., n_queries, value_dim)`; None for what is not plain, and for NaN and infinity."""
    # By type, not isinstance: a user's subclass may be something else.
    if type(weights) is not Softmax or not type(queries) is type(keys) is type(values) is Tensor:
        return None
    if queries.is_nested or keys.is_nested or values.is_nested:
        return None
    shape, key_shape, dtype = queries.shape, keys.shape, queries.dtype
    n_axes, n_numbers, on_cpu = len(shape), keys.numel(), queries.is_cpu
    if (
        n_axes < 2
        or key_shape != values.shape
        or (shape != key_shape and (shape[:-2] != key_shape[:-2] or shape[-1] != key_shape[-1]))
        or not 0 < n_numbers <= (MOST_ELEMENTS if on_cpu else n_numbers)
        or not ((on_cpu and keys.is_cpu and values.is_cpu) or _on_one_gpu(queries, keys, values, mask))
        or not dtype == keys.dtype == values.dtype
        or dtype not in DTYPES
        or torch.is_autocast_enabled("cpu" if on_cpu else "cuda")
    ):
        return None
    dim, n_keys = key_shape[-1], key_shape[-2]
    is_causal = type(mask) is Causal and mask.align is None and shape[-2] == n_keys
    scale = _scale(score, weights, dim)
    if scale is None or not ((is_causal and scale > 0) or mask is None):  # see `sdpa` for others
        return None
    training = torch.is_grad_enabled() and (queries.requires_grad or keys.requires_grad or values.requires_grad)
    n_pairs = queries.numel() // dim * n_keys
    if n_pairs <= 0 or (on_cpu and n_pairs > (MOST_TRAINED_PAIRS if training else MOST_PAIRS)):
        return None
    if training or n_axes > 4:
        grid = Grid(tuple(shape[:-2]), shape[-2], n_keys, queries.device)
    folded = queries, keys, values
    if n_axes == 3:
        folded = queries.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0)
    elif n_axes == 2:
        keys_4d = 1, 1, n_keys, dim
        folded = queries.view(1, 1, shape[0], dim), keys.view(keys_4d), values.view(keys_4d)
    elif n_axes > 4:
        # The backward pass folds the inputs so once more, and takes the log normalizer of each row from where this call
        # has left it: axes joined in another way gave wrong gradients.
        joined = fold(grid, queries, keys, values)
        assert joined is not None  # as nothing broadcasts
        folded = joined
    if torch_internals.backend_of(*folded, is_causal=is_causal, scale=scale) == MATH:
        return None
    if on_cpu:  # a GPU would have to be waited for
        # What `are_finite` would ask besides was asked above: one dtype, one device, no gradient.
        soon = n_numbers <= SMALL and shape == key_shape and not training
        if not (soon and have_finite_sum(queries, keys, values)) and not is_finite(queries, keys, values):
            return None
    if training:
        frame = Frame(grid, scale, score, weights, mask)
        call = Call(*folded, None, None, is_causal, scale, dim)
        output = pool_fused(frame, call, queries, keys, values)
    else:
        if not on_cpu and are_few_rows(*folded):  # on a GPU, there is no mask here
            output = pool_row_by_row(*folded, scale)
        else:
            output = scaled_dot_product_attention(*folded, is_causal=is_causal, scale=scale)
        if n_axes == 3:
            output = output.squeeze(0)
        elif n_axes != 4:
            output = output.view(shape[0], dim) if n_axes == 2 else output.reshape(shape)
    # As in `sdpa`: under a mask, a score that overflowed must not spread.
    return None if is_causal and not is_finite(output) else output


def _on_one_gpu(queries: Tensor, keys: Tensor, values: Tensor, mask: Mask | None) -> bool:
    """Whether all are on one GPU, and every query sees every key, so that NaN is nobody's who does not see it."""
    return queries.is_cuda and mask is None and queries.device == keys.device == values.device


def _scale(score: Score, rule: Softmax, dim: int) -> float | None:
    """The number that qᵀk is multiplied by before softmax, where that is all there is to score and rule."""
    if type(score) is ScaledDot:
        scale = 1 / math.sqrt(dim) if score.scale is None else score.scale
    elif type(score) is Dot:
        scale = 1.0
    else:
        return None
    factor = rule.factor
    return None if rule.sink is not None or isinstance(scale, Tensor) or isinstance(factor, Tensor) else scale * factor
