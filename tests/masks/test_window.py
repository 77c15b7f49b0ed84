from __future__ import annotations

import pytest
import torch

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, Window


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 1), (2, 1), (9, 9)])
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "align", "offset"), [(5, 5, None, 0), (3, 5, "end", 2), (5, 3, -1, -1)]
)
def test_a_query_sees_its_neighbourhood_and_itself(answers_match, before, after, n_queries, n_keys, align, offset):
    mask = Window(before, after, align=align)
    grid = Grid((), n_queries, n_keys)
    answers_match(mask, grid, lambda batch, row, column: -before <= column - (row + offset) <= after, sharp=True)


@pytest.mark.parametrize(
    ("before", "after", "sees"),
    [
        (None, 1, lambda distance: distance <= 1),
        (1, None, lambda distance: distance >= -1),
        (None, None, lambda distance: True),
    ],
)
def test_none_is_no_limit_on_that_side(answers_match, before, after, sees):
    mask = Window(before, after, align=1)
    answers_match(mask, Grid((2,), 4, 5), lambda batch, row, column: sees(column - row - 1), sharp=True)
    assert mask.count_bound(Grid((), 4, 5)) is None


def test_each_batch_row_may_have_its_own_offset(answers_match):
    offsets = [-1, 2]
    mask = Window(1, 1, align=torch.tensor(offsets))
    answers_match(mask, Grid((2, 2), 4, 5), lambda batch, row, column: abs(column - row - offsets[batch[0]]) <= 1)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(0, 0), (0, 3), (3, 0)])
def test_no_queries_or_no_keys_are_no_trouble(answers_match, n_queries, n_keys):
    answers_match(Window(1, 1, align="start"), Grid((), n_queries, n_keys), lambda batch, row, column: False)


def test_sizes_must_be_whole_and_not_negative():
    with pytest.raises(OptionError, match=r"^`before` of Window must be at least 0: got -1\. Pass 0 or more\.$"):
        Window(-1, 0)
    with pytest.raises(OptionError, match="`after` of Window must be at least 0: got -3"):
        Window(0, -3)
    with pytest.raises(DtypeError, match=r"^`before` of Window must be an integer: got 1\.5\. Pass a whole number\.$"):
        Window(1.5, 0)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="`after` of Window must be an integer: got True"):
        Window(1, True)


def test_it_must_be_told_how_to_align_when_the_numbers_differ():
    with pytest.raises(ShapeError, match="Window must be told how to align 3 queries with 5 keys"):
        Window(1, 1).cover(range(3), range(5), Grid((), 3, 5))


def test_repr_shows_what_was_given():
    assert repr(Window(before=128, after=0)) == "Window(before=128, after=0)"
    assert repr(Window(None, 2, align=3)) == "Window(before=None, after=2, align=3)"


def test_its_bound_is_its_width():
    assert Window(3, 2).count_bound(Grid((), 100, 100)) == 6
    assert Window(3, 2).count_bound(Grid((), 4, 4)) == 4


def test_a_narrow_window_costs_its_width_at_a_million(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    mask = Window(before=128, after=0)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(range(500_000, 500_064), range(499_872), grid) is Cover.NONE
    assert mask.cover(range(500_000, 500_064), range(499_935, 500_001), grid) is Cover.ALL
    indices = mask.indices(range(500_000, 500_064), grid)
    assert indices.shape == (64, 129)
    assert indices[3].tolist() == list(range(499_875, 500_004))
    assert mask.density(1_000_000) == (129 * 1_000_000 - 128 * 129 / 2) / 1e12


@pytest.mark.parametrize("far", [10**19, 10**30, 2**63 - 1])
def test_a_window_may_be_wider_than_any_number_of_keys(answers_match, far):
    grid = Grid((), 4, 5)
    answers_match(Window(far, 0, align=1), grid, lambda batch, row, column: column <= row + 1, sharp=True)
    answers_match(Window(0, far, align=1), grid, lambda batch, row, column: column >= row + 1, sharp=True)
    answers_match(Window(far, far, align=-far), grid, lambda batch, row, column: column <= row, sharp=True)
    offsets = torch.tensor([-1, 2])
    answers_match(Window(far, 0, align=offsets), Grid((2,), 4, 5), lambda b, i, j: j <= i + offsets[b[0]])


def test_integers_of_numpy_are_integers(answers_match):
    np = pytest.importorskip("numpy")
    mask = Window(np.int64(1), np.int32(0))
    assert repr(mask) == "Window(before=1, after=0)"
    answers_match(mask, Grid((), 4, 4), lambda batch, row, column: 0 <= row - column <= 1, sharp=True)
