"""Sums over channels, tile by tile, of coordinates that were prepared: those of one channel lie together.

tanh(l + r) = 1 − 2 / (1 + e^2l · e^2r): the exponentials are taken once for each vector, and a pair and channel costs
two multiply-adds and a share of a reciprocal, 1/x + 1/y = (x + y) / (xy). Weights are part of it: x = (1 + e^2l · e^2r)
/ w. Where a product of four would leave float32, each pair has its own; where a factor would, it is NaN, and the safe
pass computes the tile again.

A tile is walked as (rows of a thread, columns of a thread, threads along rows, threads along columns): Triton then
gives each thread a rectangle of pairs, for which it loads a few vectors of four numbers. What the next step of a walk
needs is loaded before this one is computed.

On the way back, a thread has a rectangle of vectors and channels in the same way, whose sums stay in its registers, and
the other vectors of a tile come one after another, each with its dS, which was written where every thread reads it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.cuda import launch_settings
from regard.engines.cuda.kernels.channels import ABSOLUTE, CHANNELS, SQUARE, TANH
from regard.engines.cuda.kernels.elementary import INSTRUCTIONS, exp2, reciprocal
from regard.engines.cuda.kernels.tile_scores import SCALE, start_of

PREPARED = tl.constexpr(launch_settings.PREPARED)  # vectors of a block
SHARED = tl.constexpr(launch_settings.SHARED)  # channels that share a reciprocal, of which there is a multiple
THREADS = tl.constexpr(launch_settings.THREADS)
PER_THREAD = tl.constexpr(4)  # channels of a thread on the way back, of each half

# log₂ of the largest factors of rows and columns up to which four channels share a reciprocal: (1 + 2³¹)⁴ < 2¹²⁷.
SHARING = tl.constexpr(31.0)
PAIRING = tl.constexpr(62.0)  # and up to which two do
# The same, with log₂ of the largest 1/|w|, where weights are part of what is shared; and the largest |w| of all.
FOLDING = tl.constexpr(30.0)
LARGEST_FOLDED = tl.constexpr(1073741824.0)
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

    And once more as (vectors, channels), as the way back goes along them.
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
        exists = (channels < PADDED) & (span >= 0)[None, :]
        block_start = prepared + program * (2 * PADDED * PREPARED)
        tl.store(block_start + channels * PREPARED + span[None, :], found, mask=exists)
        tl.store(block_start + (PADDED * PREPARED + span[None, :] * PADDED) + channels, found, mask=exists)
    if FORM == TANH:
        tl.store(ranges + 2 * program, tl.max(highest))
        tl.store(ranges + 2 * program + 1, tl.max(furthest))


@triton.jit
def side_of(inputs, start, span, length, RIGHT: tl.constexpr, FORM: tl.constexpr):
    """Queries or keys of a tile: pointer, strides, the first, a span, how many; and what was prepared, if it was."""
    side = (inputs[2 * RIGHT], inputs[2 * RIGHT + 1], start, span, length)
    if FORM != CHANNELS and len(inputs) % 2 == 1:
        if len(inputs[len(inputs) - 1]) > 7:
            side = side + inputs[len(inputs) - 1][4 * RIGHT : 4 * RIGHT + 4]
        else:  # norms, where products serve
            side = side + inputs[len(inputs) - 1][2 * RIGHT : 2 * RIGHT + 2]
    return side


@triton.jit
def facts_of_weights(weight, numbers, scale, DIM, STEPS: tl.constexpr):
    """Of the weights of channels: how rounding shows, how far they are from 1, and their sum.

    That is Σ|w|, times what multiplies a score, as large as a unit in the last place of a tanh is in a score; log₂ of
    the largest 1/|w|, no less than 0, and infinite where a |w| is too large; Σw.
    """
    inside = tl.arange(0, weight.shape[0]) < DIM
    weight = tl.where(inside, weight, 0.0)
    sizes = tl.abs(weight)
    rounding = tl.sum(sizes) * tl.abs(scale)
    for i in tl.static_range(len(STEPS)):
        if STEPS[i] == SCALE:
            rounding = rounding * tl.abs(numbers[i])
    spread = tl.maximum(-tl.log2(tl.min(tl.where(inside, sizes, 1.0))), 0.0)
    spread = tl.where(tl.max(sizes) <= LARGEST_FOLDED, spread, float("inf"))
    return rounding, spread, tl.sum(weight)


@triton.jit
def prepared_line(side, at, PADDED: tl.constexpr):
    """Where what was prepared for the first vector of a tile begins. Blocks are whole tiles."""
    start = tl.cast(side[2], tl.int64)
    line = side[5] + start_of(side[6], at) + (start // PREPARED * (2 * PADDED * PREPARED) + start % PREPARED)
    # Tiles begin at multiples of 16 vectors. Triton 3.6 does not see that, and would load numbers one by one.
    return tl.multiple_of(line, 16)


@triton.jit
def turned_line(side, at, PADDED: tl.constexpr):
    """Where the coordinates of the first vector of a tile begin that lie together vector by vector."""
    start = tl.cast(side[2], tl.int64)
    place = start // PREPARED * (2 * PADDED * PREPARED) + (PADDED * PREPARED + start % PREPARED * PADDED)
    return side[5] + start_of(side[6], at) + place


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
def four_weights(inputs, at, channel, DIM: tl.constexpr):
    """The weights of as many channels as share a reciprocal."""
    PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
    if len(inputs) >= 8 and PADDED == DIM:
        step = inputs[7][3]
        # Behind the last ones, these once more.
        first = inputs[6] + start_of(inputs[7], at) - tl.minimum(channel, DIM - SHARED) * step
        found = (tl.load(first), tl.load(first - step), tl.load(first - 2 * step), tl.load(first - 3 * step))
    else:
        found = (
            load_weight(inputs, at, channel, DIM),
            load_weight(inputs, at, channel + 1, DIM),
            load_weight(inputs, at, channel + 2, DIM),
            load_weight(inputs, at, channel + 3, DIM),
        )
    return found


@triton.jit
def four_loaded(pointers):
    """Coordinates of as many channels. Behind the last ones of a block there is something to be read, too."""
    return (
        tl.load(pointers),
        tl.load(pointers + PREPARED),
        tl.load(pointers + 2 * PREPARED),
        tl.load(pointers + 3 * PREPARED),
    )


@triton.jit
def weighted(values, weight, inputs):
    """Of a channel, if channels have weights."""
    if len(inputs) >= 8:
        values = weight * values
    return values


@triton.jit
def walk_folded(total, ones, others, inputs, at, DIM: tl.constexpr):
    """Σ_c 1 / ((1 + one · other) / w_c), of which four channels are one quotient: n/d + 1/c = (nc + d) / (dc)."""
    left, right, weights = four_loaded(ones), four_loaded(others), four_weights(inputs, at, 0, DIM)
    for channel in range(0, DIM, SHARED):
        ones += SHARED * PREPARED
        others += SHARED * PREPARED
        following = (four_loaded(ones), four_loaded(others), four_weights(inputs, at, channel + SHARED, DIM))
        by_a, by_b, by_c = reciprocal(weights[0]), reciprocal(weights[1]), reciprocal(weights[2])
        by_d = reciprocal(weights[3])
        a, b = by_a + (left[0] * by_a) * right[0], by_b + (left[1] * by_b) * right[1]
        above, below = a + b, a * b
        c = by_c + (left[2] * by_c) * right[2]
        above, below = above * c + below, below * c
        d = by_d + (left[3] * by_d) * right[3]
        above, below = above * d + below, below * d
        total += above * reciprocal(below)
        left, right, weights = following[0], following[1], following[2]
    return total


@triton.jit
def walk_reciprocals(total, ones, others, inputs, at, SHARES, DIM: tl.constexpr):
    """Σ_c w_c / (1 + one · other). `SHARES`: whether four channels share a reciprocal."""
    if SHARES:
        left, right, weights = four_loaded(ones), four_loaded(others), four_weights(inputs, at, 0, DIM)
        for channel in range(0, DIM, SHARED):
            ones += SHARED * PREPARED
            others += SHARED * PREPARED
            following = (four_loaded(ones), four_loaded(others), four_weights(inputs, at, channel + SHARED, DIM))
            a, b = 1.0 + left[0] * right[0], 1.0 + left[1] * right[1]
            c, d = 1.0 + left[2] * right[2], 1.0 + left[3] * right[3]
            ab, cd = a * b, c * d
            of_ab, of_cd = weights[0] * b + weights[1] * a, weights[2] * d + weights[3] * c
            total += (of_ab * cd + of_cd * ab) * reciprocal(ab * cd)
            left, right, weights = following[0], following[1], following[2]
    else:
        for channel in range(0, DIM):
            weight = load_weight(inputs, at, channel, DIM)
            total += weight * reciprocal(1.0 + tl.load(ones) * tl.load(others))
            ones += PREPARED
            others += PREPARED
    return total


@triton.jit
def walked_scores(
    sides, inputs, at, facts, DIM: tl.constexpr, FORM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr
):
    """Σ_c w_c φ(left_c, right_c) of a tile, laid out as a product of matrices. `facts`: of the weights."""
    PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
    WIDE: tl.constexpr = 8 if OWN * OTHER >= 16 * THREADS else 4
    HIGH: tl.constexpr = OWN * OTHER // THREADS // WIDE
    high, along = tl.arange(0, HIGH)[:, None, None, None], tl.arange(0, OWN // HIGH)[None, None, :, None]
    wide, across = tl.arange(0, WIDE)[None, :, None, None], tl.arange(0, OTHER // WIDE)[None, None, None, :]
    ones = prepared_line(sides[0], at, PADDED) + (along * HIGH + high)
    others = prepared_line(sides[1], at, PADDED) + (across * WIDE + wide)
    total = tl.zeros((HIGH, WIDE, OWN // HIGH, OTHER // WIDE), tl.float32)
    if FORM == TANH:
        rounding, spread, of_weights = facts[0], facts[1], facts[2]
        reach = range_of(sides[0], at, 0) + range_of(sides[1], at, 0)
        if PADDED == DIM:
            if tl.maximum(reach, 0.0) + spread <= FOLDING:
                total = walk_folded(total, ones, others, inputs, at, DIM)
            else:
                total = walk_reciprocals(total, ones, others, inputs, at, reach <= SHARING, DIM)
        else:
            total = walk_reciprocals(total, ones, others, inputs, at, reach <= SHARING, DIM)
        if rounding > SMALL_SUM:
            near = range_of(sides[0], at, 1) + range_of(sides[1], at, 1) < SMALL_FACTORS
            of_weights = tl.where(near, float("nan"), of_weights)
        total = of_weights - 2.0 * total
    else:
        # Channels that are only padding are equal, and 0 apart.
        left, right, weights = four_loaded(ones), four_loaded(others), four_weights(inputs, at, 0, DIM)
        for channel in range(0, PADDED, SHARED):
            ones += SHARED * PREPARED
            others += SHARED * PREPARED
            following = (four_loaded(ones), four_loaded(others), four_weights(inputs, at, channel + SHARED, DIM))
            for i in tl.static_range(SHARED):
                one, other = left[i], right[i]
                if FORM == ABSOLUTE:
                    total += weighted(tl.abs(one - other), weights[i], inputs)
                elif FORM == SQUARE:
                    total += weighted((one - other) * (one - other), weights[i], inputs)
                else:
                    total += tl.where(one != other, weights[i], 0.0)
            left, right, weights = following[0], following[1], following[2]
    # As `computed_once`, but still laid out as it was walked: one way through shared memory is left, not two.
    total = tl.sum(total[:, :, :, :, None], 4)
    return as_product(tl.reshape(tl.permute(total, (2, 0, 3, 1)), (OWN, OTHER)))


@triton.jit
def as_product(tile):
    """A tile, laid out as products of matrices are, which sum rows in a few steps: a product of nothing is added."""
    nothing = tl.zeros((tile.shape[0], 16), tl.bfloat16)
    return tl.dot(nothing, tl.zeros((16, tile.shape[1]), tl.bfloat16), tile)


@triton.jit
def nothing_walked(OWN: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Sums for each vector and channel, of one half of the channels and of the other, as threads walk them."""
    LANES: tl.constexpr = BLOCK_DIM // 2 // PER_THREAD
    LINES: tl.constexpr = OWN if OWN * LANES <= THREADS else THREADS // LANES
    nothing = tl.zeros((OWN // LINES, PER_THREAD, LINES, LANES), tl.float32)
    return nothing, nothing


@triton.jit
def walked_sums(found, slopes_summed, FORM: tl.constexpr, VALUES: tl.constexpr):
    """Σ_j dS ∂φ/∂left or, where `VALUES`, Σ_j dS φ, `(vectors, dims)`, of what `walk_slopes` has summed.

    `slopes_summed`: Σ_j dS.
    """
    first, second = found[0], found[1]
    OWN: tl.constexpr = first.shape[0] * first.shape[2]
    HALF: tl.constexpr = first.shape[1] * first.shape[3]
    both = tl.join(first, second)  # (lines of a thread, channels of a thread, threads, threads, halves)
    both = tl.reshape(tl.permute(both, (2, 0, 4, 3, 1)), (OWN, 2 * HALF))
    if FORM == TANH:
        if VALUES:
            both = slopes_summed[:, None] - 2.0 * both
        else:
            both = 4.0 * both
    elif (FORM == ABSOLUTE or FORM == SQUARE) and not VALUES:
        both = 2.0 * both
    return both


@triton.jit
def loaded_channels(pointers, channels, PADDED: tl.constexpr, HALF: tl.constexpr):
    """Coordinates of one half of the channels and of the other, 0 beyond the last."""
    # As `walk_slopes` says of the one half. Triton 3.9 forgets it in the sum.
    second = tl.max_contiguous(pointers + HALF, (1, 8, 2, 4))
    if PADDED == 2 * HALF:
        found = (tl.load(pointers), tl.load(second))
    else:
        found = (
            tl.load(pointers, mask=channels < PADDED, other=0.0),
            tl.load(second, mask=channels + HALF < PADDED, other=0.0),
        )
    return found


@triton.jit
def above(apart):
    """1 where a difference is more than 0, ½ where it is 0, and 0 where it is less, or no number."""
    if INSTRUCTIONS:
        apart = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f7E800000, 0f3F000000;", "=f,f", [apart], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        apart = tl.where(apart > 0, 1.0, tl.where(apart == 0, 0.5, 0.0))
    return apart


@triton.jit
def add_slopes(found, values, of_pair, own, other, FORM: tl.constexpr, VALUES: tl.constexpr, PAIRS: tl.constexpr):
    """The sums with one more of the other vectors. `PAIRS`: whether two channels share a reciprocal."""
    of_a, of_b, values_of_a, values_of_b = found[0], found[1], values[0], values[1]
    if FORM == TANH:
        x, y = 1.0 + own[0] * other[0], 1.0 + own[1] * other[1]
        if PAIRS:
            both = reciprocal(x * y)
            a, b = both * y, both * x
        else:
            a, b = reciprocal(x), reciprocal(y)
        of_a += of_pair * (a - a * a)
        of_b += of_pair * (b - b * b)
        if VALUES:
            values_of_a += of_pair * a
            values_of_b += of_pair * b
    else:
        a, b = own[0] - other[0], own[1] - other[1]
        if FORM == ABSOLUTE:
            of_a += of_pair * above(a)
            of_b += of_pair * above(b)
            if VALUES:
                values_of_a += of_pair * tl.abs(a)
                values_of_b += of_pair * tl.abs(b)
        elif FORM == SQUARE:
            of_a += of_pair * a
            of_b += of_pair * b
            if VALUES:
                values_of_a += of_pair * (a * a)
                values_of_b += of_pair * (b * b)
        elif VALUES:
            values_of_a += tl.where(a != 0, of_pair, 0.0)
            values_of_b += tl.where(b != 0, of_pair, 0.0)
    return (of_a, of_b), (values_of_a, values_of_b)


@triton.jit
def two_others(others, of_pairs, place, channels, OWN: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr):
    """Coordinates of two of the other vectors, and the slopes of each."""
    line = others + place * PADDED
    first = loaded_channels(line, channels, PADDED, HALF)
    second = loaded_channels(line + PADDED, channels, PADDED, HALF)
    # Of two axes, so that one load has several numbers: Triton 3.6 does not see it where a thread has others beside.
    of_first, of_second = tl.load(of_pairs + place * OWN), tl.load(of_pairs + (place * OWN + OWN))
    return first, second, of_first[:, None, :, None], of_second[:, None, :, None]


@triton.jit
def add_two(found, values, of_lines, two, own, FORM: tl.constexpr, VALUES: tl.constexpr, PAIRS: tl.constexpr):
    """The sums with two more of the other vectors."""
    found, values = add_slopes(found, values, two[2], own, two[0], FORM, VALUES, PAIRS)
    found, values = add_slopes(found, values, two[3], own, two[1], FORM, VALUES, PAIRS)
    if FORM == ABSOLUTE:
        of_lines += two[2] + two[3]
    return found, values, of_lines


@triton.jit
def walk_others(
    found, values, own, others, channels, of_pairs, OWN: tl.constexpr, OTHER: tl.constexpr, PADDED: tl.constexpr,
    FORM: tl.constexpr, VALUES: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """The sums with the other vectors of a tile: two are loaded while two are computed."""
    HALF: tl.constexpr = own[0].shape[1] * own[0].shape[3]
    of_lines = tl.zeros((own[0].shape[0], 1, own[0].shape[2], 1), tl.float32)
    one = two_others(others, of_pairs, 0, channels, OWN, PADDED, HALF)
    for place in range(0, OTHER, 4):
        other = two_others(others, of_pairs, place + 2, channels, OWN, PADDED, HALF)
        found, values, of_lines = add_two(found, values, of_lines, one, own, FORM, VALUES, PAIRS)
        # Behind the last ones, some of these once more.
        one = two_others(others, of_pairs, tl.minimum(place + 4, OTHER - 2), channels, OWN, PADDED, HALF)
        found, values, of_lines = add_two(found, values, of_lines, other, own, FORM, VALUES, PAIRS)
    if FORM == ABSOLUTE:
        # Σ dS sign = 2 Σ dS (above − ½).
        found = (found[0] - 0.5 * of_lines, found[1] - 0.5 * of_lines)
    return found, values


@triton.jit
def walk_slopes(
    found, values, slopes, sides, inputs, at, DIM: tl.constexpr, FORM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """found + Σ_j dS ∂φ/∂left and, where `VALUES`, values + Σ_j dS φ, as `nothing_walked` lays them out.

    Of tanh = 1 − 2r, a quarter of the one, since its slope is 4r (1 − r); and Σ_j dS r in place of the other. Of
    distances and squares, half of the one.
    """
    if FORM == TANH or FORM == ABSOLUTE or (FORM == SQUARE or VALUES):
        PADDED: tl.constexpr = (DIM + SHARED - 1) // SHARED * SHARED
        OWN: tl.constexpr = slopes.shape[0]
        OTHER: tl.constexpr = slopes.shape[1]
        HIGH: tl.constexpr = found[0].shape[0]
        own = tl.arange(0, HIGH)[:, None] + HIGH * tl.arange(0, OWN // HIGH)[None, :]
        channels = tl.arange(0, PER_THREAD)[None, :, None, None]
        channels += PER_THREAD * tl.arange(0, BLOCK_DIM // 2 // PER_THREAD)[None, None, None, :]
        tile = inputs[len(inputs) - 1][8] + tl.program_id(0).to(tl.int64) * (OWN * OTHER)
        tile = tl.multiple_of(tile, 16)
        tl.debug_barrier()  # everybody has read the slopes of the last tile
        tl.store(tile + tl.arange(0, OWN)[:, None] + OWN * tl.arange(0, OTHER)[None, :], slopes)
        tl.debug_barrier()
        line = turned_line(sides[0], at, PADDED) + own[:, None, :, None] * PADDED + channels
        # Threads go along lanes first, then lines, as these numbers order the axes; Triton 3.6 would begin with a
        # thread's own vectors, and give it one of them and four times as many channels.
        line = tl.max_contiguous(line, (1, 8, 2, 4))
        here = loaded_channels(line, channels, PADDED, BLOCK_DIM // 2)
        others, of_pairs = turned_line(sides[1], at, PADDED) + channels, tile + own
        if FORM == TANH:
            if range_of(sides[0], at, 0) + range_of(sides[1], at, 0) <= PAIRING:
                found, values = walk_others(
                    found, values, here, others, channels, of_pairs, OWN, OTHER, PADDED, FORM, VALUES, True
                )
            else:
                found, values = walk_others(
                    found, values, here, others, channels, of_pairs, OWN, OTHER, PADDED, FORM, VALUES, False
                )
        else:
            found, values = walk_others(
                found, values, here, others, channels, of_pairs, OWN, OTHER, PADDED, FORM, VALUES, False
            )
    return found, values
