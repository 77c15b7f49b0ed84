from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regard.masks
from regard.errors import DtypeError, OptionError
from regard.grid import Grid
from regard.masks import Allowed, Causal, Cover, KeyMask, Mask, Padding, PerHead, Window


class Even(Mask):
    """The least that a mask can define."""

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return columns % 2 == 0


class Stored(Mask):
    """A mask with a tensor that does not say how it moves."""

    def tensors(self) -> tuple[Tensor, ...]:
        return (torch.zeros(1),)


@pytest.mark.parametrize("batch_shape", [(), (2, 3), (0,)])
def test_a_mask_that_defines_allows_alone_answers_everything(answers_match, batch_shape):
    answers_match(Even(), Grid(batch_shape, 4, 5), lambda batch, row, column: column % 2 == 0)
    assert repr(Even()) == "Even()"


def test_a_mask_must_define_what_it_cannot_do_without():
    with pytest.raises(NotImplementedError, match=r"Stored must define allows\(rows, columns, grid\)"):
        Stored().tile(range(1), range(1), Grid((), 1, 1))
    with pytest.raises(NotImplementedError, match=r"Stored holds tensors and must define _moved\(device\)"):
        Stored().to("meta")


def test_any_allowed_streams_over_the_columns(small_memory):
    class Last(Mask):
        def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
            return (columns == grid.n_keys - 1) & (rows % 2 == 0)

    grid = Grid((), 1_000_000, 1_000_000)
    assert Last().any_allowed(range(64), grid).tolist() == [True, False] * 32


def test_a_tensor_must_be_wrapped_before_it_is_combined():
    tensor = torch.ones(3, 3, dtype=torch.bool)
    text = r"must stand between two masks: got Tensor\. To combine them, wrap it in Allowed\(tensor\)\."
    for combine in (
        lambda: Causal() & tensor,
        lambda: tensor & Causal(),
        lambda: Causal() | tensor,
        lambda: tensor | Causal(),
    ):
        with pytest.raises(DtypeError, match=text):
            combine()
    with pytest.raises(
        DtypeError, match=r"`&` must stand between two masks: got NoneType\. .* pass a mask on both sides"
    ):
        Causal() & None  # type: ignore[operator]
    with pytest.raises(TypeError):
        True | Causal()  # type: ignore[operator]


@pytest.mark.parametrize(
    "choose",
    [
        lambda: Causal() and Window(1, 1),
        lambda: Causal() or Window(1, 1),
        lambda: not Causal(),
        lambda: bool(Causal() & Even()),
        lambda: 1 if PerHead([Causal()]) else 0,
    ],
)
def test_a_mask_is_neither_true_nor_false(choose):
    with pytest.raises(DtypeError, match=r"a mask must stay a mask.* To combine masks use &, \| and ~") as caught:
        choose()
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("ask", ["density", "picture"])
def test_a_size_is_a_whole_number_of_zero_or_more(ask):
    with pytest.raises(OptionError, match=rf"^`n_queries` of {ask} must be at least 0: got -1\. Pass 0 or more\.$"):
        getattr(Causal(), ask)(-1)
    with pytest.raises(DtypeError, match=rf"^`n_keys` of {ask} must be an integer: got 2\.5\. Pass a whole number\.$"):
        getattr(Causal(), ask)(2, 2.5)
    with pytest.raises(OptionError, match=rf"^`n_keys` of {ask} must be at least 0"):
        getattr(Causal(align="end"), ask)(2, -3)
    np = pytest.importorskip("numpy")
    assert Causal().density(np.int64(4), np.int32(4)) == 0.625


def test_density_is_over_the_batch_axes_of_the_masks_own_tensors():
    assert Padding([1, 3]).density(2, 4) == 0.5
    assert KeyMask(torch.tensor([[True, True], [True, False]])).density(3, 2) == 0.75
    assert Window(0, 0).density(4) == 0.25
    assert Causal().density(0) == 0.0
    assert Causal(align="end").density(3, 0) == 0.0


def test_tensors_from_the_left_and_from_the_right_stand_side_by_side():
    by_head = torch.tensor([True, True, False])[:, None, None].expand(3, 2, 2)
    assert (Padding([1, 2]) & Allowed(by_head)).density(2, 2) == pytest.approx(0.75 * 2 / 3)
    by_entry = torch.tensor([True, False])[:, None, None, None].expand(2, 3, 2, 2)
    assert (Padding([1, 2]) & Allowed(by_entry)).density(2, 2) == pytest.approx(0.25)


def test_a_picture_shows_four_batch_entries_side_by_side():
    assert Padding([0, 1, 2]).picture(2) == "··  #·  ##\n··  #·  ##"
    assert Padding([0, 1, 2, 1, 0, 1]).picture(1, 2) == "··  #·  ##  #·\n… and 2 more"
    assert PerHead([Causal(), ~Causal()]).picture(2) == "#·  ·#\n##  ··"


def test_a_picture_has_eight_rows_if_not_told():
    assert Causal().picture().count("\n") == 7


def test_the_public_names_are_sorted_and_complete():
    names = regard.masks.__all__
    assert names == sorted(names)
    classes = {
        name
        for name, value in vars(regard.masks).items()
        if isinstance(value, type) and (issubclass(value, Mask) or value is Cover)
    }
    assert set(names) == classes
    assert all(getattr(regard.masks, name).__doc__ for name in names)
