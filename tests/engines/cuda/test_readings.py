"""Views by the kernels for GPUs read what the definition says, at any number of shares."""

from __future__ import annotations

import itertools

import pytest
import torch

pytest.importorskip("triton")

import regard
from regard import Allowed, Causal, Dot, Selected, Window, weigh
from regard.engines import Tiled
from regard.engines.cuda import cuda_kernels, program, readable_problem, reading_pass
from regard.engines.kernels import dispatch
from regard.engines.reference import define_weights
from regard.engines.tile_stream import Stream
from regard.problem import make_problem
from regard.testing import MASKS, Case, Sizes
from regard.view.weights_view import WeightsView

from .test_kernels import DEVICE, DTYPES, EVERY, PAIRS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(batch=1, heads=2)
N, M = 37, 45


@pytest.fixture(autouse=True)
def nothing_in_plain_torch(monkeypatch):
    """Whatever is read, no tile is computed in plain torch."""

    def refuse(self, rows):
        raise AssertionError

    monkeypatch.setattr(Stream, "tiles", refuse)


@pytest.fixture
def shared(monkeypatch):
    """Several programs for a batch entry."""
    monkeypatch.setattr(reading_pass, "_n_programs", lambda device: 12)


def drawn(*batch, n=N, m=M, dim=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*batch, *size, generator=generator).to(DEVICE, dtype) for size in ((n, dim), (m, dim), (m, 3))]


def if_flagged(read):
    """Nothing is read in a pass of its own but what is flagged."""

    def checked(launch, facts, targets, sums, place, flags=()):
        assert flags
        read(launch, facts, targets, sums, place, flags)

    return checked


def pooled(weights, height, width):
    """The picture by its definition."""
    n, m = weights.shape[-2:]
    down, across = torch.arange(n) * height // n, torch.arange(m) * width // m
    rows = (down[None] == torch.arange(height)[:, None]).double()
    columns = (across[:, None] == torch.arange(width)).double()
    return rows @ weights @ columns


