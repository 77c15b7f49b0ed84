"""Details of views: one query, masked maps, gradients of several readings, autocast."""

import numpy as np
import pytest
import torch

from regard import Additive, KeyMask, Raw, weigh
from regard.engines import Tiled
from regard.errors import OptionError
from regard.scores import Dot
from regard.testing import AllocationTrap
from regard.view import few_weights as kept_weights

pytestmark = pytest.mark.usefixtures("few_weights")

# What a test reads is more than a few weights.
many = pytest.mark.parametrize("few_weights", ["kept"], indirect=True)


def test_one_query_can_be_read_several_times_or_not_at_all():
    view = weigh(torch.rand(1, 4), torch.rand(3, 4), torch.rand(3, 2))
    assert view.rows([0, 0]).shape == (2, 3)
    assert view.rows([]).shape == (0, 3)


def test_the_largest_of_masked_and_negative_weights_is_zero():
    q, k = torch.ones(8, 1), -torch.ones(1024, 1)
    view = weigh(q, k, k, score=Dot(), weights=Raw(), mask=KeyMask(torch.arange(1024) < 512))
    assert float(view.map(1, 1, pool="max")) == float(view.dense().max()) == 0
    assert view.map(1, 2, pool="max").tolist() == [[-1.0, 0.0]]


def test_the_largest_of_masked_and_negative_weights_is_zero_where_masked_tiles_are_left_out():
    q, k = torch.ones(8, 1), -torch.ones(64, 1)
    engine = Tiled(tile_elements=64, kernels=False)
    view = weigh(q, k, k, score=Dot(), weights=Raw(), mask=KeyMask(torch.arange(64) < 32), engine=engine)
    assert float(view.map(1, 1, pool="max")) == 0
    assert view.map(1, 2, pool="max").tolist() == [[-1.0, 0.0]]


def test_each_reading_can_be_differentiated_by_itself():
    x = torch.randn(6, 4, requires_grad=True)
    view = weigh(x, x, x, score=Additive(4, 4, 3))
    with torch.no_grad():
        assert not view.output.requires_grad
    view.output.sum().backward()
    view.entropy().sum().backward()
    view.rows([1]).sum().backward()
    view.received().sum().backward()


@many
def test_what_keys_receive_is_summed_strip_by_strip():
    x = torch.randn(1200, 4, requires_grad=True)
    with AllocationTrap(1200 * 1200 // 4):
        weigh(x, x, x, score=Additive(4, 4, 64)).received().sum().backward()


def test_what_keys_receive_is_summed_over_tiles_of_rows():
    queries, keys = torch.randn(40, 3), torch.randn(30, 3)
    view = weigh(queries, keys, keys, engine=Tiled(tile_elements=64, kernels=False))
    torch.testing.assert_close(view.received(), view.dense().sum(-2))


def test_the_heaviest_that_a_view_has_given_may_be_changed_without_changing_the_view():
    view = weigh(torch.rand(3, 4), torch.rand(5, 4), torch.rand(5, 2))
    kept = view.top(2)
    before = kept.weights.clone(), kept.indices.clone()
    kept.weights.zero_()
    kept.indices.fill_(-7)
    again = view.top(2)
    assert torch.equal(again.weights, before[0])
    assert torch.equal(again.indices, before[1])


READINGS = {
    "dense": lambda view: view.dense(),
    "rows": lambda view: view.rows([0, 2]),
    "every row": lambda view: view.rows([0, 1, 2]),
    "tile": lambda view: view.tile(slice(0, 3), slice(0, 5)),
    "part of a tile": lambda view: view.tile(slice(1, 2), slice(1, 3)),
    "top": lambda view: view.top(5).weights,
    "places": lambda view: view.top(5).indices,
    "entropy": lambda view: view.entropy(),
    "received": lambda view: view.received(),
    "map": lambda view: view.map(3, 5),
    "largest": lambda view: view.map(2, 2, pool="max"),
    "log normalizer": lambda view: view.log_normalizer(),
    "output": lambda view: view.output,
}


@pytest.mark.parametrize("scale", [1.0, 1e4], ids=["", "by strips"])
@pytest.mark.parametrize("engine", [None, "tiled", "sdpa", "reference"])
def test_what_a_view_has_given_may_be_changed_in_place_without_changing_the_view(engine, scale):
    queries, keys, values = torch.rand(3, 4), torch.rand(5, 4) * scale, torch.rand(5, 2)
    view = weigh(queries, keys, values, engine=engine)
    before = {name: read(view).clone() for name, read in READINGS.items()}
    for changed, change in READINGS.items():
        change(view).fill_(7)
        for name, read in READINGS.items():
            assert torch.equal(read(view), before[name]), f"{name}, after {changed} was changed"


@pytest.mark.parametrize("engine", [None, "tiled"])
def test_few_weights_are_kept_unless_an_engine_was_asked_for(monkeypatch, few_weights, engine):
    computed = []
    define = kept_weights.define_weights
    monkeypatch.setattr(kept_weights, "define_weights", lambda problem: computed.append(problem) or define(problem))
    view = weigh(torch.rand(3, 4), torch.rand(5, 4), torch.rand(5, 2), engine=engine)
    for _ in range(2):
        view.dense(), view.top(2), view.entropy(), view.tile(slice(2), slice(2))
    assert len(computed) == (engine is None and few_weights == "kept")


def test_autocast_around_a_reading_changes_nothing():
    x = torch.randn(6, 4)
    view = weigh(x, x, x)
    plain = view.rows([0]), view.dense(), view.entropy()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = view.rows([0]), view.dense(), view.entropy()
    for one, other in zip(plain, inside, strict=True):
        assert torch.equal(one, other)


@many
def test_a_repr_of_many_weights_does_not_compute_them():
    x = torch.randn(4096, 4)
    assert "draw them with .map" in repr(weigh(x, x, x))


@pytest.mark.parametrize(
    "one", [np.int64(1), np.uint8(1), torch.tensor(1), np.array(1)], ids=["64", "8", "tensor", "array"]
)
def test_integers_of_any_library_are_integers(one):
    x = torch.randn(6, 4)
    view = weigh(x, x, x)
    assert torch.equal(view.rows(one), view.rows(1))
    assert torch.equal(view.rows([one, one]), view.rows([1, 1]))
    assert torch.equal(view.top(one).indices, view.top(1).indices)
    assert torch.equal(view.map(one, one), view.map(1, 1))
    assert torch.equal(view.tile(slice(0, one), slice(one, 3)), view.tile(slice(0, 1), slice(1, 3)))
    assert torch.equal(view.tile(range(one), range(one, 3)), view.tile(range(1), range(1, 3)))


@pytest.mark.parametrize("no", [True, np.bool_(True), torch.tensor(True), 1.0, "1"])
def test_what_is_no_integer_is_refused(no):
    x = torch.randn(6, 4)
    view = weigh(x, x, x)
    for read in (view.top, lambda side: view.map(side, side)):
        with pytest.raises(OptionError, match="must be (an integer|integers) of at least 1"):
            read(no)


@pytest.mark.parametrize("no", [True, np.bool_(True), torch.tensor(True), 1.0, [True]])
def test_rows_that_are_bools_or_fractions_are_refused(no):
    x = torch.randn(6, 4)
    with pytest.raises(OptionError, match=r"`index` of rows\(\) must"):
        weigh(x, x, x).rows(no)
