"""The heaviest keys of batch entries that share a call: exactly what entries give one by one, and plain torch reads."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

import regard
from regard import Dot, weigh
from regard.engines import Tiled
from regard.engines.cpu.kernels import tile_loops
from regard.engines.cpu.passes import batched_calls
from regard.engines.cpu.passes.heaviest import Heaviest
from regard.engines.cpu.passes.weight_readings import ReadableCpuProblem
from regard.engines.cpu.program import translate
from regard.problem import make_problem

pytestmark = pytest.mark.usefixtures("two_threads")

BATCH, N_QUERIES, DIM = (2, 5), 60, 4


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """How many entries each call had that served several."""
    sizes, original = [], tile_loops.pool_entries
    monkeypatch.setattr(tile_loops, "pool_entries", lambda *a: (sizes.append(a[1].size), original(*a))[1])
    return sizes


def drawn(n_keys, draw=torch.randn):
    generator = torch.Generator().manual_seed(n_keys)
    return [draw(*BATCH, n, DIM, generator=generator) for n in (N_QUERIES, n_keys, n_keys)]


def integers(*shape, generator):
    """So few that many sums of products are equal."""
    return torch.randint(-1, 2, shape, generator=generator).float()


def find(tensors, k, **options):
    """By kernels, what is found beside the output."""
    view = weigh(*tensors, engine=Tiled(kernels=True), **options)
    return view, view.collect(top=k, output=True).top


def one_by_one(monkeypatch, tensors, k, **options):
    """The same with a call for each entry, whose scores are settled at the end."""
    with monkeypatch.context() as patched:
        patched.setattr(batched_calls, "GROUP_PAIRS", 0)
        return find(tensors, k, **options)[1]


@pytest.fixture
def in_the_pass(monkeypatch):
    """Nothing is left to be settled after the pass."""

    def refuse(*_):
        raise AssertionError

    return lambda: monkeypatch.setattr(Heaviest, "settle", refuse)


@pytest.mark.parametrize("n_keys", [1, 31, 32, 33, 100, 511, 512])
@pytest.mark.parametrize("k", [1, 8, 32, 33, 600])
@pytest.mark.parametrize("draw", [torch.randn, integers, torch.zeros], ids=["random", "ties", "all equal"])
def test_they_are_those_of_entries_one_by_one(monkeypatch, calls, in_the_pass, n_keys, k, draw):
    tensors = [torch.zeros_like(each) for each in drawn(n_keys)] if draw is torch.zeros else drawn(n_keys, draw)
    alone = one_by_one(monkeypatch, tensors, k, score=Dot())
    assert not calls
    in_the_pass()
    view, found = find(tensors, k, score=Dot())
    assert max(calls) > 1
    assert torch.equal(found.indices, alone.indices)
    assert torch.equal(found.weights, alone.weights)
    expected = weigh(*tensors, score=Dot(), engine=Tiled(kernels=False))
    torch.testing.assert_close(view.output, expected.output)
    torch.testing.assert_close(found.weights, expected.top(k).weights)
    if draw is not torch.randn:  # sums of products are exact, so that nothing but a tie decides
        assert torch.equal(found.indices, expected.top(k).indices)


def test_weights_are_those_of_every_other_reading():
    view, found = find(drawn(500), 8)
    dense = view.tile(slice(0, N_QUERIES), slice(0, 500))
    assert torch.equal(dense.gather(-1, found.indices), found.weights)
    assert torch.equal(dense.sort(dim=-1, descending=True, stable=True).values[..., :8], found.weights)


def test_scores_that_differ_may_weigh_the_same_and_then_tie():
    # The later, the larger, each by less than a weight shows.
    q, k = torch.ones(*BATCH, N_QUERIES, 1), (torch.arange(300) * 1e-12)[:, None].expand(*BATCH, 300, 1)
    _, found = find([q, k, k], 3, score=Dot())
    assert (found.indices == torch.arange(3)).all()
    # Some heavier than those, of which it takes a few.
    k = k.clone()
    k[..., [290, 7], :] = 1.0
    _, found = find([q, k, k], 8, score=Dot())
    assert (found.indices == torch.tensor([7, 290, 0, 1, 2, 3, 4, 5])).all()


@pytest.mark.parametrize("k", [2, 3, 4, 6, 8])
def test_numerators_that_differ_may_weigh_the_same_and_then_tie(k):
    # Next to each other below 1, in any order; divided by 254, about every second one is rounded to its neighbour.
    generator = torch.Generator().manual_seed(0)
    keys = -torch.rand(*BATCH, 254, 1, generator=generator).argsort(-2) * 2.0**-24
    view, found = find([torch.ones(*BATCH, N_QUERIES, 1), keys, keys], k, score=Dot())
    dense = view.tile(slice(0, N_QUERIES), slice(0, 254))
    largest = keys.mT.expand_as(dense).topk(k).indices
    expected = dense.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    assert (expected != largest).any()
    assert torch.equal(found.indices, expected)


def test_entries_that_share_a_call_are_told_to_who_shows_how_far_it_is():
    view, _ = find(drawn(100), 8)
    assert sum(view._passes._progress._shares) == pytest.approx(1)


def test_keys_that_weigh_nothing_have_no_place():
    q, k = torch.ones(*BATCH, N_QUERIES, 1), (-40.0 * torch.arange(64).flip(0))[:, None].expand(*BATCH, 64, 1)
    _, found = find([q, k, k], 4, score=Dot())
    assert (found.indices == torch.tensor([63, 62, 61, -1])).all()
    assert (found.weights[..., 3] == 0).all()
    assert (found.weights[..., :3] > 0).all()


@pytest.mark.parametrize("where", [(0, 0), (299, 2)])
def test_a_row_with_nan_is_what_a_pass_over_its_weights_reads(monkeypatch, where):
    # A view hands no NaN to kernels. Should one come to be, it does not stay with the key that it came from.
    q, k, v = drawn(300)
    k[(1, 2, *where)] = torch.nan
    problem = make_problem(q, k, v, score=Dot(), weights=regard.Softmax())

    def found():
        compiled = ReadableCpuProblem(translate(problem), lambda share: None)
        targets = {
            "top_weights": torch.zeros(*BATCH, N_QUERIES, 5),
            "top_index": torch.full((*BATCH, N_QUERIES, 5), -1),
        }
        compiled.pool_and_find(targets, values=True)
        return targets.values()

    together = found()
    monkeypatch.setattr(batched_calls, "GROUP_PAIRS", 0)
    for each, alone in zip(together, found(), strict=True):
        torch.testing.assert_close(each, alone, rtol=0, atol=0, equal_nan=True)
    weights, _ = together
    assert weights[1, 2].isnan().all()
    assert weights.isnan().sum() == N_QUERIES * 5


@pytest.mark.parametrize(
    ("n_keys", "rule"),
    [(300, regard.Softmax(sink=0.5)), (300, regard.Sigmoid()), (2500, regard.Softmax())],
    ids=["a sink", "sigmoid", "several tiles"],
)
def test_what_is_not_final_in_a_tile_is_settled_after_the_pass(calls, n_keys, rule):
    tensors = drawn(n_keys)
    _, found = find(tensors, 8, weights=rule)
    assert not calls
    expected = weigh(*tensors, weights=rule, engine=Tiled(kernels=False)).top(8)
    torch.testing.assert_close(found.weights, expected.weights)
    assert float((found.indices == expected.indices).float().mean()) > 0.99
