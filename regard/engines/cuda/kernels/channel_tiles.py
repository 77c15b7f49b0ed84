"""Sums over channels, tile by tile, of coordinates that were prepared: those of one channel lie together.

tanh(l + r) = 1 − 2 / (1 + e^2l · e^2r): the exponentials are taken once for each vector, and a pair and channel costs
two multiply-adds and a share of a reciprocal, 1/x + 1/y = (x + y) / (xy). Where a product of four would leave float32,
each pair has its own; where a factor would, it is NaN, and the safe pass computes the tile again.

A tile is walked as (rows of a thread, columns of a thread, threads along rows, threads along columns): Triton then
gives each thread a rectangle of pairs, for which it loads a few vectors of four numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda import launch_settings
from regard.engines.cuda.kernels.channels import ABSOLUTE, CHANNELS, SQUARE, TANH
from regard.engines.cuda.kernels.elementary import computed_once, exp2, reciprocal
from regard.engines.cuda.kernels.tile_scores import SCALE, start_of

PREPARED = tl.constexpr(launch_settings.PREPARED)  # vectors of a block
SHARED = tl.constexpr(launch_settings.SHARED)  # channels that share a reciprocal, of which there is a multiple
THREADS = tl.constexpr(launch_settings.THREADS)

# log₂ of the largest factors of rows and columns up to which four channels share a reciprocal: (1 + 2³¹)⁴ < 2¹²⁷.
SHARING = tl.constexpr(31.0)
PAIRING = tl.constexpr(62.0)  # and up to which two do
# Σ|w|, times what multiplies a score, up to which it does not show that a tanh near 0 is a difference of larger
# numbers; and log₂ of the factors from which on the tanh of a rounded sum is no better.
SMALL_SUM = tl.constexpr(64.0)
SMALL_FACTORS = tl.constexpr(3.0)

TWO_LOG2_E = tl.constexpr(2.885390043258667)
TWO_LOG2_E_REST = tl.constexpr(3.8519e-08)


@triton.jit(do_not_specialize=["length", "dim", "entry_stride", "stride"])
def prepare_coordinates(
    vectors, prepared, ranges, length, dim, entry_stride, stride, FORM: tl.constexpr, PADDED: tl.constexpr
):
    """Coordinates of a block of vectors as tiles are walked by: (channels, vectors), 0 for what does not exist.

    Of tanh, they are e^2x, and NaN where that is no ordinary number; `ranges`: log₂ of the largest, and of the furthest
    from 1.
    """
    n_blocks = tl.cdiv(length, PREPARED)
    program = tl.program_id(0).to(tl.int64)
    entry, block = program // n_blocks, program % n_blocks
    span, some = tl.arange(0, PREPARED), tl.arange(0, 16)
    places = block * PREPARED + span
    base = vectors + entry * entry_stride + places[None, :] * stride
    highest = tl.full((16, PREPARED), -float("inf"), tl.float32)
    furthest = tl.zeros((16, PREPARED), tl.float32)
    for first in range(0, PADDED, 16):
        channels = first + some[:, None]
        inside = (channels < dim) & (places < length)[None, :]
        found = tl.load(base + channels, mask=inside, other=0.0).to(tl.float32)
        if FORM == TANH:
            power = found * TWO_LOG2_E
            rest = tl.fma(found, TWO_LOG2_E, -power) + found * TWO_LOG2_E_REST
            found = exp2(power)
            found = found + found * (rest * 0.6931471805599453)
            found = tl.where(tl.abs(power) <= 126.0, found, float("nan"))
            found = tl.where(inside, found, 0.0)
            highest = tl.maximum(highest, tl.where(inside, power, -float("inf")))
            furthest = tl.maximum(furthest, tl.where(inside, tl.abs(power), 0.0))
        place = (program * PADDED + channels) * PREPARED + span[None, :]
        tl.store(prepared + place, found, mask=(channels < PADDED) & (span >= 0)[None, :])
    if FORM == TANH:
        tl.store(ranges + 2 * program, tl.max(highest))
        tl.store(ranges + 2 * program + 1, tl.max(furthest))


@triton.jit
def side_of(inputs, start, span, length, RIGHT: tl.constexpr, FORM: tl.constexpr):
    """Queries or keys of a tile: pointer, strides, the first, a span, how many; and what was prepared, if it was."""
    side = (inputs[2 * RIGHT], inputs[2 * RIGHT + 1], start, span, length)
    if FORM != CHANNELS and len(inputs) % 2 == 1:
        side = side + inputs[len(inputs) - 1][4 * RIGHT : 4 * RIGHT + 4]
    return side


@triton.jit
def rounding_of(weight, numbers, scale, STEPS: tl.constexpr):
    """Σ|w|, times what multiplies a score: how large a unit in the last place of a tanh is in a score."""
    size = tl.sum(tl.abs(weight)) * tl.abs(scale)
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == SCALE:
            size = size * tl.abs(numbers[i])
    return size


@triton.jit
def prepared_line(side, at, PADDED: tl.constexpr):
    """Where what was prepared for the first vector of a tile begins. Blocks are whole tiles."""
    start = tl.cast(side[2], tl.int64)
    return side[5] + start_of(side[6], at) + (start // PREPARED * (PADDED * PREPARED) + start % PREPARED)


@triton.jit
def range_of(side, at, WHICH: tl.constexpr):
    """log₂ of the largest factor of a block, or of the one furthest from 1."""
    return tl.load(side[7] + start_of(side[8], at) + side[2] // PREPARED * 2 + WHICH)


@triton.jit
def load_weight(inputs, at, channel, DIM: tl.constexpr):
    """The weight of a channel, 0 beyond the last."""
    if len(inputs) >= 8:
        weight = tl.load(inputs[6] + start_of(inputs[7], at) - channel * inputs[7][3], mask=channel < DIM, other=0.0)
    else:
        weight = tl.where(channel < DIM, 1.0, 0.0)
    return weight


@triton.jit
def walked_scores(
    sides, inputs, at, rounding, DIM: tl.constexpr, FORM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr
):
    """Σ_c w_c φ(left_c, right_c) of a tile, laid out as a product of matrices."""
    PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
    WIDE: tl.constexpr = 8 if OWN * OTHER >= 16 * THREADS else 4
    HIGH: tl.constexpr = OWN * OTHER // THREADS // WIDE
    high, along = tl.arange(0, HIGH)[:, None, None, None], tl.arange(0, OWN // HIGH)[None, None, :, None]
    wide, across = tl.arange(0, WIDE)[None, :, None, None], tl.arange(0, OTHER // WIDE)[None, None, None, :]
    ones = prepared_line(sides[0], at, PADDED) + (along * HIGH + high)
    others = prepared_line(sides[1], at, PADDED) + (across * WIDE + wide)
    total = tl.zeros((HIGH, WIDE, OWN // HIGH, OTHER // WIDE), tl.float32)
    if FORM == TANH:
        of_weights = 0.0
        if range_of(sides[0], at, 0) + range_of(sides[1], at, 0) <= SHARING:
            for channel in range(0, PADDED, SHARED):
                a = 1.0 + tl.load(ones) * tl.load(others)
                b = 1.0 + tl.load(ones + PREPARED) * tl.load(others + PREPARED)
                c = 1.0 + tl.load(ones + 2 * PREPARED) * tl.load(others + 2 * PREPARED)
                d = 1.0 + tl.load(ones + 3 * PREPARED) * tl.load(others + 3 * PREPARED)
                of_a, of_b = load_weight(inputs, at, channel, DIM), load_weight(inputs, at, channel + 1, DIM)
                of_c, of_d = load_weight(inputs, at, channel + 2, DIM), load_weight(inputs, at, channel + 3, DIM)
                ab, cd = a * b, c * d
                total += ((of_a * b + of_b * a) * cd + (of_c * d + of_d * c) * ab) * reciprocal(ab * cd)
                of_weights += (of_a + of_b) + (of_c + of_d)
                ones += SHARED * PREPARED
                others += SHARED * PREPARED
        else:
            for channel in range(0, DIM):
                weight = load_weight(inputs, at, channel, DIM)
                total += weight * reciprocal(1.0 + tl.load(ones) * tl.load(others))
                of_weights += weight
                ones += PREPARED
                others += PREPARED
        if rounding > SMALL_SUM:
            near = range_of(sides[0], at, 1) + range_of(sides[1], at, 1) < SMALL_FACTORS
            of_weights = tl.where(near, float("nan"), of_weights)
        total = of_weights - 2.0 * total
    else:
        for channel in range(0, DIM):
            weight = load_weight(inputs, at, channel, DIM)
            one, other = tl.load(ones), tl.load(others)
            if FORM == ABSOLUTE:
                total += weight * tl.abs(one - other)
            elif FORM == SQUARE:
                total += weight * ((one - other) * (one - other))
            else:
                total += tl.where(one != other, weight, 0.0)
            ones += PREPARED
            others += PREPARED
    return as_product(tl.reshape(tl.permute(total, (2, 0, 3, 1)), (OWN, OTHER)))


@triton.jit
def as_product(tile):
    """A tile, laid out as products of matrices are, which sum rows in a few steps: a product of nothing is added."""
    nothing = tl.zeros((tile.shape[0], 16), tl.bfloat16)
    return tl.dot(nothing, tl.zeros((16, tile.shape[1]), tl.bfloat16), computed_once(tile))


@triton.jit
def summed_place(side, entry, PADDED: tl.constexpr, ALONG: tl.constexpr):
    """Where sums of the first vector of a tile begin, of channel 0: each vector has so many, for a thread each."""
    start, n_blocks = tl.cast(side[2], tl.int64), tl.cdiv(side[4], PREPARED)
    block = tl.cast(entry, tl.int64) * n_blocks + start // PREPARED
    return (block * (PADDED * PREPARED) + start % PREPARED) * ALONG


@triton.jit
def add_to(pointer, terms):
    """Add what each thread sums of a tile `(columns of a thread, rows, threads along columns)` to what is there."""
    tl.store(pointer, tl.load(pointer) + tl.sum(terms, 0))


@triton.jit
def walk_slopes(slopes, sides, inputs, at, entry, DIM: tl.constexpr, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Add Σ_j dS ∂φ/∂left to the first sums behind what was prepared and, where `VALUES`, Σ_j dS φ to the second.

    Of tanh = 1 − 2r, a quarter of the one, since its slope is 4r (1 − r); and Σ_j dS r in place of the other.
    """
    PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
    OWN: tl.constexpr = slopes.shape[0]
    ALONG: tl.constexpr = THREADS // OWN
    WIDE: tl.constexpr = 8 if slopes.shape[1] // ALONG > 8 else slopes.shape[1] // ALONG
    PARTS: tl.constexpr = slopes.shape[1] // ALONG // WIDE
    STEP: tl.constexpr = PREPARED * ALONG
    prepared = inputs[len(inputs) - 1]
    own, along = tl.arange(0, OWN), tl.arange(0, ALONG)
    place = summed_place(sides[0], entry, PADDED, ALONG) + own[:, None] * ALONG + along[None, :]
    to_slopes, to_values = prepared[8] + place, prepared[8] + place
    if VALUES:
        to_values = prepared[9] + place
    ones = prepared_line(sides[0], at, PADDED) + own[None, :, None]
    others = along[None, None, :] * (PARTS * WIDE) + tl.arange(0, WIDE)[:, None, None]
    others = prepared_line(sides[1], at, PADDED) + others
    parts = parts_of(slopes, OWN, ALONG, PARTS, WIDE)
    if FORM == TANH:
        if range_of(sides[0], at, 0) + range_of(sides[1], at, 0) <= PAIRING:
            for _ in range(0, PADDED, 2):
                one, next_one = tl.load(ones), tl.load(ones + PREPARED)
                of_a, of_b = tl.zeros((WIDE, OWN, ALONG), tl.float32), tl.zeros((WIDE, OWN, ALONG), tl.float32)
                values_of_a, values_of_b = of_a, of_b
                for part in tl.static_range(PARTS):
                    x = 1.0 + one * tl.load(others + part * WIDE)
                    y = 1.0 + next_one * tl.load(others + (PREPARED + part * WIDE))
                    both = reciprocal(x * y)
                    a, b = both * y, both * x
                    of_a += parts[part] * (a - a * a)
                    of_b += parts[part] * (b - b * b)
                    if VALUES:
                        values_of_a += parts[part] * a
                        values_of_b += parts[part] * b
                add_to(to_slopes, of_a)
                add_to(to_slopes + STEP, of_b)
                if VALUES:
                    add_to(to_values, values_of_a)
                    add_to(to_values + STEP, values_of_b)
                ones += 2 * PREPARED
                others += 2 * PREPARED
                to_slopes += 2 * STEP
                to_values += 2 * STEP
        else:
            for _ in range(0, DIM):
                one = tl.load(ones)
                found = tl.zeros((WIDE, OWN, ALONG), tl.float32)
                values = found
                for part in tl.static_range(PARTS):
                    a = reciprocal(1.0 + one * tl.load(others + part * WIDE))
                    found += parts[part] * (a - a * a)
                    if VALUES:
                        values += parts[part] * a
                add_to(to_slopes, found)
                if VALUES:
                    add_to(to_values, values)
                ones += PREPARED
                others += PREPARED
                to_slopes += STEP
                to_values += STEP
    elif FORM == ABSOLUTE or (FORM == SQUARE or VALUES):
        for _ in range(0, DIM):
            one = tl.load(ones)
            found = tl.zeros((WIDE, OWN, ALONG), tl.float32)
            values = found
            for part in tl.static_range(PARTS):
                apart = one - tl.load(others + part * WIDE)
                if FORM == ABSOLUTE:
                    found += tl.where(apart > 0, parts[part], 0.0) - tl.where(apart < 0, parts[part], 0.0)
                    values += parts[part] * tl.abs(apart)
                elif FORM == SQUARE:
                    found += 2.0 * (parts[part] * apart)
                    values += parts[part] * (apart * apart)
                else:
                    values += tl.where(apart != 0, parts[part], 0.0)
            if FORM == ABSOLUTE or FORM == SQUARE:
                add_to(to_slopes, found)
            if VALUES:
                add_to(to_values, values)
            ones += PREPARED
            others += PREPARED
            to_slopes += STEP
            to_values += STEP


