"""What is done to one row of a tile: steps of a score, mask, rule, dropout, and the way back. Compiled.

A row (a few KiB) stays in the first cache while one short loop after another works on it, so that steps and rules
combine freely at about the cost of one fused pass.

A step is a code with up to four parameters: a number for each row, a number for each column, one number, a table. A
rule is a code. `program.py` translates scores and rules to them.
"""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.kernels.entmax_thresholds import entmax_row
from regard.engines.cpu.runtime.jit import exponential, helper, larger, sigmoid, tangent
from regard.engines.kernels.codes import (
    ADD_COLUMN,
    ADD_PAIRS,
    ADD_ROW,
    CAP,
    CONIC,
    DISTANCE,
    ENTMAX,
    EXCLUDE_COLUMN,
    EXCLUDE_PAIRS,
    EXCLUDE_RELATIVE,
    EXCLUDE_ROW,
    GATE,
    GATE_FAR,
    INDICATOR,
    PARABOLA,
    PROPORTIONAL,
    RAW,
    RELATIVE,
    SCALE,
    SIGMOID,
    SOFTMAX,
    TENT,
    UNIFORM,
)

ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
NOTHING = np.float32(-np.inf)  # the score of a pair that is not allowed


# The steps ------------------------------------------------------------------------------------------------------------


@helper
def _plus(score, bias):  # type: ignore[no-untyped-def]
    """Their sum, −inf where the bias is: a score that overflowed, or is NaN, does not make up for it."""
    return NOTHING if bias == NOTHING else score + bias


@helper
def step_row(code, row, of_row, by_column, number, pairs, table):  # type: ignore[no-untyped-def]
    """One step on a row of scores, in place."""
    width = row.shape[0]
    if code == SCALE:
        for j in range(width):
            row[j] = row[j] * number
    elif code == GATE:  # of_row and by_column are e^−g, so that σ(g_q + g_k) costs one reciprocal
        for j in range(width):
            row[j] = row[j] / (ONE + of_row * by_column[j])
    elif code == GATE_FAR:  # they are g, too large for that
        for j in range(width):
            row[j] = row[j] * sigmoid(of_row + by_column[j])
    elif code == CAP:
        inverse = ONE / number  # not a division for each: it rounds otherwise at the end of a row than before
        for j in range(width):
            row[j] = number * tangent(row[j] * inverse)
    elif code == ADD_ROW:
        for j in range(width):
            row[j] = _plus(row[j], of_row)
    elif code == ADD_COLUMN:
        for j in range(width):
            row[j] = _plus(row[j], by_column[j])
    elif code == ADD_PAIRS:
        for j in range(width):
            row[j] = _plus(row[j], pairs[j])
    elif code == DISTANCE:
        for j in range(width):
            row[j] -= number * abs(of_row - by_column[j])
    elif code == RELATIVE:
        last = table.shape[0] - 1
        reach = last // 2
        for j in range(width):
            place = np.int64(by_column[j] - of_row) + reach
            row[j] = _plus(row[j], table[min(max(place, 0), last)])
    elif code == INDICATOR:
        for j in range(width):
            inside = ONE if row[j] <= number else ZERO
            row[j] = row[j] if row[j] != row[j] else inside
    elif code == PARABOLA:
        for j in range(width):
            height = ONE - row[j] / (number * number)
            row[j] = ZERO if height <= ZERO else height  # NaN passes
    elif code == TENT:
        for j in range(width):
            height = ONE - np.sqrt(row[j]) / number
            row[j] = ZERO if height <= ZERO else height
    elif code == EXCLUDE_ROW:
        if of_row == NOTHING:
            row[:] = NOTHING
    elif code == EXCLUDE_COLUMN:
        for j in range(width):
            row[j] = NOTHING if by_column[j] == NOTHING else row[j]
    elif code == EXCLUDE_PAIRS:
        for j in range(width):
            row[j] = NOTHING if pairs[j] == NOTHING else row[j]
    elif code == EXCLUDE_RELATIVE:
        last = table.shape[0] - 1
        reach = last // 2
        for j in range(width):
            place = np.int64(by_column[j] - of_row) + reach
            row[j] = NOTHING if table[min(max(place, 0), last)] == NOTHING else row[j]


