from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.masks import (
    Allowed,
    And,
    BlockLayout,
    Causal,
    Cover,
    GlobalKeys,
    KeyMask,
    Mask,
    Not,
    NotSelf,
    Or,
    Padding,
    PerHead,
    RandomKeys,
    SameDocument,
    Selected,
    Strided,
    Where,
    Window,
)

GRID = Grid((2, 3), 4, 5)

# One of each kind, with and without batch axes: each is held against its own truth in its own file.
LEAVES = [
    Causal(align="end"),
    Causal(align=torch.tensor([0, 3])),
    Window(1, 1, align="start"),
    Window(0, 0, align=-2),
    Strided(3, align=1),
    NotSelf(align=0),
    GlobalKeys([0, -1]),
    GlobalKeys([]),
    RandomKeys(2, seed=5),
    BlockLayout(torch.tensor([[True, False, True], [False, False, True]]), 2),
    BlockLayout(torch.rand(3, 4, 1, generator=torch.Generator().manual_seed(1)) < 0.5, (1, 5)),
    Selected([[0, 3], [-1, -1], [4, 1], [2, 2]]),
    Selected(torch.randint(-1, 5, (2, 1, 4, 3), generator=torch.Generator().manual_seed(2))),
    Padding([0, 3]),
    Padding(torch.tensor([5, 4])),
    KeyMask(torch.tensor([[True, True, False, True, False], [True, False, False, True, True]])),
    SameDocument([0, 0, 1, 2], [0, 1, 1, 1, 2]),
    SameDocument(torch.tensor([[1, 1, 1, 1], [0, 2, 1, 1]]), torch.tensor([1, 1, 1, 1, 1])),
    Allowed(torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(3)) < 0.5),
    Allowed(torch.tensor([[True], [False], [True], [True]])),
    Where(lambda row, column: (row + column) % 3 == 0),
    PerHead([Causal(align="start"), Selected([[1], [2], [3], [-1]]), Padding([2, 5])]),
]

leaves = st.sampled_from(LEAVES)
masks = st.recursive(
    leaves,
    lambda parts: (
        st.builds(lambda a, b: a & b, parts, parts)
        | st.builds(lambda a, b: a | b, parts, parts)
        | st.builds(lambda a: ~a, parts)
    ),
    max_leaves=5,
)


def _dense(mask: Mask) -> torch.Tensor:
    return mask.tile(GRID.rows, GRID.columns, GRID).expand(*GRID.batch_shape, GRID.n_queries, GRID.n_keys)


@pytest.mark.parametrize("mask", LEAVES, ids=repr)
def test_not_is_everything_else(answers_match, mask):
    answers_match(~mask, GRID, ~_dense(mask))


@settings(max_examples=60)
@given(leaves, leaves)
def test_and_is_intersection(answers_match, left, right):
    answers_match(left & right, GRID, _dense(left) & _dense(right), own_density=False)


@settings(max_examples=60)
@given(leaves, leaves)
def test_or_is_union(answers_match, left, right):
    answers_match(left | right, GRID, _dense(left) | _dense(right), own_density=False)


@settings(max_examples=60)
@given(masks)
def test_any_combination_answers_like_its_own_tile(answers_match, mask):
    answers_match(mask, GRID, _dense(mask), own_density=False)


@settings(max_examples=200)
@given(masks, masks)
def test_de_morgan(left, right):
    assert torch.equal(_dense(~(left & right)), _dense(~left | ~right))
    assert torch.equal(_dense(~(left | right)), _dense(~left & ~right))


@settings(max_examples=200)
@given(masks, masks, masks)
def test_and_distributes_over_or(first, second, third):
    assert torch.equal(_dense(first & (second | third)), _dense((first & second) | (first & third)))


@settings(max_examples=200)
@given(masks)
def test_a_mask_and_its_opposite_share_nothing_and_miss_nothing(mask):
    assert not _dense(mask & ~mask).any()
    assert _dense(mask | ~mask).all()
    assert torch.equal(_dense(mask & mask), _dense(mask))
    assert torch.equal(_dense(mask | mask), _dense(mask))


def test_cover_follows_the_tables_of_logic():
    grid = Grid((), 10, 10)
    rows, columns = range(5), range(5)
    answers = {
        Cover.ALL: Window(None, None),
        Cover.NONE: GlobalKeys([9]),
        Cover.SOME: Causal(),
    }
    for cover, mask in answers.items():
        assert mask.cover(rows, columns, grid) is cover
    both = {
        (Cover.ALL, Cover.ALL): Cover.ALL,
        (Cover.ALL, Cover.SOME): Cover.SOME,
        (Cover.SOME, Cover.SOME): Cover.SOME,
    }
    for one, first in answers.items():
        for two, second in answers.items():
            wanted = both.get((one, two), both.get((two, one), Cover.NONE))
            assert (first & second).cover(rows, columns, grid) is wanted
            opposite = {Cover.ALL: Cover.NONE, Cover.NONE: Cover.ALL, Cover.SOME: Cover.SOME}
            assert (~first | ~second).cover(rows, columns, grid) is opposite[wanted]


