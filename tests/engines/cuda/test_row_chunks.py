"""Masks of a byte for each pair, where those of all rows are too many: a block of rows at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from regard import (
    Alibi,
    Allowed,
    Bias,
    Causal,
    Dot,
    Gated,
    Multiplicative,
    Proportional,
    RandomKeys,
    SameDocument,
    ScaledDot,
    Selected,
    Sigmoid,
    SoftCap,
    Softmax,
    Where,
    Window,
    attend,
    partial,
)
from regard.engines import Tiled
from regard.engines.cuda import cuda_kernels, row_chunks
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.cuda.masks import mask_tensors
from regard.engines.cuda.program import translate
from regard.engines.dropout import keep_factors
from regard.errors import EngineRefusal
from regard.grid import Grid
from regard.masks import Mask
from regard.problem import make_problem
from regard.testing import Case, Sizes, check

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = Sizes(batch=1, heads=2, n_queries=7, n_keys=19)  # the interpreter takes its time for each block
N, M = 7, 19


class Blocks:
    """How much room there is for a mask, and the rows that problems were cut into since anybody asked."""

    def __init__(self, monkeypatch):
        self._monkeypatch, self._seen, cut = monkeypatch, [], row_chunks.rows_of
        monkeypatch.setattr(row_chunks, "rows_of", lambda problem, rows: self._seen.append(rows) or cut(problem, rows))
        self.allow(3 * M)

    def allow(self, n_bytes):
        self._monkeypatch.setattr(cuda_kernels, "MOST_MASK_BYTES", n_bytes)

    def seen(self):
        found, self._seen[:] = [(each.start, each.stop) for each in self._seen], []
        return found


THREE = [(0, 3), (3, 6), (6, 7)]


@pytest.fixture
def blocks(monkeypatch):
    return Blocks(monkeypatch)


class Neighbours(Mask):
    """What somebody might write: no more than the definition."""

    def allows(self, rows, columns, grid):
        return (rows - columns).abs() % 4 < 2


def either():
    generator = torch.Generator().manual_seed(0)
    allowed = torch.rand(2, N, M, generator=generator) < 0.4
    return Allowed(allowed.to(DEVICE)) | Window(2, 1, align="end")


MADE = {
    "function": lambda: Where(lambda row, column: (row + column) % 3 == 0),
    "own": Neighbours,
    "either": either,
    "not": lambda: ~Window(1, 1, align="end"),
    "bounded": lambda: Causal(align="end") & Where(lambda row, column: (row * column) % 3 != 1),
    "documents": lambda: (
        SameDocument(torch.arange(N, device=DEVICE) // 4, torch.arange(M, device=DEVICE) * 5 % 3) & Neighbours()
    ),
}


def inputs(n_groups=2, n_heads=1, shared=False):
    """Queries of heads in groups that share their keys and values."""
    torch.manual_seed(0)
    heads = 1 if shared else n_heads
    shapes = (n_groups, n_heads, N, 4), (n_groups, heads, M, 4), (n_groups, heads, M, 5)
    return [torch.rand(*shape, device=DEVICE).requires_grad_() for shape in shapes]


def compare(blocks, tensors, mask, cut=THREE, times=2, score=None, **options):
    """Compare output and every gradient with the definition's, and see that rows were taken in these blocks."""
    score = score or ScaledDot()
    learned = [each for part in (score, options.get("weights")) if part is not None for each in part.parameters()]
    results = []
    for engine in (KERNELS, "reference"):
        output = attend(*tensors, mask=mask, score=score, engine=engine, **options)
        wanted = [each for each in (*tensors, *learned) if each.requires_grad]
        results.append([output, *torch.autograd.grad(output.square().sum(), wanted)])
    for one, two in zip(*results, strict=True):
        assert one.dtype == two.dtype
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    assert blocks.seen() == cut * times
    return results[0]


CASES = [
    ("ScaledDot", "Softmax", "Where"),
    ("ScaledDot", "Softmax, sink", "a combination"),
    ("Multiplicative", "Softmax, temperature", "Where"),
    ("Gated", "Sigmoid", "a combination"),
    ("Bias", "Conic", "Where"),
    ("Bias per pair", "Softmax", "NotSelf"),
    ("Alibi", "Sigmoid", "Where"),
    ("Gaussian, bandwidth per dimension", "Softmax, sink", "Where"),
    ("Epanechnikov", "Proportional", "a combination"),
    ("Triangular", "Raw", "Where"),
    ("Cosine", "Uniform", "Where"),
]


