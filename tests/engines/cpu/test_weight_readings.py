"""Views by compiled kernels read what views in plain torch do."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

import regard
from regard import Allowed, Causal, PerHead, Selected, Window, weigh
from regard.engines import Tiled
from regard.engines.tile_stream import Stream

DIM, N_QUERIES, N_KEYS = 6, 150, 170


def scores():
    torch.manual_seed(5)
    return {
        "scaled dot": regard.ScaledDot(),
        "gaussian": regard.Gaussian(1.5),
        "gated": regard.Gated(DIM, DIM),
        "capped": regard.SoftCap(regard.Dot(), 3.0),
        "alibi": regard.ScaledDot() + regard.Alibi(0.1, align="start"),
        "additive": regard.Additive(DIM, DIM, 8),
        "laplacian": regard.Laplacian(2.0),
    }


RULES = {
    "softmax": regard.Softmax(),
    "sink": regard.Softmax(temperature=0.5, sink=0.5),
    "conic": regard.Conic(),
    "raw": regard.Raw(),
    "sigmoid": regard.Sigmoid(),
    "uniform": regard.Uniform(),
    "one-hot": regard.OneHot(),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "entmax 1.2": regard.Entmax(1.2),
    "top-k": regard.TopK(4),
    "top-k, uniform": regard.TopK(4, regard.Uniform()),
    "top-k, raw": regard.TopK(4, regard.Raw()),
    "top-k, sparsemax": regard.TopK(9, regard.Sparsemax()),
}


def masks():
    generator = torch.Generator().manual_seed(7)
    some = torch.rand(N_QUERIES, N_KEYS, generator=generator) < 0.2
    some[3] = False
    few = torch.stack([torch.randperm(N_KEYS, generator=generator)[:4] for _ in range(N_QUERIES)])
    return {
        "all": None,
        "causal": Causal(align="end"),
        "window": Window(9, 4, align="start"),
        "some": Allowed(some),
        "few": Selected(few),
        "heads": PerHead([Causal(align="start"), Window(30, 30, align="start")]),
    }


def drawn(*batch: int, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = (N_QUERIES, DIM), (N_KEYS, DIM), (N_KEYS, 5)
    return [torch.randn(*batch, *size, generator=generator).to(dtype) for size in sizes]


def read(view, *, map=(40, 30), pool="sum", k=5):
    """Every reading that there is for a rule."""
    convex = view.kind in ("convex", "one-hot", "uniform")
    return view.collect(top=k, entropy=convex, received=True, map=map, pool=pool)


def check(tensors, *, ties=False, **options):
    """Compare readings of both; `ties`: which of the keys that weigh the same come first is compared too."""
    fast, plain = (weigh(*tensors, engine=Tiled(kernels=kernels), **options) for kernels in (True, False))
    assert fast._passes._compiled is not None
    assert plain._passes._compiled is None
    got, expected = read(fast), read(plain)
    exact = tensors[0].dtype == torch.float32
    tolerance = {"rtol": 2e-5, "atol": 5e-6} if exact else {"rtol": 2**-6, "atol": 1e-4}
    for name in ("entropy", "received", "map"):
        one, other = getattr(got, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, **tolerance)
    torch.testing.assert_close(got.top.weights, expected.top.weights, **tolerance)
    if ties:
        assert torch.equal(got.top.indices, expected.top.indices)
    else:  # rounding may order near equals differently
        assert float((got.top.indices != expected.top.indices).float().mean()) < 0.02
    fast.verify()
    torch.testing.assert_close(fast.map(7, 9, "mean"), plain.map(7, 9, "mean"), **tolerance)
    torch.testing.assert_close(fast.map(7, 9, "max"), plain.map(7, 9, "max"), **tolerance)
    torch.testing.assert_close(fast.output, plain.output, **tolerance)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", masks())
def test_every_rule_under_every_mask(rule, mask):
    tensors = drawn(2) if mask == "heads" else drawn()
    check(tensors, weights=RULES[rule], mask=masks()[mask])


@pytest.mark.parametrize("score", scores())
@pytest.mark.parametrize("rule", ["softmax", "entmax", "sigmoid"])
@pytest.mark.parametrize("mask", ["all", "causal"])
def test_every_score(score, rule, mask):
    with torch.no_grad():
        check(drawn(), score=scores()[score], weights=RULES[rule], mask=masks()[mask])


@pytest.mark.parametrize("rule", ["softmax", "sparsemax", "top-k"])
@pytest.mark.parametrize("mask", ["all", "window", "few"])
def test_half_precision(rule, mask):
    check(drawn(dtype=torch.bfloat16), weights=RULES[rule], mask=masks()[mask])


def test_batch_axes_that_broadcast():
    q, k, v = drawn(2, 1), drawn(3), drawn(1, 1)
    check([q[0], k[1], v[2]])
    check([q[0], k[1], v[2]], mask=Causal(align="start"), weights=regard.TopK(3))


@pytest.mark.parametrize("rule", ["uniform", "softmax", "raw", "top-k, uniform", "top-k, raw", "one-hot", "top-k"])
@pytest.mark.parametrize("mask", ["all", "causal", "few"])
def test_ties_go_to_the_lowest_index(rule, mask):
    generator = torch.Generator().manual_seed(1)
    # Small integers, of which sums are exact: many keys tie, some weigh 0.
    q, k = (torch.randint(-1, 2, (n, 2), generator=generator).float() for n in (N_QUERIES, N_KEYS))
    check([q, k, k], ties=True, score=regard.Dot(), weights=RULES[rule], mask=masks()[mask])


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1)])
@pytest.mark.parametrize("rule", ["softmax", "sparsemax", "top-k"])
def test_one_row_or_one_column(shape, rule):
    n_queries, n_keys = shape
    check([torch.randn(n_queries, 4), torch.randn(n_keys, 4), torch.randn(n_keys, 4)], weights=RULES[rule])


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("rule", ["softmax", "top-k"])
def test_blocks_that_threads_share_give_the_same_bits_every_time(rule):
    x = torch.randn(1500, 4, generator=torch.Generator().manual_seed(0))
    check([x, x, x], weights=RULES[rule], mask=Causal())
    first, *others = (read(weigh(x, x, x, weights=RULES[rule], engine=Tiled(kernels=True))) for _ in range(8))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first[1:], other[1:], strict=True))
        assert torch.equal(first.top.indices, other.top.indices)


def test_readings_alone_do_not_pool_the_values_and_the_output_is_right_afterwards():
    q, k, v = drawn()
    view = weigh(q, k, v, engine=Tiled(kernels=True))
    read(view)
    assert "pooled" not in view._passes.__dict__
    torch.testing.assert_close(view.output, regard.attend(q, k, v, engine="reference"), rtol=1e-5, atol=1e-6)
    assert view.output is view.output


def test_where_kernels_read_tiles_are_not_computed_in_plain_torch(monkeypatch):
    def refuse(self, rows):
        raise AssertionError

    monkeypatch.setattr(Stream, "tiles", refuse)
    view = weigh(*drawn())  # large enough for kernels, whichever engine gives the output
    read(view)
    view.log_normalizer()
    view.verify()
    view.map(4, 4, "max")
    view.tile(slice(3), slice(3))


def test_nan_under_a_mask_stays_there():
    q, k, v = drawn()
    k[-1], v[-1] = torch.nan, torch.nan
    view = weigh(q, k, v, mask=Allowed(torch.arange(N_KEYS)[None] < N_KEYS - 1), engine=Tiled(kernels=True))
    assert view.output.isfinite().all()
    seen = read(view)
    assert seen.entropy.isfinite().all()
    assert float(seen.received[-1]) == 0


def test_values_without_columns_can_be_weighed():
    q, k, v = drawn()
    check_of = weigh(q, k, v[:, :0], engine=Tiled()).received()
    torch.testing.assert_close(check_of, weigh(q, k, v).received())


def test_an_error_in_a_users_mask_is_raised_and_later_calls_work():
    class Broken(regard.Mask):
        def allows(self, rows, columns, grid):
            raise KeyError("mine")

    view = weigh(*drawn(), mask=Broken(), engine=Tiled(kernels=True))
    with pytest.raises(KeyError, match="mine"):
        view.entropy()
    check(drawn())
