"""`live` holds everything that is allowed, and `bounds`, where there are any, say it exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.grid import Grid
from regard.masks import (
    Allowed,
    BlockLayout,
    Causal,
    Cover,
    GlobalKeys,
    KeyMask,
    Mask,
    NotSelf,
    Padding,
    PerHead,
    RandomKeys,
    SameDocument,
    Selected,
    Strided,
    Where,
    Window,
)
from regard.testing.cases import MASKS, Sizes

N = 16_384
GRID = Grid((2, 3), N, N)
ROWS = range(8192, 8320)


class Diagonal(Mask):
    """Blocks along the diagonal, known by `cover` alone; counts how often it is asked."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_asked = 0

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return rows // self.size == columns // self.size

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        self.n_asked += 1
        apart = rows[-1] // self.size < columns[0] // self.size or columns[-1] // self.size < rows[0] // self.size
        return Cover.NONE if apart else Cover.SOME


@st.composite
def problems(draw: st.DrawFn) -> tuple[Sizes, range]:
    """The size of a problem, and some of its rows."""
    n_queries, n_keys = draw(st.integers(8, 90)), draw(st.integers(8, 200))
    start = draw(st.integers(0, n_queries))
    rows = range(start, draw(st.integers(start, n_queries)), draw(st.sampled_from([1, 1, 1, 3])))
    return Sizes(batch=draw(st.integers(1, 3)), heads=3, n_queries=n_queries, n_keys=n_keys), rows


@pytest.mark.parametrize("name", [name for name in MASKS if name != "no mask"])
@settings(max_examples=40)
@given(problem=problems())
def test_plans_of_every_mask_of_the_contract_tell_the_truth(plans_match, name, problem):
    size, rows = problem
    mask = MASKS[name](size)
    assert mask is not None
    plans_match(mask, rows, Grid((size.batch, size.heads), size.n_queries, size.n_keys))


NAMES = st.sampled_from([name for name in MASKS if name not in ("no mask", "PerHead")])


@settings(max_examples=200)
@given(problems(), NAMES, NAMES, st.sampled_from(["&", "|", "&~", "|~", "heads"]))
def test_plans_of_masks_made_of_masks_tell_the_truth(plans_match, problem, first, second, how):
    size, rows = problem
    left, right = MASKS[first](size), MASKS[second](size)
    assert left is not None
    assert right is not None
    if how == "heads":
        # A mask of each head sees the problem without them.
        if "Allowed" in (first, second):
            return
        mask: Mask = PerHead([left, right, left])
    else:
        right = ~right if "~" in how else right
        mask = left & right if "&" in how else left | right
    plans_match(mask, rows, Grid((size.batch, size.heads), size.n_queries, size.n_keys))


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=40, max_size=40), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 39),
    st.integers(1, 40),
)
def test_plans_of_documents_in_any_order_tell_the_truth(plans_match, ids, in_order, start, length):
    given_ids = torch.tensor(ids)
    mask = SameDocument(given_ids.sort(-1).values if in_order else given_ids)
    grid = Grid((len(ids), 2), 40, 40)
    plans_match(mask, range(start, min(start + length, 40)), grid)
    if in_order:
        assert mask.bounds(grid.rows, grid) is not None


@given(st.lists(st.integers(-300, 300), min_size=2, max_size=4), st.integers(0, 60), st.integers(0, 60))
def test_plans_of_bands_with_an_offset_a_batch_row_tell_the_truth(plans_match, offsets, before, after):
    mask = Window(before, after, align=torch.tensor(offsets))
    plans_match(mask, range(10, 30), Grid((len(offsets), 2), 40, 200))


def test_sequences_that_stand_far_apart_leave_a_gap():
    mask = Window(before=9, after=0, align=torch.tensor([0, 5000]))
    assert mask.live(range(100, 110), GRID) == [range(91, 110), range(5091, 5110)]
    assert Causal(align=torch.tensor([0, 5000])).live(range(100, 110), GRID) == [range(5110)]


