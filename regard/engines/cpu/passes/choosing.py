"""Rules that need all scores of a row before the first weight: thresholds (entmax) and choices (the best k)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels.best_k import best_strip
from regard.engines.cpu.kernels.entmax_thresholds import entmax_strip
from regard.engines.cpu.kernels.list_loops import drop_strip, pool_weights
from regard.engines.cpu.program import Entry, Program
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_lists import Lists
from regard.engines.cpu.traversal.by_support import pool_candidates
from regard.engines.cpu.traversal.by_tiles import ROWS, Tiles
from regard.engines.cpu.traversal.traversal import FLOATS, Found, cut, dropout_of
from regard.engines.state import Pooled
from regard.engines.ties import MANY_QUERIES, lowest_of_equals, rounding_of, twins_of

# Scores of some rows against all keys that a thread keeps while it finds their thresholds: 2 MiB.
SOLVED_ELEMENTS = 1 << 19
LEAST_ROWS = 32  # fewer make products slow

# Scores in which one compiled call finds thresholds, so that Ctrl-C is heard: up to 60 passes over them.
CALL_ELEMENTS = 1 << 20

_NONE = np.zeros(0)


def choose_keys(program: Program, way: Tiles | Lists) -> Tensor:
    """The best keys of every row, best first, then −1: `(*batch_shape, n_queries, k)`."""
    problem, entries = program.problem, program.entries
    grid = problem.grid
    # One more than are chosen, to see whether rounding decides who is the last, unless no keys are equal anyway.
    settled = grid.n_queries >= MANY_QUERIES and twins_of(problem) is None
    k = program.choose + (not settled)
    best = torch.full((len(entries), grid.n_queries, k), -torch.inf, **FLOATS)
    index = torch.full(best.shape, -1, device="cpu")

    def work(entry: Entry, rows: range) -> None:
        block = slice(rows.start, rows.stop)
        scores, places = best[entry.place, block].numpy(), index[entry.place, block].numpy()
        if isinstance(way, Tiles):
            for span in way.tiles(program, entry, rows):
                thread_pool.check_stopped()
                best_strip(way.scores(program, entry, rows, span), span.columns.start, scores, places)
        else:
            listed, keys = way.scores(program, entry, rows)
            best_strip(listed, 0, scores, places)
            if listed.shape[1]:
                places[:] = np.where(places < 0, -1, np.take_along_axis(keys, places.clip(0), 1))

    thread_pool.run([partial(work, entry, rows) for entry in entries for rows in way.blocks()], way.seconds(program))
    best, index = (each.reshape(*grid.batch_shape, grid.n_queries, k) for each in (best, index))
    if settled:
        return index
    chosen, last, following = index[..., :-1].contiguous(), best[..., -2:-1], best[..., -1:]
    level = last - rounding_of(problem.form, last, chosen[..., -1:])
    # Of infinite scores, rounding decides nothing: the lowest of them have been chosen.
    near = ((following > -torch.inf) & ~(following < level) & (last < torch.inf)).squeeze(-1)
    return lowest_of_equals(problem, chosen, near) if bool(near.any()) else chosen


def pool_thresholds(program: Program, way: Tiles | Lists) -> Pooled:
    """The output under entmax, with the peak and threshold of every row, and the values averaged by slope."""
    grid, entries, value_dim = program.problem.grid, program.entries, program.values.shape[-1]
    shape = (len(entries), grid.n_queries)
    found = Found(
        torch.full(shape, -torch.inf, **FLOATS),
        torch.full(shape, torch.inf, **FLOATS).double(),
        *(torch.zeros(*shape, value_dim, **FLOATS) for _ in range(2)),
    )
    height = min(max(SOLVED_ELEMENTS // max(grid.n_keys, 1), LEAST_ROWS), ROWS)

    def work(entry: Entry, rows: range) -> None:
        thread_pool.check_stopped()
        if isinstance(way, Tiles) and pool_candidates(
            program, way, entry, rows, found.of(entry.place, slice(rows.start, rows.stop))
        ):
            return
        for few in [rows] if isinstance(way, Lists) else cut(rows, height):
            _pool_strip(program, way, entry, few, found.of(entry.place, slice(few.start, few.stop)))

    thread_pool.run([partial(work, entry, rows) for entry in entries for rows in way.blocks()], way.seconds(program))
    lead = (*grid.batch_shape, grid.n_queries)
    return Pooled(
        found.output.reshape(*lead, value_dim),
        (found.peaks.reshape(*lead, 1), found.thresholds.reshape(*lead, 1)),
        found.slope_mean.reshape(*lead, value_dim),
    )


def _pool_strip(program: Program, way: Tiles | Lists, entry: Entry, rows: range, found: Found) -> None:
    """Find the thresholds of some rows and pool values by their weights and slopes, all keys at once."""
    strip, keys = _strip(program, way, entry, rows)
    slopes = thread_pool.scratch("slopes", *strip.shape)
    for few in cut(range(len(rows)), max(CALL_ELEMENTS // max(strip.shape[1], 1), 1)):
        thread_pool.check_stopped()
        some = slice(few.start, few.stop)
        facts = (found.peaks[some].numpy(), found.thresholds[some].numpy(), slopes[some])
        entmax_strip(strip[some], entry.alpha, *facts, _NONE, _NONE)
    total = torch.from_numpy(slopes).sum(-1, keepdim=True)
    for weights, target in ((strip, found.output), (slopes, found.slope_mean)):
        if program.problem.dropout:
            drop_strip(weights, keys, *dropout_of(program, entry, rows))
        if isinstance(way, Lists):
            pool_weights(entry.values.contiguous().numpy(), keys, weights, target.numpy())
        else:
            target.addmm_(torch.from_numpy(weights), entry.values)
    found.slope_mean.div_(torch.where(total == 0, 1, total))


def _strip(program: Program, way: Tiles | Lists, entry: Entry, rows: range) -> tuple[Any, Any]:
    """The scores of some rows, −inf where not allowed, and their keys: against all keys, or those that rows list."""
    if isinstance(way, Lists):
        return way.scores(program, entry, rows)
    strip = thread_pool.scratch("strip", len(rows), program.problem.grid.n_keys)
    strip.fill(-np.inf)
    for span in way.tiles(program, entry, rows):
        thread_pool.check_stopped()
        strip[:, span.columns.start : span.columns.stop] = way.scores(program, entry, rows, span)
    return strip, np.zeros((0, 0), np.int64)
