"""Readings of tiles of weights: what the readers of views say, tile by tile."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from regard.engines.cpu.kernels.logarithm import logarithm
from regard.engines.cpu.kernels.tile_readings import read_tile
from regard.grid import Grid
from regard.view.readings import Entropy, Map, Received, TopWeights

N_QUERIES, N_KEYS = 90, 210


def weights_of(kind):
    scores = torch.randn(N_QUERIES, N_KEYS, generator=torch.Generator().manual_seed(3))
    if kind == "sparse":
        return torch.where(scores > 1.5, scores.softmax(-1), 0)
    if kind == "negative":
        return torch.where(scores > 0, scores - 1, 0)
    if kind == "ties":
        return torch.where(scores > 1, 0.25, 0.0)
    if kind == "tiny":
        return (20 * scores).softmax(-1)
    return scores.softmax(-1)


def read(weights, *, height=7, width=11, k=5, tile=(40, 64), skip=()):
    """(entropy, received, top weights, top indices, picture) by the kernel."""
    n_queries, n_keys = weights.shape
    entropy, received, picture = np.zeros(n_queries), np.zeros(n_keys), np.zeros((height, width))
    top_weights, top_index = np.zeros((n_queries, k), np.float32), np.full((n_queries, k), -1)
    row_bins, column_bins = np.arange(n_queries) * height // n_queries, np.arange(n_keys) * width // n_keys
    for top in range(0, n_queries, tile[0]):
        rows = slice(top, min(top + tile[0], n_queries))
        for left in range(0, n_keys, tile[1]):
            columns = slice(left, min(left + tile[1], n_keys))
            read_tile(
                np.ascontiguousarray(weights[rows, columns]),
                left,
                entropy[:0] if "entropy" in skip else entropy[rows],
                received[:0] if "received" in skip else received[columns],
                top_weights[rows],
                top_index[rows],
                np.zeros((0, 0)) if "picture" in skip else picture,
                row_bins[:0] if "picture" in skip else row_bins[rows],
                column_bins[:0] if "picture" in skip else column_bins[columns],
            )
    return entropy, received, top_weights, top_index, picture


def defined(weights, *, height=7, width=11, k=5):
    grid = Grid((), *weights.shape, torch.device("cpu"))
    readers = Entropy(), Received(), TopWeights(k), Map(height, width, "sum")
    for reader in readers:
        exact = torch.float32 if isinstance(reader, TopWeights) else torch.float64
        reader.start(grid, exact)
        reader.absorb(weights.to(exact), grid.rows, grid.columns)
    entropy, received, top, picture = (reader.result() for reader in readers)
    return [each.numpy() for each in (entropy, received, top.weights, top.indices, picture)]


def check(weights, **options):
    got = read(weights.numpy(), **options)
    options.pop("tile", None)
    expected = defined(weights, **options)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(got[2], expected[2])
    np.testing.assert_array_equal(got[3], expected[3])
    np.testing.assert_allclose(got[4], expected[4], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["softmax", "sparse", "negative", "ties", "tiny"])
@pytest.mark.parametrize("tile", [(90, 210), (40, 64), (1, 33), (7, 1)])
def test_tiles_read_what_the_readers_do(kind, tile):
    check(weights_of(kind), tile=tile)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (90, 210), (90, 3), (2, 210), (89, 209)])
def test_pictures_of_every_size_hold_all_the_weight(height, width):
    check(weights_of("softmax"), height=height, width=width)


@pytest.mark.parametrize("k", [0, 1, 40, 300])
def test_as_many_keys_as_wanted_are_kept(k):
    weights = weights_of("sparse")
    if k:
        check(weights, k=k)
    else:
        np.testing.assert_array_equal(read(weights.numpy(), k=0)[1], read(weights.numpy())[1])


@pytest.mark.parametrize("skipped", ["entropy", "received", "picture"])
def test_what_is_not_wanted_changes_nothing_else(skipped):
    weights = weights_of("softmax").numpy()
    everything, rest = read(weights), read(weights, skip=(skipped,))
    for name, one, other in zip(("entropy", "received", "", "", "picture"), everything, rest, strict=True):
        if name == skipped:
            assert not other.any()
        else:
            np.testing.assert_array_equal(one, other)


def test_a_negative_weight_has_no_entropy():
    assert np.isnan(read(np.array([[0.5, -0.5]], np.float32), height=1, width=1)[0][0])


def test_nan_reaches_every_reading():
    entropy, received, top_weights, top_index, picture = read(np.array([[0.5, np.nan, 0.0]], np.float32), height=1)
    assert np.isnan([entropy[0], received[1], top_weights[0, 0], picture[0].sum()]).all()
    assert top_index[0].tolist() == [1, 0, -1, -1, -1]
    assert received[0] == 0.5


def test_logarithms_are_right_to_the_last_places():
    near_one = np.float32(1) + np.arange(-2000, 2000, dtype=np.float32) * np.float32(2**-20)
    everywhere = np.exp(np.linspace(-87, 88, 20_000)).astype(np.float32)
    for numbers in (near_one, everywhere):
        got = np.array([logarithm(each) for each in numbers])
        np.testing.assert_allclose(got, np.log(numbers.astype(np.float64)), rtol=2e-7, atol=1e-30)
