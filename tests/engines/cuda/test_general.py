"""The kernels for any rule and mask, which compute small problems alone: they match the definition, and are few."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import torch

pytest.importorskip("triton")

from regard import (
    Bias,
    Causal,
    Custom,
    Dot,
    Gated,
    Proportional,
    ScaledDot,
    Sigmoid,
    SoftCap,
    Softmax,
    Window,
    attend,
)
from regard.engines import Tiled
from regard.engines.cuda import layout, program, small_calls
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.cuda.stand_ins import stand_ins
from regard.errors import ScoreError
from regard.problem import make_problem
from regard.testing import MASKS, RULES, SCORES, Case, Sizes, check

from .test_kernels import (
    CHANNEL_SCORES,
    CHOOSING_RULES,
    DEVICE,
    DTYPES,
    EVERY,
    OTHER_SCORES,
    PAIRS,
    THRESHOLDS,
    VARIANTS,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(heads=2)


@pytest.fixture(autouse=True)
def small(monkeypatch, compiled_for_one_kind):
    monkeypatch.setattr(program, "SMALL", 1 << 18)


def cases():
    """The other half of score × rule; masks and dtypes take turns, others than in `test_kernels.py`."""
    masks, dtypes = itertools.cycle(reversed(MASKS)), itertools.cycle(DTYPES)
    pairs = [(score, rule) for score, rule in PAIRS if score not in CHANNEL_SCORES]
    for score, rule in pairs[EVERY - 1 :: EVERY]:
        yield Case(score, rule, next(masks), next(dtypes), DEVICE, SIZE)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_small_problems_match_the_definition(case):
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("mask", ["no mask", "Causal, end"])
def test_small_problems_with_unusual_inputs_match_the_definition(variant, mask):
    score = {"no mask": "ScaledDot", "Causal, end": "Gated"}[mask]
    assert check(KERNELS, Case(score, "Softmax, sink", mask, torch.float32, DEVICE, SIZE, variant)).matched


def test_one_launch_is_all_there_is(monkeypatch):
    launched = []
    monkeypatch.setattr("regard.engines.cuda.launch.run", lambda kernel, *_, **__: launched.append(kernel.fn.__name__))
    x = torch.randn(2, 16, 8, device=DEVICE)
    attend(x, x, x, score=ScaledDot(), weights=RULES["Sigmoid"](), engine=KERNELS)
    assert launched == ["pool_any_rows"]


def test_one_kernel_serves_every_rule_and_mask(monkeypatch):
    kinds = set()
    monkeypatch.setattr(
        "regard.engines.cuda.launch.run",
        lambda kernel, n, arguments, constants, *_, **__: kinds.add((kernel.fn.__name__, *constants.items())),
    )
    for rule, mask in itertools.product(RULES, MASKS):
        if rule in CHOOSING_RULES | {"Proportional"}:
            continue
        problem = Case("Dot", rule, mask, torch.float32, DEVICE, SIZE).make(torch.float32)
        CudaKernels().compile(problem).pool()
    assert len(kinds) == 1


def _kind(argument):
    """What Triton compiles an argument apart for: dtypes, and whether a whole number is wide."""
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    if isinstance(argument, torch.Tensor):
        return argument.dtype
    return argument.bit_length() > 31 if isinstance(argument, int) else type(argument)


def test_two_hundred_kernels_serve_the_contract(monkeypatch):
    kernels = set()
    monkeypatch.setattr(
        "regard.engines.cuda.launch.run",
        lambda kernel, n, arguments, constants, *_, **__: kernels.add(
            (kernel.fn.__name__, *constants.items(), *map(_kind, arguments))
        ),
    )
    # Nothing is launched: there is no key in what was chosen.
    monkeypatch.setattr(
        "regard.engines.cuda.choosing.pairs_of",
        lambda index, n_keys: torch.zeros(*index.shape[:-1], n_keys, dtype=torch.uint8, device=DEVICE),
    )
    scores = dict.fromkeys(score for score, _ in PAIRS)
    pairs = [*PAIRS, *itertools.product(scores, sorted(THRESHOLDS))]
    several = itertools.product(pairs, ("no mask", "Causal, end", "Allowed"), DTYPES)
    choosing = itertools.product(itertools.product(scores, sorted(CHOOSING_RULES)), ("Allowed",), DTYPES)
    for (score, rule), mask, dtype in (*several, *choosing):
        problem = Case(score, rule, mask, dtype, DEVICE, SIZE).make(dtype)
        compiled = CudaKernels().compile(problem)
        pooled = compiled.pool()
        needed = [each.requires_grad for each in (*problem.form.tensors(), problem.values, *problem.rule.learned())]
        centre = {"none": None, "output": pooled.output, "slope": pooled.slope_mean}[problem.rule.centre]
        compiled.gradients(needed, pooled.statistics, centre, torch.ones_like(pooled.output))
    assert 100 < len(kernels) <= 200


def test_scores_have_kernels_or_are_listed_as_others():
    assert {score for score, _ in PAIRS} | OTHER_SCORES == set(SCORES)


def test_a_negative_score_under_proportional_weights_is_raised_by_the_next_call():
    q, k = torch.ones(2, 4, device=DEVICE), -torch.ones(3, 4, device=DEVICE)
    output = attend(q, k, k, weights=Proportional(), engine=KERNELS)
    assert output.isnan().all()  # on a GPU the host waits here
    with pytest.raises(ScoreError, match=r"an earlier call on this device got one, and its rows are NaN"):
        attend(q, -k, k, weights=Proportional(), engine=KERNELS)
    assert attend(q, -k, k, weights=Proportional(), engine=KERNELS).isfinite().all()


CALLS = {
    "soft-capped": {"score": SoftCap(ScaledDot(), 2.0)},
    "sigmoid, causal": {"weights": Sigmoid(), "mask": Causal()},
    "windowed": {"mask": Window(before=3, after=0), "weights": Softmax(temperature=0.5)},
}


def remembered(x, score, weights, mask=None):
    """The kind of a call that was made and, if it can be, kept."""
    kind = small_calls.kind_of_call(x, x, x, score, weights, mask)
    problem = make_problem(x, x, x, score=score, weights=weights, mask=mask)
    small_calls.watch(problem)
    KERNELS.run(problem)
    small_calls.remember(kind, problem)
    return kind


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_a_call_of_a_kind_that_was_made_before_is_one_launch(options, monkeypatch):
    given = {"score": ScaledDot(), "weights": Softmax(), "mask": None, **options}
    x, y = torch.randn(2, 2, 3, 16, 8, device=DEVICE)
    kind = remembered(x, **given)
    assert small_calls.kind_of_call(y, y, y, **given) == kind
    got = small_calls.pool_again(kind, y, y, y)
    torch.testing.assert_close(got, attend(y, y, y, engine="reference", **given), rtol=1e-5, atol=1e-5)


def test_calls_that_differ_are_of_other_kinds():
    x, score, rule = torch.randn(16, 8, device=DEVICE), SoftCap(ScaledDot(), 2.0), Softmax()

    def kind(x=x, score=score, rule=rule, mask=None):
        return small_calls.kind_of_call(x, x, x, score, rule, mask)

    first = kind()
    score.cap = 3.0
    others = [
        kind(), kind(x=x.half()), kind(x=x[:8]), kind(x=x.T.contiguous().T), kind(rule=Softmax(temperature=2.0)),
        kind(mask=Causal()), kind(mask=Causal(align="end")), kind(mask=Window(2, 0)), kind(score=ScaledDot()),
    ]  # fmt: skip
    assert None not in others
    assert len({first, *others}) == len(others) + 1


def test_calls_that_are_not_numbers_alone_have_no_kind():
    x = torch.randn(16, 8, device=DEVICE)

    class Mine(SoftCap):
        pass

    scores = Gated(8, 8), Mine(ScaledDot(), 2.0), ScaledDot() + Bias(torch.zeros(16, 16)), Custom(lambda q, k: q @ k.mT)
    assert all(small_calls.kind_of_call(x, x, x, score, Softmax(), None) is None for score in scores)
    learned = Softmax(temperature=torch.nn.Parameter(torch.tensor(2.0)))
    assert small_calls.kind_of_call(x, x, x, ScaledDot(), learned, None) is None
    assert small_calls.kind_of_call(x, x, x, ScaledDot(), Softmax(), Causal(align=torch.tensor([1]))) is None
    assert small_calls.kind_of_call(x.requires_grad_(), x, x, ScaledDot(), Softmax(), None) is None


def test_whole_numbers_come_back_from_their_code():
    for number in (-(2**40), -16, -1, 0, 1, 7, 16, 2**31):
        code = program.coded(number)
        assert code % 16
        assert code != 1
        assert (code - 3) // 4 == number


def test_what_is_kept_of_a_call_holds_none_of_its_tensors():
    x = torch.randn(4, 16, 8, device=DEVICE)
    dies = weakref.ref(x)
    assert remembered(x, SoftCap(ScaledDot(), 2.0), Softmax()) in small_calls._KNOWN
    del x
    gc.collect()
    assert dies() is None


@pytest.mark.parametrize("rule", [Softmax(sink=0.5), Softmax(temperature=0.5)], ids=str)
def test_a_call_with_a_tensor_of_its_own_is_not_kept(rule):
    x = torch.randn(16, 8, device=DEVICE)
    assert remembered(x, SoftCap(ScaledDot(), 2.0), rule) not in small_calls._KNOWN


def test_the_oldest_kind_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(layout, "MOST_KEPT", 2)
    monkeypatch.setattr(small_calls, "_KNOWN", {})
    kinds = [remembered(torch.randn(n, 8, device=DEVICE), ScaledDot(), Sigmoid()) for n in (3, 4, 5)]
    assert list(small_calls._KNOWN) == kinds[1:]


def test_what_is_no_score_is_left_to_who_checks():
    x = torch.randn(16, 8, device=DEVICE)
    assert small_calls.kind_of_call(x, x, x, Causal(), Softmax(), None) is None
    assert small_calls.kind_of_call(x, x, x, ScaledDot(), 3, None) is None


def test_a_score_of_minus_infinity_is_no_error_under_proportional_weights():
    q, k = torch.tensor([[1.0, 0.0]], device=DEVICE), torch.tensor([[-torch.inf, 0.0], [2.0, 0.0]], device=DEVICE)
    v = torch.tensor([[9.0], [3.0]], device=DEVICE)
    for _ in range(2):
        output = attend(q, k, v, score=Dot(), weights=Proportional(), engine=KERNELS)
        assert output.item() == 3


def test_stand_ins_are_made_once():
    device = torch.device(DEVICE)
    assert stand_ins(device) is stand_ins(device)
