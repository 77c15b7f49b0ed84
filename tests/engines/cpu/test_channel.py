"""The compiled channel form: Σ w · φ(left, right) of a tile and its gradients, against float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

import numpy as np

from regard.engines.cpu.kernels import channel
from regard.engines.cpu.kernels.channel import (
    FUNCTIONS,
    channel_gradients,
    channel_scores,
    prepare_keys,
    prepare_queries,
)
from regard.scores.form import ChannelForm

NAMES = ("scores", "d_left", "d_right", "d_weight")


def drawn(n_queries, n_keys, channels, left=1.0, right=1.0, seed=0):
    """left, right, weight and d_scores, float32."""
    draw = np.random.default_rng(seed).standard_normal
    parts = (
        left * draw((n_queries, channels)),
        right * draw((n_keys, channels)),
        draw(channels),
        draw((n_queries, n_keys)),
    )
    return [part.astype(np.float32) for part in parts]


def compiled(function, left, right, weight, d_scores, scale=1.0, rows=64, blocks=2):
    """The scores and gradients of a whole matrix, tile after tile, and the branch."""
    branch, smallest, keys = prepare_keys(right, FUNCTIONS[function])
    scores = np.full(d_scores.shape, np.nan, np.float32)
    d_left, d_right, d_weight = np.zeros_like(left), np.zeros_like(right), np.zeros(weight.shape)
    width = keys.shape[3] * blocks
    for i in range(0, len(left), rows):
        queries = prepare_queries(left[i : i + rows], smallest, weight, branch)
        for tile in range(0, len(keys), blocks):
            j = tile // blocks * width
            part = keys[tile : tile + blocks]
            written = np.full(d_scores[i : i + rows, j : j + width].shape, np.nan, np.float32)
            channel_scores(queries, part, weight, scale, branch, written)
            scores[i : i + rows, j : j + width] = written
            gradient = np.ascontiguousarray(d_scores[i : i + rows, j : j + width])
            to_left, to_right = d_left[i : i + rows], d_right[j : j + width]
            channel_gradients(queries, part, weight, scale, branch, gradient, to_left, to_right, d_weight)
    return branch, [scores, d_left, d_right, d_weight]


def plain(function, left, right, weight, d_scores, scale=1.0, dtype=torch.float64):
    """The same by torch's autograd."""
    parts = [torch.tensor(part, dtype=dtype, requires_grad=True) for part in (left, right, weight)]
    form = ChannelForm(left=parts[0], right=parts[1], weight=parts[2].unsqueeze(0), function=function, scale=scale)
    scores = form.scores()
    gradients = torch.autograd.grad(scores, parts, torch.tensor(d_scores, dtype=dtype), allow_unused=True)
    gradients = [torch.zeros_like(part) if each is None else each for part, each in zip(parts, gradients, strict=True)]
    return [part.detach().numpy() for part in (scores, *gradients)]


def largest_error(got, exact):
    return np.abs(got - exact).max(initial=0.0)


def assert_as_exact_as_eager(function, *inputs, scale=1.0):
    branch, got = compiled(function, *inputs, scale=scale)
    exact, eager = plain(function, *inputs, scale=scale), plain(function, *inputs, scale=scale, dtype=torch.float32)
    for name, ours, theirs, true in zip(NAMES, got, eager, exact, strict=True):
        unit = np.spacing(np.abs(true).max(initial=0.0).astype(np.float32))
        assert largest_error(ours, true) <= 2.0 * largest_error(theirs, true) + unit, name
    return branch


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "channels"),
    [(1, 1, 1), (1, 300, 5), (70, 1, 3), (5, 7, 2), (33, 257, 4), (130, 600, 9), (3, 16, 64)],
)
def test_scores_and_gradients_match_float64(function, n_queries, n_keys, channels):
    inputs = drawn(n_queries, n_keys, channels)
    inputs[0][0] = inputs[1][0]  # some channels equal, where |l − r| has the gradient 0 and l ≠ r is false
    _, got = compiled(function, *inputs, scale=0.5)
    for name, ours, true in zip(NAMES, got, plain(function, *inputs, scale=0.5), strict=True):
        np.testing.assert_allclose(ours, true, rtol=2e-5, atol=2e-5 * np.abs(true).max(), err_msg=name)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("n_queries", "n_keys", "channels"), [(0, 5, 3), (5, 0, 3), (4, 6, 0)])
