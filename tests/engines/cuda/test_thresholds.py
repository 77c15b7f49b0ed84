"""Rules with a threshold on a GPU: they match the definition, in few passes, wherever the scores are."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Causal, Dot, Entmax, Selected, Sparsemax, attend
from regard.engines import Tiled
from regard.engines.cuda import cuda_kernels, program
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.cuda.row_chunks import ChunkedProblem
from regard.errors import OptionError
from regard.testing import Case, Sizes, check

from .test_kernels import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(batch=1, heads=2)

# Rules meet products and distances, steps that exclude and that learn, masks of every kind and lists of keys.
CASES = [
    ("ScaledDot", "Sparsemax", "Causal, end", "float32", "NaN and infinity"),
    ("Gaussian", "Entmax", "Allowed", "bfloat16", "plain"),
    ("Gated", "Entmax, alpha learned", "Padding", "float32", "dropout"),
    ("Bias per pair", "Entmax", "SameDocument", "float16", "not contiguous"),
    ("Alibi", "Entmax, alpha learned", "Window", "bfloat16", "plain"),
    ("Cosine", "Entmax, alpha learned", "Selected", "float32", "dropout"),
    ("SoftCap", "Sparsemax", "Strided", "float16", "plain"),
]
SMALL = [
    ("RelativeBias", "Entmax, alpha learned", "PerHead", "float32", "plain"),
    ("Dot", "Sparsemax", "Allowed", "bfloat16", "dropout"),
    ("Epanechnikov", "Entmax", "no mask", "float16", "one query"),
]


def case_of(score, rule, mask, dtype, variant):
    return Case(score, rule, mask, getattr(torch, dtype), DEVICE, SIZE, variant)


@pytest.mark.parametrize("case", [case_of(*names) for names in CASES], ids=str)
def test_kernels_match_the_definition(case):
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("case", [case_of(*names) for names in SMALL], ids=str)
def test_kernels_for_any_rule_match_the_definition(case, monkeypatch):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    assert check(KERNELS, case).matched


def scored(rows, weights, mask=None):
    """What the rule makes of scores, and what it should: `(rows, keys)` each."""
    keys = torch.eye(rows.shape[-1], device=DEVICE, dtype=rows.dtype)
    got = attend(rows, keys, keys, score=Dot(), weights=weights, mask=mask, engine=KERNELS)
    exact = rows.double(), keys.double(), keys.double()
    return got, attend(*exact, score=Dot(), weights=weights, mask=mask, engine="reference")


def hard_rows():
    """Equal scores, ties at the top, one key far above all, scores of 1e4, scores all the same at 1e4, spread ones."""
    n = 100
    rows = torch.zeros(7, n, device=DEVICE)
    rows[1, ::3] = 0.25
    rows[2, 7] = 50
    rows[3] = 1e4 + torch.arange(n) % 8 / 8
    rows[4] = -1e4
    rows[5] = torch.linspace(-3, 3, n)
    rows[6] = torch.randn(n, generator=torch.Generator().manual_seed(0)).to(DEVICE) / 8
    return rows


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 4.0])
def test_thresholds_are_found_wherever_scores_are(alpha):
    got, wanted = scored(hard_rows(), Entmax(alpha))
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=2e-6 if alpha <= 2 else 1e-3)
    torch.testing.assert_close(got.sum(-1), torch.ones_like(got[:, 0]), rtol=0, atol=1e-5 if alpha <= 2 else 1e-3)


def test_rows_of_one_key_and_of_none():
    lists = torch.full((3, 100), -1)
    lists[1, 0], lists[2, :2] = 5, torch.tensor([5, 9])
    got, wanted = scored(hard_rows()[4:7], Sparsemax(), Selected(lists.to(DEVICE)))
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)
    assert not got[0].any()


def test_a_row_that_sees_infinity_or_nan_is_nan_and_no_other():
    rows = hard_rows()[:3]
    keys = torch.eye(100, device=DEVICE)
    keys[3], keys[98] = torch.nan, torch.inf
    got = attend(rows + 1, keys, keys, score=Dot(), weights=Sparsemax(), mask=Causal(align=2), engine=KERNELS)
    assert got.isnan().any(-1).tolist() == [False, True, True]


def test_an_alpha_for_each_head_learns():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 4, device=DEVICE) for _ in range(3))
    found = []
    for engine in (KERNELS, "reference"):
        rule = Entmax(torch.nn.Parameter(torch.tensor([1.2, 2.5], device=DEVICE)))
        output = attend(q, k, v, weights=rule, engine=engine)
        found.append([output, *torch.autograd.grad(output.square().sum(), rule.alpha)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_averaged_by_slope_is_found_again_where_nobody_knew_of_a_gradient():
    case = Case("ScaledDot", "Entmax", "no mask", torch.float32, DEVICE, SIZE)
    problem, gradients = case.make(torch.float32), []
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            compiled = CudaKernels().compile(problem)
            pooled = compiled.pool()
        assert (pooled.slope_mean is not None) == grad
        ones = torch.ones_like(pooled.output)
        gradients.append(compiled.gradients((True,) * 3, pooled.statistics, pooled.slope_mean, ones))
    assert all(map(torch.equal, *gradients))


def test_an_alpha_out_of_its_range_is_raised_by_the_next_call():
    x, rule = torch.randn(3, 4, device=DEVICE), Entmax(torch.nn.Parameter(torch.tensor(1.5, device=DEVICE)))
    rule.alpha.data.fill_(0.5)
    assert attend(x, x, x, weights=rule, engine=KERNELS).isnan().all()  # on a GPU the host waits here
    with pytest.raises(OptionError, match=r"in \(1, 4\]: an earlier call on this device got another"):
        attend(x, x, x, engine=KERNELS)


def test_a_block_of_rows_at_a_time_gives_the_same(monkeypatch):
    case = Case("Dot", "Sparsemax", "Where", torch.float32, DEVICE, SIZE)
    monkeypatch.setattr(cuda_kernels, "MOST_MASK_BYTES", 8 * SIZE.n_keys)
    assert isinstance(CudaKernels().compile(case.make(torch.float32)), ChunkedProblem)
    assert check(KERNELS, case).matched


def test_heads_with_an_alpha_each_are_not_rows_of_one():
    q, k = torch.randn(2, 1, 4, device=DEVICE), torch.randn(1, 7, 4, device=DEVICE)
    rule = Entmax(torch.tensor([1.2, 3.0], device=DEVICE))
    got = attend(q, k, k, weights=rule, engine=KERNELS)
    torch.testing.assert_close(got, attend(q, k, k, weights=rule, engine="reference"), rtol=1e-4, atol=1e-5)
