"""Dropout of weights as a function of (seed, batch index, row, column): the same in every engine, for every tile."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.grid import Grid
from regard.tensors import Span, positions_of

_LOW_32_BITS = 0xFFFFFFFF


def keep_factors(
    seed: int | Tensor, probability: float, grid: Grid, rows: Span, columns: Span, dtype: torch.dtype
) -> Tensor:
    """1/(1 − p) where a weight is kept and 0 where it is dropped, `(*batch_shape, rows, columns)`."""
    batch = torch.arange(math.prod(grid.batch_shape), device=grid.device).reshape(*grid.batch_shape, 1, 1)
    row_hash, column_hash = hashes(
        seed, batch, positions_of(rows, grid.device)[:, None], positions_of(columns, grid.device)
    )
    kept = _mix(row_hash + column_hash) >= int(probability * 2**32)
    return kept.to(dtype) / (1 - probability)


def hashes(seed: int | Tensor, batch: Tensor | int, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """What the hash of a pair is made of, 32 bits in int64: one for each batch entry and row, one for each column."""
    batch = torch.as_tensor(batch) + (seed & _LOW_32_BITS)
    return _mix(_mix(batch) ^ _mix(rows + (seed >> 32))), _mix(columns)


def _mix(bits: Tensor) -> Tensor:
    """A 32-bit integer hash (multiply and xor-shift), on int64 tensors; every bit depends on every bit."""
    bits = bits & _LOW_32_BITS
    bits = ((bits ^ (bits >> 16)) * 0x21F0AAAD) & _LOW_32_BITS
    bits = ((bits ^ (bits >> 15)) * 0x735A2D97) & _LOW_32_BITS
    return bits ^ (bits >> 15)
