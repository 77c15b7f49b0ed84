"""Entmax and the best k over strips: what the float64 definitions say, in float32."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("numba")

from regard import Entmax
from regard.engines.cpu.kernels.entmax_thresholds import best_strip, entmax_row, entmax_strip
from regard.weights import entmax
from regard.weights.rule import over_one_tile
from regard.weights.topk import _BestK

ALPHAS = (1.05, 1.3, 1.5, 1.7, 2.0, 2.5, 4.0)
INFINITY = np.inf


def random(*shape, std=1.0, seed=0):
    return (std * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def run(scores, alpha):
    """(weights, peak, threshold, slopes, total slope, entropy) of the kernel."""
    rows = len(scores)
    weights = np.array(scores, np.float32, order="C")
    peak, threshold = np.full(rows, 7, np.float32), np.full(rows, 7.0)
    slopes = np.full(weights.shape, 7, np.float32)
    total_slope, entropy = np.full(rows, 7.0), np.full(rows, 7.0)
    entmax_strip(weights, alpha, peak, threshold, slopes, total_slope, entropy)
    return weights, peak, threshold, slopes, total_slope, entropy


def defined(scores, alpha):
    return entmax(torch.from_numpy(np.asarray(scores, np.float64)), alpha=alpha).numpy()


def statistics(scores, alpha):
    rule = Entmax(torch.nn.Parameter(torch.tensor(alpha, dtype=torch.float64)))
    columns = torch.arange(scores.shape[1])
    found = rule.solve(over_one_tile(torch.from_numpy(scores.astype(np.float64)), columns))
    return [each.detach().squeeze(-1).numpy() for each in found]


def check(scores, alpha):
    weights, peak, threshold, slopes, total_slope, entropy = run(scores, alpha)
    expected = defined(scores, alpha)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(weights.sum(1, dtype=np.float64), expected.sum(1), rtol=0, atol=4e-6)
    # No key of the support is lost, and none is gained but at its edge.
    assert (weights[expected > 1e-5] > 0).all()
    assert (expected[weights > 1e-5] > 0).all()
    want = statistics(scores, alpha)
    np.testing.assert_array_equal(peak, want[0].astype(np.float32))
    np.testing.assert_allclose(threshold, want[1], rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(entropy, want[3], rtol=1e-5, atol=1e-5)
    inside = weights > 0
    assert (slopes[~inside] == 0).all()
    np.testing.assert_allclose(slopes[inside], weights[inside].astype(np.float64) ** (2 - alpha), rtol=2e-5)
    np.testing.assert_allclose(total_slope, slopes.sum(1, dtype=np.float64), rtol=1e-5)
    if alpha <= 2:  # above, a slope is arbitrarily large at the edge of the support
        np.testing.assert_allclose(total_slope, want[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("std", [0.001, 0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("columns", [2, 31, 32, 33, 300, 2048])
def test_random_scores_get_the_weights_of_the_definition(alpha, std, columns):
    check(random(8, columns, std=std), alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masked_keys_get_nothing_and_leave_the_rest_as_if_alone(alpha):
    scores = random(16, 200)
    scores[np.random.default_rng(1).random(scores.shape) < 0.6] = -INFINITY
    check(scores, alpha)
    assert (run(scores, alpha)[0][scores == -INFINITY] == 0).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_equal_scores_share_alike(alpha):
    for columns in (1, 2, 7, 100, 4096):
        scores = np.full((2, columns), 3.5, np.float32)
        np.testing.assert_allclose(run(scores, alpha)[0], 1 / columns, rtol=2e-6)
        check(scores, alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_ties_share_alike(alpha):
    scores = np.round(random(16, 500) * 2) / 2
    check(scores, alpha)
    for row, weights in zip(scores, run(scores, alpha)[0], strict=True):
        for score in np.unique(row):
            assert len(np.unique(weights[row == score])) == 1


@pytest.mark.parametrize("alpha", ALPHAS)
def test_one_key_has_all_the_weight(alpha):
    weights, peak, threshold, slopes, total_slope, entropy = run([[-40.0]], alpha)
    assert weights[0, 0] == slopes[0, 0] == total_slope[0] == 1
    assert (peak[0], threshold[0], entropy[0]) == (-40, -1, 0)
    scores = np.full((3, 100), -INFINITY, np.float32)
    scores[np.arange(3), [0, 50, 99]] = [1e30, -1e30, 0.0]
    np.testing.assert_array_equal(run(scores, alpha)[0], np.isfinite(scores))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("columns", [0, 1, 40])
def test_a_row_that_allows_nothing_is_empty(alpha, columns):
    scores = np.full((2, columns), -INFINITY, np.float32)
    weights, peak, threshold, slopes, total_slope, entropy = run(scores, alpha)
    for each in (weights, slopes, total_slope, entropy):
        assert not each.any()
    assert (peak == -INFINITY).all()
    assert (threshold == INFINITY).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_large_scores_far_apart_and_close_together(alpha):
    rows = [
        [1e30, 1e30, -1e30, 0.0],
        [3e38, -3e38, 3e38, 1.0],
        [1e30, np.nextafter(np.float32(1e30), np.float32(0)), 0.0, 1.0],
        [1e6, 1e6 - 0.25, 1e6 - 0.5, 1e6 + 0.125],
        [1e-30, 2e-30, -1e-30, 0.0],
        [1.0, np.nextafter(np.float32(1), np.float32(0)), 1.0, np.nextafter(np.float32(1), np.float32(2))],
        [0.0, -1e-6, -1e-3, -1e-1],
        [-1e4, -2e4, -3e4, -1e4 - 0.0625],
    ]
    check(np.array(rows, np.float32), alpha)


@pytest.mark.parametrize("alpha", [1.001, 1.01, 1.49, 1.51, 1.99, 2.01, 3.0])
def test_every_alpha_is_allowed(alpha):
    check(random(8, 300), alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_nan_and_infinity_show_where_they_do_in_the_definition(alpha):
    scores = random(4, 100)
    scores[0, 40] = np.nan
    scores[1, 99] = INFINITY
    scores[2, 3], scores[2, 70] = INFINITY, np.nan
    scores[:, ::5] = -INFINITY
    scores[0, 40] = np.nan
    weights, peak, _, slopes, total_slope, entropy = run(scores, alpha)
    expected = defined(scores, alpha)
    # One weight of NaN is enough for its row, whatever else is summed up; what is not allowed has none in either.
    np.testing.assert_array_equal(np.isnan(weights).any(-1), np.isnan(expected).any(-1))
    np.testing.assert_array_equal(weights[scores == -INFINITY], expected[scores == -INFINITY])
    assert np.isnan(peak[0])
    assert peak[1] == INFINITY
    for each in (slopes[0, 40], total_slope[:3], entropy[:3]):
        assert np.isnan(each).all()
    np.testing.assert_allclose(weights[3], expected[3], atol=2e-6)


@given(
    arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 70)), elements=st.floats(-20, 20, width=32)),
    st.sampled_from(ALPHAS) | st.floats(1.01, 4),
    st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 100.0]),
)
@settings(max_examples=300, deadline=None)
def test_any_scores_get_the_weights_of_the_definition(scores, alpha, size):
    check(scores * np.float32(size), alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_what_is_not_wanted_is_not_needed(alpha):
    scores = random(4, 300)
    weights, peak, threshold = scores.copy(), np.empty(4, np.float32), np.empty(4)
    entmax_strip(weights, alpha, peak, threshold, np.empty((0, 0), np.float32), np.empty(0), np.empty(0))
    np.testing.assert_array_equal(weights, run(scores, alpha)[0])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_parts_of_a_row_get_its_weights_from_its_statistics(alpha):
    scores = random(4, 700)
    scores[2] = -INFINITY
    scores[3, 5] = np.nan
    weights, peak, threshold, slopes, *_ = run(scores, alpha)
    for i in range(4):
        for part in (slice(0, 300), slice(300, 301), slice(301, 700)):
            row, row_slopes = scores[i, part].copy(), np.full(700, 7, np.float32)[part]
            entmax_row(row, peak[i], threshold[i], alpha, row_slopes)
            np.testing.assert_allclose(row, weights[i, part], rtol=1e-6)
            np.testing.assert_allclose(row_slopes, slopes[i, part], rtol=1e-6)


# The best k -----------------------------------------------------------------------------------------------------------


def best_of(scores, k, width):
    """What the kernel keeps of scores that come `width` columns at a time."""
    best, index = np.full((len(scores), k), -INFINITY, np.float32), np.full((len(scores), k), -1)
    for start in range(0, scores.shape[1], width):
        best_strip(np.ascontiguousarray(scores[:, start : start + width]), start, best, index)
    return best, index


def check_best(scores, k, width):
    best, index = best_of(scores, k, width)
    expected = _BestK(k).lift(torch.from_numpy(scores), torch.arange(scores.shape[1]))
    np.testing.assert_array_equal(index, expected[1].numpy())
    np.testing.assert_array_equal(best, expected[0].numpy())


_SCORES = random(6, 700)
_MANY = _SCORES > 1.5
ORDERS = {
    "random": _SCORES,
    "ascending": np.sort(_SCORES, 1),
    "descending": np.ascontiguousarray(np.sort(_SCORES, 1)[:, ::-1]),
    "ties": np.round(_SCORES),
    "flat": np.zeros_like(_SCORES),
    "zeros of both signs": np.where(_MANY, np.float32(0), np.float32(-0.0)),
    "masked": np.where(_SCORES > 1, _SCORES, np.float32(-INFINITY)),
    "nothing": np.full_like(_SCORES, -INFINITY),
    "infinite": np.where(_MANY, np.float32(INFINITY), _SCORES),
    "not a number": np.where(_MANY, np.float32(np.nan), _SCORES),
    "either": np.where(_MANY, np.float32(np.nan), np.where(_SCORES < -1, np.float32(INFINITY), _SCORES)),
    "geometric": np.exp(np.linspace(-80, 80, 700, dtype=np.float32))[None] * np.float32([[1], [-1]]),
}


@pytest.mark.parametrize("k", [1, 2, 8, 32, 100, 699, 700, 900])
@pytest.mark.parametrize("order", ORDERS)
def test_the_best_are_those_of_the_definition_in_whatever_order_they_come(order, k):
    scores = ORDERS[order]
    for width in (1, 30, 32, 100, 700):
        if width > 1 or k < 100:
            check_best(scores, k, width)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 150)),
        elements=st.sampled_from([-INFINITY, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, INFINITY, np.nan])
        | st.floats(width=32, allow_subnormal=False),
    ),
    st.integers(1, 40),
    st.integers(1, 150),
)
@settings(max_examples=300, deadline=None)
def test_any_scores_leave_the_best_of_the_definition(scores, k, width):
    check_best(scores, k, width)


def test_rows_must_be_contiguous():
    scores = random(4, 64)[:, :40]
    with pytest.raises(TypeError, match="No matching definition"):
        best_strip(scores, 0, np.empty((4, 2), np.float32), np.empty((4, 2), np.int64))


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 2.5])
@pytest.mark.parametrize("gap", [0.1, 0.5, 1.0, 1.9])
def test_rows_of_two_levels_sum_to_one_whatever_the_counts(alpha, gap):
    # A kernel such as Boxcar gives zeros and ones: supports then jump by many keys at once.
    for n_keys in (2, 19, 40, 69):
        rows = np.zeros((n_keys + 1, n_keys), np.float32)
        for ones in range(n_keys + 1):
            rows[ones, :ones] = gap
        wanted = entmax(torch.from_numpy(rows).double(), alpha=alpha)
        peak, threshold, none = np.zeros(n_keys + 1, np.float32), np.zeros(n_keys + 1), np.zeros(0)
        entmax_strip(rows, alpha, peak, threshold, np.zeros((0, 0), np.float32), none, none)
        torch.testing.assert_close(torch.from_numpy(rows).double(), wanted, rtol=0, atol=2e-6)
