from __future__ import annotations

import pytest
import torch

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, Strided


@pytest.mark.parametrize("stride", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "align", "offset"),
    [(5, 5, None, 0), (3, 5, "end", 2), (5, 3, "end", -2), (4, 5, -3, -3), (4, 5, 6, 6)],
)
def test_a_query_sees_every_so_many_keys(answers_match, stride, n_queries, n_keys, align, offset):
    grid = Grid((), n_queries, n_keys)
    mask = Strided(stride, align=align)
    answers_match(mask, grid, lambda batch, row, column: (row + offset - column) % stride == 0, sharp=stride == 1)


def test_each_batch_row_may_have_its_own_offset(answers_match):
    offsets = [0, -1]
    mask = Strided(3, align=torch.tensor(offsets))
    answers_match(mask, Grid((2, 2), 4, 5), lambda batch, row, column: (row + offsets[batch[0]] - column) % 3 == 0)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(0, 0), (0, 3), (3, 0)])
def test_no_queries_or_no_keys_are_no_trouble(answers_match, n_queries, n_keys):
    answers_match(Strided(2, align="start"), Grid((2,), n_queries, n_keys), lambda batch, row, column: False)


def test_a_tile_between_two_strides_is_known_to_be_empty():
    grid = Grid((), 100, 100)
    assert Strided(10).cover(range(50, 53), range(33, 38), grid) is Cover.NONE
    assert Strided(10).cover(range(50, 53), range(33, 44), grid) is Cover.SOME


def test_the_stride_must_be_a_whole_number_of_at_least_one():
    with pytest.raises(OptionError, match=r"^`stride` of Strided must be at least 1: got 0\. Pass 1 or more\.$"):
        Strided(0)
    with pytest.raises(DtypeError, match=r"`stride` of Strided must be an integer: got 2\.0"):
        Strided(2.0)  # type: ignore[arg-type]


def test_it_must_be_told_how_to_align_when_the_numbers_differ():
    with pytest.raises(ShapeError, match="Strided must be told how to align 3 queries with 5 keys"):
        Strided(2).check(Grid((), 3, 5))


def test_repr_shows_what_was_given():
    assert repr(Strided(4, align="end")) == "Strided(stride=4, align='end')"


def test_long_strides_cost_what_they_select_at_a_million(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    mask = Strided(10_000)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(range(64), range(100, 9_000), grid) is Cover.NONE
    indices = mask.indices(range(500_000, 500_064), grid)
    assert indices.shape == (64, 100)
    assert indices[3].tolist() == list(range(3, 1_000_000, 10_000))
    assert mask.any_allowed(grid.rows, grid).all()


def test_an_offset_beyond_all_keys_still_counts_in_strides(answers_match):
    far = 3 * 10**19 + 1
    answers_match(Strided(3, align=far), Grid((), 4, 5), lambda batch, row, column: (row + 1 - column) % 3 == 0)


def test_a_stride_must_fit_an_integer_of_the_machine():
    with pytest.raises(OptionError, match=r"`stride` of Strided must be at most 4611686018427387904: got 1000"):
        Strided(10**30)
