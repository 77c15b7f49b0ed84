"""Masks that list a few keys for each query: gathered, in both directions."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Allowed, Causal, RandomKeys, Selected, Strided, Window, attend, partial
from regard.engines import Tiled
from regard.engines.cuda import forward_pass, listed_pass, masks
from regard.grid import Grid
from regard.testing import Case, Sizes, check

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = Sizes(batch=1, heads=2, n_queries=5, n_keys=9)  # the interpreter takes its time for each row


@pytest.fixture
def every_list_is_short(monkeypatch):
    """The contract's cases are small: there each list counts as short."""
    monkeypatch.setattr(masks, "SPARSE", 1)


CASES = [
    ("ScaledDot", "Softmax", "Selected"),
    ("ScaledDot", "Softmax, sink", "RandomKeys"),
    ("Dot", "Softmax, temperature", "Strided"),
    ("Gated", "Sigmoid", "Selected"),
    ("SoftCap", "Raw", "RandomKeys"),
    ("Bias", "Conic", "Selected"),
    ("Alibi", "Softmax", "Strided"),
    ("Gaussian", "Softmax", "Selected"),
    ("Epanechnikov", "Proportional", "RandomKeys"),
    ("Triangular", "Proportional", "Selected"),
    ("Multiplicative", "Uniform", "Selected"),
]


@pytest.mark.parametrize(("score", "rule", "mask"), CASES)
def test_lists_match_the_definition(every_list_is_short, score, rule, mask):
    assert check(KERNELS, Case(score, rule, mask, torch.float32, DEVICE, SIZE)).matched


@pytest.mark.parametrize(
    "variant",
    ["dropout", "NaN and infinity", "batch axes of values alone", "batch axes of queries alone", "not contiguous"],
)
def test_lists_match_the_definition_on_unusual_inputs(every_list_is_short, variant):
    assert check(KERNELS, Case("Gated", "Softmax", "Selected", torch.bfloat16, DEVICE, SIZE, variant)).matched


def test_lists_are_used_where_they_are_short(monkeypatch):
    seen, pool_lists = [], forward_pass.pool_lists
    monkeypatch.setattr(forward_pass, "pool_lists", lambda *a, **options: seen.append(a) or pool_lists(*a, **options))
    q, k, v = torch.randn(3, 40, 8, device=DEVICE)
    for mask, listed in ((RandomKeys(5, seed=0), True), (RandomKeys(6, seed=0), False), (Strided(8), True)):
        seen.clear()
        got = attend(q, k, v, mask=mask, engine=KERNELS)
        assert bool(seen) == listed
        torch.testing.assert_close(got, attend(q, k, v, mask=mask, engine="reference"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("other", [Causal(), Window(9, 0), Causal() & Window(20, 0)], ids=str)
def test_a_list_under_another_mask(other):
    q, k, v = (torch.randn(40, 8, device=DEVICE, requires_grad=True) for _ in range(3))
    mask = other & RandomKeys(5, seed=2)
    assert masks.longest_list(mask, Grid((), 40, 40, q.device)) == 5
    results = []
    for engine in (KERNELS, "reference"):
        output = attend(q, k, v, mask=mask, engine=engine)
        results.append([output, *torch.autograd.grad(output.square().sum(), (q, k, v))])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_lists_longer_than_what_is_gathered_at_once(monkeypatch):
    monkeypatch.setattr(listed_pass, "MOST_LISTED", 16)
    index = torch.stack([torch.randperm(400, device=DEVICE)[:43] for _ in range(3)])
    index[1, 7:] = -1
    index[2] = -1  # fully masked
    q, k, v = torch.randn(3, 8), torch.randn(400, 8), torch.randn(400, 4)
    q, k, v = (each.to(DEVICE).requires_grad_() for each in (q, k, v))
    results = []
    for engine in (KERNELS, "reference"):
        output = attend(q, k, v, mask=Selected(index), engine=engine)
        results.append([output, *torch.autograd.grad(output.square().sum(), (q, k, v))])
    assert not results[0][0][2].any()
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_sums_of_lists_merge():
    q, k, v = torch.randn(3, 40, 8, device=DEVICE)
    index = torch.stack([torch.randperm(20, device=DEVICE)[:2] for _ in range(40)])
    halves = [partial(q, k[part], v[part], mask=Selected(index)) for part in (slice(0, 20), slice(20, 40))]
    merged = halves[0].merge(halves[1]).finish()
    mask = Selected(torch.cat([index, index + 20], -1))
    torch.testing.assert_close(merged, attend(q, k, v, mask=mask, engine="reference"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_entries", [1, 3, 14000])
def test_rows_by_key_ascend(n_entries):
    lists = torch.tensor([[[2, 0], [-1, 2], [0, -1]]]).expand(n_entries, 3, 2)
    rows, begins = masks.listing_of(lists, 4)
    assert begins[[0, -1]].tolist() == [[2, 4, 4, 6, 6]] * 2
    assert rows[[0, -1], 2:].tolist() == [[0, 2, 0, 1]] * 2


def test_keys_beyond_the_last_are_left_out_on_a_gpu(monkeypatch):
    """Nobody looks at them there: they must not be asked for either."""
    q, k, v = torch.randn(3, 40, 8, device=DEVICE)
    index = torch.stack([torch.randperm(40, device=DEVICE)[:4] for _ in range(40)])
    wrong = index.clone()
    wrong[:, 1] = 500
    allowed = torch.rand(40, 40, device=DEVICE) < 0.7
    index[:, 1] = -1
    for with_others in (False, True):
        beyond, within = (
            Selected(each) & Allowed(allowed) if with_others else Selected(each) for each in (wrong, index)
        )
        with monkeypatch.context() as patch:
            patch.setattr("regard.modes.waits", lambda tensor: True)
            got = attend(q, k, v, mask=beyond, engine=KERNELS)
        torch.testing.assert_close(got, attend(q, k, v, mask=within, engine="reference"), rtol=1e-5, atol=1e-5)
