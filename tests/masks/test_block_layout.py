from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import BlockLayout, Cover


def _random(*shape: int, share: float = 0.5) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < share


@pytest.mark.parametrize("batch", [(), (3,), (2, 1), (2, 3)])
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "block_size", "rows", "columns"),
    [(4, 6, 2, 2, 2), (5, 5, 2, 2, 2), (5, 4, (1, 3), 1, 3), (3, 4, 9, 9, 9), (2, 3, 1, 1, 1)],
)
def test_each_block_of_queries_sees_whole_blocks_of_keys(
    answers_match, batch, n_queries, n_keys, block_size, rows, columns
):
    layout = _random(*batch, -(-n_queries // rows), -(-n_keys // columns))
    grid = Grid((2, 3), n_queries, n_keys)
    whole = layout.expand(2, 3, *layout.shape[-2:]).tolist()
    answers_match(
        BlockLayout(layout, block_size),
        grid,
        lambda batch, row, column: whole[batch[0]][batch[1]][row // rows][column // columns],
        sharp=True,
    )


def test_no_keys_no_queries_and_no_batch_are_no_trouble(answers_match):
    answers_match(BlockLayout(_random(2, 0), 2), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(BlockLayout(_random(0, 2), 2), Grid((2,), 0, 3), lambda batch, row, column: False)
    answers_match(BlockLayout(_random(0, 1, 2), 2), Grid((0,), 2, 3), lambda batch, row, column: False)


def test_a_layout_of_another_size_is_an_error_that_names_both():
    text = (
        r"^`layout` of BlockLayout must be \(\.\.\., 3, 2\) for 5 queries and 8 keys in blocks of 2 × 4: "
        r"got \(3, 3\)\. Pass one entry for each block\.$"
    )
    with pytest.raises(ShapeError, match=text):
        BlockLayout(_random(3, 3), (2, 4)).check(Grid((), 5, 8))
    with pytest.raises(ShapeError, match=r"`layout` of BlockLayout must have batch axes that broadcast with \(2, 3\)"):
        BlockLayout(_random(2, 1, 1), 8).check(Grid((2, 3), 8, 8))
    with pytest.raises(ShapeError, match=r"must be \(\.\.\., row blocks, column blocks\): got \(3,\)"):
        BlockLayout(_random(3), 2)


def test_the_layout_must_be_bool_and_the_block_a_whole_number():
    with pytest.raises(
        DtypeError, match=r"`layout` of BlockLayout must be bool, .* got torch\.int64\. Pass layout\.bool\(\)"
    ):
        BlockLayout(torch.ones(2, 2, dtype=torch.int64), 2)
    with pytest.raises(OptionError, match="`block_size` of BlockLayout must be at least 1: got 0"):
        BlockLayout(_random(2, 2), 0)
    with pytest.raises(DtypeError, match=r"`block_size` of BlockLayout must be an integer: got 2\.5"):
        BlockLayout(_random(2, 2), (2, 2.5))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"must be one integer or \(rows, columns\): got \(1, 2, 3\)"):
        BlockLayout(_random(2, 2), (1, 2, 3))  # type: ignore[arg-type]


def test_a_layout_on_another_device_must_be_moved():
    mask = BlockLayout(_random(2, 2), 1)
    grid = Grid((), 2, 2, torch.device("meta"))
    with pytest.raises(DeviceError, match="tensors of BlockLayout must be on the device"):
        mask.check(grid)
    mask.to("meta").check(grid)


def test_changing_the_layout_afterwards_changes_nothing():
    layout = torch.tensor([[True, False]])
    mask = BlockLayout(layout, 1)
    layout.fill_(True)
    assert mask.picture(1, 2) == "#·"


def test_repr_describes_the_layout():
    assert repr(BlockLayout(_random(2, 3), 4)) == "BlockLayout(<bool (2, 3)>, block_size=(4, 4))"


def test_a_sparse_layout_costs_its_blocks_at_a_million(small_memory):
    n_blocks = 1_000_000 // 4000
    layout = torch.eye(n_blocks, dtype=torch.bool)
    grid = Grid((), 1_000_000, 1_000_000)
    mask = BlockLayout(layout, 4000)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(range(4000), range(4000), grid) is Cover.ALL
    assert mask.cover(range(4000), range(4000, 1_000_000), grid) is Cover.NONE
    assert mask.indices(range(8000, 8064), grid)[7].tolist() == list(range(8000, 12_000))
    assert mask.density(1_000_000) == 1 / n_blocks


def test_a_block_may_be_larger_than_everything(answers_match, small_memory):
    mask = BlockLayout(torch.tensor([[True]]), 1 << 40)
    answers_match(mask, Grid((), 3, 4), lambda batch, row, column: True)
