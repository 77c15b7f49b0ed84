from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, ShapeError
from regard.grid import Grid
from regard.masks import Allowed, Cover


def _random(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5


@pytest.mark.parametrize(
    "shape", [(4, 5), (1, 5), (4, 1), (1, 1), (3, 4, 5), (2, 3, 4, 5), (2, 1, 4, 5), (3, 1, 5), (2, 1, 4, 1)]
)
def test_each_query_sees_what_the_tensor_says(answers_match, shape):
    tensor = _random(*shape)
    grid = Grid((2, 3), 4, 5)
    answers_match(Allowed(tensor), grid, tensor.expand(2, 3, 4, 5), sharp=1 in shape[-2:])


def test_a_tensor_without_rows_is_for_every_row(answers_match):
    tensor = _random(5)
    answers_match(Allowed(tensor), Grid((2,), 4, 5), tensor.expand(2, 4, 5), sharp=True)
    answers_match(Allowed(torch.tensor(True)), Grid((), 4, 5), torch.ones(4, 5, dtype=torch.bool), sharp=True)


def test_no_keys_and_no_queries_are_no_trouble(answers_match):
    answers_match(Allowed(_random(3, 0)), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(Allowed(_random(0, 3)), Grid((2,), 0, 3), lambda batch, row, column: False)
    answers_match(Allowed(_random(0, 2, 3)), Grid((0,), 2, 3), lambda batch, row, column: False)


def test_tiles_are_views():
    tensor = _random(4, 5)
    tile = Allowed(tensor).tile(range(1, 3), range(2, 5), Grid((), 4, 5))
    assert tile.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_a_mask_of_another_size_is_an_error_that_names_both():
    text = (
        r"^`tensor` of Allowed must be \(\.\.\., 4 or 1, 5 or 1\) for 4 queries and 5 keys: got \(4, 6\)\. "
        r"Build it for this problem, or cut it to this size\.$"
    )
    with pytest.raises(ShapeError, match=text):
        Allowed(_random(4, 6)).check(Grid((), 4, 5))
    with pytest.raises(ShapeError, match=r"got \(3, 5\)"):
        Allowed(_random(3, 5)).check(Grid((), 4, 5))
    with pytest.raises(
        ShapeError, match=r"`tensor` of Allowed must have batch axes that broadcast with \(2, 3\) from the right"
    ):
        Allowed(_random(2, 4, 5)).check(Grid((2, 3), 4, 5))
    with pytest.raises(ShapeError, match=r"broadcast with \(\) from the right: got \(2, 4, 5\)"):
        Allowed(_random(2, 4, 5)).check(Grid((), 4, 5))


def test_a_float_tensor_is_an_error_that_names_bias():
    with pytest.raises(
        DtypeError, match=r"must be bool, .* got torch\.float32\. For numbers .* score \+ Bias\(tensor\)"
    ):
        Allowed(torch.zeros(2, 2))
    with pytest.raises(DtypeError, match=r"otherwise tensor\.bool\(\)"):
        Allowed(torch.zeros(2, 2, dtype=torch.int64))


def test_a_tensor_on_another_device_must_be_moved():
    mask = Allowed(_random(2, 2))
    grid = Grid((), 2, 2, torch.device("meta"))
    with pytest.raises(DeviceError, match="tensors of Allowed must be on the device"):
        mask.check(grid)
    mask.to("meta").check(grid)


def test_repr_describes_the_tensor():
    assert repr(Allowed(_random(3, 4, 5))) == "Allowed(<bool (3, 4, 5)>)"


def test_cover_does_not_read_the_tile(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    tensor = torch.zeros((), dtype=torch.bool).expand(1_000_000, 1_000_000)
    assert Allowed(tensor).cover(grid.rows, grid.columns, grid) is Cover.SOME
    keys = torch.arange(1_000_000) < 10
    assert Allowed(keys).cover(grid.rows, range(10), grid) is Cover.ALL
    assert Allowed(keys).cover(grid.rows, range(10, 1_000_000), grid) is Cover.NONE
