from __future__ import annotations

import pytest
import torch

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, GlobalKeys


@pytest.mark.parametrize(
    ("positions", "columns"),
    [
        ([0], {0}),
        ([1, 3, 1], {1, 3}),
        ([0, 1, 3], {0, 1, 3}),
        ([-1, 0], {0, 4}),
        ([], set()),
        ([2, 1, 0, 3, 4], {0, 1, 2, 3, 4}),
        ((0, -5), {0}),
    ],
)
@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_every_query_sees_the_keys_at_these_positions(answers_match, positions, columns, batch_shape):
    answers_match(
        GlobalKeys(positions), Grid(batch_shape, 3, 5), lambda batch, row, column: column in columns, sharp=True
    )


def test_a_tensor_of_positions_says_the_same(answers_match):
    mask = GlobalKeys(torch.tensor([0, -1], dtype=torch.int32))
    answers_match(mask, Grid((), 3, 5), lambda batch, row, column: column in (0, 4), sharp=True)


def test_negative_positions_follow_the_number_of_keys():
    mask = GlobalKeys([-1])
    assert mask.picture(1, 3) == "··#"
    assert mask.picture(1, 5) == "····#"


def test_no_keys_and_no_positions_are_no_trouble(answers_match):
    answers_match(GlobalKeys([]), Grid((), 3, 0), lambda batch, row, column: False)


def test_a_position_that_is_not_there_is_an_error_that_names_it():
    text = r"^`positions` of GlobalKeys must be in range\(-5, 5\) for 5 keys: got 5\. Pass the positions of keys"
    with pytest.raises(OptionError, match=text):
        GlobalKeys([0, 5]).check(Grid((), 3, 5))
    with pytest.raises(OptionError, match="got -6"):
        GlobalKeys([-6]).check(Grid((), 3, 5))


def test_positions_must_be_a_list_of_integers():
    with pytest.raises(DtypeError, match="`positions` of GlobalKeys must hold integers"):
        GlobalKeys([0.5])  # type: ignore[list-item]
    with pytest.raises(
        DtypeError, match=r"must hold integers: got a tensor of torch\.float32\. Pass positions\.long\(\)"
    ):
        GlobalKeys(torch.tensor([0.0]))
    with pytest.raises(DtypeError, match="must be integers: got 'first'"):
        GlobalKeys("first")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"`positions` of GlobalKeys must have one axis: got \(1, 2\)"):
        GlobalKeys([[0, 1]])  # type: ignore[list-item]


def test_repr_shows_the_first_positions():
    assert repr(GlobalKeys([0, -1])) == "GlobalKeys([0, -1])"
    assert repr(GlobalKeys(range(10))) == "GlobalKeys([0, 1, 2, 3, 4, 5, 6, 7, …])"


def test_a_few_keys_cost_no_more_at_a_million(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    mask = GlobalKeys([0, 1, 2, -1])
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(grid.rows, range(3), grid) is Cover.ALL
    assert mask.cover(grid.rows, range(3, 999_999), grid) is Cover.NONE
    assert mask.indices(range(64), grid)[5].tolist() == [0, 1, 2, 999_999]
    assert mask.density(1_000_000) == 4 / 1_000_000