@helper
def _times(gradient, number):  # type: ignore[no-untyped-def]
    """Their product, 0 where the gradient is: a pair that is not allowed sends none, whatever its score became."""
    return ZERO if gradient == ZERO else gradient * number


@helper
def step_row_back(  # type: ignore[no-untyped-def]
    code, before, to_row, of_row, by_column, number, table, to_by_column, to_table
):
    """The gradient of one step.

    Args:
        code: Which step; `of_row`, `by_column`, `number` and `table` are its parameters.
        before: The row of scores that it was given.
        to_row: The gradient of what it gave; becomes that of what it was given.
        to_by_column: Where the gradient of the numbers for columns is added.
        to_table: Where the gradient of the table is added.

    Returns:
        The gradients of the number for this row and of the one number.
    """
    width = before.shape[0]
    to_of_row, to_number = ZERO, ZERO
    if code == SCALE:
        for j in range(width):
            to_number += _times(to_row[j], before[j])
            to_row[j] *= number
    elif code == GATE:
        for j in range(width):
            gate = ONE / (ONE + of_row * by_column[j])
            change = _times(to_row[j], before[j]) * gate * (ONE - gate)
            to_of_row += change
            to_by_column[j] += change
            to_row[j] *= gate
    elif code == GATE_FAR:
        for j in range(width):
            gate = sigmoid(of_row + by_column[j])
            change = _times(to_row[j], before[j]) * gate * (ONE - gate)
            to_of_row += change
            to_by_column[j] += change
            to_row[j] *= gate
    elif code == CAP:
        inverse = ONE / number
        for j in range(width):
            capped = tangent(before[j] * inverse)
            to_row[j] = _times(to_row[j], ONE - capped * capped)
    elif code == ADD_ROW:
        for j in range(width):
            to_of_row += to_row[j]
    elif code == ADD_COLUMN:
        for j in range(width):
            to_by_column[j] += to_row[j]
    elif code == DISTANCE:
        for j in range(width):
            to_number -= to_row[j] * abs(of_row - by_column[j])
    elif code == RELATIVE:
        last = table.shape[0] - 1
        reach = last // 2
        for j in range(width):
            place = np.int64(by_column[j] - of_row) + reach
            to_table[min(max(place, 0), last)] += to_row[j]
    elif code == INDICATOR:
        for j in range(width):
            to_row[j] = ZERO
    elif code == PARABOLA:
        square = number * number
        for j in range(width):
            inside = to_row[j] if before[j] < square else ZERO
            to_number += _times(inside, before[j]) * (ONE + ONE) / (square * number)
            to_row[j] = -inside / square
    elif code == TENT:
        for j in range(width):
            distance = np.sqrt(before[j])
            inside = to_row[j] if distance < number else ZERO
            to_number += _times(inside, distance) / (number * number)
            to_row[j] = -inside * HALF / (distance * number) if distance > ZERO else ZERO
    return to_of_row, to_number


@helper
def block_outside(row, first, stop):  # type: ignore[no-untyped-def]
    """−inf outside of the columns that a row may see."""
    for j in range(min(first, row.shape[0])):
        row[j] = NOTHING
    for j in range(max(stop, 0), row.shape[0]):
        row[j] = NOTHING


@helper
def block_where(row, allowed):  # type: ignore[no-untyped-def]
    for j in range(row.shape[0]):
        row[j] = row[j] if allowed[j] else NOTHING


# Dropout --------------------------------------------------------------------------------------------------------------


@helper
def _mixed(bits):  # type: ignore[no-untyped-def]
    """The hash of `engines/dropout.py`, on 32 bits."""
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x21F0AAAD))
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * np.uint32(0x735A2D97))
    return np.uint32(bits ^ (bits >> np.uint32(15)))


