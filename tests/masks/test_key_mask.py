from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, KeyMask


@pytest.mark.parametrize("keys", [[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 0]])
@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_every_query_sees_the_keys_that_the_tensor_names(answers_match, keys, batch_shape):
    mask = KeyMask(torch.tensor(keys, dtype=torch.bool))
    answers_match(mask, Grid(batch_shape, 3, 5), lambda batch, row, column: keys[column], sharp=True)


def test_batch_axes_line_up_from_the_left(answers_match):
    keys = [[1, 0, 1, 1], [1, 1, 0, 1]]
    mask = KeyMask(torch.tensor(keys, dtype=torch.bool))
    answers_match(mask, Grid((2,), 3, 4), lambda batch, row, column: keys[batch[0]][column], sharp=True)
    answers_match(mask, Grid((2, 3), 3, 4), lambda batch, row, column: keys[batch[0]][column], sharp=True)
    by_head = [[[1, 0, 1], [0, 0, 1]]]
    mask = KeyMask(torch.tensor(by_head, dtype=torch.bool))
    answers_match(mask, Grid((3, 2), 2, 3), lambda batch, row, column: by_head[0][batch[1]][column], sharp=True)


def test_one_key_is_no_trouble(answers_match):
    answers_match(KeyMask(torch.tensor([[True], [False]])), Grid((2,), 3, 1), lambda batch, row, column: batch[0] == 0)


def test_no_keys_no_queries_and_no_batch_are_no_trouble(answers_match):
    answers_match(KeyMask(torch.ones(2, 0, dtype=torch.bool)), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(KeyMask(torch.ones(2, 3, dtype=torch.bool)), Grid((2,), 0, 3), lambda batch, row, column: False)
    answers_match(KeyMask(torch.ones(0, 3, dtype=torch.bool)), Grid((0,), 2, 3), lambda batch, row, column: False)


def test_the_tensor_must_have_one_entry_for_each_key():
    text = (
        r"^`tensor` of KeyMask must have one entry for each of the 5 keys: got \(2, 4\)\. Build it from these keys\.$"
    )
    with pytest.raises(ShapeError, match=text):
        KeyMask(torch.ones(2, 4, dtype=torch.bool)).check(Grid((2,), 3, 5))
    with pytest.raises(ShapeError, match="must have one entry for each of the 5 keys"):
        KeyMask(torch.ones(6, dtype=torch.bool)).check(Grid((), 3, 5))
    with pytest.raises(ShapeError, match=r"must have batch axes that line up with \(2,\)"):
        KeyMask(torch.ones(3, 5, dtype=torch.bool)).check(Grid((2,), 3, 5))
    with pytest.raises(ShapeError, match=r"must have an axis of keys, \(\.\.\., n_keys\): got \(\)"):
        KeyMask(torch.tensor(True))


def test_the_tensor_must_be_bool():
    text = r"^`tensor` of KeyMask must be bool, True where attention is allowed: got torch\.int64\. Pass tensor"
    with pytest.raises(DtypeError, match=text):
        KeyMask(torch.tensor([1, 0]))
    with pytest.raises(DtypeError, match=r"must be a bool tensor: got list\. Pass torch\.as_tensor\(tensor\)"):
        KeyMask([True])  # type: ignore[arg-type]


def test_a_tensor_on_another_device_must_be_moved():
    mask = KeyMask(torch.tensor([True, False]))
    grid = Grid((), 2, 2, torch.device("meta"))
    with pytest.raises(DeviceError, match="tensors of KeyMask must be on the device"):
        mask.check(grid)
    mask.to("meta").check(grid)


def test_changing_the_tensor_afterwards_changes_nothing():
    tensor = torch.tensor([True, False])
    mask = KeyMask(tensor)
    tensor.fill_(True)
    assert mask.picture(1, 2) == "#·"


def test_repr_describes_the_tensor():
    assert repr(KeyMask(torch.ones(2, 4, dtype=torch.bool))) == "KeyMask(<bool (2, 4)>)"


def test_cover_and_indices_at_a_million_cost_no_more_than_the_keys(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    keys = torch.zeros(1_000_000, dtype=torch.bool)
    keys[1000:1100] = True
    mask = KeyMask(keys)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(grid.rows, range(1000, 1100), grid) is Cover.ALL
    assert mask.cover(grid.rows, range(1100, 1_000_000), grid) is Cover.NONE
    assert mask.indices(range(64), grid)[0].tolist() == list(range(1000, 1100))
    assert mask.any_allowed(grid.rows, grid).shape == (1_000_000,)
    assert mask.density(1_000_000) == 1e-4
