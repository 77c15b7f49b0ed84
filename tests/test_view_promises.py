"""What a view promises: kinds that are verified, gradients for losses, small memory, and a readable repr."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard import Allowed, Causal, Dot, Window, weigh
from regard.errors import PromiseBroken
from regard.weights import OnePass, Weights

pytestmark = pytest.mark.usefixtures("few_weights")

# What a test reads is more than a few weights.
many = pytest.mark.parametrize("few_weights", ["kept"], indirect=True)

KINDS = {
    "convex": [
        regard.Softmax(),
        regard.Sparsemax(),
        regard.Entmax(1.3),
        regard.TopK(3),
        regard.TopK(3, regard.Uniform()),
    ],
    "conic": [regard.Conic(), regard.Sigmoid(), regard.Softmax(sink=0.1), regard.TopK(2, regard.Conic())],
    "linear": [regard.Raw(), regard.TopK(2, regard.Raw())],
    "one-hot": [regard.OneHot()],
    "uniform": [regard.Uniform()],
}
KINDS_OF_RULES = [(kind, rule) for kind, rules in KINDS.items() for rule in rules]


def drawn(n: int = 20, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "rule"), KINDS_OF_RULES, ids=lambda each: each if isinstance(each, str) else "")
def test_every_rule_keeps_its_promise_under_masks_and_for_rows_without_keys(kind, rule, dtype):
    x = drawn(dtype=dtype)
    holes = torch.rand(20, 20, generator=torch.Generator().manual_seed(1)) < 0.4
    holes[3] = False
    for mask in (None, Causal(), Allowed(holes)):
        view = weigh(x, x, x, weights=rule, mask=mask)
        assert view.kind == kind
        view.verify()


def test_proportional_keeps_its_promise_where_some_rows_are_zero():
    x = drawn()
    view = weigh(x, x, x, score=regard.Triangular(1.5), weights=regard.Proportional(), mask=regard.NotSelf())
    assert 0 < (view.dense().sum(-1) == 0).sum() < 20
    assert view.kind == "convex"
    view.verify()


def broken_rule(promise: str, weights, base: type = Weights):
    """A rule whose weights are what they are, whatever it promises."""
    return type(
        "Broken", (base,), {"kind": promise, "define": lambda self, scores: weights(torch.zeros_like(scores))}
    )()


BROKEN = [
    ("conic", lambda zeros: zeros - 0.25, r"Broken promises weights that are not negative: got -0\.25"),
    ("convex", lambda zeros: zeros - 0.25, r"Broken promises weights that are not negative: got -0\.25"),
    ("convex", lambda zeros: zeros + 0.5, r"Broken promises weights that sum to 1: got 10"),
    ("one-hot", lambda zeros: zeros + 0.05, r"Broken promises exactly one weight of 1: got 20 weights above zero"),
    (
        "uniform",
        lambda zeros: zeros + torch.eye(20)[3] / 2 + 0.025,
        r"Broken promises equal weights: got 0\.525 among 20",
    ),
    ("convex", lambda zeros: zeros + torch.nan, r"Broken promises weights that sum to 1: got nan"),
]


@pytest.mark.parametrize(("promise", "weights", "text"), BROKEN)
def test_a_promise_that_a_users_rule_breaks_is_found(promise, weights, text):
    x = drawn()
    with pytest.raises(PromiseBroken, match=text):
        weigh(x, x, x, weights=broken_rule(promise, weights)).verify()


@many
def test_a_promise_broken_in_one_tile_of_many_is_found():
    class Almost(OnePass):
        kind = "conic"

        def numerators(self, scores, peak):
            return torch.where(scores == -torch.inf, 0, scores)

    x = drawn(700).abs()
    weigh(x, x, x, score=Dot(), weights=Almost()).verify()
    x[600] *= -1
    with pytest.raises(PromiseBroken, match=r"Almost promises weights that are not negative: got -"):
        weigh(x, x, x, score=Dot(), weights=Almost()).verify()


READINGS = {
    "entropy": lambda view: view.entropy(),
    "rows": lambda view: view.rows([0, -1]),
    "received": lambda view: view.received(),
    "dense": lambda view: view.dense(),
    "collect": lambda view: torch.cat(view.collect(entropy=True, received=True)[1:3], -1),
    "output": lambda view: view.output,
}


@pytest.mark.parametrize("rule", [regard.Softmax(), regard.Sparsemax(), regard.Entmax(1.3), regard.TopK(3)])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("masked", [False, True])
def test_readings_are_differentiable(reading, rule, masked):
    q, k = drawn(5, torch.float64).requires_grad_(), drawn(6, torch.float64).flip(0).requires_grad_()
    mask = Causal(align="start") if masked else None
    assert gradcheck(lambda q, k: READINGS[reading](weigh(q, k, k, weights=rule, mask=mask)), (q, k), fast_mode=True)


def test_what_scores_and_rules_learn_is_reached_from_a_loss_on_readings():
    score = regard.Additive(4, 4, 3)
    rule = regard.Softmax(temperature=torch.nn.Parameter(torch.tensor(0.8)))
    view = weigh(drawn(), drawn(), drawn(), score=score, weights=rule)
    (view.entropy().sum() + view.received().square().sum()).backward()
    for each in (*score.parameters(), *rule.parameters()):
        assert each.grad is not None
        assert bool(each.grad.any())


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_readings_are_float32_at_least_and_the_output_has_the_dtype_of_the_inputs(dtype, grad):
    x = drawn(dtype=dtype).requires_grad_(grad)
    view = weigh(x, x, x)
    readings = [
        view.entropy(),
        view.received(),
        view.map(3, 3),
        view.map(3, 3, pool="max"),
        view.top(2).weights,
        view.dense(),
        view.rows(0),
        view.tile(slice(3), slice(3)),
        view.log_normalizer(),
    ]
    assert {each.dtype for each in readings} == {torch.float64 if dtype == torch.float64 else torch.float32}
    assert view.output.dtype == dtype


@many
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_many_half_precision_queries_give_a_key_does_not_overflow_or_round(dtype):
    ones = torch.ones(70_001, 1, dtype=dtype)
    assert weigh(ones, ones[:1], ones[:1]).received().tolist() == [70_001]


class _Trap(TorchDispatchMode):
    """Fails on any tensor whose storage holds that many elements."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for each in results if isinstance(results, tuple | list) else (results,):
            if isinstance(each, torch.Tensor):
                n_elements = each.untyped_storage().nbytes() // each.element_size()
                assert n_elements < self.limit, f"{function} made {n_elements} elements of shape {tuple(each.shape)}"
        return results


