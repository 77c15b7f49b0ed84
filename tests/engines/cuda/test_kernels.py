"""The kernels for GPUs, run by Triton's interpreter where there is none: they match the definition, or refuse."""

from __future__ import annotations

import itertools
import os

import pytest
import torch

pytest.importorskip("triton")

import regard
from regard import Causal, Window, attend
from regard.engines import Tiled
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels import dispatch
from regard.testing import MASKS, RULES, SCORES, Case, Sizes, check

# The interpreter computes in NumPy, which warns where a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# What has no kernel, and goes by plain torch.
OTHER_SCORES = {"Custom", "sum of scores"}
THRESHOLDS = {"Sparsemax", "Entmax", "Entmax, alpha learned"}  # see test_thresholds.py
CHANNEL_SCORES = {"Additive", "Gated(Additive)", "Laplacian", "Equal"}  # see test_channels.py
CHOOSING_RULES = {"OneHot", "TopK", "TopK(Raw)", "TopK(Sparsemax)"}  # see test_choosing.py

PAIRS = [
    (score, rule)
    for score, rule in itertools.product(SCORES, RULES)
    if score not in OTHER_SCORES
    and rule not in THRESHOLDS | CHOOSING_RULES
    and not Case(score, rule, "no mask").expected_error
    # A negative score under Proportional gives NaN, since nobody waits for the device to raise.
    and not Case(score, rule, "no mask").may_be_negative
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SIZE = Sizes(heads=2)  # the interpreter takes its time for each batch entry
# Of every score × rule, one half here and one in `test_general.py`; all in both on a GPU, and for `make contract`.
EVERY = 1 if DEVICE == "cuda" or os.environ.get("REGARD_CONTRACT") == "full" else 2


def cases():
    """Every other score × rule; masks and dtypes take turns, so that each mask meets each dtype."""
    masks = itertools.cycle(MASKS)
    pairs = [(score, rule) for score, rule in PAIRS if score not in CHANNEL_SCORES]
    for place, (score, rule) in enumerate(pairs[::EVERY]):
        yield Case(score, rule, next(masks), DTYPES[place // len(MASKS) % 3], DEVICE, SIZE)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_kernels_match_the_definition(case):
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("mask", MASKS)
def test_kernels_match_the_definition_under_every_mask(mask):
    assert check(KERNELS, Case("Gated", "Softmax", mask, torch.float32, DEVICE, SIZE)).matched


def test_nan_in_half_precision_is_held_back():
    case = Case("ScaledDot", "Softmax", "Causal, end", torch.bfloat16, DEVICE, SIZE, "NaN and infinity")
    assert check(KERNELS, case).matched


VARIANTS = (
    "dropout", "NaN and infinity", "one query", "no batch axes", "batch axes of values alone",
    "batch axes of queries alone", "one tensor for all", "not contiguous",
)  # fmt: skip


@pytest.mark.parametrize("mask", ["no mask", "Causal, end", "Strided"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_match_the_definition_on_unusual_inputs(variant, mask):
    score = {"no mask": "ScaledDot", "Causal, end": "Gaussian", "Strided": "SoftCap"}[mask]
    assert check(KERNELS, Case(score, "Softmax", mask, torch.float32, DEVICE, SIZE, variant)).matched


@pytest.mark.parametrize("score", ["Gated", "Multiplicative", "Bias"])
def test_what_a_score_learns_gets_no_nan_from_a_masked_key(score):
    assert check(KERNELS, Case(score, "Softmax", "Causal, end", variant="NaN and infinity", device=DEVICE)).matched


@pytest.mark.parametrize("score", sorted(OTHER_SCORES))
def test_scores_without_a_kernel_are_refused(score):
    assert dispatch.why_unsupported(Case(score, "Softmax", "no mask", device=DEVICE).make(torch.float32)) is not None


def test_vectors_that_are_too_wide_are_refused():
    x = torch.randn(4, 300, device=DEVICE)
    with pytest.raises(regard.errors.EngineRefusal, match="vectors of up to 256, not 300"):
        attend(x, x, x, score=regard.SoftCap(regard.Dot(), 2.0), engine=KERNELS)


@pytest.mark.parametrize(
    ("rule", "n_splits"), [("Softmax", 7), ("Softmax, sink", 2), ("Sigmoid", 3), ("Proportional", 3)]
)
def test_keys_that_are_split_are_merged(monkeypatch, rule, n_splits):
    from regard.engines.cuda import forward_pass

    monkeypatch.setattr(forward_pass, "_n_splits", lambda *_: n_splits)
    size = Sizes(n_queries=3, n_keys=260, batch=1, heads=1)
    score = "Epanechnikov" if rule == "Proportional" else "ScaledDot"  # none of its scores is negative
    for mask in ("no mask", "Causal, end"):
        assert check(KERNELS, Case(score, rule, mask, torch.float32, DEVICE, size)).matched


def test_sums_of_parts_merge():
    q, k, v = torch.randn(3, 2, 40, 8, device=DEVICE)
    halves = [regard.partial(q, k[:, part], v[:, part]) for part in (slice(0, 17), slice(17, 40))]
    merged = halves[0].merge(halves[1]).finish()
    torch.testing.assert_close(merged, attend(q, k, v, engine="reference"), rtol=1e-5, atol=1e-5)


def test_squared_distances_far_from_the_origin_keep_their_digits():
    """In float32 differences come first; in half precision where products would cancel, which each tile decides."""
    spread = torch.linspace(-2, 2, 40, device=DEVICE)[:, None].expand(40, 3)
    for dtype, far in ((torch.float32, 1e3), (torch.float16, 1e3), (torch.bfloat16, 3e4)):
        step = torch.finfo(dtype).eps * far
        points = (far + (spread / step).round() * step).to(dtype)
        values = torch.randn(40, 2, device=DEVICE).to(dtype)
        options = {"score": regard.Gaussian(max(step, 0.5))}
        exact = attend(points.double(), points.double(), values.double(), engine="reference", **options)
        got = attend(points, points, values, engine=KERNELS, **options)
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("rule", [regard.Raw(), regard.Conic(), regard.Proportional()], ids=str)
def test_weights_beyond_float16_are_not_rounded_to_it(rule):
    q, k = torch.full((3, 4), 200.0, device=DEVICE).half(), torch.full((5, 4), 200.0, device=DEVICE).half()
    values = torch.linspace(-1, 1, 5, device=DEVICE)[:, None].expand(5, 2).half() / 1024
    got = attend(q, k, values, score=regard.Dot(), weights=rule, engine=KERNELS)
    wanted = attend(q, k, values, score=regard.Dot(), weights=rule, engine="reference")
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def test_a_negative_score_under_proportional_gives_no_number():
    q, k = torch.tensor([[1.0, 0.0], [0.0, 1.0]], device=DEVICE), torch.tensor([[-1.0, 2.0]], device=DEVICE)
    got = attend(q, k, k, score=regard.Dot(), weights=regard.Proportional(), engine=KERNELS)
    assert got.isnan().all(-1).tolist() == [True, False]


def test_more_batch_axes_than_three_that_cannot_be_joined():
    q = torch.randn(2, 1, 2, 1, 2, 3, 4, device=DEVICE)
    k = torch.randn(1, 2, 1, 2, 1, 5, 4, device=DEVICE)
    options = {"score": regard.SoftCap(regard.Dot(), 2.0)}
    with pytest.raises(regard.errors.EngineRefusal, match="three batch axes that cannot be joined"):
        attend(q, k, k, engine=KERNELS, **options)
    got = attend(q, k, k, engine="tiled", **options)
    torch.testing.assert_close(got, attend(q, k, k, engine="reference", **options), rtol=1e-5, atol=1e-5)


def test_axes_that_can_no_longer_be_joined_once_vectors_lie_together():
    q = torch.randn(2, 2, 2, 2, 3, 4, device=DEVICE)
    k = torch.randn(4, 5, device=DEVICE).T.expand(1, 2, 1, 2, 5, 4)
    options = {"score": regard.SoftCap(regard.Dot(), 2.0)}
    got = attend(q, k, k, engine="tiled", **options)
    torch.testing.assert_close(got, attend(q, k, k, engine="reference", **options), rtol=1e-5, atol=1e-5)


def test_second_derivatives():
    q, k, v = (torch.randn(2, 9, 4, device=DEVICE, requires_grad=True) for _ in range(3))

    def twice(engine):
        output = attend(q, k, v, score=regard.SoftCap(regard.ScaledDot(), 2.0), engine=engine)
        (first,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (q, k, v))

    for one, other in zip(twice(KERNELS), twice("reference"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_same_inputs_give_the_same_bits():
    q, k, v = (torch.randn(1, 2, 70, 16, device=DEVICE, requires_grad=True) for _ in range(3))

    def run():
        output = attend(q, k, v, weights=regard.Sigmoid(), mask=regard.Causal(), engine=KERNELS)
        return [output, *torch.autograd.grad(output.sum(), (q, k, v))]

    first = run()
    for _ in range(2):
        assert all(map(torch.equal, run(), first))


def test_without_triton_plain_torch_answers(monkeypatch):
    from regard.engines.cuda import cuda_kernels

    monkeypatch.setattr(cuda_kernels, "_missing", lambda: "Triton is not installed")
    x = torch.randn(4, 8, device=DEVICE)
    options = {"score": regard.SoftCap(regard.Dot(), 2.0)}
    torch.testing.assert_close(
        attend(x, x, x, engine="tiled", **options), attend(x, x, x, engine="reference", **options)
    )
    with pytest.raises(regard.errors.EngineRefusal, match="Triton is not installed"):
        attend(x, x, x, engine=KERNELS, **options)


def documents(device):
    ids = torch.tensor([[0, 0, 1, 1, 1, 0, 2, 2, 2, 2, 5, 5, 2], [3] * 13], device=device)
    return regard.SameDocument(ids)


@pytest.mark.parametrize(
    "mask",
    [
        lambda: documents(DEVICE),  # one of them in two pieces
        lambda: documents(DEVICE) & regard.Causal(),
        lambda: regard.Causal() & regard.KeyMask(torch.arange(13, device=DEVICE) % 3 != 1) & regard.Window(7, 0),
        lambda: documents(DEVICE) & regard.Where(lambda row, column: (row + column) % 2 == 0) & regard.Causal(),
        lambda: documents(DEVICE) & documents(DEVICE),
    ],
    ids=["documents", "causal", "keys", "function", "twice"],
)
def test_bounds_documents_and_pairs_are_heard_together(mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 13, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    results = []
    for engine in (KERNELS, "reference"):
        output = attend(q, k, v, mask=mask(), score=regard.SoftCap(regard.Dot(), 3.0), engine=engine)
        results.append([output, *torch.autograd.grad(output.square().sum(), (q, k, v))])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_one_row_of_bytes_is_not_counted_for_every_query():
    q = torch.empty(1, 1, 20_000, 8, device=DEVICE)
    keys = regard.KeyMask(torch.arange(20_000, device=DEVICE) % 3 != 1)
    options = {"score": regard.SoftCap(regard.Dot(), 2.0), "weights": regard.Softmax()}
    few = regard.problem.make_problem(q, q, q, mask=keys, **options)
    assert CudaKernels().bytes(few) < 1 << 20
    assert CudaKernels().lacks(few) is None
    many = regard.problem.make_problem(q, q, q, mask=regard.Where(lambda row, column: row != column), **options)
    assert CudaKernels().bytes(many) > 1 << 27  # a byte for each pair of some rows, see test_row_chunks.py


def test_documents_and_bounds_need_no_byte_for_each_pair():
    from regard.engines.cuda.masks import mask_tensors
    from regard.grid import Grid

    grid = Grid((2, 2), 13, 13, torch.device(DEVICE))
    found = mask_tensors(documents(DEVICE) & regard.Causal() & regard.Padding([5, 13]), grid)
    assert found.bounds
    assert found.documents
    assert not found.pairs
    assert not found.lists


@pytest.mark.parametrize("mask", [Window(5, 0), Causal(), Causal() & Window(5, 5)], ids=str)
def test_a_line_is_two_numbers_for_which_nothing_is_made_on_the_device(monkeypatch, mask):
    def bounds(*arguments):
        raise AssertionError("somebody made tensors of a line")

    for band in (Window, Causal):
        monkeypatch.setattr(band, "bounds", bounds)
    q, k, v = (torch.randn(40, 8, device=DEVICE, requires_grad=True) for _ in range(3))
    attend(q, k, v, mask=mask, engine=Tiled(kernels=True)).sum().backward()
