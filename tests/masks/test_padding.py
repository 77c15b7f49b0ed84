from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, Padding


@pytest.mark.parametrize("lengths", [[0, 4], [2, 3], [4, 4], [0, 0]])
@pytest.mark.parametrize("batch_shape", [(2,), (2, 3)])
def test_every_query_sees_the_keys_that_are_there(answers_match, lengths, batch_shape):
    grid = Grid(batch_shape, 3, 4)
    for mask in (Padding(lengths), Padding(torch.tensor(lengths)), Padding(torch.tensor(lengths, dtype=torch.int32))):
        answers_match(mask, grid, lambda batch, row, column: column < lengths[batch[0]], sharp=True)


def test_lengths_may_differ_by_head(answers_match):
    lengths = [[0, 1, 2], [3, 4, 4]]
    grid = Grid((2, 3), 3, 4)
    answers_match(Padding(lengths), grid, lambda batch, row, column: column < lengths[batch[0]][batch[1]], sharp=True)
    by_head = [[1, 0, 4]]
    answers_match(Padding(by_head), grid, lambda batch, row, column: column < by_head[0][batch[1]], sharp=True)


@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_one_length_serves_all(answers_match, batch_shape):
    answers_match(Padding(2), Grid(batch_shape, 3, 4), lambda batch, row, column: column < 2, sharp=True)
    answers_match(Padding(torch.tensor(2)), Grid(batch_shape, 3, 4), lambda batch, row, column: column < 2, sharp=True)


def test_no_keys_no_queries_and_no_batch_are_no_trouble(answers_match):
    answers_match(Padding([0, 0]), Grid((2,), 3, 0), lambda batch, row, column: False)
    answers_match(Padding([1, 2]), Grid((2,), 0, 3), lambda batch, row, column: False)
    answers_match(Padding([]), Grid((0,), 2, 3), lambda batch, row, column: False)


def test_a_length_beyond_the_keys_is_an_error_that_names_both():
    text = r"^`lengths` of Padding must be between 0 and the number of keys, 4: got 5\. Pass the number of real keys"
    with pytest.raises(OptionError, match=text):
        Padding([2, 5]).check(Grid((2,), 3, 4))
    with pytest.raises(OptionError, match="got -1"):
        Padding(torch.tensor([2, -1])).check(Grid((2,), 3, 4))


def test_lengths_must_line_up_with_the_batch_from_the_left():
    with pytest.raises(
        ShapeError, match=r"`lengths` of Padding must have batch axes that line up with \(2, 3\) .*got \(3,\)"
    ):
        Padding([1, 2, 3]).check(Grid((2, 3), 4, 4))
    with pytest.raises(ShapeError, match=r"got \(2, 3\)"):
        Padding([[1, 2, 3], [1, 2, 3]]).check(Grid((2,), 4, 4))


def test_lengths_must_be_integers():
    with pytest.raises(DtypeError, match=r"^`lengths` of Padding must hold integers: got a tensor of torch\.float32"):
        Padding(torch.tensor([1.0]))
    with pytest.raises(DtypeError, match=r"`lengths` of Padding must hold integers: got \[True, False\]"):
        Padding([True, False])
    with pytest.raises(DtypeError, match=r"`lengths` of Padding must be integers: got \[\[1\], \[1, 2\]\]"):
        Padding([[1], [1, 2]])  # type: ignore[list-item]


def test_plain_numbers_follow_the_problem_and_a_tensor_must_be_moved():
    grid = Grid((2,), 3, 4, torch.device("meta"))
    plain = Padding([1, 2])
    plain.check(grid)
    assert plain.tensors() == ()
    assert plain.tile(grid.rows, grid.columns, grid).device.type == "meta"
    with pytest.raises(DeviceError, match=r"tensors of Padding .* meta: got cpu\. Pass mask\.to\(\"meta\"\)\."):
        Padding(torch.tensor([1, 2])).check(grid)
    assert Padding(torch.tensor([1, 2])).to("meta").tensors()[0].device.type == "meta"


def test_changing_the_lengths_afterwards_changes_nothing():
    lengths = torch.tensor([1, 2])
    mask = Padding(lengths)
    lengths += 1
    assert mask.picture(1, 3) == "#··  ##·"


def test_repr_shows_numbers_and_describes_tensors():
    assert repr(Padding([1, 2])) == "Padding(lengths=[1, 2])"
    assert repr(Padding(3)) == "Padding(lengths=3)"
    assert repr(Padding(torch.tensor([1, 2]))) == "Padding(lengths=<int64 (2,)>)"


def test_cover_of_a_million_by_a_million_is_immediate(small_memory):
    grid = Grid((2,), 1_000_000, 1_000_000)
    mask = Padding([400_000, 600_000])
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(grid.rows, range(400_000), grid) is Cover.ALL
    assert mask.cover(grid.rows, range(600_000, 1_000_000), grid) is Cover.NONE
    assert mask.density(1_000_000) == 0.5
