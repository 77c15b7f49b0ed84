"""The scores of a tile: products or squared distances, then steps; and the way back through the steps.

A tile is `(rows, columns)`, or `(columns, rows)` where `TURNED`. What a step needs of a row or a tile is loaded once,
and handed on, one entry for each step.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.kernels import codes

SCALE = tl.constexpr(codes.SCALE)
GATE = tl.constexpr(codes.GATE)
CAP = tl.constexpr(codes.CAP)
ADD_ROW = tl.constexpr(codes.ADD_ROW)
ADD_COLUMN = tl.constexpr(codes.ADD_COLUMN)
ADD_PAIRS = tl.constexpr(codes.ADD_PAIRS)
DISTANCE = tl.constexpr(codes.DISTANCE)
RELATIVE = tl.constexpr(codes.RELATIVE)
INDICATOR = tl.constexpr(codes.INDICATOR)
PARABOLA = tl.constexpr(codes.PARABOLA)
TENT = tl.constexpr(codes.TENT)

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def start_of(strides, at):
    """Where a batch entry of a tensor begins: `strides` of three batch axes first, `at` the place on each.

    All strides are times −1, see `Batch.strides`.
    """
    return -(at[0].to(tl.int64) * strides[0] + at[1].to(tl.int64) * strides[1] + at[2].to(tl.int64) * strides[2])


@triton.jit
def place_of(entry, n1, n2):
    """The place of a batch entry on each of three axes."""
    return entry // n2 // n1, entry // n2 % n1, entry % n2


@triton.jit
def load_number(pointer, strides, at):
    """The number of a batch entry, in float32."""
    return tl.load(pointer + start_of(strides, at)).to(tl.float32)


@triton.jit
def load_vector(pointer, strides, at, start, span, length):
    """Numbers along rows or columns: from `start` on, 0 beyond the last."""
    base = pointer + start_of(strides, at) - tl.cast(start, tl.int64) * strides[3]
    return tl.load(base - span.to(tl.int64) * strides[3], mask=start + span < length, other=0)


@triton.jit
def across(by_row, by_column, TURNED: tl.constexpr):
    """Numbers of rows and numbers of columns, shaped to broadcast over a tile."""
    if TURNED:
        by_row, by_column = by_row[None, :], by_column[:, None]
    else:
        by_row, by_column = by_row[:, None], by_column[None, :]
    return by_row, by_column


@triton.jit
def row_terms(terms, at, start, span, n_queries, STEPS: tl.constexpr):
    """What each step needs of a batch entry and its rows."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == SCALE or STEPS[i] == PARABOLA or STEPS[i] == TENT:
            known = known + (load_number(terms[i][0], terms[i][1], at),)
        elif STEPS[i] == GATE or STEPS[i] == ADD_ROW:
            known = known + (load_vector(terms[i][0], terms[i][1], at, start, span, n_queries).to(tl.float32),)
        elif STEPS[i] == DISTANCE or STEPS[i] == RELATIVE:
            known = known + (load_vector(terms[i][0], terms[i][1], at, start, span, n_queries),)
        else:
            known = known + (0.0,)
    return known


