"""How large the blocks of kernels are and how many warps share one: a table, by shape; nothing is tried at run time.

Chosen on an H200, of six for each direction, for bfloat16 of dims 64 and 128; others are what fits into shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Settings:
    """Of one launch."""

    rows: int
    columns: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


class Shape(NamedTuple):
    """What the size of blocks depends on."""

    dim: int
    value_dim: int
    itemsize: int  # of operands as they are multiplied
    by_pairs: bool  # whether a number of each pair is read, too


# What is taken where the settings of a shape need more shared memory than there is.
SMALLER = tuple(Settings(rows, columns, 4, stages) for rows, columns, stages in (
    (64, 64, 2), (64, 32, 2), (64, 32, 1), (32, 32, 1), (16, 32, 1), (16, 16, 1)
))  # fmt: skip


def block_of(dim: int) -> int:
    """The block that holds a dim: a power of two, 16 at least, as matrix units take them."""
    return max(1 << (dim - 1).bit_length(), 16)


@cache
def shared_memory(device: torch.device) -> int:
    """How many bytes of shared memory a block may take; those of an H200 where there is no GPU."""
    if device.type != "cuda":
        return 232_448
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


def forward_settings(shape: Shape, n_queries: int, memory: int) -> Settings:
    """Of the forward pass, in so many bytes of shared memory."""
    return _fitting(_forward_choice(shape, n_queries), shape, memory, backward=False)


def backward_settings(shape: Shape, memory: int) -> Settings:
    """Of both passes back, in so many bytes of shared memory."""
    widest = max(block_of(shape.dim), block_of(shape.value_dim))
    if shape.itemsize == 2:
        choice = Settings(64, 64, 4, 2) if widest <= 128 else Settings(32, 32, 4, 1)
    else:
        choice = Settings(32, 32, 4, 1) if widest <= 128 else Settings(16, 16, 4, 1)
    return _fitting(choice, shape, memory, backward=True)


def _forward_choice(shape: Shape, n_queries: int) -> Settings:
    widest = max(block_of(shape.dim), block_of(shape.value_dim))
    if n_queries <= 16:
        return Settings(16, 64 if widest * shape.itemsize <= 512 else 32, 4, 2)
    if shape.itemsize == 2:
        if n_queries <= 64 or widest <= 64:
            return Settings(64, 64, 4, 3 if widest <= 128 else 2)
        return Settings(128, 64, 8, 3 if widest <= 128 else 2)
    if widest > 128:
        return Settings(32, 16, 4, 1)
    return Settings(64, 64, 4, 2) if widest <= 64 else Settings(64, 32, 8, 1)


def _fitting(choice: Settings, shape: Shape, memory: int, *, backward: bool) -> Settings:
    """The choice, or the largest smaller one that fits."""
    for each in (choice, *SMALLER):
        is_smaller = each.rows <= choice.rows and each.columns <= choice.columns and each.stages <= choice.stages
        if is_smaller and _shared_bytes(each, shape, backward=backward) <= memory:
            return each
    return SMALLER[-1]


def _shared_bytes(settings: Settings, shape: Shape, *, backward: bool) -> int:
    """About how much shared memory a kernel takes; what compilers reported is no more."""
    dims = block_of(shape.dim), block_of(shape.value_dim)
    rows = settings.rows * (sum(dims) if backward else dims[0])
    columns = settings.columns * sum(dims) * settings.stages
    pairs = settings.rows * settings.columns * (2 * backward + shape.by_pairs)
    # A safe product holds the finite part of its vectors besides.
    return (rows + columns + settings.columns * max(dims)) * shape.itemsize + 4 * pairs
