from __future__ import annotations

import pytest
import torch

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import (
    Allowed,
    Causal,
    Cover,
    KeyMask,
    NotSelf,
    Padding,
    PerHead,
    RandomKeys,
    Selected,
    Strided,
    Window,
)


@pytest.mark.parametrize("batch_shape", [(3,), (2, 3)])
def test_each_head_has_its_own_mask(answers_match, batch_shape):
    mask = PerHead([Causal(), Window(1, 1), Strided(2)])
    sees = [
        lambda row, column: column <= row,
        lambda row, column: abs(column - row) <= 1,
        lambda row, column: (row - column) % 2 == 0,
    ]
    answers_match(mask, Grid(batch_shape, 5, 5), lambda batch, row, column: sees[batch[-1]](row, column))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (3, 6), (6, 2), (0, 4), (4, 0)])
def test_none_is_a_head_that_sees_every_key(answers_match, n_queries, n_keys):
    mask = PerHead([None, Causal(align="end"), None])
    offset = n_keys - n_queries

    def sees(batch: tuple[int, ...], row: int, column: int) -> bool:
        return batch[-1] != 1 or column <= row + offset

    answers_match(mask, Grid((2, 3), n_queries, n_keys), sees)
    assert PerHead([None, None]).cover(range(4), range(5), Grid((2,), 4, 5)) is Cover.ALL


def test_a_head_sees_the_problem_without_the_axis_of_heads(answers_match):
    tensor = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.5  # One for each batch entry.
    keys = torch.tensor([[True, False, True, True], [False, False, False, True]])
    lengths = [1, 3]
    mask = PerHead([Allowed(tensor), KeyMask(keys), Padding(lengths)])
    truth = torch.stack(
        [
            tensor,
            keys[:, None, :].expand(2, 3, 4),
            (torch.arange(4) < torch.tensor([[1], [3]]))[:, None].expand(2, 3, 4),
        ],
        1,
    )
    answers_match(mask, Grid((2, 3), 3, 4), truth)


def test_it_combines_with_other_masks(answers_match):
    lengths = [2, 4]
    mask = PerHead([Window(1, 0), Selected([[0], [3], [2], [-1]])]) & Padding(lengths) | NotSelf() & PerHead(
        [Strided(3)] * 2
    )
    listed = [{0}, {3}, {2}, set()]

    def sees(batch: tuple[int, ...], row: int, column: int) -> bool:
        first = 0 <= row - column <= 1 if batch[1] == 0 else column in listed[row]
        return (first and column < lengths[batch[0]]) or (column != row and (row - column) % 3 == 0)

    answers_match(mask, Grid((2, 2), 4, 4), sees)
    answers_match(~mask, Grid((2, 2), 4, 4), lambda batch, row, column: not sees(batch, row, column))


def test_heads_may_be_nested(answers_match):
    inner = PerHead([Causal(), NotSelf()])
    mask = PerHead([inner, inner, Window(0, 0)])
    sees = [lambda row, column: column <= row, lambda row, column: column != row]

    def truth(batch: tuple[int, ...], row: int, column: int) -> bool:
        return row == column if batch[1] == 2 else sees[batch[0]](row, column)

    answers_match(mask, Grid((2, 3), 4, 4), truth)


def test_a_tile_is_known_where_every_head_knows_the_same():
    grid = Grid((2,), 10, 10)
    mask = PerHead([Causal(), Window(3, 0)])
    assert mask.cover(range(2), range(5, 10), grid) is Cover.NONE
    assert mask.cover(range(8, 9), range(6, 8), grid) is Cover.ALL
    assert mask.cover(range(8, 9), range(2), grid) is Cover.SOME


def test_its_bound_is_known_where_every_head_knows_one():
    grid = Grid((2,), 10, 10)
    assert PerHead([Window(1, 0), RandomKeys(3, 0)]).count_bound(grid) == 3
    assert PerHead([Window(1, 0), Causal()]).count_bound(grid) is None


def test_there_must_be_one_mask_for_each_head():
    text = (
        r"^`masks` of PerHead must have one mask for each entry of the last batch axis: "
        r"got 2 masks for batch axes \(2, 3\)\. Pass one mask for each head\.$"
    )
    with pytest.raises(ShapeError, match=text):
        PerHead([Causal(), Causal()]).check(Grid((2, 3), 4, 4))
    with pytest.raises(ShapeError, match=r"got 1 masks for batch axes \(\)"):
        PerHead([Causal()]).check(Grid((), 4, 4))
    with pytest.raises(OptionError, match="`masks` of PerHead must not be empty"):
        PerHead([])
    with pytest.raises(DtypeError, match=r"^`masks` of PerHead must be a list of masks: got Causal\. Pass one mask"):
        PerHead(Causal())  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"must be masks: got Tensor\. Wrap a bool tensor in Allowed\(tensor\)"):
        PerHead([torch.ones(2, 2)])  # type: ignore[list-item]
    with pytest.raises(
        DtypeError, match=r"must be masks: got str\. Pass one such as Causal\(\) for each head, or None"
    ):
        PerHead([Causal(), "causal"])  # type: ignore[list-item]


def test_each_head_is_checked():
    with pytest.raises(ShapeError, match="Causal must be told how to align"):
        PerHead([NotSelf(align=0), Causal()]).check(Grid((2,), 3, 4))
    mask = PerHead([Causal(), KeyMask(torch.tensor([True]))])
    with pytest.raises(DeviceError, match="tensors of KeyMask must be on the device"):
        mask.check(Grid((2,), 1, 1, torch.device("meta")))
    mask.to("meta").check(Grid((2,), 1, 1, torch.device("meta")))


def test_repr_shows_every_mask():
    assert repr(PerHead([Causal(), Window(1, 0)])) == "PerHead([Causal(), Window(before=1, after=0)])"
