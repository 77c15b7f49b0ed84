"""Steps of a score, on a tile: what each needs of rows, columns and pairs, the scores after it, and the way back.

What a step has comes in `terms[i]`: pointers with strides, and numbers. What it needs of rows and of columns is loaded
apart, since a kernel keeps one of them and walks along the other.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda import launch_settings
from regard.engines.cuda.kernels.elementary import LOG2_E, exp2, is_not_finite, reciprocal, tanh
from regard.engines.kernels import codes

SCALE = tl.constexpr(codes.SCALE)
GATE = tl.constexpr(codes.GATE)
CAP = tl.constexpr(codes.CAP)
ADD_ROW = tl.constexpr(codes.ADD_ROW)
ADD_COLUMN = tl.constexpr(codes.ADD_COLUMN)
ADD_PAIRS = tl.constexpr(codes.ADD_PAIRS)
DISTANCE = tl.constexpr(codes.DISTANCE)
LINE_DISTANCE = tl.constexpr(codes.LINE_DISTANCE)
RELATIVE = tl.constexpr(codes.RELATIVE)
INDICATOR = tl.constexpr(codes.INDICATOR)
PARABOLA = tl.constexpr(codes.PARABOLA)
TENT = tl.constexpr(codes.TENT)

# How many blocks a program of the safe pass looks after: mostly there is nothing to do for any of them.
CHUNK = tl.constexpr(launch_settings.CHUNK)
FURTHEST = tl.constexpr(1 << 30)  # no table of relative positions reaches so far


@triton.jit
def decoded(number):
    """A number that was `coded`."""
    return (number - 3) // 4


@triton.jit
def decoded_all(numbers):
    """Numbers of a tuple."""
    known = ()
    for i in tl.static_range(len(numbers)):
        known = known + (decoded(numbers[i]),)
    return known


@triton.jit
def decoded_pairs(pairs):
    """Pointers, each with strides that are coded."""
    known = ()
    for i in tl.static_range(len(pairs) // 2):
        known = known + (pairs[2 * i], decoded_all(pairs[2 * i + 1]))
    return known


@triton.jit
def decoded_terms(terms, STEPS: tl.constexpr):
    """What each step has: pointers with strides, and a number at the end of some."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        term = decoded_pairs(terms[i])
        if STEPS[i] == LINE_DISTANCE or STEPS[i] == RELATIVE:
            term = term + (decoded(terms[i][len(terms[i]) - 1]),)
        elif STEPS[i] == CAP or STEPS[i] == INDICATOR:
            term = term + (terms[i][0],)
        known = known + (term,)
    return known


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
def flag_place(entry, start, length, FLAGGED):
    """Which flag says whether a block's results are finite: there is one for so many rows, or columns; 0: for all."""
    place = entry * 0
    if FLAGGED > 0:
        place = entry * tl.cdiv(length, FLAGGED) + start // FLAGGED
    return place


@triton.jit
def block_of(program, length, n_splits, SIZE: tl.constexpr, REVERSED: tl.constexpr):
    """(batch entry, block of rows or columns, share of the keys) of a program."""
    n_blocks = tl.cdiv(length, SIZE)
    split = program % n_splits
    block = program // n_splits % n_blocks
    entry = program // n_splits // n_blocks
    if REVERSED:
        block = n_blocks - 1 - block  # the longest of a causal mask first
    return entry, block, split


@triton.jit
def load_flags(flags, programs, length, n_splits, n_programs, flagged, SIZE: tl.constexpr):
    """The flags of some programs, set where there are none.

    `flagged`: how many rows or columns share one; 0: all do; less: there are none.
    """
    entry, block, split = block_of(programs, length, n_splits, SIZE, False)
    place = flag_place(entry, block * SIZE, length, flagged)
    if flagged > 0:
        place = place * n_splits + split
    # The interpreter has numbers of its own for those in a tuple: added to a tensor, they are like others.
    asked = programs * 0 + flagged >= 0
    return tl.load(flags + place, mask=(programs < n_programs) & asked, other=tl.where(asked, 0, 1))


@triton.jit
def load_number(pointer, strides, at):
    """The number of a batch entry, in float32."""
    return tl.load(pointer + start_of(strides, at)).to(tl.float32)


@triton.jit
def load_vector(pointer, strides, at, start, span, length, WHOLE: tl.constexpr):
    """Numbers along rows or columns, which lie together: from `start` on; unless all are there, 0 beyond the last."""
    base = pointer + start_of(strides, at) + start
    if WHOLE:
        found = tl.load(base + span)
    else:
        found = tl.load(base + span, mask=start + span < length, other=0)
    return found


@triton.jit
def across(by_row, by_column, TURNED: tl.constexpr):
    """Numbers of rows and numbers of columns, shaped to broadcast over a tile."""
    if TURNED:
        by_row, by_column = by_row[None, :], by_column[:, None]
    else:
        by_row, by_column = by_row[:, None], by_column[None, :]
    return by_row, by_column