@pytest.mark.parametrize(("score", "rule", "mask"), CASES)
def test_blocks_match_the_definition(blocks, score, rule, mask):
    assert check(KERNELS, Case(score, rule, mask, torch.float32, DEVICE, SIZE)).matched
    assert blocks.seen() == THREE * 2


@pytest.mark.parametrize(
    "variant",
    ["dropout", "NaN and infinity", "batch axes of values alone", "batch axes of queries alone", "not contiguous"],
)
def test_blocks_match_the_definition_on_unusual_inputs(blocks, variant):
    assert check(KERNELS, Case("Gated", "Softmax", "a combination", torch.float32, DEVICE, SIZE, variant)).matched
    assert blocks.seen() == THREE * 2


def test_blocks_match_the_definition_in_half_precision(blocks):
    assert check(KERNELS, Case("Alibi", "Softmax, sink", "Where", torch.bfloat16, DEVICE, SIZE)).matched
    assert blocks.seen() == THREE * 2


SCORES = {
    "ScaledDot": ScaledDot,
    "Gated": lambda: Gated(4, 4).to(DEVICE),
    "per pair": lambda: Dot() + Bias(torch.rand(N, M, device=DEVICE)),
    "per row": lambda: ScaledDot() + Bias(nn.Parameter(torch.rand(N, 1, device=DEVICE))),
    "per column": lambda: Dot() + Bias(nn.Parameter(torch.rand(1, M, device=DEVICE))),
    "Alibi": lambda: ScaledDot() + Alibi(nn.Parameter(torch.tensor([0.1, 0.2], device=DEVICE)), align="end"),
    "offsets": lambda: ScaledDot() + Alibi(0.1, align=torch.tensor([2, 5], device=DEVICE)),
}
RULES = {
    "Softmax": Softmax,
    "sink": lambda: Softmax(sink=nn.Parameter(torch.tensor([0.3, -0.2], device=DEVICE))),
    "Sigmoid": Sigmoid,
    "Proportional": Proportional,
}
TOGETHER = [
    ("ScaledDot", "Softmax", "function"),
    ("Gated", "sink", "own"),
    ("per pair", "Proportional", "either"),
    ("per row", "Sigmoid", "not"),
    ("per column", "Proportional", "own"),
    ("Alibi", "sink", "function"),
    ("offsets", "Softmax", "own"),
    ("per row", "Softmax", "bounded"),
    ("Alibi", "Softmax", "documents"),
    ("Gated", "Proportional", "bounded"),
]


@pytest.mark.parametrize(("score", "rule", "mask"), TOGETHER)
def test_grouped_heads_in_blocks(blocks, score, rule, mask):
    if mask == "either":
        blocks.allow(3 * 2 * M)  # a mask for each head
    compare(blocks, inputs(2, 2, shared=True), MADE[mask](), score=SCORES[score](), weights=RULES[rule]())


def test_only_what_is_needed_is_differentiated(blocks):
    tensors, sink = inputs(), nn.Parameter(torch.tensor(0.2, device=DEVICE))
    for place in range(3):
        alone = [each.detach().requires_grad_(place == other) for other, each in enumerate(tensors)]
        compare(blocks, alone, Neighbours())
    plain = [each.detach() for each in tensors]
    compare(blocks, plain, Neighbours(), weights=Softmax(sink=sink))
    compare(blocks, plain, Neighbours(), score=SCORES["per row"]())


def test_without_gradients_rows_are_taken_once(blocks):
    tensors = [each.detach() for each in inputs()]
    got = attend(*tensors, score=SoftCap(Dot(), 2.0), mask=Neighbours(), engine=KERNELS)
    assert blocks.seen() == THREE
    wanted = attend(*tensors, score=SoftCap(Dot(), 2.0), mask=Neighbours(), engine="reference")
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_planner_takes_kernels_too(blocks):
    tensors = inputs()
    for _ in range(2):  # the second time what was chosen is known
        assert attend(*tensors, score=SoftCap(Dot(), 2.0), mask=MADE["own"](), engine="tiled").shape == (2, 1, N, 5)
        assert blocks.seen() == THREE


