"""The way back, on a tile: what rows are differentiated with, dS, and what the parameters of steps get of it

dP = keep · dO vᵀ        dS = slope · (dP − δ)
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import LOG2_E, is_not_finite
from regard.engines.cuda.kernels.pair_scores import load_tile
from regard.engines.cuda.kernels.thresholds import ENTMAX_ANY, alpha_less_one, level_of, turned_sums
from regard.engines.cuda.kernels.tile_scores import across, place_of, step_slopes, stepped
from regard.engines.cuda.kernels.tile_weights import PROPORTIONAL, SOFTMAX, UNIFORM, weights_and_slopes
from regard.engines.kernels import codes

BY_PAIR = tl.constexpr(codes.BY_PAIR)


@triton.jit(do_not_specialize=["n_queries", "n1", "n2"])
def row_facts(
    gradient, gradient_strides, centre, centre_strides, statistics, facts, flag, n_queries, n1, n2,
    RULE: tl.constexpr, CENTRED: tl.constexpr, ROUGH: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """What each row is differentiated with, in float32: level and inverse, as `weights_and_slopes` has them; δ = dO·u.

    `statistics`: peaks and totals; `facts`: levels, inverses and deltas, (entries, n_queries) each. The peaks are the
    levels, unless `ROUGH`. `flag`: where there is one, nothing is done unless it is set.
    """
    n_blocks = tl.cdiv(n_queries, ROWS)
    program = tl.program_id(0)
    if len(flag) > 0:
        if tl.load(flag[0]) == 0:
            return
    entry = program // n_blocks
    at = place_of(entry, n1, n2)
    start, span, dims = program % n_blocks * ROWS, tl.arange(0, ROWS), tl.arange(0, BLOCK_WIDTH)
    rows = start + span
    place, inside = tl.cast(entry, tl.int64) * n_queries + rows, rows < n_queries
    if RULE == SOFTMAX or RULE == PROPORTIONAL or RULE == UNIFORM:
        total = tl.load(statistics[1] + place, mask=inside, other=1.0)
        if RULE == SOFTMAX and ROUGH:
            # A fully masked row has a total of +inf, and no peak.
            peak = tl.load(statistics[0] + place, mask=inside, other=0.0)
            level = tl.where(total == float("inf"), total, peak * LOG2_E + tl.log2(total))
            tl.store(facts[0] + place, level, mask=inside)
        else:
            tl.store(facts[1] + place, 1.0 / total, mask=inside)
    if CENTRED:
        one = load_tile(gradient, gradient_strides, at, start, span, n_queries, dims, WIDTH, False).to(tl.float32)
        other = load_tile(centre, centre_strides, at, start, span, n_queries, dims, WIDTH, False).to(tl.float32)
        tl.store(facts[2] + place, tl.sum(one * other, 1), mask=inside)


@triton.jit
def without_broken(gradients, vectors):
    """The gradients of vectors, 0 for those that are not finite: as everywhere, nothing is learned from them."""
    broken = tl.sum(vectors.to(tl.float32) * 0.0, 1) != 0
    return tl.where(broken[:, None], 0.0, gradients)


@triton.jit
def load_facts(facts, entry, start, span, n_queries, RULE, CENTRED, ROUGH: tl.constexpr, WHOLE: tl.constexpr):
    """(level, inverse, δ) of rows, and alpha − 1 of their batch entry. Those beyond the last have no weight."""
    place = tl.cast(entry, tl.int64) * n_queries + start
    inside = start + span < n_queries
    if WHOLE:
        inside = tl.full(span.shape, 1, tl.int1)
    level = tl.zeros(span.shape, tl.float32)
    inverse = tl.zeros(span.shape, tl.float32)
    delta = tl.zeros(span.shape, tl.float32)
    if RULE == SOFTMAX:
        level = tl.load(facts[0] + place + span, mask=inside, other=float("inf"))
    if RULE == PROPORTIONAL or RULE == UNIFORM:
        inverse = tl.load(facts[1] + place + span, mask=inside, other=0.0)
    if not ROUGH:
        if RULE == SOFTMAX:
            inverse = tl.load(facts[1] + place + span, mask=inside, other=0.0)
    if RULE >= ENTMAX_ANY:
        level = level_of(tl.load(facts[0] + place + span, mask=inside, other=0.0))
        inverse = tl.load(facts[1] + place + span, mask=inside, other=float("inf"))
    if CENTRED:
        delta = tl.load(facts[2] + place + span, mask=inside, other=0.0)
    return level, inverse, delta, alpha_less_one(facts[3], entry, RULE)


@triton.jit
def nothing_learned(SIZE: tl.constexpr, LEARNS: tl.constexpr):
    """Sums for each step whose parameter learns, and one number for others."""
    learned = ()
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            learned = learned + (tl.zeros((SIZE,), tl.float32),)
        else:
            learned = learned + (tl.zeros((1,), tl.float32),)
    return learned


@triton.jit
def added(learned, more, LEARNS: tl.constexpr):
    """What parameters get of one tile more."""
    total = ()
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            total = total + (learned[i] + more[i],)
        else:
            total = total + (learned[i],)
    return total


@triton.jit
def store_learned(learned, pointer, place, inside, n_steps, LEARNS: tl.constexpr):
    """Write the sums of steps: `(…, n_steps)`, `place` is that of each line. There may be none to be written."""
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            if n_steps > i:
                tl.store(pointer + place * n_steps + i, learned[i], mask=inside)


@triton.jit
def is_broken(gradients, inside, learned, LEARNS: tl.constexpr):
    """1 where a gradient of a block, or of what it has learned, is not finite; else 0."""
    broken = tl.max(tl.where(inside & is_not_finite(gradients), 1, 0))
    for i in tl.static_range(len(LEARNS)):
        if LEARNS[i]:
            broken = tl.maximum(broken, tl.max(tl.where(is_not_finite(learned[i]), 1, 0)))
    return broken


@triton.jit
def tile_gradients(
    raw, over_values, keep, numbers, of_tile, allowed, facts, terms, scale,
    RULE, STEPS: tl.constexpr, EXCLUDES: tl.constexpr, FOLDS: tl.constexpr, LEARNS: tl.constexpr,
    MASKED: tl.constexpr, SAFE: tl.constexpr, ROUGH: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """(α, dS before the steps, what each step's parameter gets of each line) of a tile.

    Args:
        raw: The scores before any step.
        over_values: dO vᵀ.
        keep: What dropout multiplies weights by; 1 without it.
        facts: Level, inverse and δ of rows, and alpha − 1.
        LEARNS: Of which steps the parameters' gradients are summed, along the second axis of the tile; `BY_PAIR`
            where those of each pair are wanted. Two more are for alpha: what it gets, and what is left of δ.
        SAFE: Whether something may be infinite or no number.
    """
    selects: tl.constexpr = MASKED or EXCLUDES or SAFE
    unit = LOG2_E
    if FOLDS and len(STEPS) == 0 and not SAFE:
        unit = scale * LOG2_E
    # As on the way forward: weights would not sum to 1 by another tanh.
    rough: tl.constexpr = ROUGH and not SAFE
    scores, allowed = stepped(raw, allowed, numbers, of_tile, terms, len(STEPS), STEPS, rough, EXCLUDES or SAFE)
    if selects:
        allowed = allowed & (scores != -float("inf"))
    level, _ = across(facts[0], facts[0], TURNED)
    inverse, _ = across(facts[1], facts[1], TURNED)
    delta, _ = across(facts[2], facts[2], TURNED)
    weights, slopes = weights_and_slopes(scores, allowed, level, inverse, unit, RULE, selects, ROUGH, facts[3])
    if SAFE:
        # A value that is not finite gives nothing to a weight of 0.
        over_values = tl.where((weights == 0) & is_not_finite(over_values), 0.0, over_values)
    rule_learned = ()
    if len(LEARNS) > len(STEPS):
        turned, moved = tl.zeros((raw.shape[0],), tl.float32), tl.zeros((raw.shape[0],), tl.float32)
        if RULE >= ENTMAX_ANY:
            to_weights = tl.where(weights == 0, 0.0, over_values * keep - delta)
            turned, moved = (
                turned_sums(scores, weights, level, inverse, to_weights, facts[3], ROUGH),
                tl.sum(slopes * to_weights, 1),
            )
        # Kernels for any rule have a step more.
        for _ in tl.static_range(len(LEARNS) - len(STEPS) - 2):
            rule_learned = rule_learned + (0.0,)
        rule_learned = rule_learned + (turned, moved)
    if RULE != UNIFORM:  # whose weights depend on no score
        slopes = slopes * (over_values * keep - delta)
    if selects:
        # Selected, not multiplied: what a masked pair would give may be NaN.
        slopes = tl.where(allowed, slopes, 0.0)
    learned = ()
    for place in tl.static_range(len(STEPS) - 1, -1, -1):
        before, _ = stepped(raw, allowed, numbers, of_tile, terms, place, STEPS, rough, EXCLUDES or SAFE)
        slopes, pairs = step_slopes(before, slopes, numbers, of_tile, terms, place, STEPS, rough)
        if selects:
            slopes = tl.where(allowed, slopes, 0.0)
        if LEARNS[place]:
            if selects:
                pairs = tl.where(allowed, pairs, 0.0)
            if LEARNS[place] == BY_PAIR:
                learned = (pairs,) + learned
            else:
                learned = (tl.sum(pairs, 1),) + learned
        else:
            learned = (0.0,) + learned
    return weights * keep, slopes * scale, learned + rule_learned
