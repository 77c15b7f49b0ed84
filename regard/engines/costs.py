"""What engines cost: a small model of time, for the planner to compare them by.

The constants are fitted to `benchmarks/sweep.py` on two cores with AVX-512, and to `benchmarks/cuda_sweep.py` on an
H200, in seconds. Only their ratios matter, and those move little from one machine to the next.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from regard.engines.block_sizes import block_sizes
from regard.engines.kernels.dispatch import may_compile
from regard.engines.work import MICRO, NANO, PICO, READ, READ_BY_GPU, Work
from regard.masks import Cover
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax, OneHot, TopK

CACHED = 1 << 22  # elements of a result that the next operation still finds in cache


def work_of(problem: AttentionProblem) -> Work:
    """What a problem comes to."""
    grid, form, rule = problem.grid, problem.form, problem.rule
    tensors = form.tensors()
    by_channels = isinstance(form, ChannelForm)
    dims = problem.values.shape[-1] + (0 if by_channels else tensors[0].shape[-1])
    entries = math.prod(grid.batch_shape)
    return Work(
        device=grid.device,
        entries=entries,
        n_queries=grid.n_queries,
        n_keys=grid.n_keys,
        live=_live(problem),
        depth=dims / 128,
        width=form.width,
        rule="threshold" if isinstance(rule, Entmax) else "choice" if isinstance(rule, TopK | OneHot) else "sums",
        n_steps=len(form.steps),
        custom=form.captures,
        compiled=may_compile(problem),
        training=problem.needs_gradient,
        # On a GPU nothing need stand behind PyTorch's kernels where every query sees every key.
        masked=problem.mask is not None and (grid.device.type != "cuda" or problem.visibility is not Cover.ALL),
        threads=torch.get_num_threads(),
        half=problem.dtype.itemsize == 2,
        bytes=entries * grid.n_keys * (tensors[1].shape[-1] + problem.values.shape[-1]) * problem.dtype.itemsize,
    )


def _live(problem: AttentionProblem) -> float:
    """The share of pairs that tiles visit, estimated from three blocks of rows; 1 for what is small anyway."""
    mask, grid = problem.mask, problem.grid
    if mask is None or grid.n_queries * grid.n_keys < 1 << 15 or problem.mask_waits:
        return 1.0
    height = min(128, grid.n_queries)
    starts = {(grid.n_queries - height) * part // 2 for part in range(3)}
    visited = [sum(map(len, mask.live(range(start, start + height), grid))) for start in starts]
    return sum(visited) / (len(visited) * grid.n_keys)


def fused_seconds(work: Work) -> float:
    """PyTorch's kernels, and what looks for NaN: at their inputs, or on a GPU behind a mask."""
    if work.device.type != "cpu":
        per_pair = (0.1 + 0.35 * work.depth) if work.half else (0.3 + 4.0 * work.depth)
        seconds = work.pairs * work.live * per_pair * PICO * (4.0 if work.training else 1.0)
        calls = 520 if work.training else 80
        if work.masked:  # what stands behind the kernels costs calls, too
            calls += 1270 if work.training else 320
        return calls * MICRO + max(seconds, work.bytes / READ_BY_GPU)
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
    if work.device.type == "cuda":
        per_pair = 12 + 5 * work.depth + 4 * work.n_steps + (6 if work.masked else 0) + 8 * (work.width - 1)
        calls = (1780 if work.training else 560) + 60 * work.n_steps + (110 if work.masked else 0)
        seconds = work.pairs * per_pair * PICO + 10 * work.bytes / READ_BY_GPU
        return calls * MICRO + seconds * (3.0 if work.training else 1.0)
    call, per_pair = {"sums": (0.0, 5.0), "threshold": (1300.0, 250.0), "choice": (300.0, 17.5)}[work.rule]
    call += (320 if work.training else 90) + (42 if work.masked else 0)
    call += (110 if work.training else 55) * work.n_steps
    per_pair += 2.9 * work.depth + 1.7 * work.n_steps + (2.5 if work.masked else 0.0)
    if work.width > 1:
        per_pair += 6.3 * work.width
    if work.pairs * work.width > CACHED:
        per_pair += 6.7
    backward = 2.3
    if work.rule == "threshold" and work.pairs * work.width >= CACHED:
        backward = 9.0  # through every step of the search, each kept in float64
    seconds = work.pairs * per_pair * NANO * (backward if work.training else 1.0)
    return call * MICRO + (seconds + (11 if work.training else 1.1) * work.bytes / READ) / work.threads


def plain_tile_seconds(work: Work) -> float:
    """Tiles of torch operations: what the definition costs and a call for each tile, in memory that stays small."""
    sizes = block_sizes(work.device)
    tiles = max(work.pairs * work.live * work.width / (sizes.custom_tile if work.custom else sizes.tile), 1)
    per_tile = (1000 if work.training else 200) * MICRO
    definition = dense_seconds(work)
    if work.training and work.rule == "threshold" and work.device.type != "cuda":
        definition = 1.3 * dense_seconds(replace(work, training=False))  # thresholds have a gradient by a formula
    return definition * work.live + 300 * MICRO + tiles * per_tile