@helper
def drop(row, row_hash, column_hashes, limit, factor):  # type: ignore[no-untyped-def]
    """Weights that are kept, times `factor`; 0 for the others."""
    for j in range(row.shape[0]):
        kept = _mixed(np.uint32(row_hash + column_hashes[j])) >= limit
        row[j] = row[j] * factor if kept else ZERO


# The rules ------------------------------------------------------------------------------------------------------------


@helper
def _largest(row, start):  # type: ignore[no-untyped-def]
    top = start
    for j in range(row.shape[0]):
        top = larger(top, row[j])
    return top


@helper
def pool_row(row, rule, peak, total, pooled):  # type: ignore[no-untyped-def]
    """A row of scores becomes numerators; the sums so far take them in.

    Where softmax's peak moves, the row's total and `pooled` are scaled to the new one.

    Returns:
        (peak, total, least numerator).
    """
    width = row.shape[0]
    least = ZERO
    if rule == SOFTMAX:
        before, peak = peak, _largest(row, peak)
        if peak != before:
            shrink = exponential(before - peak)
            total *= shrink
            for e in range(pooled.shape[0]):
                pooled[e] *= shrink
        offset = ZERO if peak == NOTHING else peak  # nothing so far: e^(−inf − 0) is 0
        for j in range(width):
            row[j] = exponential(row[j] - offset)
            total += row[j]
    elif rule == PROPORTIONAL:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else row[j]
            least = larger(least, -row[j])
            total += row[j]
        least = -least
    elif rule == UNIFORM:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else ONE
            total += row[j]
    else:
        weigh_row(row, rule, 1.0, ZERO, 0.0)
    return peak, total, least


@helper
def weigh_row(row, rule, alpha, offset, scale):  # type: ignore[no-untyped-def]
    """A row of scores becomes weights.

    `offset` is the row's peak; `scale` the reciprocal of its total, or entmax's τ, in float64.
    """
    width = row.shape[0]
    factor = np.float32(scale)
    if rule == SOFTMAX:
        for j in range(width):
            row[j] = exponential(row[j] - offset) * factor
    elif rule == PROPORTIONAL:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else row[j] * factor
    elif rule == CONIC:
        for j in range(width):
            row[j] = ZERO if row[j] <= ZERO else row[j]
    elif rule == RAW:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else row[j]
    elif rule == SIGMOID:
        for j in range(width):
            row[j] = sigmoid(row[j])
    elif rule == UNIFORM:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else factor
    elif rule == ENTMAX:
        entmax_row(row, offset, scale, alpha, row[:0])


@helper
def differentiate_row(row, change, rule, alpha, offset, scale, delta, spare):  # type: ignore[no-untyped-def]
    """A row of scores becomes weights, and the gradient of weights that of scores: dS = slope · (dP − δ).

    `spare` is scratch, as long as the row; the others are as for `weigh_row`.
    """
    width = row.shape[0]
    factor = np.float32(scale)
    if rule == SOFTMAX:
        for j in range(width):
            row[j] = exponential(row[j] - offset) * factor
            change[j] = row[j] * (change[j] - delta)
    elif rule == PROPORTIONAL:
        for j in range(width):
            visible = row[j] != NOTHING
            row[j] = row[j] * factor if visible else ZERO
            change[j] = (change[j] - delta) * factor if visible else ZERO
    elif rule == CONIC:
        for j in range(width):
            row[j] = ZERO if row[j] <= ZERO else row[j]
            change[j] = change[j] if row[j] > ZERO else ZERO
    elif rule == RAW:
        for j in range(width):
            visible = row[j] != NOTHING
            row[j] = row[j] if visible else ZERO
            change[j] = change[j] if visible else ZERO
    elif rule == SIGMOID:
        for j in range(width):
            row[j] = sigmoid(row[j])
            change[j] *= row[j] * (ONE - row[j])
    elif rule == UNIFORM:
        for j in range(width):
            row[j] = ZERO if row[j] == NOTHING else factor
            change[j] = ZERO
    elif rule == ENTMAX:
        entmax_row(row, offset, scale, alpha, spare)
        for j in range(width):
            change[j] = (change[j] - delta) * spare[j] if spare[j] != ZERO else ZERO
