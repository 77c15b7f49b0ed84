"""Everything that can be wrong with a call raises before anything is computed, with what to do."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import Allowed, Causal, Dot, ScaledDot, Softmax, attend, partial, plan, weigh
from regard.errors import DeviceError, DtypeError, OptionError, RegardError, ShapeError
from regard.problem import make_problem


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device=device)


Q, K, V = ones(2, 3), ones(5, 3), ones(5, 4)

WRONG = {
    "queries-no-tensor": (
        lambda: attend([[1.0]], K, V),
        DtypeError,
        r"`queries` must be a torch\.Tensor: got list\. Convert it with torch\.as_tensor\.",
    ),
    "values-no-tensor": (lambda: attend(Q, K, None), DtypeError, r"`values` must be a torch\.Tensor: got NoneType"),
    "score-class": (
        lambda: attend(Q, K, V, score=Dot),
        OptionError,
        r"`score` must be a regard Score: got Dot\. Make an object of it: Dot\(\)\.",
    ),
    "score-class-with-arguments": (
        lambda: attend(Q, K, V, score=regard.Additive),
        OptionError,
        r"got Additive\. Make an object of it: Additive\(query_dim=\.\.\., key_dim=\.\.\., hidden_dim=\.\.\.\)\.",
    ),
    "weights-another-class": (lambda: attend(Q, K, V, weights=int), OptionError, r"got int\. Pass one such as Softmax"),
    "score-string": (
        lambda: attend(Q, K, V, score="dot"),
        OptionError,
        r"`score` must be a regard Score: got 'dot'\. Pass one such as ScaledDot\(\)\.",
    ),
    "score-function": (
        lambda: attend(Q, K, V, score=lambda q, k: q),
        OptionError,
        r"`score` must be .*: got function\.",
    ),
    "weights-class": (
        lambda: attend(Q, K, V, weights=Softmax),
        OptionError,
        r"`weights` must be a regard Weights: got Softmax\. Make an object of it: Softmax\(\)\.",
    ),
    "weights-score": (
        lambda: attend(Q, K, V, weights=Dot()),
        OptionError,
        r"`weights` must be a regard Weights: got Dot\. Pass one such as Softmax\(\)\.",
    ),
    "mask-tensor": (
        lambda: attend(Q, K, V, mask=ones(2, 5).bool()),
        OptionError,
        r"`mask` must be a regard Mask: got Tensor\. Wrap it: mask=Allowed\(tensor\)\.",
    ),
    "mask-flag": (
        lambda: attend(Q, K, V, mask=True),
        OptionError,
        r"`mask` must be a regard Mask: got bool\. Pass one such as Causal\(\)\.",
    ),
    "integers": (
        lambda: attend(Q, K.long(), V),
        DtypeError,
        r"`keys` must be float64, float32, float16 or bfloat16: got int64\. Convert with keys\.float\(\)\.",
    ),
    "complex": (lambda: attend(Q.cfloat(), K, V), DtypeError, r"`queries` must be float64, .*: got complex64\."),
    "dtypes-differ": (
        lambda: attend(Q, K.double(), V.half()),
        DtypeError,
        r"must have the same dtype: got float32, float64 and float16\. Convert them to one, or run under",
    ),
    "one-axis": (
        lambda: attend(ones(3), K, V),
        ShapeError,
        r"`queries` must have at least two axes, \(\.\.\., n, dim\): got \(3,\)\. Use queries\.unsqueeze\(0\) for",
    ),
    "rows-differ": (
        lambda: attend(Q, K, ones(6, 4)),
        ShapeError,
        r"`keys` and `values` must have the same number of rows: got keys \(5, 3\) and values \(6, 4\)\. Pass one",
    ),
    "batch": (
        lambda: attend(ones(2, 2, 3), ones(3, 5, 3), V),
        ShapeError,
        r"The batch axes of `queries`, `keys` and `values` must broadcast: got queries \(2, 2, 3\), keys \(3, 5, 3\)"
        r" and values \(5, 4\)\. Give them the same batch axes, with size 1 where one entry serves all\.",
    ),
    "grouped-heads": (
        lambda: attend(ones(2, 8, 5, 3), ones(2, 2, 7, 3), ones(2, 2, 7, 4)),
        ShapeError,
        r"If 8 heads of queries share 2 of keys, group them: queries\.unflatten\(-3, \(2, 4\)\), "
        r"keys\.unsqueeze\(-3\), values\.unsqueeze\(-3\), and \.flatten\(-4, -3\) of the output\.",
    ),
    "batch-of-heads": (
        lambda: attend(Q, K, ones(3, 5, 4), score=regard.Additive(3, 3, 2, heads=2)),
        ShapeError,
        r"The batch axes of scores and `values` must broadcast: got scores \(2,\) and values \(3, 5, 4\)\. Line the",
    ),
    "devices": (
        lambda: attend(Q, ones(5, 3, device="meta"), V),
        DeviceError,
        r"must be on one device: got cpu, meta and cpu\. Move them with \.to\('cpu'\)\.",
    ),
    "mask-does-not-fit": (lambda: attend(Q, K, V, mask=Allowed(ones(2, 4).bool())), ShapeError, r"Allowed"),
    "mask-not-aligned": (
        lambda: attend(Q, K, V, mask=Causal()),
        ShapeError,
        r"Causal must be told how to align 2 queries with 5 keys\.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_what_to_do(name):
    call, error, text = WRONG[name]
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, RegardError)


@pytest.mark.parametrize("function", [attend, weigh, plan, partial])
def test_every_function_has_the_same_checks(function):
    with pytest.raises(ShapeError, match=r"`keys` and `values` must have the same number of rows"):
        function(Q, K, ones(6, 4))
    with pytest.raises(OptionError, match=r"`score` must be a regard Score"):
        function(Q, K, V, score="dot")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(ShapeError, ValueError), (DtypeError, TypeError), (DeviceError, ValueError), (OptionError, ValueError)],
)
def test_errors_are_also_pythons_own(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, RegardError)


def problem(q=Q, k=K, v=V, **options):
    return make_problem(q, k, v, **{"score": ScaledDot(), "weights": Softmax(), **options})


def test_the_grid_is_the_size_of_the_problem_with_batch_axes_broadcast():
    made = problem(ones(2, 1, 6, 3), ones(4, 5, 3), ones(7, 1, 1, 5, 9))
    assert made.grid.batch_shape == (7, 2, 4)
    assert (made.grid.n_queries, made.grid.n_keys, made.output_shape) == (6, 5, (7, 2, 4, 6, 9))


@pytest.mark.parametrize(
    ("dtype", "computed"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_half_precision_is_computed_in_float32(dtype, computed):
    made = problem(Q.to(dtype), K.to(dtype), V.to(dtype))
    assert (made.dtype, made.compute_dtype, made.scores().dtype) == (dtype, computed, computed)


def test_scores_of_a_problem_are_minus_infinity_where_the_mask_says_no():
    made = problem(Q, K, V, mask=Causal(align="start"))
    scores = made.scores()
    assert scores.isneginf().tolist() == [[False, True, True, True, True], [False, False, True, True, True]]
    rows, columns = torch.tensor([1, 0]), torch.tensor([4, 1, 0])
    assert torch.equal(made.scores(rows, columns), scores[rows][:, columns])
    assert torch.equal(made.scores(range(1, 2), range(3)), scores[1:2, 0:3])


def test_only_inputs_that_are_not_finite_may_leak():
    broken = V.clone()
    broken[2] = torch.nan
    assert problem(v=broken).may_leak
    assert problem(v=broken, mask=Causal(align="start")).may_leak
    assert not problem(mask=Causal(align="start")).may_leak
    assert not problem(K, K, V * 3e38, mask=Causal()).may_leak  # a sum that overflows is not an entry that does


def test_a_seed_is_drawn_for_dropout_alone_and_not_by_a_plan():
    state = torch.get_rng_state()
    regard.attend(Q, K, V)
    regard.plan(Q, K, V, dropout=0.5)
    assert torch.equal(state, torch.get_rng_state())
    regard.attend(Q, K, V, dropout=0.5)
    assert not torch.equal(state, torch.get_rng_state())
