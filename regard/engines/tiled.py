"""The tiled engine: every score, rule and mask in memory that does not grow with n × m.

Here in plain torch, for every device; `engines/cpu` and `engines/cuda` have compiled kernels for most of it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.costs import plain_tile_seconds
from regard.engines.engine import Engine
from regard.engines.gradients import attach
from regard.engines.kernels.dispatch import kernels_for, may_compile, why_plain
from regard.engines.kernels.support import is_empty
from regard.engines.nonfinite.pooling import pool_nonfinite
from regard.engines.rounding import Rounding, rounds_apart
from regard.engines.state import Pooled, Sums
from regard.engines.strips import pool_by_strips
from regard.engines.tile_stream import Stream
from regard.engines.work import Work
from regard.modes import is_capturing, is_tracing
from regard.problem import AttentionProblem
from regard.scores.closures import capturing
from regard.tensors import is_finite, without_autocast
from regard.weights import OnePass, Weights
from regard.weights.onepass import shift

# Queries from which a check of all keys and values costs less than a hundredth of what is computed with them.
MANY_QUERIES = 1024

# How far from 1 a sum of numerators may be before they are divided by it first: float32 has 2⁻¹²⁶ to 2¹²⁸.
REACH = 2.0**32


class Tiled(Engine):
    """Tiles, forward and backward: compiled kernels where there are any, plain torch operations elsewhere.

    Args:
        tile_elements: How many elements the widest intermediate of a tile may hold; as suits the device, if left out.
        kernels: Whether to use compiled kernels (Numba's on a CPU, Triton's on a GPU): where they pay, if left out;
            False for plain torch; True always, also for small problems: what kernels do not support is refused, and
            what is not compiled yet is waited for.
    """

    name = "tiled"
    letter = "T"
    summary = "it computes any score, rule and mask over tiles; memory does not grow with n × m"
    pools_by_tiles = True

    def __init__(self, tile_elements: int | None = None, kernels: bool | None = None) -> None:
        self.tile_elements = tile_elements
        self.kernels = kernels

    def refusals(self, problem: AttentionProblem) -> list[str]:
        reasons = super().refusals(problem)
        if not problem.rule.streams:
            reasons.append(f"{type(problem.rule).__name__} defines no passes over tiles (Weights.solve)")
        elif type(problem.rule).learned is Weights.learned and any(
            each.requires_grad for each in problem.rule.parameters()
        ):
            reasons.append(f"{type(problem.rule).__name__} has parameters that its learned() does not name")
        elif self.kernels is True and (reason := why_plain(problem, asked=True)) and not is_empty(problem):
            reasons.append(reason)
        return reasons

    def bytes(self, problem: AttentionProblem) -> int:
        grid = problem.grid
        kernels = kernels_for(grid.device) if may_compile(problem, self.kernels) else None
        if kernels is not None:
            return kernels.bytes(problem) + _projected_bytes(problem)
        stream = Stream((problem,), self.tile_elements, self.kernels)
        rows, columns = stream.tile_shape
        batch = math.prod(grid.batch_shape)
        scores = batch * rows * columns
        tile = scores * (2 * problem.form.width + 3)
        strip = 0 if isinstance(problem.rule, OnePass) else batch * rows * grid.n_keys
        per_row = batch * grid.n_queries * (problem.values.shape[-1] + 2)
        # Blocks of rows are put together at the end, beside them and the last scores; in half precision they are never
        # the output itself.
        half = problem.dtype.itemsize < 4
        together = tile + strip + per_row if half else max(tile + strip, scores + per_row)
        taken = together * problem.compute_dtype.itemsize
        # Whether inputs are finite is asked first, and half precision is turned to float32 for it.
        inputs = (problem.queries, problem.keys, problem.values)
        looked_at = max(each.numel() for each in inputs) * 4 if half else 0
        return max(taken, looked_at) + _projected_bytes(problem)

    def seconds(self, work: Work) -> float:
        kernels = kernels_for(work.device) if work.compiled and self.kernels is not False else None
        return plain_tile_seconds(work) if kernels is None else kernels.seconds(work)

    def without_kernels(self) -> Tiled:
        return Tiled(self.tile_elements, kernels=False)

    def run(self, problem: AttentionProblem) -> Tensor:
        stream = Stream((problem,), self.tile_elements, self.kernels)
        if need_no_look(stream):
            assert stream.compiled is not None
            problem.without_a_look()
            with without_autocast(problem.grid.device.type):
                with torch.no_grad():
                    pooled = stream.compiled.pool()
                return attach(stream, pooled, ()).to(problem.dtype)
        looks_after = isinstance(stream.rule, OnePass) and not problem.dropout and not problem.needs_gradient
        if looks_after and problem.grid.n_queries < MANY_QUERIES and stream.compiled is not None:
            # NaN or infinity among the inputs shows in what these kernels return, where it made a difference: looking
            # there costs less than a pass over keys and values. A gradient could leak it, though, and dropout hide it.
            with torch.no_grad(), torch.autocast(problem.grid.device.type, enabled=False):
                output = pool_stream(stream).output
            if is_finite(output) or not problem.may_leak:
                return output.to(problem.dtype)
        if problem.may_leak:
            return pool_nonfinite(problem, self.run, chooses=stream.compiled is not None)
        with torch.autocast(problem.grid.device.type, enabled=False):
            with torch.no_grad(), capturing() as captured:
                pooled = pool_stream(stream)
            if are_rounded_apart(stream, pooled, training=problem.needs_gradient):
                return pool_by_strips(problem)
            return attach(stream, pooled, tuple(captured.values())).to(problem.dtype)


def need_no_look(stream: Stream) -> bool:
    """Whether kernels compute a stream that need nobody to look at its numbers first."""
    kernels = kernels_for(stream.grid.device)
    return kernels is not None and kernels.looks_for_itself and stream.compiled is not None


def are_rounded_apart(stream: Stream, pooled: Pooled, *, training: bool) -> bool:
    """Whether several passes compute the scores of a problem, and may round them so far apart that weights change."""
    if need_no_look(stream):
        return False
    problem, one_pass = stream.parts[0], isinstance(stream.rule, OnePass)
    if stream.compiled is None:  # torch may round the products of any other pass otherwise
        return (training or not one_pass) and rounds_apart(problem, pooled.statistics)
    # Kernels take the same tiles in every pass, but for the keys that a rule has chosen: those they take from lists,
    # and add the terms of a score in another order.
    return training and not one_pass and Rounding(problem).shows(pooled.statistics)


def _projected_bytes(problem: AttentionProblem) -> int:
    """What the form has beside the inputs: projections, biases, positions."""
    given = {each.untyped_storage().data_ptr() for each in (problem.queries, problem.keys, problem.values)}
    form = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in problem.form.tensors()}
    return sum(size for place, size in form.items() if place not in given)


def pool_stream(stream: Stream) -> Pooled:
    """The pooled output of a stream of tiles, and the statistics of its rows."""
    if stream.compiled is not None:
        return in_range(stream, stream.compiled.pool())
    if isinstance(stream.rule, OnePass):
        return in_range(stream, sum_stream(stream).finish(stream.rule))
    return _pool_in_passes(stream)


def in_range(stream: Stream, pooled: Pooled) -> Pooled:
    """What one pass pooled; weights first, where values times numerators may have left the numbers of the dtype."""
    return _pool_in_passes(replace(stream, kernels=False)) if is_out_of_range(stream.rule, pooled) else pooled


def is_out_of_range(rule: Weights, pooled: Pooled) -> bool:
    """Whether values times numerators may have left the numbers of the dtype, though weights times values do not."""
    if not isinstance(rule, OnePass) or not rule.normalized or rule.shifted:
        return False
    totals = pooled.statistics[1]
    if totals.is_meta or not totals.numel() or is_tracing() or is_capturing(totals.device):
        return False
    least, most = (float(each) for each in torch.aminmax(torch.where(totals.isfinite(), totals, 1)))
    return least < 1 / REACH or most > REACH


def sum_stream(stream: Stream) -> Sums:
    """One pass: the sums of every row."""
    rule = stream.rule
    assert isinstance(rule, OnePass)
    if stream.compiled is not None:
        return stream.compiled.sums()
    value_dim = stream.parts[0].values.shape[-1]
    blocks = []
    for rows in stream.row_blocks():
        nothing = stream.nothing(rows)
        sums = Sums(nothing, torch.zeros_like(nothing), nothing.new_zeros(*nothing.shape[:-1], value_dim))
        for tile in stream.tiles(rows):
            scores = tile.scores()
            peak = torch.maximum(sums.peak, scores.amax(-1, keepdim=True))
            numerators = rule.allowed_numerators(scores, peak)
            total = numerators.sum(-1, keepdim=True)
            pooled = tile.pool(numerators, tile.keep())
            if rule.shifted:
                factor = shift(sums.peak, peak)
                sums = Sums(peak, sums.total * factor + total, sums.pooled * factor + pooled)
            else:
                sums = Sums(peak, sums.total + total, sums.pooled + pooled)
        blocks.append(sums)
    return Sums(*_stack(stream, [(each.peak, each.total, each.pooled) for each in blocks], (1, 1, value_dim)))


def _pool_in_passes(stream: Stream) -> Pooled:
    """Several passes for each block of rows: its statistics first, then the weighted sum."""
    rule = stream.rule
    value_dim = stream.parts[0].values.shape[-1]
    centred = rule.centre == "slope"
    blocks = []
    for rows in stream.row_blocks():
        statistics = rule.solve(stream.fold_of(rows))
        nothing = stream.nothing(rows)
        output = nothing.new_zeros(*nothing.shape[:-1], value_dim)
        slope_pooled, slope_total = torch.zeros_like(output), torch.zeros_like(nothing)
        for tile in stream.tiles(rows):
            scores, positions, keep = tile.scores(), tile.positions, tile.keep()
            weights = rule.weights(scores, statistics, positions)
            output += tile.pool(weights, keep)
            if centred:
                slope = rule.slope(scores, weights, statistics, positions)
                assert slope is not None
                slope_pooled += tile.pool(slope, keep)
                slope_total += slope.sum(-1, keepdim=True)
        slope_mean = slope_pooled / torch.where(slope_total == 0, 1, slope_total)
        blocks.append((output, slope_mean, *statistics))
    if not blocks:
        statistics = rule.solve(stream.fold_of(range(0)))
        empty = stream.nothing(range(0)).expand(*stream.grid.batch_shape, 0, value_dim)
        return Pooled(empty, statistics, empty if centred else None)
    output, slope_mean, *rest = (torch.cat(each, dim=-2) for each in zip(*blocks, strict=True))
    return Pooled(output, tuple(rest), slope_mean if centred else None)


def _stack(stream: Stream, blocks: list[tuple[Tensor, ...]], widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Blocks of rows one below the other; empty tensors of those widths if there are no rows."""
    if blocks:
        return tuple(torch.cat(each, dim=-2) for each in zip(*blocks, strict=True))
    empty = stream.nothing(range(0))
    return tuple(empty.expand(*stream.grid.batch_shape, 0, 1).new_empty(*stream.grid.batch_shape, 0, w) for w in widths)
