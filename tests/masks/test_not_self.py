from __future__ import annotations

import pytest
import torch

from regard.errors import ShapeError
from regard.grid import Grid
from regard.masks import Cover, NotSelf


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "align", "offset"), [(5, 5, None, 0), (3, 5, "end", 2), (5, 3, -1, -1), (1, 1, None, 0)]
)
def test_a_query_sees_all_but_itself(answers_match, n_queries, n_keys, align, offset):
    grid = Grid((2,), n_queries, n_keys)
    answers_match(NotSelf(align=align), grid, lambda batch, row, column: column != row + offset, sharp=True)


def test_each_batch_row_may_have_its_own_offset(answers_match):
    offsets = [1, 0]
    mask = NotSelf(align=torch.tensor(offsets))
    answers_match(mask, Grid((2, 2), 3, 4), lambda batch, row, column: column != row + offsets[batch[0]])


def test_a_lonely_query_sees_nothing():
    grid = Grid((), 1, 1)
    assert NotSelf().any_allowed(grid.rows, grid).tolist() == [False]
    assert NotSelf().indices(grid.rows, grid).shape == (1, 0)


def test_it_must_be_told_how_to_align_when_the_numbers_differ():
    with pytest.raises(ShapeError, match="NotSelf must be told how to align 3 queries with 5 keys"):
        NotSelf().check(Grid((), 3, 5))


def test_repr_shows_what_was_given():
    assert repr(NotSelf()) == "NotSelf()"
    assert repr(NotSelf(align=2)) == "NotSelf(align=2)"


def test_cover_of_a_million_by_a_million_is_immediate(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    assert NotSelf().cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert NotSelf().cover(range(64), range(64, 1_000_000), grid) is Cover.ALL
    assert NotSelf().any_allowed(range(64), grid).all()


@pytest.mark.parametrize("far", [10**19, -(10**19), 2**63 - 1])
def test_an_offset_beyond_all_keys_excludes_nobody(answers_match, far):
    answers_match(NotSelf(align=far), Grid((), 4, 3), lambda batch, row, column: True)
