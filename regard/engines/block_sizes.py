"""How many numbers plain torch computes at once, by device."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class BlockSizes:
    """Elements over all batch entries: of the widest intermediate, but for those that are held."""

    tile: int
    custom_tile: int  # of a function that a user wrote
    strip: int  # a few rows against all keys, by the definition
    held: int  # scores that rules with several passes keep for a block of rows, instead of computing them for each pass


# A tile of 1 MiB in float32 stays in cache. A user's function is many small operations, each with threads to wake: of
# tiles four times as large it takes half the time.
CPU = BlockSizes(tile=1 << 18, custom_tile=1 << 20, strip=1 << 18, held=1 << 22)

# An operation on 128 MiB takes longer than the start of the next one.
GPU = BlockSizes(tile=1 << 25, custom_tile=1 << 25, strip=1 << 25, held=1 << 26)


def block_sizes(device: torch.device) -> BlockSizes:
    """Those of a device."""
    return CPU if device.type in ("cpu", "meta") else GPU