@triton.jit
def load_pairs(pointer, strides, at, row_start, row_span, column_start, column_span, inside, TURNED: tl.constexpr):
    """What there is for each pair of a tile, 0 for those that are not inside."""
    row, column = across(row_span.to(tl.int64), column_span.to(tl.int64), TURNED)
    base = pointer + start_of(strides, at)
    base -= tl.cast(row_start, tl.int64) * strides[3] + tl.cast(column_start, tl.int64) * strides[4]
    return tl.load(base - row * strides[3] - column * strides[4], mask=inside, other=0)


@triton.jit
def load_numbers(terms, at, STEPS: tl.constexpr):
    """What each step has for a whole batch entry."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == SCALE or STEPS[i] == PARABOLA or STEPS[i] == TENT:
            known = known + (load_number(terms[i][0], terms[i][1], at),)
        elif STEPS[i] == DISTANCE:
            known = known + (load_number(terms[i][4], terms[i][5], at),)
        elif STEPS[i] == LINE_DISTANCE:
            known = known + (load_number(terms[i][0], terms[i][1], at),)
        else:
            known = known + (0.0,)
    return known


@triton.jit
def load_origins(terms, at, start, STEPS: tl.constexpr, COLUMNS: tl.constexpr):
    """The position that others are told relative to: differences are small whole numbers, which float32 holds."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == DISTANCE or STEPS[i] == RELATIVE:
            strides = terms[i][2 * COLUMNS + 1]
            known = known + (tl.load(terms[i][2 * COLUMNS] + start_of(strides, at) + start),)
        else:
            known = known + (0,)
    return known


