"""Where queries stand among keys."""

from __future__ import annotations

import pytest
import torch

from regard import Alibi, Causal, RelativeBias, Window
from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid, check_align, line_up, per_head, resolve_offset
from regard.tensors import broadcast_shapes

GRID = Grid((2, 3), 4, 6)


@pytest.mark.parametrize(("align", "offset"), [("start", 0), ("end", 2), (5, 5), (-3, -3), (0, 0)])
def test_an_alignment_is_an_offset(align, offset):
    assert resolve_offset(align, GRID, "Mask") == offset


def test_no_alignment_is_needed_for_as_many_queries_as_keys():
    assert resolve_offset(None, Grid((), 4, 4), "Mask") == 0
    with pytest.raises(
        ShapeError, match=r"Mask must be told how to align 4 queries with 6 keys\. Pass align=\"start\", align=\"end\""
    ):
        resolve_offset(None, GRID, "Mask")


@pytest.mark.parametrize(
    ("shape", "lined"), [((2,), (2, 1)), ((2, 1), (2, 1)), ((1, 3), (1, 3)), ((2, 3), (2, 3)), ((), (1, 1))]
)
def test_offsets_for_batch_rows_line_up_from_the_left(shape, lined):
    offsets = torch.zeros(shape, dtype=torch.long)
    assert resolve_offset(offsets, GRID, "Mask").shape == (*lined, 1, 1)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 3, 1), (4,)])
def test_offsets_that_do_not_line_up_are_refused(shape):
    text = r"`align` of Mask must have batch axes that line up with \(2, 3\) from the left: got .*\. Pass one entry"
    with pytest.raises(ShapeError, match=text):
        resolve_offset(torch.zeros(shape, dtype=torch.long), GRID, "Mask")


def test_trailing_axes_stay_where_they_are():
    assert line_up(torch.zeros(2, 6), GRID, trailing=1, owner="Mask", name="ids").shape == (2, 1, 6)


@pytest.mark.parametrize(
    "owner", [Causal, lambda align: Window(1, 1, align=align), lambda align: Alibi(1.0, align=align)]
)
@pytest.mark.parametrize("align", ["middle", 1.5, True, [1, 2]])
def test_other_alignments_are_refused(owner, align):
    text = (
        r"`align` of (Causal|Window|Alibi) must be \"start\", \"end\", an integer offset or a tensor of offsets: got "
    )
    with pytest.raises(OptionError, match=text):
        owner(align=align)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_offsets_that_are_no_integers_are_refused(dtype):
    with pytest.raises(
        DtypeError, match=rf"`align` of RelativeBias must hold integers: got a tensor of {dtype}\. Pass one integer"
    ):
        RelativeBias(2, align=torch.ones(2, dtype=dtype))


def test_every_documented_alignment_is_accepted():
    for align in (None, "start", "end", 3, torch.tensor([1, 2])):
        check_align(align, "Mask")


def test_rows_and_columns_of_a_grid_are_ranges():
    assert (GRID.rows, GRID.columns) == (range(4), range(6))


def test_a_number_for_each_head_broadcasts_with_pairs():
    assert per_head(torch.ones(3)).shape == (3, 1, 1)
    assert per_head(torch.ones(())).shape == (1, 1)


@pytest.mark.parametrize(
    "shapes", [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (4,)), ((0,), (1,)), ((1, 5), (2, 1, 1)), ((),), ((0, 2), (2,))]
)
def test_shapes_broadcast_as_in_torch(shapes):
    assert broadcast_shapes(*shapes) == tuple(torch.broadcast_shapes(*shapes))


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((0,), (2,)), ((2, 3), (2,)), ((1, 2), (3, 3))])
def test_shapes_that_do_not_broadcast_are_an_error(shapes):
    with pytest.raises(ValueError, match="do not broadcast"):
        broadcast_shapes(*shapes)
