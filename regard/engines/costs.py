"""What engines cost: a small model of time, for the planner to compare them by.

The constants are fitted to `benchmarks/sweep.py` on two cores with AVX-512, in seconds. Only their ratios matter, and
those move little from one machine to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from regard.engines.cpu import WORTHWHILE, speaks
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax, OneHot, TopK

NANO, MICRO = 1e-9, 1e-6
READ = 14e9  # bytes that a thread reads in a second


@dataclass(frozen=True)
class Work:
    """A problem as numbers."""

    on_cpu: bool
    entries: int  # of the batch
    n_queries: int
    n_keys: int
    live: float  # the share of pairs that tiles visit
    depth: float  # how many multiply-adds a pair takes, in those of 64 + 64
    width: int  # channels of a score that is a sum over them, else 1
    rule: str  # "sums", "threshold" or "choice"
    n_steps: int
    compiled: bool  # whether there are kernels for it, and it is worth asking them
    training: bool
    threads: int

    bytes: int  # of keys and values, every batch entry counted

    @property
    def pairs(self) -> int:
        return self.entries * self.n_queries * self.n_keys


def work_of(problem: AttentionProblem) -> Work:
    """What a problem comes to."""
    grid, form, rule = problem.grid, problem.form, problem.weights
    tensors = form.tensors()
    by_channels = isinstance(form, ChannelForm)
    dims = problem.values.shape[-1] + (0 if by_channels else tensors[0].shape[-1])
    training = torch.is_grad_enabled() and any(
        each.requires_grad for each in (*tensors, problem.values, *rule.learned())
    )
    entries = math.prod(grid.batch_shape)
    return Work(
        on_cpu=grid.device.type == "cpu",
        entries=entries,
        n_queries=grid.n_queries,
        n_keys=grid.n_keys,
        live=_live(problem),
        depth=dims / 128,
        width=form.width,
        rule="threshold" if isinstance(rule, Entmax) else "choice" if isinstance(rule, TopK | OneHot) else "sums",
        n_steps=len(form.steps),
        compiled=grid.n_queries * grid.n_keys >= WORTHWHILE and speaks(problem),
        training=training,
        threads=torch.get_num_threads(),
        bytes=entries * grid.n_keys * (tensors[1].shape[-1] + problem.values.shape[-1]) * problem.dtype.itemsize,
    )


def _live(problem: AttentionProblem) -> float:
    """The share of pairs that tiles visit, by the look of three blocks of rows; 1 for what is small anyway."""
    mask, grid = problem.mask, problem.grid
    if mask is None or grid.n_queries * grid.n_keys < 1 << 15:
        return 1.0
    height = min(128, grid.n_queries)
    starts = {(grid.n_queries - height) * part // 2 for part in range(3)}
    visited = [sum(map(len, mask.live(range(start, start + height), grid))) for start in starts]
    return sum(visited) / (len(visited) * grid.n_keys)


def fused_seconds(work: Work) -> float:
    """PyTorch's kernels, and a look at their inputs for NaN. Backward, each batch entry belongs to one thread."""
    if not work.on_cpu:
        return 30 * MICRO
    look = work.bytes / (work.threads * READ)
    blocks = work.entries * -(-work.n_queries // 32)
    forward = work.pairs * (0.4 * NANO + 2.7 * NANO * work.depth) / max(min(work.threads, blocks), 1)
    # A few queries leave keys and values no time to hide behind arithmetic.
    forward = max(forward, work.bytes / (max(min(work.threads, blocks), 1) * READ))
    if not work.training:
        return 40 * MICRO + look + forward
    backward = work.pairs * (1.4 * NANO + 7.4 * NANO * work.depth) / max(min(work.threads, work.entries), 1)
    return 150 * MICRO + look + forward + backward


def dense_seconds(work: Work) -> float:
    """The definition: a few operations that each touch every pair."""
    call, per_pair = {
        "sums": (70 * MICRO, 4.0 * NANO),
        "threshold": (1300 * MICRO, 500 * NANO),
        "choice": (250 * MICRO, 25 * NANO),
    }[work.rule]
    per_pair += 2.7 * NANO * work.depth + 1.5 * NANO * work.n_steps
    if work.width > 1:
        per_pair += 5 * NANO * work.width
    read = work.bytes / (work.threads * READ)  # for the sums, and before that to look for NaN
    seconds = call + read + max(work.pairs * per_pair / work.threads, read)
    return seconds * 3 if work.training else seconds


def plain_tile_seconds(work: Work) -> float:
    """Tiles of torch operations: what the definition costs and a call for each tile, in memory that stays small."""
    tiles = max(work.pairs * work.live * work.width / (1 << 18), 1)
    per_tile = (1000 if work.training else 200) * MICRO
    return dense_seconds(work) * work.live + 150 * MICRO + tiles * per_tile


def kernel_seconds(work: Work) -> float:
    """Compiled tiles."""
    per_pair = 0.6 * NANO + 2.7 * NANO * work.depth + 0.2 * NANO * work.n_steps
    backward = 0.8 * NANO + 7.0 * NANO * work.depth + 0.4 * NANO * work.n_steps
    if work.rule == "threshold":
        per_pair += 1.0 * NANO + 1.35 * NANO * work.depth
    if work.rule == "choice":
        per_pair, backward = 0.9 * NANO + 1.35 * NANO * work.depth, 0.05 * NANO
    if work.width > 1:
        per_pair += 0.085 * NANO * work.width
        backward += 0.28 * NANO * work.width
    pairs = work.pairs * work.live
    call, entry = (350 * MICRO, 150 * MICRO) if work.training else (150 * MICRO, 40 * MICRO)
    seconds = pairs * (per_pair + (backward if work.training else 0)) / work.threads
    return call + entry * work.entries + max(seconds, work.bytes * work.live / (work.threads * READ))