def test_nested_combinations_are_made_flat():
    a, b, c = Causal(), NotSelf(), Strided(2)
    together = a & (b & c)
    assert isinstance(together, And)
    assert together.masks == (a, b, c)
    either = (a | b) | c
    assert isinstance(either, Or)
    assert either.masks == (a, b, c)
    mixed = (a | b) & c
    assert isinstance(mixed, And)
    assert len(mixed.masks) == 2


def test_twice_not_is_the_mask_itself():
    mask = Causal()
    assert isinstance(~mask, Not)
    assert ~~mask is mask


def test_bounds_combine():
    grid = Grid((), 100, 100)
    window, keys, causal = Window(3, 0), GlobalKeys([0, 1]), Causal()
    assert (window & keys & causal).count_bound(grid) == 2
    assert (causal & NotSelf()).count_bound(grid) is None
    assert (window | keys).count_bound(grid) == 6
    assert (window | causal).count_bound(grid) is None
    assert (Window(99, 0) | Window(0, 99)).count_bound(grid) == 100
    assert (~window).count_bound(grid) is None


def test_no_keys_are_no_trouble(answers_match):
    grid = Grid((2,), 3, 0)
    mask = Window(1, 1, align="start") & Padding([0, 0])
    answers_match(mask, grid, lambda batch, row, column: False)
    answers_match(mask | Causal(align="end"), grid, lambda batch, row, column: False)
    answers_match(~mask, grid, lambda batch, row, column: False)


@pytest.mark.parametrize(
    "other",
    [
        KeyMask(torch.zeros(0, dtype=torch.bool)),
        KeyMask(torch.zeros(2, 0, dtype=torch.bool)),
        Allowed(torch.zeros(3, 0, dtype=torch.bool)),
        BlockLayout(torch.zeros(2, 0, dtype=torch.bool), 2),
        SameDocument([0, 0, 1], []),
        RandomKeys(2, seed=0),
        GlobalKeys([]),
        Strided(2, align=0),
        Where(lambda row, column: row == column),
    ],
    ids=repr,
)
def test_a_selection_of_no_keys_combines_with_anything(answers_match, other):
    grid = Grid((2,), 3, 0)
    nothing = Selected(torch.full((3, 2), -1))
    for mask in (nothing & other, other & nothing, nothing | other, ~nothing & other):
        answers_match(mask, grid, lambda batch, row, column: False)


def test_only_masks_combine():
    with pytest.raises(DtypeError, match=r"^And must be made of masks: got int\. Pass a mask, such as Causal\(\)\.$"):
        And(Causal(), 3)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"^Not must be made of masks: got Tensor\. Wrap it in Allowed\(tensor\)\.$"):
        Not(torch.ones(2, 2, dtype=torch.bool))  # type: ignore[arg-type]
    for kind in (And, Or):
        with pytest.raises(OptionError, match=rf"^{kind.__name__} must have masks: got none\. Pass those to combine"):
            kind()


def test_batch_sizes_that_clash_are_named_by_the_mask_that_does_not_fit():
    with pytest.raises(ShapeError, match=r"`lengths` of Padding must have batch axes that line up with \(2,\)"):
        (Padding([1, 2]) & Padding([1, 2, 3])).density(4)


def test_every_part_is_checked():
    for mask in (NotSelf(align=0) & Causal(), NotSelf(align=0) | Causal(), ~Causal()):
        with pytest.raises(ShapeError, match="Causal must be told how to align 3 queries with 4 keys"):
            mask.check(Grid((), 3, 4))


def test_every_part_moves():
    tensor = torch.tensor([True, False])
    grid = Grid((), 2, 2, torch.device("meta"))
    for mask in (Causal() & KeyMask(tensor), Causal() | KeyMask(tensor), ~KeyMask(tensor)):
        with pytest.raises(
            DeviceError, match="tensors of KeyMask must be on the device of the queries and keys, meta: got cpu"
        ):
            mask.check(grid)
        moved = mask.to("meta")
        assert type(moved) is type(mask)
        moved.check(grid)
    plain = Causal() & NotSelf()
    assert plain.to("meta") is plain


def test_repr_reads_as_it_was_written():
    mask = Causal() & (Window(2, 0) | GlobalKeys([0])) & ~NotSelf()
    assert repr(mask) == "Causal() & (Window(before=2, after=0) | GlobalKeys([0])) & ~NotSelf()"
    assert repr(~(Causal() & NotSelf())) == "~(Causal() & NotSelf())"


def test_sparse_combinations_cost_what_they_select_at_a_million(small_memory):
    grid = Grid((2,), 1_000_000, 1_000_000)
    mask = Causal() & (Window(128, 128) | GlobalKeys([0, 1]) | RandomKeys(8, seed=0)) & Padding([900_000, 1_000_000])
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    assert mask.cover(range(64), range(64, 1_000_000), grid) is Cover.NONE
    indices = mask.indices(range(950_000, 950_064), grid)
    assert indices.shape[:2] == (2, 64)
    assert indices.shape[-1] <= 129 + 2 + 8
    assert indices[1, 0, :2].tolist() == [0, 1]
    assert int(indices[0].max()) < 900_000
    assert int(indices[1].max()) == 950_063
    assert mask.any_allowed(range(950_000, 950_064), grid).all()
    assert (Causal() & NotSelf()).any_allowed(range(4), grid).tolist() == [False, True, True, True]