def test_empty_sizes_give_zeros(function, n_queries, n_keys, channels):
    _, got = compiled(function, *drawn(n_queries, n_keys, channels))
    for part in got:
        assert not part.any()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_added_to_what_is_there(function):
    left, right, weight, d_scores = drawn(4, 20, 3)
    branch, smallest, keys = prepare_keys(right, FUNCTIONS[function])
    queries = prepare_queries(left, smallest, weight, branch)
    once = [np.zeros_like(left), np.zeros_like(right), np.zeros(3)]
    above = [np.full_like(part, 2.0) for part in once]
    for parts in (once, above):
        channel_gradients(queries, keys, weight, 1.0, branch, d_scores, *parts)
    for first, second in zip(once, above, strict=True):
        np.testing.assert_allclose(second, first + 2.0, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("function", ["tanh", "absolute", "square"])
@pytest.mark.parametrize("size", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize("channels", [64, 7])
def test_errors_are_at_most_twice_those_of_eager(function, size, channels):
    assert_as_exact_as_eager(function, *drawn(150, 600, channels, left=size, right=size))


@pytest.mark.parametrize(("right", "branch"), [(2.0, channel._SHARED), (3.5, channel._SINGLE), (7.0, channel._TANH)])
@pytest.mark.parametrize("left", [1e-3, 1.0, 7.0, 40.0])
def test_every_way_to_tanh_is_as_exact_as_eager(left, right, branch):
    assert assert_as_exact_as_eager("tanh", *drawn(150, 600, 64, left=left, right=right)) == branch


def test_tiny_activations_keep_their_digits():
    inputs = drawn(50, 60, 16, left=1e-6, right=1e-6)
    inputs[0], inputs[1] = np.abs(inputs[0]), np.abs(inputs[1])
    inputs[2] = np.abs(inputs[2])
    _, (scores, _, _, d_weight) = compiled("tanh", *inputs)
    exact = plain("tanh", *inputs)
    np.testing.assert_allclose(scores, exact[0], rtol=1e-6)
    np.testing.assert_allclose(d_weight, exact[3], rtol=1e-5)


@pytest.mark.parametrize("offset", [3.0, -15.0, 15.0, 59.5, -1000.0])
def test_opposite_offsets_of_queries_and_keys_are_exact(offset):
    left, right, weight, d_scores = drawn(20, 40, 8)
    left, right = left + np.float32(offset), right - np.float32(offset)
    assert assert_as_exact_as_eager("tanh", left, right, weight, d_scores) == channel._SHARED


@pytest.mark.parametrize(
    ("pairs", "branch"),
    [
        ([(15.0, -14.0), (0.5, 0.0)], channel._SHARED),
        ([(60.0, -59.5), (0.5, 0.0), (-0.5, -29.0)], channel._TANH),
        ([(33.0, -32.5), (-1.0, 1.0), (0.25, 0.0)], channel._SINGLE),
        ([(33.0, -32.5), (-60.0, 60.5), (100.0, -100.25)], channel._TANH),
    ],
)
def test_large_queries_meet_large_keys(pairs, branch):
    left = np.array([[pair[0]] * 3 for pair in pairs], np.float32)
    right = np.array([[pair[1]] * 3 for pair in pairs], np.float32)
    weight = np.array([1.0, -2.0, 0.5], np.float32)
    assert assert_as_exact_as_eager("tanh", left, right, weight, np.eye(len(pairs), dtype=np.float32)) == branch


@pytest.mark.parametrize("right", [2.0, 3.5])
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_weights_and_gradients_of_any_size_keep_their_digits(right, size):
    left, keys, weight, d_scores = drawn(30, 400, 8, left=6.0, right=right)
    assert_as_exact_as_eager("tanh", left, keys, weight * np.float32(size), d_scores)
    assert_as_exact_as_eager("tanh", left, keys, weight, d_scores * np.float32(size))


def test_zero_weights_give_zero_scores_and_their_own_gradient():
    left, right, weight, d_scores = drawn(5, 30, 6)
    weight[:] = 0.0
    _, (scores, d_left, d_right, d_weight) = compiled("tanh", left, right, weight, d_scores)
    assert not scores.any()
    assert not d_left.any()
    assert not d_right.any()
    np.testing.assert_allclose(d_weight, plain("tanh", left, right, weight, d_scores)[3], rtol=1e-5, atol=1e-5)


def test_the_gradient_of_the_weights_is_summed_in_float64():
    inputs = drawn(512, 1024, 2)
    inputs[3] = np.abs(inputs[3])
    exact, eager = plain("tanh", *inputs)[3], plain("tanh", *inputs, dtype=torch.float32)[3]
    _, got = compiled("tanh", *inputs)
    assert largest_error(got[3], exact) <= largest_error(eager, exact)


@pytest.mark.parametrize("right", [1.0, 3.5, 10.0])
@pytest.mark.parametrize("function", ["tanh", "absolute", "square"])
def test_nan_reaches_its_own_row_and_column_alone(function, right):
    left, keys, weight, d_scores = drawn(6, 600, 5, right=right)
    left[2, 1], keys[300, 4] = np.nan, np.nan
    _, (scores, d_left, d_right, _) = compiled(function, left, keys, weight, d_scores)
    expected = np.zeros(scores.shape, bool)
    expected[2], expected[:, 300] = True, True
    np.testing.assert_array_equal(np.isnan(scores), expected)
    for ours, true in zip((d_left, d_right), plain(function, left, keys, weight, d_scores)[1:3], strict=True):
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(true))


def test_nan_differs_from_everything():
    left, right, weight, d_scores = drawn(2, 3, 4)
    left[:], right[:] = np.nan, np.nan
    _, got = compiled("differ", left, right, weight, d_scores)
    np.testing.assert_allclose(got[0], np.full((2, 3), weight.sum()), rtol=1e-6)


def test_infinite_activations_saturate():
    left, right, weight, d_scores = drawn(3, 40, 4)
    left[1], right[7] = -np.inf, np.inf
    _, got = compiled("tanh", left, right, weight, d_scores)
    exact = plain("tanh", left, right, weight, d_scores)
    np.testing.assert_allclose(got[0], exact[0], rtol=1e-5, atol=1e-5)
    assert np.isnan(got[0][1, 7])
