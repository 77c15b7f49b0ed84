from __future__ import annotations

import pytest
import torch

from regard.errors import DtypeError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, Where


@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_each_query_sees_what_the_function_says(answers_match, batch_shape):
    mask = Where(lambda row, column: (row * column) % 3 == 1)
    answers_match(mask, Grid(batch_shape, 4, 5), lambda batch, row, column: (row * column) % 3 == 1)


def test_a_function_of_rows_alone_or_columns_alone_or_neither_serves(answers_match):
    grid = Grid((2,), 4, 5)
    answers_match(Where(lambda row, column: row % 2 == 0), grid, lambda batch, row, column: row % 2 == 0)
    answers_match(Where(lambda row, column: column > 2), grid, lambda batch, row, column: column > 2)
    answers_match(Where(lambda row, column: torch.tensor(True)), grid, lambda batch, row, column: True)


def test_a_function_may_close_over_something_for_each_batch_entry(answers_match):
    limits = torch.tensor([1, 3])
    mask = Where(lambda row, column: column < limits[:, None, None])
    answers_match(mask, Grid((2,), 3, 4), lambda batch, row, column: column < (1, 3)[batch[0]], own_density=False)


def test_it_is_called_with_int64_positions_and_never_with_all_pairs():
    shapes = []

    def function(row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        assert row.dtype == column.dtype == torch.int64
        shapes.append((tuple(row.shape), tuple(column.shape)))
        return row == column

    Where(function).tile(range(2, 5), range(4), Grid((), 10, 10))
    assert shapes == [((3, 1), (1, 4))]


def test_the_function_must_return_a_bool_tensor():
    grid = Grid((), 3, 4)
    with pytest.raises(
        DtypeError, match=r"^`function` of Where must return a bool tensor: got torch\.int64\. Compare with"
    ):
        Where(lambda row, column: row + column).tile(grid.rows, grid.columns, grid)
    with pytest.raises(DtypeError, match="must return a bool tensor: got bool"):
        Where(lambda row, column: True).tile(grid.rows, grid.columns, grid)  # type: ignore[arg-type, return-value]


def test_the_function_must_answer_for_each_pair():
    grid = Grid((2,), 3, 4)
    text = (
        r"^`function` of Where must return what broadcasts to \(2, 3, 4\) for rows \(3, 1\) and columns \(1, 4\): "
        r"got \(5, 4\)\. Return one answer for each pair\.$"
    )
    with pytest.raises(ShapeError, match=text):
        Where(lambda row, column: torch.ones(5, 4, dtype=torch.bool)).tile(grid.rows, grid.columns, grid)


def test_the_function_must_be_one():
    with pytest.raises(
        DtypeError, match=r"must be a function of row and column: got Tensor\. For a tensor use Allowed"
    ):
        Where(torch.ones(2, 2, dtype=torch.bool))  # type: ignore[arg-type]


def test_no_keys_and_no_queries_are_no_trouble(answers_match):
    answers_match(Where(lambda row, column: row >= column), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(Where(lambda row, column: row >= column), Grid((2,), 0, 3), lambda batch, row, column: False)


def test_no_tile_is_known_without_asking():
    grid = Grid((), 1_000_000, 1_000_000)
    assert Where(lambda row, column: row == row).cover(grid.rows, grid.columns, grid) is Cover.SOME


def test_repr_names_the_function():
    def nearby(row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return row == column

    assert repr(Where(nearby)) == "Where(nearby)"