def test_second_derivatives(blocks):
    q, k, v = inputs()

    def twice(engine):
        output = attend(q, k, v, mask=Neighbours(), engine=engine)
        (first,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (q, k, v))

    for one, other in zip(twice(KERNELS), twice("reference"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert blocks.seen() == THREE * 3  # the output, and twice its gradient


def test_parts_merge(blocks):
    q, k, v = inputs()
    mask = Where(lambda row, column: (row + column) % 4 < 2)  # as both parts have it, which count keys from 0
    blocks.allow(3 * 10)
    halves = [partial(q, k[..., part, :], v[..., part, :], mask=mask) for part in (slice(0, 8), slice(8, M))]
    assert blocks.seen() == [(0, 3), (3, 6), (6, 7), (0, 2), (2, 4), (4, 6), (6, 7)]
    merged = halves[0].merge(halves[1]).finish()
    torch.testing.assert_close(merged, attend(q, k, v, mask=mask, engine="reference"), rtol=1e-5, atol=1e-5)


def test_the_same_inputs_give_the_same_bits(blocks):
    tensors, sink = inputs(2, 2, shared=True), nn.Parameter(torch.tensor(0.2, device=DEVICE))
    first, second = (compare(blocks, tensors, Neighbours(), weights=Softmax(sink=sink)) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_shares_of_half_precision_are_summed_in_float32(blocks):
    """In bfloat16 256 and 1 are 256."""
    q, k = torch.zeros(5, 4, device=DEVICE).bfloat16(), torch.zeros(2, 4, device=DEVICE).bfloat16()
    v = torch.ones(2, 4, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    blocks.allow(2)
    output = attend(q, k, v, mask=Where(lambda row, column: row >= 0 * column), engine=KERNELS)
    to_output = torch.tensor([512.0, 2, 2, 2, 2], device=DEVICE).bfloat16()[:, None].expand(5, 4)
    (gradient,) = torch.autograd.grad(output, v, to_output)
    assert blocks.seen() == [(row, row + 1) for row in range(5)] * 2
    assert gradient.tolist() == [[260] * 4] * 2


@pytest.mark.parametrize("score", [ScaledDot(), Multiplicative(4, 4).to(DEVICE)], ids=["plain", "learned"])
def test_masked_nan_reaches_no_block(blocks, score):
    q, k, v = (each.detach() for each in inputs())
    k[..., -1, :], v[..., -1, :] = torch.inf, torch.nan
    hidden = Where(lambda row, column: ((row + column) % 3 == 0) & (column < M - 1))
    found = compare(blocks, [each.requires_grad_() for each in (q, k, v)], hidden, score=score)
    assert all(each.isfinite().all() for each in found)


def test_nan_that_is_seen_reaches_what_a_score_learns(blocks):
    for score in ("Multiplicative", "Gaussian, bandwidth per dimension"):
        case = Case(score, "Softmax", "Where", torch.float32, DEVICE, SIZE, "NaN and infinity")
        assert check(KERNELS, case).matched
        assert blocks.seen() == THREE * 2


def test_blocks_know_whether_gradients_go_through_projections(blocks, monkeypatch):
    told = []
    monkeypatch.setattr(row_chunks, "translate", lambda problem: told.append(problem.may_leak) or translate(problem))
    for score, learns in ((ScaledDot(), False), (Multiplicative(4, 4).to(DEVICE), True)):
        compare(blocks, inputs(), Neighbours(), score=score)
        assert told[3:] == [learns] * 3
        told.clear()


def test_dropout_goes_by_the_row_of_the_whole_problem():
    grid = Grid((2,), N, M, torch.device(DEVICE))
    tensors = [each.detach()[:, 0] for each in inputs()]
    for seed in (17, 2**40 + 17, 2**63 - 1, -3, torch.tensor(2**62 - 5, device=DEVICE)):
        problem = make_problem(*tensors, score=Dot(), weights=Softmax(), dropout=0.4, seed=seed)
        block = row_chunks.rows_of(problem, range(4, 6))
        found = keep_factors(block.seed, 0.4, block.grid, block.grid.rows, block.grid.columns, torch.float32)
        wanted = keep_factors(seed, 0.4, grid, range(4, 6), grid.columns, torch.float32)
        assert torch.equal(found, wanted)
        assert -(2**63) <= int(block.seed) < 2**63


# What counts as bytes ------------------------------------------------------------------------------------------------


def problem_of(mask, n=20_000, m=20_000, batch=(1, 2)):
    q, k = torch.empty(*batch, n, 8, device=DEVICE), torch.empty(*batch, m, 8, device=DEVICE)
    return make_problem(q, k, k, score=SoftCap(Dot(), 2.0), weights=Softmax(), mask=mask)


def test_a_block_stays_within_the_limit_and_bytes_say_so():
    problem = problem_of(Neighbours())
    assert CudaKernels().lacks(problem) is None
    n_rows, n_bytes = cuda_kernels._at_a_time(problem)
    assert n_rows % cuda_kernels.EVEN == 0
    assert n_bytes == n_rows * 20_000
    assert cuda_kernels.MOST_MASK_BYTES - cuda_kernels.EVEN * 20_000 < n_bytes <= cuda_kernels.MOST_MASK_BYTES
    assert n_bytes < CudaKernels().bytes(problem) < n_bytes + 2 * 20_000 * (12 + 12 + 4 * 8)
    assert isinstance(CudaKernels().compile(problem), row_chunks.ChunkedProblem)


def test_one_row_that_is_too_long_is_refused(blocks):
    blocks.allow(M)
    compare(blocks, inputs(), Neighbours(), cut=[(row, row + 1) for row in range(N)])
    blocks.allow(M - 1)
    with pytest.raises(EngineRefusal, match="MiB for a row of this mask"):
        attend(*inputs(), mask=Neighbours(), engine=KERNELS)


def test_what_says_the_same_of_every_row_is_not_cut(blocks):
    blocks.allow(M)
    compare(blocks, inputs(), Where(lambda row, column: column % 2 == 0), cut=[])
    compare(blocks, inputs(), Neighbours(), cut=[(row, row + 1) for row in range(N)])


def test_a_tensor_that_was_given_takes_nothing_more(blocks):
    given = Allowed(torch.ones(N, M, dtype=torch.bool, device=DEVICE).tril(5))
    compare(blocks, inputs(), given, cut=[])
    compare(blocks, inputs(), given & Causal(align="end"), cut=[])
    compare(blocks, inputs(), given | Causal(align="end"))


def test_what_a_function_says_of_each_batch_entry_is_counted(blocks):
    remainder = torch.tensor([0, 1], device=DEVICE)[:, None, None, None]
    mask = Where(lambda row, column: (row + column) % 2 == remainder)
    blocks.allow(2 * 4 * M)
    compare(blocks, inputs(), mask, cut=[(0, 4), (4, 7)])


# What a block knows of its mask --------------------------------------------------------------------------------------


def test_blocks_keep_bounds_and_documents():
    ids = torch.tensor([0, 1, 1, 0, 2, 2, 0], device=DEVICE)
    problem = problem_of(Causal() & SameDocument(ids) & Neighbours(), 7, 7)
    block = row_chunks.rows_of(problem, range(2, 5))
    found = mask_tensors(block.mask, block.grid)
    assert found.documents[0].flatten().tolist() == [1, 0, 2]
    assert torch.stack([each.flatten() for each in found.bounds]).tolist() == [[1, 0, 4], [3, 4, 5]]
    assert torch.equal(found.pairs[0].bool(), Neighbours().tile(range(2, 5), range(7), problem.grid))


@pytest.mark.parametrize("mask", ["random", "selected", "under another"])
def test_lists_of_keys_are_cut_too(blocks, mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(each, 4, device=DEVICE).requires_grad_() for each in (N, 40, 40))
    index = torch.stack([torch.randperm(40, device=DEVICE)[:5] for _ in range(N)])
    made = {
        "random": lambda: RandomKeys(5, seed=1),
        "selected": lambda: Selected(index),
        "under another": lambda: Selected(index) & Causal(align="end") & Neighbours(),
    }[mask]()
    blocks.allow(3 * 8 * 5)
    problem = make_problem(q, k, v, score=ScaledDot(), weights=Softmax(), mask=made)
    block = row_chunks.rows_of(problem, range(3, 6))
    assert mask_tensors(block.mask, block.grid).lists[0].shape == (3, 5)
    blocks.seen()
    compare(blocks, (q, k, v), made)