@triton.jit
def parts_of(slopes, OWN: tl.constexpr, ALONG: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr):
    """A tile in parts `(columns of a thread, rows, threads along columns)`, for one multiply-add after another."""
    tile = tl.permute(tl.reshape(slopes, (OWN, ALONG, PARTS * WIDE)), (2, 0, 1))
    tile = tl.reshape(tl.sum(tile[:, :, :, None], 3), (PARTS, WIDE, OWN, ALONG))  # as `computed_once`
    which = tl.arange(0, PARTS)[:, None, None, None]
    parts = ()
    for part in tl.static_range(PARTS):
        parts = parts + (tl.sum(tl.where(which == part, tile, 0.0), 0),)
    return parts


@triton.jit
def load_sums(inputs, side, entry, sums, dims, DIM: tl.constexpr, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Σ_j dS ∂φ/∂left of a block of vectors or, where `VALUES`, Σ_j dS φ, `(vectors, dims)`; `sums`: Σ_j dS."""
    PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
    ALONG: tl.constexpr = THREADS // side[3].shape[0]
    place = summed_place(side, entry, PADDED, ALONG) + side[3][:, None] * ALONG + dims[None, :] * (PREPARED * ALONG)
    tl.debug_barrier()  # what other threads added is there
    found = tl.zeros((side[3].shape[0], dims.shape[0]), tl.float32)
    for along in tl.static_range(ALONG):
        found += tl.load(inputs[len(inputs) - 1][8 + VALUES] + place + along, mask=(dims < DIM)[None, :], other=0.0)
    if FORM == TANH:
        if VALUES:
            found = sums[:, None] - 2.0 * found
        else:
            found = 4.0 * found
    return found
