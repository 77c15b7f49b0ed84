"""The heaviest keys, found in the pass that finds the statistics: what another pass over the weights would read."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

import regard
from regard import Allowed, Causal, Dot, PerHead, Window, weigh
from regard.engines import Tiled
from regard.engines.cpu.kernels.best_k import best_strip
from regard.engines.cpu.passes import weight_readings
from regard.engines.cpu.passes.heaviest import SPARE

N_QUERIES, N_KEYS, DIM = 300, 700, 6
RULES = {
    "softmax": regard.Softmax(),
    "sink": regard.Softmax(temperature=0.5, sink=0.5),
    "conic": regard.Conic(),
    "sigmoid": regard.Sigmoid(),
}


def masks():
    some = torch.rand(N_QUERIES, N_KEYS, generator=torch.Generator().manual_seed(7)) < 0.2
    some[3] = False
    some[4] = torch.arange(N_KEYS) < 3
    return {
        "all": None,
        "causal": Causal(align="start"),
        "window": Window(90, 40, align="start"),
        "some": Allowed(some),
        "heads": PerHead([Causal(align="end"), Window(30, 30, align="start")]),
    }


def drawn(*batch, scale=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = (N_QUERIES, DIM), (N_KEYS, DIM), (N_KEYS, 5)
    return [(torch.randn(*batch, *size, generator=generator) * scale).to(dtype) for size in sizes]


def views(tensors, **options):
    """By kernels, and in plain torch."""
    return [weigh(*tensors, engine=Tiled(kernels=kernels), **options) for kernels in (True, False)]


def check(tensors, k, *, exact=False, **options):
    """Found in one pass, with the output and alone, the heaviest are those that plain torch reads."""
    for output in (True, False):
        fast, plain = views(tensors, **options)
        assert fast._passes._compiled.finds_heaviest
        got, expected = fast.collect(top=k, output=output).top, plain.top(k)
        assert fast._passes.have_pooled == output
        tolerance = {} if tensors[0].dtype == torch.float32 else {"rtol": 2**-6, "atol": 1e-4}
        torch.testing.assert_close(got.weights, expected.weights, **tolerance)
        differ = float((got.indices != expected.indices).float().mean())
        assert differ == 0 if exact else differ < 0.02  # rounding may order near equals differently
        torch.testing.assert_close(fast.output, plain.output, rtol=2e-5, atol=2e-5 if not tolerance else 1e-2)


@pytest.fixture
def no_second_look(monkeypatch):
    """Weights must not be computed again."""

    def refuse(self):
        raise AssertionError

    monkeypatch.setattr(weight_readings._Reading, "run", refuse)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", masks())
def test_every_rule_under_every_mask(rule, mask):
    check(drawn(2) if mask == "heads" else drawn(), 5, weights=RULES[rule], mask=masks()[mask])


@pytest.mark.parametrize("k", [1, 8, 28, 29, 200, N_KEYS - SPARE, N_KEYS, N_KEYS + 9])
@pytest.mark.parametrize("mask", ["all", "causal"])
def test_as_many_as_wanted(k, mask):
    check(drawn(), k, mask=masks()[mask])


@pytest.mark.parametrize(
    "score", [regard.Gaussian(1.5), regard.Additive(DIM, DIM, 8), regard.ScaledDot() + regard.Alibi(0.1, align="start")]
)
def test_scores_of_other_forms(score):
    with torch.no_grad():
        check(drawn(), 5, score=score)


def test_half_precision_and_proportional_weights():
    check(drawn(dtype=torch.bfloat16), 5)
    check([each.abs() for each in drawn()], 5, score=Dot(), weights=regard.Proportional())


@pytest.mark.usefixtures("no_second_look")
def test_it_is_one_pass_and_what_it_found_is_kept():
    q, k, v = drawn(2)
    view = weigh(q, k, v)  # whichever engine gives the output
    first = view.collect(top=8, output=True).top
    assert view._passes.have_pooled
    torch.testing.assert_close(view.output, regard.attend(q, k, v, engine="reference"), rtol=1e-5, atol=1e-6)
    fewer = view.top(3)
    assert torch.equal(fewer.indices, first.indices[..., :3])
    fewer.weights.zero_()
    assert torch.equal(view.top(8).weights, first.weights)
    with pytest.raises(AssertionError):
        view.top(9)


def test_the_output_of_a_view_with_a_gradient_keeps_it():
    q, k, v = (each.requires_grad_() for each in drawn())
    view = weigh(q, k, v)
    found = view.collect(top=8, output=True).top
    assert not view._passes.have_pooled
    (gradient,) = torch.autograd.grad(view.output.sum(), v)
    assert gradient.isfinite().all()
    assert torch.equal(found.indices, weigh(q, k, v, engine=Tiled(kernels=False)).top(8).indices)


def test_the_reference_gives_its_own_output():
    q, k, v = drawn()
    view = weigh(q, k, v, engine="reference")
    view.collect(top=8, output=True)
    assert torch.equal(view.output, regard.attend(q, k, v, engine="reference"))


@pytest.mark.parametrize("mask", ["all", "causal", "some"])
@pytest.mark.parametrize("rule", RULES)
def test_ties_go_to_the_lowest_index(rule, mask):
    generator = torch.Generator().manual_seed(1)
    # Small integers, of which sums are exact: many keys tie, some weigh 0.
    q, k = (torch.randint(-1, 2, (n, 2), generator=generator).float() for n in (N_QUERIES, N_KEYS))
    check([q, k, k], 5, exact=True, score=Dot(), weights=RULES[rule], mask=masks()[mask])


def test_scores_that_differ_may_weigh_the_same_and_then_tie():
    q, k = torch.ones(N_QUERIES, 1), torch.arange(N_KEYS)[:, None] * 1e-12
    check([q, k, k], 5, exact=True, score=Dot())
    fast, _ = views([q, k, k], score=Dot())
    assert fast.top(3).indices.tolist() == [[0, 1, 2]] * N_QUERIES


def test_rows_in_doubt_are_read_again_and_others_are_left_alone(monkeypatch):
    q, k, v = drawn()
    q[299] = 0  # every key weighs the same, in the second of two blocks
    blocks = []
    original = weight_readings._Reading._read_tiles
    monkeypatch.setattr(
        weight_readings._Reading,
        "_read_tiles",
        lambda self, way, entry, block: (blocks.append(block.rows), original(self, way, entry, block))[1],
    )
    fast, plain = views([q, k, v])
    assert torch.equal(fast.top(8).indices, plain.top(8).indices)
    assert blocks == [range(256, 300)]


@pytest.mark.usefixtures("no_second_look")
def test_keys_that_weigh_nothing_have_no_place():
    q, k = torch.ones(N_QUERIES, 1), torch.zeros(N_KEYS, 1)
    k[:, 0] = -200.0 * torch.arange(N_KEYS).flip(0)
    fast, _ = views([q, k, k], score=Dot())
    top = fast.top(3)
    assert top.indices.tolist() == [[N_KEYS - 1, -1, -1]] * N_QUERIES
    assert top.weights.tolist() == [[1.0, 0.0, 0.0]] * N_QUERIES


@pytest.mark.parametrize("where", [(0, 0), (N_KEYS - 1, 2)])
def test_nan_reaches_the_heaviest_as_it_does_in_plain_torch(where):
    q, k, v = drawn()
    k[where] = torch.nan
    fast, plain = views([q, k, v])
    got, expected = fast.top(5), plain.top(5)
    assert torch.equal(got.indices, expected.indices)
    assert got.weights.isnan().all()


@pytest.mark.parametrize("k", [1, 2, 12, 16, 32, 33])
@pytest.mark.parametrize("order", ["up", "down", "random", "equal", "few", "nan"])
def test_the_best_of_strips_are_those_of_the_whole(k, order):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(7, 1300, generator=generator)
    if order in ("up", "down"):
        rows = rows.sort(-1, descending=order == "down").values
    elif order == "equal":
        rows = (rows * 1.5).round()
    elif order == "few":  # most are not allowed
        rows[torch.rand(rows.shape, generator=generator) < 0.99] = -torch.inf
    elif order == "nan":
        rows[:, [5, 700, 1299]] = torch.nan
    best, index = torch.full((7, k), -torch.inf), torch.full((7, k), -1)
    start = 0
    for width in (512, 512, 270, 6):
        strip = rows[:, start : start + width].contiguous()
        best_strip(strip.numpy(), start, best.numpy(), index.numpy())
        start += width
    ranks = rows.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    expected, places = (each[:, :k] for each in ranks.sort(dim=-1, descending=True, stable=True))
    assert torch.equal(index, torch.where(expected == -torch.inf, -1, places))
    assert torch.equal(best.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf), expected)
