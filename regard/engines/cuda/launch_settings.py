"""How large the blocks of kernels are and how many warps share one: a table, by shape; nothing is tried at run time.

Chosen on an H200, of six for each direction, for bfloat16 of dims 64 and 128; others are what fits.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def block_of(dim: int) -> int:
    """The block that holds a dim: a power of two, 16 at least, as matrix units take them."""
    return max(1 << (dim - 1).bit_length(), 16)


def forward_settings(dtype: torch.dtype, dim: int, value_dim: int, n_queries: int) -> Settings:
    """Of the forward pass."""
    widest = max(block_of(dim), block_of(value_dim))
    if n_queries <= 16:
        return Settings(16, 64 if widest * dtype.itemsize <= 512 else 32, 4, 2)
    if dtype.itemsize == 2:
        if n_queries <= 64 or widest <= 64:
            return Settings(64, 64, 4, 3 if widest <= 128 else 2)
        return Settings(128, 64, 8, 3 if widest <= 128 else 2)
    if widest > 128:
        return Settings(32, 16, 4, 1)
    return Settings(64, 64, 4, 2) if widest <= 64 else Settings(64, 32, 8, 1)


def backward_settings(dtype: torch.dtype, dim: int, value_dim: int) -> Settings:
    """Of both passes back."""
    widest = max(block_of(dim), block_of(value_dim))
    if dtype.itemsize == 2:
        return Settings(64, 64, 4, 2) if widest <= 128 else Settings(32, 32, 4, 1)
    return Settings(32, 32, 4, 1) if widest <= 128 else Settings(16, 16, 4, 1)
