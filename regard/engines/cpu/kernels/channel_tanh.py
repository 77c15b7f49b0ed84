"""tanh(l + r) with its exponentials taken once a query and once a key, and not for every pair.

For each channel let s be the smallest key, A = e^{2(l + s)}, g = A / (A + 1), τ = tanh(l + s) and x = e^{2(r − s)} − 1.
Then x ≥ 0 and

    tanh(l + r) = (A·(x + 1) − 1) / (A·(x + 1) + 1) = (g·x + τ) / (g·x + 1)

which holds for queries of any size, keeps the digits of small results (no 1 is subtracted from them), and costs two
multiply-adds and a division. Two channels share a division: the numerator and the denominator of

    w₁·tanh₁ + w₂·tanh₂ = (c₀ + c₁·x₁ + c₂·x₂ + c₃·x₁x₂) / (1 + g₁·x₁ + g₂·x₂ + g₁g₂·x₁x₂)

are three multiply-adds each, with x₁x₂ made once a key and c made once a query. Four channels would need more
multiplications than the division costs. The gradient is 1 − tanh² = 4·g·(1 − g)·(x + 1) / (g·x + 1)²: products alone.

What limits this is the spread of the keys, max r − min r over a channel, since e^{2·spread} has to be a float32.
"""

# Compiled functions have no types that mypy could read.
# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import numpy as np

from regard.engines.cpu.runtime.jit import exact_helper, helper, kernel, two_to_the
from regard.engines.cpu.runtime.signatures import PACKED_KEYS, PACKED_QUERIES

# Squared and multiplied by the smallest normal number, e^{2·spread} must stay below an error of 2⁻²⁶: a factor of a
# query may be rounded to zero when it is smaller than that number.
SHARED_SPREAD = 17.0  # two channels share a division: (e^{2·17})² · 1.2e-38 = 4e-9
SINGLE_SPREAD = 34.0  # each channel has its own: e^{2·34} · 1.2e-38 = 4e-9

QUERY_FACTORS = 22  # of a group of four channels: 7 for each pair, then τ and 4·g·(1 − g) of each channel
KEY_FACTORS = 6  # x₁, x₂, x₁x₂ for each pair

_ONE = np.float32(1.0)
_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453


@exact_helper
def _exponentials(y):
    """e^y and e^y − 1 of a float64 in [−87, 88], each to about eleven digits: enough to round to float32 once."""
    n = np.rint(y * _LOG2_E)
    r = y - n * _LN2
    p = 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    power = np.float64(two_to_the(np.int32(n)))
    q = p * (r * r) + r
    return power * (1.0 + q), power * q + (power - 1.0)


@kernel
def take_in(right, smallest, largest):
    """Take keys into the smallest and the largest of each channel; NaN is not looked at."""
    n_keys, channels = right.shape
    for j in range(n_keys):
        for c in range(channels):
            x = np.float64(right[j, c])
            smallest[c] = x if x < smallest[c] else smallest[c]
            largest[c] = x if x > largest[c] else largest[c]


@kernel(**PACKED_KEYS)
def pack_tanh_keys(right, smallest, packed):
    """Fill in x₁, x₂, x₁x₂ of every two channels; a missing channel or key has x = 0."""
    n_keys, channels = right.shape
    width = packed.shape[3]
    factors = np.empty((4, width))
    for block in range(packed.shape[0]):
        first = block * width
        for group in range(packed.shape[1]):
            for k in range(4):
                c = 4 * group + k
                for j in range(width):
                    factors[k, j] = 0.0
                if c < channels:
                    for j in range(min(width, n_keys - first)):
                        factors[k, j] = np.float64(right[first + j, c]) - smallest[c]
                for j in range(width):
                    _, factors[k, j] = _exponentials(2.0 * factors[k, j])
            for k in range(2):
                for j in range(width):
                    packed[block, group, 3 * k, j] = factors[2 * k, j]
                    packed[block, group, 3 * k + 1, j] = factors[2 * k + 1, j]
                    packed[block, group, 3 * k + 2, j] = factors[2 * k, j] * factors[2 * k + 1, j]


@helper
def largest_weight(weight):
    """max |w|, or 1: weights are divided by it, since factors with tiny ones would be too small for float32."""
    top = 0.0
    for c in range(weight.shape[0]):
        size = np.abs(np.float64(weight[c]))
        top = size if size > top and size < np.inf else top
    return top if top > 0.0 else 1.0


@kernel(**PACKED_QUERIES)
def pack_tanh_queries(left, smallest, weight, packed):
    """Fill in c₀…c₃, g₁, g₂, g₁g₂ of every two channels, with weights divided by the largest; then τ and 4g(1 − g)."""
    n_queries, channels = left.shape
    padded = 4 * packed.shape[1]
    top = largest_weight(weight)
    w, g, h, t = np.zeros(padded), np.zeros(padded), np.zeros(padded), np.zeros(padded)
    for c in range(channels):
        w[c] = weight[c] / top
    for i in range(n_queries):
        for c in range(channels):
            y = np.float64(left[i, c]) + smallest[c]
            size = np.abs(y)
            decay, less_one = _exponentials(-87.0 if size > 43.5 else -2.0 * size)
            near = 1.0 / (1.0 + decay)
            far = decay * near
            g[c] = far if y < 0.0 else near
            h[c] = near if y < 0.0 else far
            t[c] = less_one * near if y < 0.0 else -less_one * near
        for group in range(packed.shape[1]):
            for k in range(2):
                a, b, o = 4 * group + 2 * k, 4 * group + 2 * k + 1, 7 * k
                packed[i, group, o] = w[a] * t[a] + w[b] * t[b]
                packed[i, group, o + 1] = g[a] * (w[a] + w[b] * t[b])
                packed[i, group, o + 2] = g[b] * (w[b] + w[a] * t[a])
                packed[i, group, o + 3] = g[a] * g[b] * (w[a] + w[b])
                packed[i, group, o + 4] = g[a]
                packed[i, group, o + 5] = g[b]
                packed[i, group, o + 6] = g[a] * g[b]
            for k in range(4):
                packed[i, group, 14 + k] = t[4 * group + k]
                packed[i, group, 18 + k] = 4.0 * g[4 * group + k] * h[4 * group + k]


