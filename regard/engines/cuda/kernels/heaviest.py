"""The heaviest keys of each row, from its best scores."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda.kernels.elementary import LOG2_E, exp2
from regard.engines.cuda.kernels.floors import number_of, ordered
from regard.engines.cuda.kernels.tile_weights import PROPORTIONAL, SOFTMAX, numerators

ROUNDING, LEAST = tl.constexpr(1e-6), tl.constexpr(1e-44)  # of a weight, and a number that is no normal one


@triton.jit(do_not_specialize=["n_rows", "n_best", "k"])
def settle_heaviest(
    best,  # scores and columns, (rows, n_best); −1 where there is none
    statistics,  # peaks and totals
    targets,  # weights and columns, (rows, k)
    doubtful,  # is set where rounding may have kept one of the heaviest from the best
    n_rows,
    n_best,
    k,
    RULE: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The heaviest first and, of equals, the lowest key; a weight of 0 has no place."""
    rows, span = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PLACES)
    inside = rows < n_rows
    lines = rows.to(tl.int64)[:, None]
    there = inside[:, None] & (span < n_best)[None, :]
    scores = tl.load(best[0] + lines * n_best + span[None, :], mask=there, other=-float("inf"))
    columns = tl.load(best[1] + lines * n_best + span[None, :], mask=there, other=-1)
    peaks, totals = (
        tl.load(statistics[0] + rows, mask=inside, other=0.0),
        tl.load(statistics[1] + rows, mask=inside, other=1.0),
    )
    if RULE == SOFTMAX:
        weights = exp2((scores - peaks[:, None]) * LOG2_E) / totals[:, None]
    else:
        weights = numerators(scores, columns >= 0, LOG2_E, RULE, True, False)
        if RULE == PROPORTIONAL:
            weights = weights / totals[:, None]
    weights = tl.where(columns < 0, 0.0, weights)
    # Of equal weights that of the lowest column is the larger number; 0 where there is none.
    low = tl.where(columns < 0, 0, 0x7FFFFFFF - columns)
    both = tl.sort((ordered(weights).to(tl.int64) << 32) | low, descending=True)
    weights, low = number_of((both >> 32).to(tl.int32)), both & 0x7FFFFFFF
    columns = tl.where((weights == 0) | (low == 0), -1, 0x7FFFFFFF - low)
    wanted = inside[:, None] & (span < k)[None, :]
    tl.store(targets[0] + lines * k + span[None, :], weights, mask=wanted)
    tl.store(targets[1] + lines * k + span[None, :], columns, mask=wanted)
    # A larger score has no smaller weight, but for rounding.
    least = tl.sum(tl.where((span == k - 1)[None, :], weights, 0.0), 1)
    last = tl.sum(tl.where((span == n_best - 1)[None, :], weights, 0.0), 1)
    settled = (last == 0) | (last + (ROUNDING * least + LEAST) < least)
    tl.store(doubtful + rows * 0, 1, mask=inside & (settled == 0))
