"""Rules that choose the best keys of each row: chosen as the definition does, and pooled along their lists."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import (
    Causal,
    Conic,
    Dot,
    Gaussian,
    OneHot,
    RelativeBias,
    ScaledDot,
    Selected,
    Sigmoid,
    Softmax,
    TopK,
    Where,
    Window,
    attend,
)
from regard.engines import Tiled
from regard.engines.cuda import choosing_pass, cuda_kernels, forward_pass, masks, program
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.cuda.launch import Launch
from regard.engines.kernels import dispatch
from regard.errors import EngineRefusal
from regard.problem import make_problem
from regard.testing import MASKS, Case, Sizes, check
from regard.weights.rule import over_one_tile
from regard.weights.topk import best_k

from .test_kernels import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(batch=1, heads=1, n_queries=6, n_keys=9)  # the interpreter takes its time for each row


@pytest.fixture
def flags(monkeypatch):
    """The flags of blocks of rows, of each choice."""
    asked, found = choosing_pass._launch_rows, []
    monkeypatch.setattr(
        choosing_pass, "_launch_rows", lambda *a, flags, **options: found.append(flags) or asked(*a, flags=flags)
    )
    return found


def chosen(problem):
    """The keys of each row, best first, as kernels find them."""
    return dispatch.compile_problem(problem, True).choose()


def defined(problem):
    """The same as the definition has them."""
    with torch.no_grad():
        columns = torch.arange(problem.grid.n_keys, device=DEVICE)
        shape = *problem.grid.batch_shape, problem.grid.n_queries, problem.grid.n_keys
        return problem.rule.solve(over_one_tile(problem.scores().expand(shape), columns))[0]


def compare(tensors, **options):
    """The output, which like the gradients is that of the definition."""
    results = []
    for engine in (KERNELS, "reference"):
        output = attend(*tensors, engine=engine, **options)
        results.append([output, *torch.autograd.grad(output.square().sum(), tensors)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return results[0][0]


def inputs(n_queries=5, n_keys=12, dim=4, batch=()):
    torch.manual_seed(0)
    shapes = (n_queries, dim), (n_keys, dim), (n_keys, 3)
    return [torch.randn(*batch, *shape, device=DEVICE).requires_grad_() for shape in shapes]


CASES = [
    Case("Dot", "TopK", "Allowed", torch.float32, DEVICE, SIZE),
    Case("Gated", "TopK(Raw)", "no mask", torch.float32, DEVICE, SIZE),
    Case("Gaussian", "TopK", "Causal, end", torch.float32, DEVICE, SIZE),
    Case("Epanechnikov", "OneHot", "no mask", torch.bfloat16, DEVICE, SIZE),
    Case("Bias", "OneHot", "Causal, end", torch.float32, DEVICE, SIZE, "NaN and infinity"),
    Case("SoftCap", "TopK", "Selected", torch.float32, DEVICE, SIZE, "dropout"),
    Case("Dot", "TopK", "Window", torch.float16, DEVICE, SIZE, "batch axes of values alone"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_choices_match_the_definition(case):
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("case", CASES[1::2], ids=str)
def test_small_choices_match_the_definition(monkeypatch, case):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("mask", MASKS)
def test_the_keys_chosen_are_those_of_the_definition_under_every_mask(mask):
    problem = Case("Dot", "TopK", mask, torch.float32, DEVICE, SIZE).make(torch.float32)
    assert torch.equal(chosen(problem), defined(problem))


@pytest.mark.parametrize(
    "score", ["Cosine", "Alibi", "Bias per pair", "Gaussian, bandwidth per dimension", "Triangular"]
)
def test_the_keys_chosen_are_those_of_the_definition_under_every_score(score):
    problem = Case(score, "TopK(Raw)", "Causal, end", torch.float32, DEVICE, SIZE).make(torch.float32)
    assert torch.equal(chosen(problem), defined(problem))


@pytest.mark.parametrize("small", [True, False])
def test_the_lowest_of_equal_scores_is_chosen_and_nan_before_all(monkeypatch, small):
    monkeypatch.setattr(program, "SMALL", (1 << 18) * small)
    keys = torch.tensor([1.0, 3.0, 2.0, 3.0, 3.0, -torch.inf, 0.0, -0.0, torch.nan, torch.inf], device=DEVICE)
    row = torch.ones(1, 1, device=DEVICE)
    for k, wanted in ((2, [1, 3]), (6, [1, 3, 4, 2, 0, 6])):
        problem = make_problem(row, keys[:8, None], keys[:8, None], score=Dot(), weights=TopK(k))
        assert chosen(problem).tolist() == [wanted]
    problem = make_problem(row, keys[:, None], keys[:, None], score=Dot(), weights=TopK(3))
    assert chosen(problem).tolist() == [[8, 9, 1]]


def test_keys_that_repeat_are_chosen_from_the_first_on_wherever_tiles_end():
    # With few digits no product is rounded: the same keys have the same scores in whatever order they are added.
    queries, keys = (torch.randn(n, 4, device=DEVICE).mul(64).round().div(64) for n in (7, 3))
    keys = keys.repeat(50, 1)
    for score in (ScaledDot(), Gaussian(2.0)):
        found = chosen(make_problem(queries, keys, keys, score=score, weights=TopK(9)))
        first = found[:, :1]
        assert bool((first < 3).all())
        assert torch.equal(found, first + 3 * torch.arange(9, device=DEVICE))


def test_shares_of_the_keys_are_merged(monkeypatch):
    monkeypatch.setattr(choosing_pass, "_n_splits", lambda *_: 3)
    queries = torch.randint(-2, 3, (3, 4), device=DEVICE).float()
    keys = torch.randint(-2, 3, (300, 4), device=DEVICE).float()
    for mask in (None, Causal(align="end")):
        problem = make_problem(queries, keys, keys, score=Dot(), weights=TopK(5), mask=mask)
        assert torch.equal(chosen(problem), defined(problem))


def test_who_has_fewer_keys_takes_them_all():
    queries, keys, values = inputs()
    index = chosen(make_problem(queries, keys, values, score=Dot(), weights=TopK(20), mask=Causal(align=0)))
    assert [(row >= 0).sum().item() for row in index] == [1, 2, 3, 4, 5]
    assert index[0].tolist() == [0] + [-1] * 11
    compare((queries, keys, values), score=Dot(), weights=TopK(20), mask=Causal(align=0))


@pytest.fixture
def every_list_is_short(monkeypatch):
    monkeypatch.setattr(masks, "SPARSE", 1)


def test_listed_keys_are_chosen_among(every_list_is_short):
    listed = torch.tensor([[11, 2, 5, -1], [0, 1, 2, 3], [-1, -1, -1, -1], [7, 7, 3, 9], [4, -1, 6, -1]], device=DEVICE)
    tensors = inputs()
    problem = make_problem(*tensors, score=ScaledDot(), weights=TopK(2), mask=Selected(listed))
    assert program.translate(problem, rule=0).mask.lists
    assert torch.equal(chosen(problem), defined(problem))
    compare(tensors, score=ScaledDot(), weights=TopK(2, Softmax(sink=0.3)), mask=Selected(listed))


def test_rows_of_a_mask_that_is_too_large_are_taken_in_turn(monkeypatch):
    monkeypatch.setattr(cuda_kernels, "MOST_MASK_BYTES", 2 * 12)
    tensors = inputs()
    mask = Where(lambda row, column: (row + column) % 3 != 0)
    problem = make_problem(*tensors, score=Dot(), weights=TopK(3), mask=mask)
    heights, translate = [], program.translate
    monkeypatch.setattr(
        "regard.engines.cuda.choosing.translate",
        lambda part, **options: heights.append(part.grid.n_queries) or translate(part, **options),
    )
    assert torch.equal(chosen(problem), defined(problem))
    assert heights == [2, 2, 1]
    assert CudaKernels().bytes(problem) >= 5 * 3 * 8


def test_heads_that_share_their_keys_are_rows():
    queries, keys = torch.randn(3, 1, 4, device=DEVICE), torch.randn(1, 9, 4, device=DEVICE)
    for rule in (TopK(2), OneHot()):
        got = attend(queries, keys, keys, score=ScaledDot(), weights=rule, engine=KERNELS)
        wanted = attend(queries, keys, keys, score=ScaledDot(), weights=rule, engine="reference")
        torch.testing.assert_close(got, wanted)


def test_a_choice_sends_zeros_to_scores():
    queries, keys, values = inputs()
    output = attend(queries, keys, values, score=Dot(), weights=OneHot(), engine=KERNELS)
    found = torch.autograd.grad(output.sum(), (queries, keys, values))
    assert not found[0].any()
    assert not found[1].any()
    assert found[2].sum() == output.numel()


def test_nan_stays_with_the_row_whose_score_it_is():
    queries, keys, values = (each.detach() for each in inputs())
    keys[3], values[7] = torch.nan, torch.nan
    mask = Where(lambda row, column: (row == 1) | (column != 3))
    for rule in (OneHot(), TopK(2)):
        got = attend(queries, keys, values, score=ScaledDot(), weights=rule, mask=mask, engine=KERNELS)
        wanted = attend(queries, keys, values, score=ScaledDot(), weights=rule, mask=mask, engine="reference")
        torch.testing.assert_close(got, wanted, equal_nan=True)
        assert got[1].isnan().all()


def test_the_same_inputs_give_the_same_bits():
    tensors = inputs(4, 6)

    def once():
        output = attend(*tensors, weights=TopK(4), engine=KERNELS)
        return [output, *torch.autograd.grad(output.sum(), tensors)]

    assert all(map(torch.equal, once(), once()))


def test_what_kernels_do_not_choose_is_refused_by_name():
    tensors = inputs(3, 200)
    with pytest.raises(EngineRefusal, match="choose up to 128 keys of a row, not 129"):
        attend(*tensors, weights=TopK(129), engine=KERNELS)
    learned = Dot() + RelativeBias(2, align="end").to(DEVICE)
    with pytest.raises(EngineRefusal, match="no table of relative positions along lists"):
        attend(*tensors, score=learned, weights=TopK(2), engine=KERNELS)


@pytest.mark.parametrize(
    ("rule", "mask", "n_splits", "small"),
    [
        (Softmax(), None, 1, False),
        (Softmax(temperature=0.5, sink=0.1), Causal(align="end"), 3, False),
        (Sigmoid(), Where(lambda row, column: (row + column) % 3 != 0), 1, True),
        (Conic(), Selected(torch.tensor([[1, 3, -1], [5, 0, 2], [-1, -1, -1], [4, 9, 7], [8, 2, 6]])), 1, False),
    ],
    ids=["softmax", "in shares", "small", "lists"],
)
def test_the_heaviest_are_found_beside_the_sums(monkeypatch, every_list_is_short, rule, mask, n_splits, small):
    monkeypatch.setattr(program, "SMALL", (1 << 18) * small)
    monkeypatch.setattr(forward_pass, "_n_splits", lambda *_: n_splits)
    tensors = [each.detach() for each in inputs(5, 200 if n_splits > 1 else 12, batch=(2,))]
    score = ScaledDot() if mask is None else Gaussian(2.0)
    mask = None if mask is None else mask.to(DEVICE)
    problem = make_problem(*tensors, score=score, weights=rule, mask=mask)
    output, _, _, scores, columns = choosing_pass.pool_and_find(Launch(program.translate(problem)), 3)
    torch.testing.assert_close(output, attend(*tensors, score=score, weights=rule, mask=mask, engine="reference"))
    best, places = best_k(problem.scores().expand(2, 5, -1), 3)
    assert torch.equal(columns, torch.where(best == -torch.inf, -1, places))
    torch.testing.assert_close(scores, best)


def test_the_heaviest_are_found_again_where_products_would_cancel():
    far = 1e3 + torch.randint(-8, 8, (40, 3), device=DEVICE).float()
    problem = make_problem(far[:9], far, far, score=Gaussian(3.0), weights=Softmax())
    *_, columns = choosing_pass.pool_and_find(Launch(program.translate(problem)), 4)
    assert torch.equal(columns, best_k(problem.scores().double(), 4)[1])


@pytest.mark.parametrize("raised", [0.0, 1e9, -1e9])
def test_the_heaviest_are_found_whatever_the_floors_are_worth(monkeypatch, flags, raised):
    known: list[torch.Tensor] = []
    pool = choosing_pass.pool_with_floors

    def pool_with_floors(launch, k):
        *found, floors = pool(launch, k)
        known.append(floors.clone())
        return *found, floors + raised

    monkeypatch.setattr(choosing_pass, "pool_with_floors", pool_with_floors)
    tensors = [each.detach() for each in inputs(70, 190)]
    problem = make_problem(*tensors, score=ScaledDot(), weights=Softmax())
    *_, scores, columns = choosing_pass.pool_and_find(Launch(program.translate(problem)), 3)
    best, places = best_k(problem.scores(), 3)
    assert torch.equal(columns, places)
    torch.testing.assert_close(scores, best)
    assert flags[0][0].tolist() == [int(raised != 0)] * 2
    assert bool((known[0][0] <= best[:, -1]).all())
    assert bool((known[0][0] >= problem.scores().sort(descending=True).values[:, 8]).all())


def test_rows_with_more_candidates_than_there_is_room_for_are_chosen_in_a_loop(flags):
    keys = torch.randint(-1, 2, (90, 2), device=DEVICE).float()
    queries = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-3.0, 2.0]], device=DEVICE)
    problem = make_problem(queries, keys, keys, score=Dot(), weights=TopK(4))
    assert torch.equal(chosen(problem), defined(problem))
    assert flags[0][0].tolist() == [1]
    few = make_problem(queries[1:], torch.randn(90, 2, device=DEVICE), keys, score=Dot(), weights=TopK(4))
    assert torch.equal(chosen(few), defined(few))
    assert flags[1][0].tolist() == [0]


def test_blocks_are_flagged_that_lack_room_whatever_their_order(flags):
    queries, keys = (torch.randn(140, 2, device=DEVICE) for _ in range(2))
    queries[:64] = 0
    problem = make_problem(queries, keys, keys, score=Dot(), weights=TopK(4), mask=Causal())
    assert torch.equal(chosen(problem), defined(problem))
    assert flags[0][0].tolist() == [1, 0, 0]


def test_rows_with_few_keys_need_no_loop(flags):
    problem = make_problem(
        *[each.detach() for each in inputs(70, 70)], score=ScaledDot(), weights=Softmax(), mask=Window(3, 0)
    )
    *_, columns = choosing_pass.pool_and_find(Launch(program.translate(problem)), 6)
    assert torch.equal(columns, best_k(problem.scores(), 6)[1].where(best_k(problem.scores(), 6)[0] > -torch.inf, -1))
    assert flags[0][0].tolist() == [0, 0]


def test_more_keys_than_there_are_groups_for_are_chosen_in_a_loop():
    problem = make_problem(*inputs(3, 80), score=Dot(), weights=TopK(40))
    assert torch.equal(chosen(problem), defined(problem))
