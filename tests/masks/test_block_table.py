"""Block tables: all, none or some of every tile, as the mask itself says of its pairs."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, Where, Window
from regard.grid import Grid
from regard.masks.block_table import ALL, NONE, SOME
from regard.testing import MASKS, Sizes

SIZE = Sizes()
GRID = Grid((SIZE.batch, SIZE.heads), SIZE.n_queries, SIZE.n_keys)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (1, 7), (100, 100)])
@pytest.mark.parametrize("name", [name for name in MASKS if name != "no mask"])
def test_a_table_says_of_each_tile_what_is_allowed_in_it(name, shape):
    mask, (height, width) = MASKS[name](SIZE), shape
    table = mask.block_table(GRID, height, width)
    rows, columns = -(-GRID.n_queries // height), -(-GRID.n_keys // width)
    assert table.dtype == torch.int8
    assert table.shape[-2:] == (rows, columns)
    table = table.expand(*GRID.batch_shape, rows, columns)
    dense = mask.tile(GRID.rows, GRID.columns, GRID).expand(*GRID.batch_shape, GRID.n_queries, GRID.n_keys)
    for i in range(rows):
        for j in range(columns):
            tile = dense[..., i * height : (i + 1) * height, j * width : (j + 1) * width].flatten(-2)
            assert not tile[table[..., i, j] == NONE].any()
            assert tile[table[..., i, j] == ALL].all()


@pytest.mark.parametrize("mask", [Causal(), Window(3, 2), Causal(align=torch.tensor([0, 5]))])
def test_a_band_knows_every_tile_exactly_for_each_batch_row(mask):
    grid = Grid((2, 1), 64, 64)
    table = mask.block_table(grid, 8, 8).expand(2, 1, 8, 8)
    dense = mask.tile(grid.rows, grid.columns, grid).expand(2, 1, 64, 64).unflatten(-1, (8, 8)).unflatten(-3, (8, 8))
    tiles = dense.transpose(-2, -3).flatten(-2)
    expected = torch.where(tiles.all(-1), ALL, torch.where(tiles.any(-1), SOME, NONE))
    assert torch.equal(table, expected.to(torch.int8))


def test_what_a_mask_does_not_know_is_some():
    assert (Where(lambda row, column: row >= column).block_table(Grid((), 8, 8), 4, 4) == SOME).all()
    assert Causal().block_table(Grid((), 0, 8), 4, 4).shape == (0, 2)