@triton.jit
def tile_terms(
    terms, of_rows, at, row_start, row_span, column_start, column_span, sizes, STEPS: tl.constexpr, TURNED: tl.constexpr
):
    """What each step needs of a tile: numbers that broadcast over it."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == GATE:
            column = load_vector(terms[i][2], terms[i][3], at, column_start, column_span, sizes[1]).to(tl.float32)
            by_row, by_column = across(of_rows[i], column, TURNED)
            known = known + (1.0 / (1.0 + tl.exp2((by_row + by_column) * -LOG2_E)),)
        elif STEPS[i] == ADD_ROW:
            known = known + (across(of_rows[i], column_span, TURNED)[0],)
        elif STEPS[i] == ADD_COLUMN:
            column = load_vector(terms[i][0], terms[i][1], at, column_start, column_span, sizes[1]).to(tl.float32)
            known = known + (across(row_span, column, TURNED)[1],)
        elif STEPS[i] == ADD_PAIRS:
            row, column = across(row_span, column_span, TURNED)
            strides = terms[i][1]
            base = terms[i][0] + start_of(strides, at)
            base -= tl.cast(row_start, tl.int64) * strides[3] + tl.cast(column_start, tl.int64) * strides[4]
            inside = (row_start + row < sizes[0]) & (column_start + column < sizes[1])
            row, column = row.to(tl.int64), column.to(tl.int64)
            pairs = tl.load(base - row * strides[3] - column * strides[4], mask=inside, other=0)
            known = known + (pairs.to(tl.float32),)
        elif STEPS[i] == DISTANCE:
            column = load_vector(terms[i][2], terms[i][3], at, column_start, column_span, sizes[1])
            # Relative to one of them, positions are small whole numbers, which float32 holds.
            start = start_of(terms[i][3], at) - tl.cast(column_start, tl.int64) * terms[i][3][3]
            first = tl.load(terms[i][2] + start)
            by_row, by_column = across((of_rows[i] - first).to(tl.float32), (column - first).to(tl.float32), TURNED)
            known = known + (tl.abs(by_row - by_column),)
        elif STEPS[i] == RELATIVE:
            column = load_vector(terms[i][2], terms[i][3], at, column_start, column_span, sizes[1])
            by_row, by_column = across(of_rows[i], column, TURNED)
            reach = -terms[i][6]
            index = tl.minimum(tl.maximum(by_column - by_row, -reach), reach) + reach
            base = terms[i][4] + start_of(terms[i][5], at)
            known = known + (tl.load(base - index * terms[i][5][3]).to(tl.float32),)
        else:
            known = known + (0.0,)
    return known


@triton.jit
def stepped(scores, allowed, of_rows, of_tile, terms, at, N_STEPS: tl.constexpr, STEPS: tl.constexpr):
    """The scores after some steps, and which pairs are allowed: those to which no step adds −inf."""
    for i in tl.static_range(N_STEPS):
        if STEPS[i] == SCALE:
            scores = scores * of_rows[i]
        elif STEPS[i] == GATE:
            scores = scores * of_tile[i]
        elif STEPS[i] == CAP:
            scores = terms[i][0] * tanh(scores / terms[i][0])
        elif STEPS[i] == ADD_ROW or STEPS[i] == ADD_COLUMN or STEPS[i] == ADD_PAIRS or STEPS[i] == RELATIVE:
            excluded = of_tile[i] == -float("inf")
            scores = scores + tl.where(excluded, 0.0, of_tile[i])
            allowed = allowed & (excluded == 0)
        elif STEPS[i] == DISTANCE:
            scores = scores - load_number(terms[i][4], terms[i][5], at) * of_tile[i]
        elif STEPS[i] == INDICATOR:
            scores = tl.where(scores != scores, scores, (scores <= terms[i][0]).to(tl.float32))
        elif STEPS[i] == PARABOLA:
            square = of_rows[i] * of_rows[i]
            scores = tl.where(scores >= square, 0.0, 1.0 - scores / square)
        elif STEPS[i] == TENT:
            distance = tl.sqrt(tl.where(scores <= 0, 0.0, scores))
            scores = tl.where(scores >= of_rows[i] * of_rows[i], 0.0, 1.0 - distance / of_rows[i])
    return scores, allowed


@triton.jit
def step_slopes(before, slope, of_rows, of_tile, terms, at, PLACE: tl.constexpr, STEPS: tl.constexpr):
    """One step back: dS before it, and what each pair adds to the gradient of its parameter.

    `before` are the scores before the step, `slope` is dS after it.
    """
    step: tl.constexpr = STEPS[PLACE]
    given = of_rows[PLACE]
    learned = slope
    if step == SCALE:
        learned = slope * before
        slope = slope * given
    elif step == GATE:
        gate = of_tile[PLACE]
        learned = slope * before * gate * (1.0 - gate)
        slope = slope * gate
    elif step == CAP:
        capped = tanh(before / terms[PLACE][0])
        slope = slope * (1.0 - capped * capped)
    elif step == DISTANCE:
        learned = -slope * of_tile[PLACE]
    elif step == INDICATOR:
        slope = slope * 0.0
    elif step == PARABOLA:
        beyond = before >= given * given
        learned = tl.where(beyond, 0.0, slope * 2.0 * before / (given * given * given))
        slope = tl.where(beyond, 0.0, -slope / (given * given))
    elif step == TENT:
        beyond = before >= given * given
        distance = tl.sqrt(tl.where(before <= 0, 0.0, before))
        learned = tl.where(beyond, 0.0, slope * distance / (given * given))
        slope = tl.where(beyond | (before <= 0), 0.0, -slope / (2.0 * tl.where(distance == 0, 1.0, distance) * given))
    return slope, learned


@triton.jit
def tanh(x):
    """tanh to a few units in the last place: a polynomial near 0, where the quotient of exponentials cancels."""
    square = x * x
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    rest = tl.exp2(tl.abs(x) * (-2.0 * LOG2_E))
    far = (1.0 - rest) / (1.0 + rest)
    return tl.where(tl.abs(x) < 0.3, x * series, tl.where(x < 0, -far, far))
