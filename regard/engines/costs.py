"""What engines cost: a small model of time, for the planner to compare them by.

The constants are fitted to `benchmarks/sweep.py` on two cores with AVX-512, in seconds. Only their ratios matter, and
those move little from one machine to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from regard.engines.cpu import may_compile
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax, OneHot, TopK

NANO, MICRO = 1e-9, 1e-6
READ = 14e9  # bytes that a thread reads in a second
CACHED = 1 << 22  # elements of a result that the next operation still finds in cache


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
    compiled: bool  # whether there may be kernels for it, and they pay: `cpu.why_plain` knows whether they run
    training: bool
    masked: bool
    threads: int
    bytes: int  # of keys and values, every batch entry counted

    @property
    def pairs(self) -> int:
        return self.entries * self.n_queries * self.n_keys


def work_of(problem: AttentionProblem) -> Work:
    """What a problem comes to."""
    grid, form, rule = problem.grid, problem.form, problem.rule
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
        compiled=may_compile(problem),
        training=training,
        masked=problem.mask is not None,
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
    """PyTorch's kernels, and a look at their inputs for NaN."""
    if not work.on_cpu:
        return 30 * MICRO
    threads = max(min(work.threads, work.entries * -(-work.n_queries // 32)), 1)
    # A few queries leave keys and values no time to hide behind arithmetic.
    read = work.bytes / READ
    forward = max(work.pairs * (0.4 + 2.7 * work.depth) * NANO, 0.55 * read) / threads
    if not work.training:
        return 75 * MICRO + forward
    backward = work.pairs * (1.2 + 7.0 * work.depth) * NANO / threads
    return 270 * MICRO + forward + backward + 5 * read / work.threads


def dense_seconds(work: Work) -> float:
    """The definition: a few operations that each touch every pair."""
    call, per_pair = {"sums": (0.0, 5.0), "threshold": (1300.0, 250.0), "choice": (300.0, 17.5)}[work.rule]
    call += (320 if work.training else 90) + (42 if work.masked else 0)
    call += (110 if work.training else 55) * work.n_steps
    per_pair += 2.9 * work.depth + 1.7 * work.n_steps + (2.5 if work.masked else 0.0)
    if work.width > 1:
        per_pair += 6.3 * work.width
    if work.pairs * work.width > CACHED:
        per_pair += 6.7
    seconds = work.pairs * per_pair * NANO * (2.3 if work.training else 1.0)
    return call * MICRO + (seconds + (11 if work.training else 1.1) * work.bytes / READ) / work.threads


def plain_tile_seconds(work: Work) -> float:
    """Tiles of torch operations: what the definition costs and a call for each tile, in memory that stays small."""
    tiles = max(work.pairs * work.live * work.width / (1 << 18), 1)
    per_tile = (1000 if work.training else 200) * MICRO
    return dense_seconds(work) * work.live + 300 * MICRO + tiles * per_tile


def kernel_seconds(work: Work) -> float:
    """Compiled tiles: arithmetic, and what a call, a batch entry and a row cost besides."""
    per_pair = 0.45 + 2.65 * work.depth + 0.2 * work.n_steps
    backward = 0.4 + 6.9 * work.depth + 1.0 * work.n_steps
    if work.rule == "threshold":
        backward *= 0.35  # few keys have a weight
    if work.rule == "choice":
        per_pair, backward = 1.9 + 1.9 * work.depth, 0.1
    if work.width > 1:
        channel = 11.0 if work.n_queries < 32 else 0.085  # keys are prepared for the rows that will see them
        per_pair += channel * work.width
        backward += (channel if work.n_queries < 32 else 0.28) * work.width
    row = (300 if work.training else 200) + (300 if work.training else 3) * max(work.n_keys / 512, 1)
    pairs = per_pair + (backward if work.training else 0.0)
    seconds = work.entries * work.n_queries * work.live * (work.n_keys * pairs + row) * NANO
    # Short work stays with one thread (`engines/cpu/runtime/thread_pool.py`).
    shared = seconds > 4e-3 and seconds > 1.5e-4 * work.entries
    entry = 250.0 if work.training else 74.0
    if work.rule == "sums" and not work.n_steps and work.width == 1 and not work.masked:
        entry *= 0.3  # entries that are alike share a call
    elif work.rule == "sums":
        entry *= 1.5
    else:
        entry *= 2.1 if work.rule == "choice" else 4.0
    call = (1500 if work.training else 510) + (120 if work.masked else 0) + entry * work.entries
    read = (9 if work.training else 0.2) * work.bytes * work.live / (work.threads * READ)
    return call * MICRO + seconds / (work.threads if shared else 1) + read
