"""A problem as numbers: what estimates of time are made from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

PICO, NANO, MICRO = 1e-12, 1e-9, 1e-6
READ = 14e9  # bytes that a thread of a CPU reads in a second
READ_BY_GPU = 4e12  # and an H200


@dataclass(frozen=True)
class Work:
    """A problem as numbers."""

    device: torch.device
    entries: int  # of the batch
    n_queries: int
    n_keys: int
    live: float  # the share of pairs that tiles visit
    depth: float  # how many multiply-adds a pair takes, in those of 64 + 64
    width: int  # channels of a score that is a sum over them, else 1
    rule: str  # "sums", "threshold" or "choice"
    n_steps: int
    custom: bool  # whether a function that a user wrote is in the score
    compiled: bool  # whether there may be kernels for it, and they pay: `dispatch.why_plain` knows whether they run
    training: bool
    masked: bool  # whether there is a mask; on a GPU, one that hides something
    threads: int
    bytes: int  # of keys and values, every batch entry counted
    half: bool  # whether numbers have half precision

    @property
    def pairs(self) -> int:
        return self.entries * self.n_queries * self.n_keys