def check_view(view, weights, *, k=3, map=(4, 6), exact=True, promised=False):
    """Compare every reading with those of weights in float64."""
    tolerance = {"rtol": 2e-5, "atol": 5e-6} if exact else {"rtol": 1e-3, "atol": 1e-4}
    assert view._passes._compiled is not None
    convex = view.kind in ("convex", "one-hot", "uniform")
    seen = view.collect(top=k, entropy=convex, received=True, map=map)

    def compare(got, expected):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.cpu().double(), expected, **tolerance)

    if seen.entropy is not None:
        compare(seen.entropy, -torch.xlogy(weights, weights).sum(-1))
    compare(seen.received, weights.sum(-2))
    height, width = min(map[0], weights.shape[-2]), min(map[1], weights.shape[-1])
    compare(seen.map, pooled(weights, height, width))
    ranked = torch.where(weights == 0, -torch.inf, weights).sort(dim=-1, descending=True, stable=True).values
    ranked = torch.nn.functional.pad(ranked[..., :k], (0, max(k - ranked.shape[-1], 0)), value=-torch.inf)
    compare(seen.top.weights, torch.where(ranked.isinf(), 0, ranked))
    places = seen.top.indices.cpu()
    assert torch.equal(places < 0, ranked.isinf())
    compare(seen.top.weights, torch.where(places < 0, 0, weights.gather(-1, places.clamp(min=0))))
    n, m = weights.shape[-2:]
    compare(view.tile(slice(n // 3, n), slice(m // 2, m)), weights[..., n // 3 :, m // 2 :])
    if promised:
        view.verify()


def check(case, **options):
    """Compare a view of a case with weights of the same projections."""
    problem = case.make(case.dtype)
    with torch.no_grad():
        weights = define_weights(problem).double().cpu()
        view = WeightsView(problem, KERNELS, asked=True)
        check_view(view, weights, exact=case.dtype == torch.float32, **options)


def compare(q, k, v, *, exact=True, map=(4, 6), top=3, **options):
    """Compare a view with the weights that the reference has of the same numbers in float64."""
    weights = weigh(q.double(), k.double(), v.double(), engine="reference", **options).dense().cpu()
    view = weigh(q, k, v, engine=KERNELS, **options)
    check_view(view, weights, k=top, map=map, exact=exact)
    return view


def cases():
    """Every score and every rule; masks and dtypes take turns. Without a GPU, those in which both are new."""
    masks, dtypes = itertools.cycle(MASKS), itertools.cycle(DTYPES)
    scores, rules = set(), set()
    for both in (True, False)[: 3 - EVERY]:
        for score, rule in PAIRS:
            news = (score not in scores) + (rule not in rules)
            if news == 2 or (news and not both):
                scores.add(score)
                rules.add(rule)
                yield Case(score, rule, next(masks), next(dtypes), DEVICE, SIZE)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_readings_match_the_definition(case):
    check(case, promised=True)


CALLS = [
    ((1, 1), {}),
    ((3, 5), {"mask": Causal(align="end"), "weights": regard.Sigmoid()}),
    ((N, M), {"mask": Window(9, 4, align="start"), "weights": regard.Raw()}),
    ((90, 2), {"weights": regard.Conic()}),
    ((20, 30), {"mask": Causal(align="end")}),
]


@pytest.mark.parametrize(("map", "options"), CALLS, ids=[str(map) for map, _ in CALLS])
@pytest.mark.usefixtures("shared")
def test_shares_and_pictures_of_every_size(map, options):
    compare(*drawn(), map=map, **options)


def test_no_reason_is_given_for_plain_torch():
    problem = Case("Dot", "Softmax", "no mask", device=DEVICE).make(torch.float32)
    assert dispatch.why_plain(problem, asked=True, reads=True) is None


@pytest.mark.usefixtures("shared")
def test_lines_of_a_picture_that_several_programs_share():
    compare(*drawn(n=150, m=20), map=(2, 3))


def test_a_block_of_several_lines_of_a_picture():
    compare(*drawn(n=130, m=40), map=(30, 20), mask=Causal(align="end"))


@pytest.mark.usefixtures("shared")
def test_batch_axes_that_broadcast_and_tensors_that_are_not_contiguous():
    q, k, v = drawn(2, 1), drawn(3), drawn(1, 1)
    compare(q[0], k[1], v[2], weights=regard.Conic())
    q, k, v = (each.movedim(0, 1).contiguous().movedim(1, 0) for each in drawn(2))
    compare(q, k, v)


@pytest.mark.parametrize("shape", [(1, 90), (90, 1), (1, 1)])
def test_one_query_or_one_key(shape):
    n, m = shape
    compare(*drawn(n=n, m=m))


def test_one_query_of_several_heads_that_share_their_keys():
    (q, _, _), (_, k, v) = drawn(4, n=1), drawn(1)
    compare(q, k, v)


def test_rows_that_see_nothing_weigh_nothing():
    allowed = torch.rand(N, M, generator=torch.Generator().manual_seed(7)) < 0.2
    allowed[3] = False
    for rule in (regard.Softmax(), regard.Uniform()):
        view = compare(*drawn(), mask=Allowed(allowed.to(DEVICE)), weights=rule)
        assert float(view.received().isnan().sum()) == 0
        assert view.top(2).indices[3].tolist() == [-1, -1]
    assert float(weigh(*drawn(), mask=Allowed(allowed.to(DEVICE)), engine=KERNELS).entropy()[3]) == 0


@pytest.mark.parametrize("rule", [regard.Uniform(), regard.Softmax(), regard.Raw(), regard.Conic()], ids=str)
def test_ties_go_to_the_lowest_index_and_zeros_have_no_place(rule):
    generator = torch.Generator().manual_seed(1)
    # Small integers, of which sums are exact: many keys tie, some weigh 0.
    q, k = (torch.randint(-1, 2, (n, 2), generator=generator).float().to(DEVICE) for n in (9, 150))
    weights = weigh(q, k, k, score=regard.Dot(), weights=rule, engine="reference").dense()
    got = weigh(q, k, k, score=regard.Dot(), weights=rule, engine=KERNELS).top(9)
    ranked = torch.where(weights == 0, -torch.inf, weights).sort(dim=-1, descending=True, stable=True)
    places = torch.where(ranked.values == -torch.inf, -1, ranked.indices)[..., :9]
    assert torch.equal(got.indices, places)


@pytest.mark.parametrize("k", [1, 40, 129])
def test_as_many_of_the_heaviest_as_wanted(k):
    compare(*drawn(n=3, m=150), top=k)


def test_a_view_in_blocks_of_rows_whose_mask_fits(monkeypatch):
    monkeypatch.setattr(cuda_kernels, "MOST_MASK_BYTES", 19 * M)
    q, k, v = drawn()
    odd = regard.Where(lambda row, column: (row + column) % 3 == 0)
    view = compare(q, k, v, mask=odd, map=(7, 9))
    assert [len(each) for each in view._passes._compiled._blocks()] == [19, 18]
    compare(q, k, v, mask=odd & Causal(align="end"), weights=regard.Sigmoid(), map=(N, 3))
    torch.testing.assert_close(
        view.map(6, 5, "max"), weigh(q, k, v, mask=odd, engine="reference").map(6, 5, "max"), rtol=1e-5, atol=1e-6
    )


def test_lists_of_keys_are_read_as_pairs(monkeypatch):
    monkeypatch.setattr(cuda_kernels, "MOST_MASK_BYTES", 16 * 100)
    lists = torch.stack([torch.randperm(100)[:4] for _ in range(20)]).to(DEVICE)
    q, k, v = drawn(n=20, m=100)
    view = compare(q, k, v, mask=Selected(lists), map=(9, 11))
    assert [len(each) for each in view._passes._compiled._blocks()] == [16, 4]


def test_small_problems(monkeypatch):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    compare(*drawn(), score=regard.SoftCap(regard.ScaledDot(), 2.0), mask=Causal(align="end"))
    compare(*drawn(dtype=torch.bfloat16), score=regard.Gaussian(2.0), weights=regard.Conic(), exact=False)
    check(Case("Gated", "Sigmoid", "Allowed", torch.float16, DEVICE, SIZE))


def test_distances_far_from_the_origin_keep_their_digits():
    spread = torch.linspace(-2, 2, 40, device=DEVICE)[:, None].expand(40, 3)
    for dtype, far in ((torch.float32, 1e3), (torch.float16, 1e3)):
        step = torch.finfo(dtype).eps * far
        points = (far + (spread / step).round() * step).to(dtype)
        compare(points, points, points, score=regard.Gaussian(max(step, 0.5)), exact=False)


@pytest.mark.usefixtures("shared")
def test_the_same_inputs_give_the_same_bits():
    q, k, v = drawn(2)

    def run():
        view = weigh(q, k, v, mask=Causal(align="end"), engine=KERNELS)
        seen = view.collect(top=3, entropy=True, received=True, map=(5, 7))
        return [*seen.top, seen.entropy, seen.received, seen.map]

    first = run()
    assert all(map(torch.equal, run(), first))


def test_sums_over_many_rows_keep_their_digits():
    """Equal weights added one by one to a float32 sum would all be rounded the same way."""
    x = torch.zeros(1000, 2, device=DEVICE)
    view = weigh(x, torch.zeros(7, 2, device=DEVICE), torch.zeros(7, 1, device=DEVICE), engine=KERNELS)
    seen = view.collect(received=True, map=(1, 1))
    torch.testing.assert_close(seen.received, torch.full((7,), 1000 / 7, device=DEVICE), rtol=1e-6, atol=0)
    assert float(seen.map) == pytest.approx(1000, rel=1e-6)


def test_weights_are_those_before_dropout_and_do_not_need_values():
    q, k, v = drawn()
    problem = make_problem(q, k, v, score=regard.ScaledDot(), weights=regard.Softmax(), dropout=0.5)
    dropped = WeightsView(problem, KERNELS, asked=True)
    assert torch.equal(dropped.received(), weigh(q, k, v, engine=KERNELS).received())
    view = weigh(q, k, torch.zeros(M, 200, device=DEVICE), engine=KERNELS)
    view.entropy()
    assert "pooled" not in view._passes.__dict__


def test_nan_under_a_mask_stays_there():
    q, k, v = drawn()
    k[-1], v[-1] = torch.nan, torch.nan
    view = weigh(q, k, v, mask=Allowed(torch.arange(M, device=DEVICE)[None] < M - 1), engine=KERNELS)
    assert view.output.isfinite().all()
    assert view.entropy().isfinite().all()
    assert float(view.received()[-1]) == 0


def test_readings_with_a_gradient_need_no_kernels():
    q, k, v = (each.requires_grad_() for each in drawn())
    view = weigh(q, k, v, engine=KERNELS)
    (view.entropy().sum() + view.received().square().sum()).backward()
    assert q.grad.isfinite().all()
    plain = weigh(q, k, v, engine="reference")
    torch.testing.assert_close(view.entropy(), plain.entropy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("score", "rule", "mask"),
    [
        ("ScaledDot", "Sparsemax", "Causal, end"), ("Gaussian", "Entmax", "Strided"), ("Gated", "TopK", "Causal, end"),
        ("Additive", "OneHot", "no mask"), ("ScaledDot", "TopK(Sparsemax)", "Allowed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("small", [0, 1 << 18])
def test_thresholds_and_choices_are_read_as_the_definition_has_them(score, rule, mask, small, monkeypatch):
    monkeypatch.setattr(program, "SMALL", small)
    check(Case(score, rule, mask, torch.float32, DEVICE, SIZE))


@pytest.mark.parametrize("small", [0, 1 << 18])
@pytest.mark.parametrize(
    ("rule", "mask"), [("Softmax, sink", "Causal, end"), ("Sigmoid", "Allowed"), ("Conic", "no mask")]
)
def test_the_heaviest_are_found_beside_the_output(rule, mask, small, monkeypatch):
    monkeypatch.setattr(program, "SMALL", small)
    problem = Case("ScaledDot", rule, mask, torch.float32, DEVICE, SIZE).make(torch.float32)
    with torch.no_grad():
        weights = define_weights(problem)
        view = WeightsView(problem, KERNELS, asked=True)
        monkeypatch.setattr("regard.engines.cuda.readable_problem.read", if_flagged(readable_problem.read))
        top = view.collect(top=4, output=True).top
        expected = torch.where(weights == 0, -torch.inf, weights).sort(dim=-1, descending=True, stable=True)
        live = expected.values[..., :4] > -torch.inf
        torch.testing.assert_close(top.weights, torch.where(live, expected.values[..., :4], 0), rtol=1e-5, atol=1e-6)
        assert torch.equal(top.indices, torch.where(live, expected.indices[..., :4], -1))
        torch.testing.assert_close(view.output, weights @ problem.values, rtol=1e-4, atol=1e-5)


def test_where_equal_weights_go_on_beyond_those_that_were_kept_the_lowest_keys_are_read():
    q, k, v = drawn(n=5, m=40)
    # All keys weigh the same: with few digits no product is rounded, in whatever order they are added.
    q, k = q.mul(64).round() / 64, (k[:1].mul(64).round() / 64).expand(40, -1).contiguous()
    view = weigh(q, k, v, score=Dot(), engine=KERNELS)
    with torch.no_grad():
        top = view.collect(top=3, output=True).top
    assert top.indices.tolist() == [[0, 1, 2]] * 5


@pytest.mark.parametrize("broken", [None, torch.inf, torch.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_look_finds_the_longest_vectors_and_what_is_not_finite(place, broken):
    tensors = [each.transpose(0, 1) for each in drawn(n=300, m=70)]
    tensors = [each.T.expand(2, *each.T.shape) for each in tensors]
    if broken is not None:
        tensors[place] = tensors[place].clone()
        tensors[place][1, -1, 0] = -broken
    problem = make_problem(*tensors, score=Dot(), weights=regard.Softmax())
    longest = Stream((problem,), kernels=True).compiled.readable(lambda share: None).longest()
    expected = [float(each.norm(dim=-1).amax()) for each in tensors]
    for each, wanted in zip(longest, expected, strict=True):
        assert each == pytest.approx(wanted, nan_ok=True)


def test_views_look_once(monkeypatch):
    looks = []
    monkeypatch.setattr("regard.problem.are_finite", None)
    monkeypatch.setattr("regard.engines.rounding._longest", None)
    longest = readable_problem.longest
    monkeypatch.setattr(readable_problem, "longest", lambda launch: looks.append(longest(launch)) or looks[-1])
    with torch.no_grad():
        view = weigh(*drawn(), score=Dot(), engine=KERNELS)
        view.collect(top=3, entropy=True, output=True)
        assert view.output.isfinite().all()
    assert len(looks) == 1
