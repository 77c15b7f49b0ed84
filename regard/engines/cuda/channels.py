"""Coordinates as sums over channels are walked by: prepared once for all tiles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.engines.cuda.kernels.channel_tiles import prepare_coordinates
from regard.engines.cuda.kernels.pair_scores import prepare_norms
from regard.engines.cuda.launch_settings import PREPARED, SHARED, block_of, blocks_of
from regard.engines.cuda.launcher import on_device


def prepared_norms(left: Tensor, right: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """scale · ‖q‖² and scale · ‖k‖² of every vector, in float32: `(..., n)`, and zeros up to the end of a block."""
    sides = [_narrowed(each) for each in (left, right)]
    blocks = [blocks_of(each.shape[-2], PREPARED) for each in sides]
    made = [
        each.new_empty(*each.shape[:-2], n_blocks * PREPARED, dtype=torch.float32)
        for each, n_blocks in zip(sides, blocks, strict=True)
    ]
    flat = [_flat(each) for each in sides]
    n_programs = [len(each) * n_blocks for each, n_blocks in zip(flat, blocks, strict=True)]
    dim = left.shape[-1]
    with on_device(left.device):
        prepare_norms[(sum(n_programs),)](
            *flat,
            *made,
            *[each.shape[1] for each in flat],
            n_programs[0],
            *[stride for each in flat for stride in each.stride()[:2]],
            scale,
            dim,
            BLOCK_DIM=block_of(dim),
            ROWS=PREPARED,
        )
    return made[0], made[1]


def prepared(vectors: Tensor, form: int) -> tuple[Tensor, Tensor]:
    """Coordinates `(..., blocks · 2 · channels · vectors)` and their ranges `(..., blocks · 2)`, in float32.

    Of a block first those of a channel lie together, and then those of a vector.

    Args:
        vectors: `(..., n, dim)`; what is broadcast along a batch axis is prepared once.
        form: The code of what is summed.
    """
    vectors = _narrowed(vectors)
    *lead, length, dim = vectors.shape
    n_blocks, channels = blocks_of(length, PREPARED), blocks_of(dim, SHARED) * SHARED
    flat = _flat(vectors)
    made = vectors.new_empty(*lead, n_blocks * 2 * channels * PREPARED, dtype=torch.float32)
    ranges = vectors.new_empty(*lead, n_blocks * 2, dtype=torch.float32)
    with on_device(vectors.device):
        prepare_coordinates[(math.prod(lead) * n_blocks,)](
            flat, made, ranges, length, dim, flat.stride(0), flat.stride(1), FORM=form, PADDED=channels
        )
    return made, ranges


def _narrowed(vectors: Tensor) -> Tensor:
    """One of those that are broadcast along a batch axis."""
    for axis, stride in enumerate(vectors.stride()[:-2]):
        if stride == 0:
            vectors = vectors.narrow(axis, 0, 1)
    return vectors


def _flat(vectors: Tensor) -> Tensor:
    """With one batch axis, and the numbers of a vector together."""
    flat = vectors.reshape(-1, *vectors.shape[-2:])
    return flat if flat.shape[-1] == 1 or flat.stride(-1) == 1 else flat.contiguous()
