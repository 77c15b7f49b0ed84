from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, ShapeError
from regard.grid import Grid
from regard.masks import Cover, SameDocument


@pytest.mark.parametrize("ids", [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [-7, -7, 3, 9, 9]])
@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_a_query_sees_the_keys_of_its_document(answers_match, ids, batch_shape):
    grid = Grid(batch_shape, 5, 5)
    answers_match(SameDocument(ids), grid, lambda batch, row, column: ids[row] == ids[column], sharp=True)
    answers_match(SameDocument(torch.tensor(ids)), grid, lambda batch, row, column: ids[row] == ids[column], sharp=True)


def test_ids_in_any_order_are_no_trouble(answers_match):
    ids = [2, 0, 2, 1, 0]
    answers_match(SameDocument(ids), Grid((2,), 5, 5), lambda batch, row, column: ids[row] == ids[column])


def test_the_keys_of_a_scattered_document_are_listed_in_their_order():
    ids = torch.arange(5000) % 2
    indices = SameDocument(ids).indices(range(2), Grid((), 5000, 5000))
    assert indices.tolist() == [list(range(0, 5000, 2)), list(range(1, 5000, 2))]


def test_keys_may_have_ids_of_their_own(answers_match):
    query_ids, key_ids = [0, 1, 5], [0, 0, 1, 2]
    mask = SameDocument(query_ids, key_ids)
    answers_match(mask, Grid((2,), 3, 4), lambda batch, row, column: query_ids[row] == key_ids[column])
    assert mask.any_allowed(range(3), Grid((), 3, 4)).tolist() == [True, True, False]


def test_batch_axes_line_up_from_the_left(answers_match):
    query_ids, key_ids = [[0, 0, 1], [0, 1, 2]], [[0, 1, 1, 1], [0, 0, 2, 2]]
    mask = SameDocument(torch.tensor(query_ids), torch.tensor(key_ids))
    for batch_shape in ((2,), (2, 3)):
        answers_match(
            mask,
            Grid(batch_shape, 3, 4),
            lambda batch, row, column: query_ids[batch[0]][row] == key_ids[batch[0]][column],
        )
    mask = SameDocument(torch.tensor(query_ids), torch.tensor(key_ids[0]))
    answers_match(mask, Grid((2, 3), 3, 4), lambda batch, row, column: query_ids[batch[0]][row] == key_ids[0][column])
    mask = SameDocument(torch.tensor(query_ids[1]), torch.tensor([key_ids]))
    answers_match(mask, Grid((3, 2), 3, 4), lambda batch, row, column: query_ids[1][row] == key_ids[batch[1]][column])


def test_no_keys_no_queries_and_no_batch_are_no_trouble(answers_match):
    answers_match(SameDocument([1, 2], []), Grid((2,), 2, 0), lambda batch, row, column: False)
    answers_match(SameDocument([], [1, 2]), Grid((2,), 0, 2), lambda batch, row, column: False)
    ids = torch.zeros(0, 2, dtype=torch.int64)
    answers_match(SameDocument(ids), Grid((0,), 2, 2), lambda batch, row, column: False)


def test_ids_must_be_as_many_as_queries_and_keys():
    text = r"^`query_ids` of SameDocument must have one entry for each of the 4 queries: got \(3,\)\. Pass the document"
    with pytest.raises(ShapeError, match=text):
        SameDocument([0, 1, 2]).check(Grid((), 4, 4))
    text = (
        r"^`key_ids` of SameDocument must have one entry for each of the 5 keys: got none, with query_ids \(4,\)\. "
        r"Pass the document of each key\.$"
    )
    with pytest.raises(ShapeError, match=text):
        SameDocument([0, 0, 1, 1]).check(Grid((), 4, 5))
    with pytest.raises(ShapeError, match=r"for each of the 5 keys: got \(3,\)"):
        SameDocument([0, 0, 1, 1], [0, 0, 1]).check(Grid((), 4, 5))
    with pytest.raises(ShapeError, match=r"`query_ids` of SameDocument must have batch axes that line up with \(2,\)"):
        SameDocument(torch.zeros(3, 4, dtype=torch.int64)).check(Grid((2,), 4, 4))
    with pytest.raises(ShapeError, match=r"`key_ids` of SameDocument must have batch axes that line up with \(2,\)"):
        SameDocument([0] * 4, torch.zeros(3, 4, dtype=torch.int64)).check(Grid((2,), 4, 4))
    with pytest.raises(ShapeError, match=r"must have an axis of positions, \(\.\.\., n\): got \(\)"):
        SameDocument(torch.tensor(3))


def test_ids_must_be_integers():
    with pytest.raises(
        DtypeError, match=r"`query_ids` of SameDocument must hold integers: got a tensor of torch\.float32"
    ):
        SameDocument(torch.zeros(3))
    with pytest.raises(DtypeError, match="`key_ids` of SameDocument must hold integers"):
        SameDocument([0], [0.5])  # type: ignore[list-item]


def test_ids_on_another_device_must_be_moved():
    mask = SameDocument(torch.tensor([0, 1]), torch.tensor([0, 1]))
    grid = Grid((), 2, 2, torch.device("meta"))
    with pytest.raises(DeviceError, match="tensors of SameDocument must be on the device"):
        mask.check(grid)
    moved = mask.to("meta")
    assert all(tensor.device.type == "meta" for tensor in moved.tensors())
    moved.check(grid)


def test_repr_describes_the_ids():
    assert repr(SameDocument([0, 1])) == "SameDocument(query_ids=<int64 (2,)>)"
    assert repr(SameDocument([0, 1], [0])) == "SameDocument(query_ids=<int64 (2,)>, key_ids=<int64 (1,)>)"


def test_its_bound_is_the_longest_document():
    assert SameDocument([0, 0, 1, 0, 2]).count_bound(Grid((), 5, 5)) == 3


def test_short_documents_cost_their_length_at_a_million(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    mask = SameDocument(torch.arange(1_000_000) // 100)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(range(100, 164), range(100, 200), grid) is Cover.ALL
    assert mask.cover(range(100, 164), range(200, 1_000_000), grid) is Cover.NONE
    assert mask.indices(range(500_000, 500_064), grid)[63].tolist() == list(range(500_000, 500_100))
    assert mask.any_allowed(range(64), grid).all()
    assert mask.density(1_000_000) == 1e-4