@triton.jit
def load_line(
    terms,
    origins,
    at,
    start,
    span,
    length,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SAFE: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """What each step needs of some rows, or of some columns: a vector, or one number that nobody reads."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == GATE:
            if SAFE:
                gate = load_vector(terms[i][2 * COLUMNS], terms[i][2 * COLUMNS + 1], at, start, span, length, WHOLE)
            else:
                gate = load_vector(terms[i][2 * COLUMNS + 4], terms[i][2 * COLUMNS + 5], at, start, span, length, WHOLE)
            known = known + (gate.to(tl.float32),)
        elif (STEPS[i] == ADD_ROW and not COLUMNS) or (STEPS[i] == ADD_COLUMN and COLUMNS):
            added = load_vector(terms[i][0], terms[i][1], at, start, span, length, WHOLE)
            known = known + (added.to(tl.float32),)
        elif STEPS[i] == DISTANCE:
            position = load_vector(terms[i][2 * COLUMNS], terms[i][2 * COLUMNS + 1], at, start, span, length, WHOLE)
            known = known + ((position - origins[i]).to(tl.float32),)
        elif STEPS[i] == RELATIVE:
            position = load_vector(terms[i][2 * COLUMNS], terms[i][2 * COLUMNS + 1], at, start, span, length, WHOLE)
            apart = tl.minimum(tl.maximum(position - origins[i], -FURTHEST), FURTHEST)
            known = known + (apart.to(tl.int32),)
        else:
            known = known + (tl.zeros((1,), tl.float32),)
    return known


@triton.jit
def tile_terms(
    terms,
    of_rows,
    of_columns,
    at,
    row_start,
    row_span,
    column_start,
    column_span,
    sizes,
    one,
    STEPS: tl.constexpr,
    TURNED: tl.constexpr,
    SAFE: tl.constexpr,
):
    """What each step needs of a tile: numbers that broadcast over it. `one`: see `scaled_first`."""
    known = ()
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == GATE:
            by_row, by_column = across(of_rows[i], of_columns[i], TURNED)
            if SAFE:
                known = known + (reciprocal(1.0 + exp2((by_row + by_column) * -LOG2_E)),)
            else:
                # σ(g + h) = 1 / (1 + e^−g · e^−h), see `gate_factors`.
                known = known + (reciprocal((one if i == 0 else 1.0) + by_row * by_column),)
        elif STEPS[i] == ADD_ROW:
            known = known + (across(of_rows[i], column_span, TURNED)[0],)
        elif STEPS[i] == ADD_COLUMN:
            known = known + (across(row_span, of_columns[i], TURNED)[1],)
        elif STEPS[i] == ADD_PAIRS:
            row, column = across(row_start + row_span, column_start + column_span, TURNED)
            inside = (row < sizes[0]) & (column < sizes[1])
            pairs = load_pairs(
                terms[i][0], terms[i][1], at, row_start, row_span, column_start, column_span, inside, TURNED
            )
            known = known + (pairs.to(tl.float32),)
        elif STEPS[i] == DISTANCE:
            by_row, by_column = across(of_rows[i], of_columns[i], TURNED)
            known = known + (tl.abs(by_row - by_column),)
        elif STEPS[i] == LINE_DISTANCE:
            # Row i stands at column i + offset; the number is −2 · offset.
            apart = (row_start - terms[i][2] // 2 - column_start).to(tl.float32)
            by_row, by_column = across(row_span.to(tl.float32) + apart, column_span.to(tl.float32), TURNED)
            known = known + (tl.abs(by_row - by_column),)
        elif STEPS[i] == RELATIVE:
            by_row, by_column = across(of_rows[i], of_columns[i], TURNED)
            base = terms[i][4] + start_of(terms[i][5], at)
            known = known + (tl.load(base - table_index(by_row, by_column, terms[i]) * terms[i][5][3]).to(tl.float32),)
        else:
            known = known + (0.0,)
    return known


@triton.jit
def scaled_first(of_rows, one):
    """What steps need of rows, that of the first times a number: a gate whose 1 becomes that is divided by it."""
    first = of_rows[0] * one
    # As in `gate_factors`: what is no ordinary number shows.
    known = (tl.where((first == 0) | is_not_finite(first), float("nan"), first),)
    for i in tl.static_range(1, len(of_rows)):
        known = known + (of_rows[i],)
    return known


@triton.jit(do_not_specialize=["length"])
def gate_factors(gates, factors, length, SIZE: tl.constexpr):
    """e^−g of gates, in float32; NaN where that is no ordinary number: who sees it takes the safe way."""
    places = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    gate = tl.load(gates + places, mask=places < length, other=0.0).to(tl.float32)
    factor = exp2(gate * -LOG2_E)
    factor = tl.where((factor == 0) | (factor == float("inf")), float("nan"), factor)
    tl.store(factors + places, factor, mask=places < length)


@triton.jit
def table_index(by_row, by_column, term):
    """The place of pairs in a table of relative positions."""
    reach = -term[6]
    return tl.minimum(tl.maximum(by_column - by_row, -reach), reach) + reach


@triton.jit
def stepped(
    scores,
    allowed,
    numbers,
    of_tile,
    terms,
    N_STEPS: tl.constexpr,
    STEPS: tl.constexpr,
    ROUGH: tl.constexpr,
    SELECTS: tl.constexpr,
):
    """The scores after some steps, and which pairs are allowed: those to which no step adds −inf.

    `SELECTS`: whether −inf is kept from the scores themselves. Where it is not, nothing is done to it but what leaves
    it so, and its weight is 0 by itself.
    """
    for i in tl.static_range(N_STEPS):
        if STEPS[i] == SCALE:
            scores = scores * numbers[i]
        elif STEPS[i] == GATE:
            scores = scores * of_tile[i]
        elif STEPS[i] == CAP:
            scores = terms[i][0] * tanh(scores * (1.0 / terms[i][0]), ROUGH)
        elif STEPS[i] == ADD_ROW or STEPS[i] == ADD_COLUMN or STEPS[i] == ADD_PAIRS or STEPS[i] == RELATIVE:
            if SELECTS:
                excluded = of_tile[i] == -float("inf")
                scores = scores + tl.where(excluded, 0.0, of_tile[i])
                allowed = allowed & (excluded == 0)
            else:
                scores = scores + of_tile[i]
        elif STEPS[i] == DISTANCE or STEPS[i] == LINE_DISTANCE:
            scores = scores - numbers[i] * of_tile[i]
        elif STEPS[i] == INDICATOR:
            scores = tl.where(scores != scores, scores, (scores <= terms[i][0]).to(tl.float32))
        elif STEPS[i] == PARABOLA:
            square = numbers[i] * numbers[i]
            scores = tl.where(scores >= square, 0.0, 1.0 - scores / square)
        elif STEPS[i] == TENT:
            distance = tl.sqrt(tl.where(scores <= 0, 0.0, scores))
            scores = tl.where(scores >= numbers[i] * numbers[i], 0.0, 1.0 - distance / numbers[i])
    return scores, allowed


@triton.jit
def step_slopes(before, slope, numbers, of_tile, terms, PLACE: tl.constexpr, STEPS: tl.constexpr, ROUGH: tl.constexpr):
    """One step back: dS before it, and what each pair adds to the gradient of its parameter.

    `before` are the scores before the step, `slope` is dS after it.
    """
    step: tl.constexpr = STEPS[PLACE]
    given = numbers[PLACE]
    learned = slope
    if step == SCALE:
        learned = slope * before
        slope = slope * given
    elif step == GATE:
        gate = of_tile[PLACE]
        slope = slope * gate
        learned = slope * before * (1.0 - gate)
    elif step == CAP:
        capped = tanh(before * (1.0 / terms[PLACE][0]), ROUGH)
        slope = slope * (1.0 - capped * capped)
    elif step == DISTANCE or step == LINE_DISTANCE:
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
