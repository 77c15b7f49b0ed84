"""How large the blocks of kernels are and how many warps share one: a table, by shape; nothing is tried at run time.

Chosen on an H200, of three to seven each, for dims of 64 and 128 in bfloat16 and of 64 in float32; others are what fits
into shared memory. Small blocks win: two of them on a multiprocessor, which do not wait for each other, keep its matrix
units at work while one of them takes exponentials.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch


class Settings(NamedTuple):
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

    @property
    def widest(self) -> int:
        return max(block_of(self.dim), block_of(self.value_dim))


PREPARED = 128  # vectors whose coordinates lie together, channel by channel; tiles are no larger
SHARED = 4  # channels that share a reciprocal
THREADS = 128  # of a tile, four warps
# Registers of a thread that reads weights in half precision: three blocks on a multiprocessor, and none spilled between
# tiles.
READING_REGISTERS = 168

CHUNK = 16  # blocks that a program of the safe pass looks after

# What is taken where the settings of a shape need more shared memory than there is: own block, the other's, stages.
SMALLER = ((64, 64, 2), (64, 32, 2), (64, 32, 1), (32, 32, 1), (16, 32, 1), (16, 16, 1))


def block_of(dim: int) -> int:
    """The block that holds a dim: a power of two, 16 at least, as matrix units take them."""
    return max(1 << (dim - 1).bit_length(), 16)


def blocks_of(length: int, size: int) -> int:
    """How many blocks of a size hold so many."""
    return -(-length // size)


@cache
def shared_memory(device: torch.device) -> int:
    """How many bytes of shared memory a block may take; those of an H200 where there is no GPU."""
    if device.type != "cuda":
        return 232_448
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


@cache
def forward_settings(shape: Shape, n_queries: int, memory: int) -> Settings:
    """Of the forward pass, for so many queries (16 and fewer are few), in so many bytes of shared memory."""
    widest = shape.widest
    if n_queries == 1:
        return Settings(1, 32, 2, 1)
    if n_queries <= 16:
        choice = Settings(16, 64 if widest * shape.itemsize <= 256 else 32, 4, 3)
    elif shape.itemsize == 2:
        choice = Settings(64, 64, 4, 3) if widest <= 128 else Settings(64, 32, 4, 2)
    else:
        choice = Settings(64, 64, 4, 2) if widest <= 64 else Settings(64, 32, 4, 1 if widest > 128 else 2)
    return _fitting(choice, shape, memory, backward=False)


@cache
def choice_settings(shape: Shape, kept: int, n_queries: int, memory: int) -> Settings:
    """Of the pass that finds the best keys of each row, so many of them."""
    if n_queries == 1:
        return Settings(1, 64, 1, 1)
    if n_queries <= 16 or kept > 64:
        choice = Settings(16, 64, 1, 1)
    else:
        # A block reads all keys: where products are as fast as those of half precision, larger ones wait less for them.
        choice = Settings(128, 64, 8, 3) if shape.itemsize == 2 and n_queries > 64 else Settings(64, 64, 4, 2)
    return _fitting(choice, shape, memory, backward=False)


@cache
def reading_settings(shape: Shape, n_queries: int, kept: int, memory: int) -> Settings:
    """Of readings of weights, of which so many of each row are kept: values are not read, and the heaviest stay."""
    rows = 64 if kept <= 16 else 32 if kept <= 32 else 16
    rows = 16 if n_queries <= 16 else rows
    if shape.itemsize == 2:
        choice = Settings(rows, 64, 4, 3) if shape.dim <= 128 else Settings(rows, 32, 4, 2)
    else:
        choice = Settings(rows, 32, 8 if rows == 64 else 4, 2)
    return _fitting(choice, shape._replace(value_dim=1), memory, backward=False)


@cache
def row_settings(shape: Shape, memory: int) -> Settings:
    """Of the pass back along rows, whose block stays while tiles of columns go by."""
    if shape.itemsize == 2:
        by_dim = {64: Settings(64, 64, 4, 3), 128: Settings(128, 64, 8, 3)}
    else:
        by_dim = {64: Settings(64, 32, 4, 2), 128: Settings(32, 32, 4, 1)}
    return _fitting(_choice(by_dim, shape), shape, memory, backward=True)


@cache
def column_settings(shape: Shape, memory: int) -> Settings:
    """Of the pass back along columns, whose block stays while tiles of rows go by."""
    if shape.itemsize == 2:
        by_dim = {64: Settings(64, 64, 4, 3), 128: Settings(64, 32, 4, 3)}
    else:
        by_dim = {64: Settings(64, 32, 4, 2), 128: Settings(32, 32, 4, 1)}
    own, other, warps, stages = _fitting(_choice(by_dim, shape), shape, memory, backward=True)
    return Settings(other, own, warps, stages)


@cache
def walked_settings(shape: Shape, length: int = 64) -> Settings:
    """Where channels are walked: a thread's pairs and their products must stay in registers.

    Args:
        shape: Of the problem.
        length: How many vectors there are on the side that stays.
    """
    if length <= 16:
        return Settings(16, 64, 4, 1)
    width = block_of(shape.value_dim)
    return Settings(64, 64, 4, 1) if width <= 64 else Settings(64 if width <= 128 else 32, 32, 4, 1)


@cache
def walked_back_settings(shape: Shape) -> Settings:
    """Where channels are walked on the way back: sums of all channels of the block that stays are in registers."""
    own, other, warps, stages = walked_settings(shape)
    return Settings(max(min(own, 4096 // block_of(shape.dim)), 16), other, warps, stages)


@cache
def general_settings(shape: Shape, length: int, behind: Settings | None = None, *, by_rows: bool = True) -> Settings:
    """Of kernels for any rule and mask: few pairs for each thread, so that they are soon compiled.

    Args:
        shape: Of the problem.
        length: How many rows there are, or columns.
        behind: The settings of the pass that left flags: blocks divide its own, unless there is one for all.
        by_rows: Whether a block is one of rows.
    """
    other = 16 if shape.widest > 128 else 32
    own = 64 if shape.itemsize == 2 else other
    if behind is not None:
        of_behind, beside = (behind.rows, behind.columns) if by_rows else (behind.columns, behind.rows)
        # One block for all is a block of any size.
        own = own if length <= of_behind else min(own, of_behind)
        other = min(other, beside)
    return Settings(own, other, 8, 1) if by_rows else Settings(other, own, 8, 1)


def _choice(by_dim: dict[int, Settings], shape: Shape) -> Settings:
    return next((each for dim, each in by_dim.items() if shape.widest <= dim), Settings(32, 32, 4, 1))


def _fitting(choice: Settings, shape: Shape, memory: int, *, backward: bool) -> Settings:
    """The choice, or the largest smaller one that fits. Here rows are the block that stays, and columns go by."""
    for each in (choice, *(Settings(own, other, 4, stages) for own, other, stages in SMALLER)):
        is_smaller = each.rows <= choice.rows and each.columns <= choice.columns and each.stages <= choice.stages
        if is_smaller and _shared_bytes(each, shape, backward=backward) <= memory:
            return each
    return Settings(16, 16, 4, 1)


def _shared_bytes(settings: Settings, shape: Shape, *, backward: bool) -> int:
    """About how much shared memory a kernel takes; what compilers reported is no more."""
    dims = block_of(shape.dim), block_of(shape.value_dim)
    rows = settings.rows * (sum(dims) if backward else dims[0])
    columns = settings.columns * sum(dims) * settings.stages
    by_pairs = settings.rows * settings.columns * shape.by_pairs * max(settings.stages, 2)
    vectors = 16 * settings.columns * settings.stages + 2048
    return (rows + columns) * shape.itemsize + 4 * by_pairs + vectors
