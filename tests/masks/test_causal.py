from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Causal, Cover


def test_a_query_sees_itself_and_what_came_before(answers_match):
    answers_match(Causal(), Grid((), 5, 5), lambda batch, row, column: column <= row, sharp=True)


@pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize(
    ("align", "offset"), [("start", 0), ("end", 2), (-2, -2), (1, 1), (-9, -9), (9, 9)], ids=lambda value: str(value)
)
def test_align_moves_the_queries_along_the_keys(answers_match, batch_shape, align, offset):
    grid = Grid(batch_shape, 3, 5)
    answers_match(Causal(align=align), grid, lambda batch, row, column: column <= row + offset, sharp=True)


@pytest.mark.parametrize("far", [10**19, 2**63 - 1, 2**62, 10**400])
def test_an_offset_beyond_all_keys_sees_all_or_nothing(answers_match, far):
    for grid in (Grid((), 3, 5), Grid((2,), 5, 3)):
        answers_match(Causal(align=far), grid, lambda batch, row, column: True)
        answers_match(Causal(align=-far), grid, lambda batch, row, column: False)
    assert Causal(align=far).density(5) == 1.0


def test_offsets_at_the_ends_of_int64_do_not_overflow(answers_match):
    ends = torch.tensor([torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max])
    answers_match(Causal(align=ends), Grid((2,), 3, 5), lambda batch, row, column: batch[0] == 1)


def test_an_integer_of_numpy_is_an_integer(answers_match):
    np = pytest.importorskip("numpy")
    answers_match(Causal(align=np.int64(2)), Grid((), 3, 5), lambda batch, row, column: column <= row + 2, sharp=True)


def test_more_queries_than_keys_leave_the_first_with_nothing_to_see(answers_match):
    grid = Grid((), 5, 3)
    answers_match(Causal(align="end"), grid, lambda batch, row, column: column <= row - 2, sharp=True)
    assert Causal(align="end").any_allowed(grid.rows, grid).tolist() == [False, False, True, True, True]


def test_each_batch_row_may_have_its_own_offset(answers_match):
    offsets = [0, 2]
    grid = Grid((2, 3), 3, 5)
    mask = Causal(align=torch.tensor(offsets))
    answers_match(mask, grid, lambda batch, row, column: column <= row + offsets[batch[0]])
    each = [[0, 1, 2], [3, -1, -9]]
    answers_match(
        Causal(align=torch.tensor(each)), grid, lambda batch, row, column: column <= row + each[batch[0]][batch[1]]
    )
    answers_match(Causal(align=torch.tensor(1)), grid, lambda batch, row, column: column <= row + 1, sharp=True)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(0, 0), (0, 3), (3, 0)])
def test_no_queries_or_no_keys_are_no_trouble(answers_match, n_queries, n_keys):
    answers_match(Causal(align="end"), Grid((2,), n_queries, n_keys), lambda batch, row, column: False)


def test_an_empty_batch_with_its_own_offsets_is_no_trouble(answers_match):
    answers_match(Causal(align=torch.zeros(0, dtype=torch.int64)), Grid((0,), 3, 5), lambda batch, row, column: False)


def test_changing_the_offsets_afterwards_changes_nothing():
    offsets = torch.tensor([0, 1])
    mask = Causal(align=offsets)
    offsets += 5
    assert mask.tensors()[0].tolist() == [0, 1]


def test_it_must_be_told_how_to_align_when_the_numbers_differ():
    with pytest.raises(
        ShapeError, match=r"^Causal must be told how to align 3 queries with 5 keys\. Pass align=\"start\""
    ):
        Causal().check(Grid((), 3, 5))


def test_align_must_be_one_of_its_forms():
    for wrong in ("middle", 0.5, True):
        with pytest.raises(
            OptionError,
            match=f'`align` of Causal must be "start", "end", an integer .*: got {wrong!r}. Pass align="end" for',
        ):
            Causal(align=wrong)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="`align` of Causal must hold integers"):
        Causal(align=torch.tensor([0.5]))
    with pytest.raises(ShapeError, match=r"`align` of Causal must have batch axes that line up with \(2, 3\)"):
        Causal(align=torch.tensor([1, 2, 3])).check(Grid((2, 3), 4, 4))


def test_offsets_on_another_device_are_an_error_that_names_both():
    mask = Causal(align=torch.tensor([0, 1]))
    with pytest.raises(DeviceError, match=r"tensors of Causal must be on the device .* meta: got cpu\. Pass mask\.to"):
        mask.check(Grid((2,), 3, 3, torch.device("meta")))
    moved = mask.to("meta")
    assert type(moved) is Causal
    assert moved.tensors()[0].device.type == "meta"
    moved.check(Grid((2,), 3, 3, torch.device("meta")))
    assert mask.to("cpu") is mask


def test_repr_shows_what_was_given():
    assert repr(Causal()) == "Causal()"
    assert repr(Causal(align="end")) == "Causal(align='end')"
    assert repr(Causal(align=torch.tensor([1, 2]))) == "Causal(align=<offsets (2,)>)"


def test_a_large_triangle_is_counted_tile_by_tile():
    assert Causal().density(100_000) == (100_000 + 1) / 200_000


def test_cover_of_a_million_by_a_million_is_immediate(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    assert Causal().cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert Causal().cover(range(500_000, 500_064), range(499_000, 500_001), grid) is Cover.ALL
    assert Causal().cover(range(500_000, 500_064), range(500_064, 1_000_000), grid) is Cover.NONE