@helper
def shared_rows(queries, keys, w, start, stop, block, group, totals):
    """Add Σ w·tanh of four channels to the rows of some queries, two divisions for each pair."""
    for i in range(start, stop):
        a0, a1, a2, a3 = queries[i, group, 0], queries[i, group, 1], queries[i, group, 2], queries[i, group, 3]
        b1, b2, b3 = queries[i, group, 4], queries[i, group, 5], queries[i, group, 6]
        c0, c1, c2, c3 = queries[i, group, 7], queries[i, group, 8], queries[i, group, 9], queries[i, group, 10]
        d1, d2, d3 = queries[i, group, 11], queries[i, group, 12], queries[i, group, 13]
        for j in range(totals.shape[1]):
            x, y, xy = keys[block, group, 0, j], keys[block, group, 1, j], keys[block, group, 2, j]
            first = (a0 + a1 * x + a2 * y + a3 * xy) / (_ONE + b1 * x + b2 * y + b3 * xy)
            x, y, xy = keys[block, group, 3, j], keys[block, group, 4, j], keys[block, group, 5, j]
            second = (c0 + c1 * x + c2 * y + c3 * xy) / (_ONE + d1 * x + d2 * y + d3 * xy)
            totals[i - start, j] += first + second


@helper
def single_rows(queries, keys, w, start, stop, block, group, totals):
    """The same with four divisions, for keys that spread too far for x₁x₂."""
    w0, w1, w2, w3 = w[group, 0], w[group, 1], w[group, 2], w[group, 3]
    for i in range(start, stop):
        a, b, c, d = queries[i, group, 4], queries[i, group, 5], queries[i, group, 11], queries[i, group, 12]
        at, bt = w0 * queries[i, group, 14], w1 * queries[i, group, 15]
        ct, dt = w2 * queries[i, group, 16], w3 * queries[i, group, 17]
        aw, bw, cw, dw = w0 * a, w1 * b, w2 * c, w3 * d
        for j in range(totals.shape[1]):
            x, y = keys[block, group, 0, j], keys[block, group, 1, j]
            first = (at + aw * x) / (_ONE + a * x) + (bt + bw * y) / (_ONE + b * y)
            x, y = keys[block, group, 3, j], keys[block, group, 4, j]
            second = (ct + cw * x) / (_ONE + c * x) + (dt + dw * y) / (_ONE + d * y)
            totals[i - start, j] += first + second


@helper
def factored_slopes(queries, keys, w, start, stop, block, group, half, d_scores, d_left, d_value, d_right):
    """Σ dS·w·tanh′ of two channels over keys and over queries, and Σ dS·tanh over keys.

    They are written to `d_left` and `d_value`, a column for each query, and added to `d_right`.
    """
    a, b = 3 * half, 3 * half + 1
    for i in range(start, stop):
        g1, g2 = queries[i, group, 4 + 7 * half], queries[i, group, 5 + 7 * half]
        t1, t2 = queries[i, group, 14 + 2 * half], queries[i, group, 15 + 2 * half]
        m1 = w[group, 2 * half] * queries[i, group, 18 + 2 * half]
        m2 = w[group, 2 * half + 1] * queries[i, group, 19 + 2 * half]
        s1, s2, v1, v2 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for j in range(d_scores.shape[1]):
            e, x1, x2 = d_scores[i, j], keys[block, group, a, j], keys[block, group, b, j]
            r1, r2 = _ONE / (_ONE + g1 * x1), _ONE / (_ONE + g2 * x2)
            e1, e2 = e * r1, e * r2
            v1 += e1 * (t1 + g1 * x1)
            v2 += e2 * (t2 + g2 * x2)
            # By x + 1 before by m, which may be as small as 1 / x.
            e1 *= r1 * (_ONE + x1)
            e2 *= r2 * (_ONE + x2)
            s1 += e1
            s2 += e2
            d_right[0, j] += m1 * e1
            d_right[1, j] += m2 * e2
        d_left[0, i - start], d_left[1, i - start] = m1 * s1, m2 * s2
        d_value[0, i - start], d_value[1, i - start] = v1, v2


@exact_helper
def _decay(x):
    """e^{−2|x|} and e^{−2|x|} − 1 of a float32, each to about one unit in the last place."""
    y = np.float32(-2.0) * np.abs(x)
    y = np.float32(-87.0) if y < np.float32(-87.0) else y
    n = np.rint(y * np.float32(_LOG2_E))
    r = y - n * np.float32(0.693359375) - n * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    power = two_to_the(np.int32(n))
    q = p * (r * r) + r
    return power * (_ONE + q), power * q + (power - _ONE)


@exact_helper
def tanh_value(left, right):
    """tanh(l + r), for pairs of any size."""
    x = left + right
    decay, less_one = _decay(x)
    size = -less_one / (_ONE + decay)
    return -size if x < np.float32(0.0) else size


@exact_helper
def tanh_slope(left, right):
    """1 − tanh(l + r)², by left and by right."""
    decay, _ = _decay(left + right)
    root = _ONE / (_ONE + decay)
    return np.float32(4.0) * decay * root * root