@pytest.mark.parametrize(
    ("mask", "live"),
    [
        (Causal(), [range(8320)]),
        (Window(before=255, after=0), [range(7937, 8320)]),
        (SameDocument(torch.arange(N) // 300), [range(8100, 8400)]),
        (SameDocument(torch.arange(N) // 300 * 7 % 64), [range(8100, 8400)]),  # not sorted, but in one piece
        (BlockLayout(torch.eye(64, dtype=torch.bool).roll(2, 1), 256), [range(8704, 8960)]),
        (GlobalKeys([0, 1, 9, 4000, -1]), [range(10), range(4000, 4001), range(N - 1, N)]),
        (KeyMask(torch.arange(N) % 8192 < 500), [range(500), range(8192, 8692)]),
        (Padding([3000, 100]), [range(3000)]),
        (Padding(0), []),
        (Strided(4096), [range(128), *(range(start, start + 128) for start in (4096, 8192, 12288))]),
        (Strided(100), [range(N)]),
        (Selected((torch.arange(N)[:, None] - 10 * torch.arange(8)).clamp(min=-1)), [range(8112, 8320)]),  # by sixteens
        (Allowed((torch.arange(N) < 100)[None]), [range(104)]),  # read by eights
        (Allowed((torch.arange(N) < 0)[:, None]), []),
        (Allowed((torch.arange(N) == 8200)[:, None]), [range(N)]),
        (RandomKeys(4, seed=0), [range(N)]),
        (NotSelf(), [range(N)]),
        (Where(lambda row, column: row == column), [range(N)]),
        (~Causal(), [range(8192, N)]),
        (Window(before=255, after=0) & SameDocument(torch.arange(N) // 300), [range(8100, 8320)]),
        (Window(before=255, after=0) & Padding([3000, 100]), []),
        (Window(before=255, after=0) | GlobalKeys([0, 1]), [range(2), range(7937, 8320)]),
        (PerHead([Window(9, 0), GlobalKeys([0]), Padding(0)]), [range(1), range(8183, 8320)]),
    ],
    ids=repr,
)
def test_live_is_as_tight_as_can_be_told_cheaply(mask, live, small_memory):
    mask.check(GRID)
    assert mask.live(ROWS, GRID) == live
    assert mask.live(range(0), GRID) == []


@pytest.mark.parametrize(
    ("mask", "known"),
    [
        (Causal() & Padding([3, 9]), True),
        (Causal() & Window(2, 0) & SameDocument([0] * 4 + [1] * 8), True),
        (KeyMask(torch.tensor([False] * 2 + [True] * 5 + [False] * 5)), True),
        (KeyMask(torch.zeros(2, 12, dtype=torch.bool)), True),
        (KeyMask(torch.tensor([True, False] * 6)), False),
        (PerHead([Causal(), Window(1, 1), Padding(4)]), True),
        (PerHead([Causal(), Strided(2), Padding(4)]), False),
        (SameDocument([0, 1] * 6), False),
        (SameDocument([3] * 12, [3] * 5 + [4] * 2 + [5] * 5), True),
        (SameDocument([3] * 12, [4, 5, 4, 5, 3, 3, 4, 4, 4, 4, 4, 4]), True),  # Only what is asked for counts.
        (Causal() | Window(2, 2), False),
        (Causal() & NotSelf(), False),
    ],
    ids=repr,
)
def test_bounds_are_known_where_each_row_sees_one_run(mask, known, plans_match):
    grid = Grid((2, 3), 12, 12)
    assert (mask.bounds(grid.rows, grid) is not None) == known
    plans_match(mask, grid.rows, grid)
    plans_match(mask, range(3, 7), grid)


def test_a_search_costs_few_questions_wherever_little_is_live(plans_match):
    grid = Grid((), 1 << 20, 1 << 20)
    narrow = Diagonal(64)
    assert narrow.live(range(128_000, 128_064), grid) == [range(128_000, 128_064)]
    assert narrow.n_asked < 50
    everywhere = Diagonal(1 << 20)
    assert everywhere.live(range(128), grid) == [grid.columns]
    assert everywhere.n_asked <= 256
    plans_match(Diagonal(7), range(10, 90), Grid((), 100, 300))


def test_what_live_returns_is_the_callers_own():
    for mask in (GlobalKeys([0, 100]), KeyMask(torch.arange(N) < 9), SameDocument(torch.arange(N) // 300)):
        before = mask.live(ROWS, GRID)
        mask.live(ROWS, GRID).clear()
        assert mask.live(ROWS, GRID) == before
