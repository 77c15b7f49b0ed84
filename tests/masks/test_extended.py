from __future__ import annotations

import pytest
import torch

from regard import Softmax, Sparsemax, TopK, attend
from regard.errors import ShapeError
from regard.grid import Grid
from regard.masks import Allowed, Causal, Cover, GlobalKeys, KeyMask, Padding, PerHead, RandomKeys, Selected, Window
from regard.masks.extended import Followed

SEQUENCE = Grid((2, 3), 4, 5)
MASKS = [
    Causal(align="end"),
    Window(0, 1, align=torch.tensor([0, -2])),
    GlobalKeys([-1]),
    RandomKeys(2, seed=5),
    Selected([[0, 3], [-1, -1], [4, 1], [2, 2]]),
    Padding([0, 3]),
    KeyMask(torch.tensor([[True, True, False, True, False], [True, False, False, True, True]])),
    Allowed(torch.tensor([[True], [False], [True], [True]])),
    PerHead([Causal(align="start"), Window(None, None, align=0), Padding([2, 5])]),
]


@pytest.mark.parametrize("added", [1, 2])
@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_a_sequence_is_seen_as_before_and_what_follows_it_always(answers_match, mask, added):
    rows, columns = SEQUENCE.rows, SEQUENCE.columns
    before = mask.tile(rows, columns, SEQUENCE).expand(2, 3, 4, 5)
    truth = torch.cat([before, torch.ones(2, 3, 4, added, dtype=torch.bool)], -1)
    grid = Grid((2, 3), 4, 5 + added)
    answers_match(Followed(mask, added), grid, truth, own_density=False)


def test_a_sequence_without_keys_leaves_what_follows(answers_match):
    answers_match(Followed(Causal(align="end"), 2), Grid((), 3, 2), torch.ones(3, 2, dtype=torch.bool))


def test_it_is_checked_against_the_sequence_alone():
    Followed(Causal(), 2).check(Grid((), 4, 6))
    with pytest.raises(ShapeError, match="align 4 queries with 2 keys"):
        Followed(Causal(), 2).check(Grid((), 4, 4))
    with pytest.raises(ShapeError, match="at least the 2 that follow"):
        Followed(Causal(), 2).check(Grid((), 4, 1))


def test_whole_tiles_are_told_without_looking(small_memory):
    grid = Grid((), 1_000_000, 1_000_001)
    mask = Followed(Causal(), 1)
    assert mask.cover(range(64), range(64, 1_000_000), grid) is Cover.NONE
    assert mask.cover(range(64), range(64, 1_000_001), grid) is Cover.SOME
    assert mask.cover(range(64), range(1_000_000, 1_000_001), grid) is Cover.ALL
    assert mask.live(range(64), grid) == [range(64), range(1_000_000, 1_000_001)]


def test_it_moves_with_its_mask():
    mask = Followed(Padding(torch.tensor([1, 2])), 1)
    assert mask.to("cpu") is mask
    assert mask.to("meta").tensors()[0].device.type == "meta"
    assert mask.to("meta").added == 1


@pytest.mark.parametrize("rule", [Softmax(), Sparsemax(), TopK(3)], ids=repr)
@pytest.mark.parametrize("mask", [Causal(), Window(before=9, after=0), Padding([150, 201])], ids=repr)
def test_tiles_pool_what_the_definition_does(mask, rule):
    torch.manual_seed(0)
    queries, keys, values = (torch.randn(2, n, 8, requires_grad=True) for n in (201, 203, 203))
    found = []
    for engine in ("reference", "tiled"):
        output = attend(queries, keys, values, weights=rule, mask=Followed(mask, 2), engine=engine)
        found.append([output, *torch.autograd.grad(output.square().sum(), (queries, keys, values))])
    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    assert float(found[0][3][:, 201:].abs().amax()) > 0  # what follows is looked at
