from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Causal, Cover, Selected


def _random(n_keys: int, *shape: int) -> torch.Tensor:
    return torch.randint(-1, n_keys, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (4, 7), (4, 0), (3, 4, 2), (2, 1, 4, 2), (2, 3, 4, 3)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_each_query_sees_the_keys_that_are_listed_for_it(answers_match, shape, dtype):
    indices = _random(5, *shape)
    listed = indices.expand(2, 3, *shape[-2:]).tolist()
    mask = Selected(indices.to(dtype))
    answers_match(
        mask, Grid((2, 3), 4, 5), lambda batch, row, column: column in listed[batch[0]][batch[1]][row], sharp=True
    )


def test_one_query_and_one_key_are_no_trouble(answers_match):
    answers_match(Selected([[2, 0]]), Grid((2,), 1, 3), lambda batch, row, column: column in (0, 2), sharp=True)
    answers_match(Selected([[0], [-1]]), Grid((), 2, 1), lambda batch, row, column: row == 0, sharp=True)
    answers_match(Selected([[0]]), Grid((2,), 1, 1), lambda batch, row, column: True, sharp=True)


def test_duplicates_count_once_and_empty_slots_not_at_all():
    grid = Grid((), 3, 5)
    mask = Selected([[3, 3, 3], [-1, 4, -1], [-1, -1, -1]])
    assert mask.indices(grid.rows, grid).tolist() == [[3, -1, -1], [4, -1, -1], [-1, -1, -1]]
    assert mask.any_allowed(grid.rows, grid).tolist() == [True, True, False]


def test_no_keys_no_queries_and_no_batch_are_no_trouble(answers_match):
    answers_match(Selected(torch.full((3, 2), -1)), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(Selected(_random(3, 0, 2)), Grid((2,), 0, 3), lambda batch, row, column: False)
    answers_match(Selected(_random(3, 0, 2, 2)), Grid((0,), 2, 3), lambda batch, row, column: False)


def test_indices_beyond_the_keys_are_an_error_that_names_them():
    text = (
        r"^`indices` of Selected must be in range\(5\) for 5 keys, or −1 for an empty slot: got 5\. Pass the positions"
    )
    with pytest.raises(OptionError, match=text):
        Selected([[0, 5]]).check(Grid((), 1, 5))
    with pytest.raises(OptionError, match="got -2"):
        Selected([[0, -2]]).check(Grid((), 1, 5))


def test_indices_must_have_a_row_for_each_query():
    text = (
        r"^`indices` of Selected must have one row for each of the 4 queries: got \(3, 2\)\. Pass \(\.\.\., 4, 2\)\.$"
    )
    with pytest.raises(ShapeError, match=text):
        Selected(_random(5, 3, 2)).check(Grid((), 4, 5))
    with pytest.raises(ShapeError, match=r"must be \(\.\.\., n_queries, k\): got \(3,\)\..* GlobalKeys\(positions\)"):
        Selected(torch.tensor([0, 1, 2]))
    with pytest.raises(ShapeError, match=r"`indices` of Selected must have batch axes that broadcast with \(2, 3\)"):
        Selected(_random(5, 2, 4, 2)).check(Grid((2, 3), 4, 5))


def test_indices_must_be_integers():
    with pytest.raises(DtypeError, match=r"`indices` of Selected must hold integers: got a tensor of torch\.float32"):
        Selected(torch.zeros(2, 2))
    with pytest.raises(DtypeError, match=r"must hold integers: got a tensor of torch\.bool"):
        Selected(torch.zeros(2, 2, dtype=torch.bool))


def test_indices_on_another_device_must_be_moved():
    mask = Selected([[0, 1]])
    with pytest.raises(DeviceError, match="tensors of Selected must be on the device"):
        mask.check(Grid((), 1, 2, torch.device("meta")))
    assert mask.to("meta").tensors()[0].device.type == "meta"


def test_changing_the_indices_afterwards_changes_nothing():
    indices = torch.tensor([[0]])
    mask = Selected(indices)
    indices.fill_(1)
    mask.indices(range(1), Grid((), 1, 2)).fill_(1)
    assert mask.picture(1, 2) == "#·"


def test_repr_describes_the_indices():
    assert repr(Selected([[0, 1]])) == "Selected(<int64 (1, 2)>)"


@pytest.fixture(scope="module")
def million() -> Selected:
    rows = torch.arange(1_000_000)[:, None]
    return Selected((rows * 7 + torch.tensor([0, 1000, 400_000])) % 1_000_000)


def test_a_selection_costs_what_it_lists_at_a_million(million, small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    assert million.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert million.cover(range(64), range(2000, 400_000), grid) is Cover.NONE
    assert million.cover(range(64), range(2000), grid) is Cover.SOME
    assert million.cover(range(5, 6), range(35, 36), grid) is Cover.ALL
    assert million.indices(range(64), grid)[1].tolist() == [7, 1007, 400_007]
    assert million.density(1_000_000) == 3e-6


def test_on_a_gpu_nobody_checks_and_keys_that_are_not_there_are_empty_slots(monkeypatch):
    monkeypatch.setattr("regard.modes.waits", lambda tensor: True)
    mask, grid = Selected([[0, 9], [-5, 2]]), Grid((), 2, 4)
    mask.check(grid)
    assert mask.indices(range(2), grid).tolist() == [[0, -1], [-1, 2]]
    assert (mask & Causal(align="end")).indices(range(2), grid).tolist() == [[0], [2]]
