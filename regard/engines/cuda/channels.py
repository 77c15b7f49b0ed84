"""Coordinates as sums over channels are walked by: prepared once for all tiles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.engines.cuda.kernels.channel_tiles import prepare_coordinates
from regard.engines.cuda.launch_settings import PREPARED, SHARED, blocks_of
from regard.engines.cuda.launcher import on_device


def prepared(vectors: Tensor, form: int) -> tuple[Tensor, Tensor]:
    """Coordinates `(..., blocks · 2 · channels · vectors)` and their ranges `(..., blocks · 2)`, in float32.

    Of a block first those of a channel lie together, and then those of a vector.

    Args:
        vectors: `(..., n, dim)`; what is broadcast along a batch axis is prepared once.
        form: The code of what is summed.
    """
    for axis, stride in enumerate(vectors.stride()[:-2]):
        if stride == 0:
            vectors = vectors.narrow(axis, 0, 1)
    *lead, length, dim = vectors.shape
    n_blocks, channels = blocks_of(length, PREPARED), blocks_of(dim, SHARED) * SHARED
    flat = vectors.reshape(-1, length, dim)
    flat = flat if dim == 1 or flat.stride(-1) == 1 else flat.contiguous()
    made = vectors.new_empty(*lead, n_blocks * 2 * channels * PREPARED, dtype=torch.float32)
    ranges = vectors.new_empty(*lead, n_blocks * 2, dtype=torch.float32)
    with on_device(vectors.device):
        prepare_coordinates[(math.prod(lead) * n_blocks,)](
            flat, made, ranges, length, dim, flat.stride(0), flat.stride(1), FORM=form, PADDED=channels
        )
    return made, ranges