SIDE = 2048
SMALL_READINGS = {
    "output": lambda view: view.output,
    "tile": lambda view: view.tile(slice(5, 9), slice(100, 900)),
    "rows": lambda view: view.rows([0, 7, -1]),
    "top": lambda view: view.top(8),
    "entropy": lambda view: view.entropy(),
    "received": lambda view: view.received(),
    "map": lambda view: view.map(32, 32, pool="max"),
    "log_normalizer": lambda view: view.log_normalizer(),
    "collect": lambda view: view.collect(top=4, entropy=True, received=True, map=(16, 16)),
    "verify": lambda view: view.verify(),
    "repr": repr,
    "html": lambda view: view._repr_html_(),
}


@pytest.mark.parametrize(
    "options", [{}, {"mask": Window(40, 0)}, {"weights": regard.TopK(4)}], ids=["plain", "window", "top-k"]
)
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@many
def test_no_reading_but_dense_builds_a_quarter_of_the_weights(options, grad):
    x = drawn(SIDE).requires_grad_(grad)
    for read in SMALL_READINGS.values():
        view = weigh(x, x, x, **options)
        with _Trap(SIDE * SIDE // 4):
            read(view)
    with _Trap(SIDE * SIDE // 4), pytest.raises(AssertionError, match=r"made \d+ elements"):
        weigh(x, x, x, **options).dense()


@many
def test_a_loss_on_readings_builds_no_quarter_of_the_weights_backward_either():
    x = drawn(SIDE).requires_grad_()
    with _Trap(SIDE * SIDE // 4):
        seen = weigh(x, x, x).collect(entropy=True, received=True)
        (seen.entropy.sum() + seen.received.square().sum()).backward()
    assert x.grad.isfinite().all()


def test_the_repr_says_what_is_viewed_and_draws_it():
    x = 3 * torch.eye(4)
    lines = repr(weigh(x, x, x, weights=regard.OneHot())).splitlines()
    assert lines[0] == "WeightsView of one-hot weights, 4 × 4: ScaledDot under OneHot"
    assert [line.strip("\n")[2:] for line in lines[1:5]] == ["█   ", " █  ", "  █ ", "   █"]
    assert lines[5] == "  rows are queries, columns are keys; █ is 100%"


def test_a_large_repr_is_pooled_and_shows_the_first_batch_entry():
    x = torch.rand(2, 3, 160, 4)
    lines = repr(weigh(x, x, x)).splitlines()
    assert lines[0] == "WeightsView of convex weights, 2 × 3 × 160 × 160: ScaledDot under Softmax"
    assert len(lines) == 10
    assert all(len(line) <= 42 for line in lines[1:9])
    assert "of batch entry (0, 0), each the largest of about 20 × 4; █ is " in lines[9]


def test_shades_show_the_size_of_weights_and_nothing_for_zero():
    values = torch.tensor([[0.0], [0.01], [0.1], [0.3], [0.6], [1.0]])
    view = weigh(torch.ones(1, 1), values, values, score=Dot(), weights=regard.Raw())
    assert repr(view).splitlines()[1][2:] == " ·░▒▓█"


@pytest.mark.parametrize("rule", [regard.OneHot(), regard.TopK(1)], ids=lambda rule: type(rule).__name__)
def test_a_choice_that_rounding_decides_is_the_same_in_some_rows_and_in_all(rule):
    # Keys on a grid: several are as near as the nearest, and a product of other shape rounds another one nearer.
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randint(-3, 4, (n, 4), generator=generator).double() for n in (33, 200))
    view = regard.weigh(queries, keys, keys, score=regard.Gaussian(1.79), weights=rule)
    dense = view.dense()
    for row in range(33):
        assert torch.equal(view.rows([row]), dense[[row]])
