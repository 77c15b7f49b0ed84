"""Details of scores that a plain formula gets right without thinking."""

import pytest
import torch
from torch import nn

from regard import (
    Additive,
    Alibi,
    Bias,
    Boxcar,
    Custom,
    Dot,
    Gated,
    Gaussian,
    Laplacian,
    Multiplicative,
    ScaledDot,
    Score,
    SoftCap,
    attend,
)
from regard.engines import Tiled
from regard.errors import OptionError, ScoreError, ShapeError
from regard.scores import DotForm


@pytest.mark.parametrize("engine", ["reference", "sdpa", Tiled(64)])
def test_a_learned_scale_gets_its_gradient(engine):
    q, k = torch.randn(2, 6, 4).double(), torch.randn(2, 7, 4).double()
    score = ScaledDot(nn.Parameter(torch.tensor(0.5).double()))
    attend(q, k, k, score=score, engine=engine).square().sum().backward()
    scale = torch.tensor(0.5, requires_grad=True, dtype=torch.float64)
    (torch.softmax(scale * q @ k.mT, -1) @ k).square().sum().backward()
    torch.testing.assert_close(score.scale.grad, scale.grad)


def test_forms_refuse_a_scale_that_would_get_no_gradient():
    with pytest.raises(OptionError, match="`scale` of DotForm must be a number: got a tensor"):
        DotForm(torch.ones(2, 2), torch.ones(2, 2), scale=torch.tensor(1.0))
    with pytest.raises(OptionError, match="`cap` of SoftCap must be a positive number"):
        SoftCap(Dot(), nn.Parameter(torch.tensor(1.0)))


@pytest.mark.parametrize(("score", "exact"), [(Gaussian(0.1), -4.5), (Laplacian(0.1), -3.0)])
def test_differences_are_taken_before_the_bandwidth_divides(score, exact):
    query, key = torch.tensor([[2020.5]]), torch.tensor([[2020.2]])
    true = float(query.double() - key.double())
    expected = -(true**2) / (2 * 0.1**2) if exact == -4.5 else -true / 0.1
    assert float(score(query, key)) == pytest.approx(expected, rel=1e-6)


def test_half_precision_distances_do_not_round_the_points():
    query, key = torch.tensor([[256.0]]).bfloat16(), torch.tensor([[258.0]]).bfloat16()
    score = attend(query, key, torch.ones(1, 1).bfloat16(), score=Gaussian(3.0), weights=_raw())
    assert float(score) == pytest.approx(-4 / 18, rel=1e-2)


def _raw():
    from regard import Raw

    return Raw()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_edge_of_a_box_is_inside(dtype):
    radii = torch.arange(1, 101, dtype=dtype) / 100
    inside = [float(Boxcar(float(radius))(torch.zeros(1, 1, dtype=dtype), radius.reshape(1, 1))) for radius in radii]
    assert inside == [1.0] * 100
    near = Boxcar(0.1)(torch.tensor([[3.5]], dtype=dtype), torch.tensor([[3.4], [3.6], [3.39], [3.61]], dtype=dtype))
    assert near.tolist() == [[1.0, 1.0, 0.0, 0.0]]


def test_a_bias_may_come_first():
    bias = Bias(torch.tensor([[0.0, 10.0]]))
    torch.testing.assert_close(
        (bias + Dot())(torch.ones(1, 2), torch.ones(2, 2)), (Dot() + bias)(torch.ones(1, 2), torch.ones(2, 2))
    )


def test_offsets_of_batch_rows_that_only_values_have_are_refused():
    q, v = torch.rand(2, 5, 4), torch.rand(2, 2, 5, 3)
    score = ScaledDot() + Alibi(0.5, align=torch.tensor([0, 3]))
    with pytest.raises(ShapeError, match="Offsets that differ by batch row.*Expand queries"):
        attend(q, q, v, score=score)


@pytest.mark.parametrize("make", [Additive, Gated, Multiplicative])
def test_sizes_below_one_are_refused(make):
    sizes = (0, 3, 3) if make is Additive else (0, 3)
    with pytest.raises(OptionError, match="`query_dim` of .* must be an integer of at least 1: got 0"):
        make(*sizes)


def test_a_class_in_place_of_a_score_is_refused():
    with pytest.raises(OptionError, match="SoftCap must be given a regard Score: got Dot. Pass an object such as Dot"):
        SoftCap(Dot, 2.0)
    with pytest.raises(OptionError, match="Gated must be given a regard Score: got Dot"):
        Gated(2, 2, Dot)


def test_a_form_that_is_none_is_refused():
    class Plain(Score):
        def form(self, queries, keys):
            return queries @ keys.mT

    with pytest.raises(ScoreError, match="`form` of Plain must return a Form: got Tensor. Return DotForm"):
        attend(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2), score=Plain())


@pytest.mark.parametrize("derive", [lambda w: w + 1, lambda w: w**2], ids=["sum", "square"])
@pytest.mark.parametrize("engine", ["reference", Tiled(64)])
def test_a_captured_tensor_and_one_computed_from_it_each_count_once(derive, engine):
    q, k = torch.randn(9, 3).double(), torch.randn(11, 3).double()

    def gradient(run):
        w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        other = derive(w)
        run(lambda q, k: w * (q @ k.mT) + other * (q.sum(-1, keepdim=True) * k.sum(-1))).square().sum().backward()
        return w.grad

    expected = gradient(lambda function: torch.softmax(function(q, k), -1) @ k)
    got = gradient(lambda function: attend(q, k, k, score=Custom(function), engine=engine))
    torch.testing.assert_close(got, expected)


def test_a_captured_tensor_has_a_second_derivative_on_tiles():
    q, k = torch.randn(5, 2).double(), torch.randn(6, 2).double()
    w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def run(w):
        derived = w + 1
        return attend(q, k, k, score=Custom(lambda q, k: w * derived * (q @ k.mT)), engine=Tiled(64))

    assert torch.autograd.gradcheck(run, (w,))
    assert torch.autograd.gradgradcheck(run, (w,))


def test_scripted_functions_are_refused():
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(OptionError, match="Custom must be given a function that runs in Python"):
        Custom(scripted)


def test_batch_axes_that_a_function_adds_are_refused():
    score = Custom(lambda q, k: (q @ k.mT).expand(3, -1, -1))
    with pytest.raises(ScoreError, match=r"with the batch axes of its inputs, \(\): got \(3, 2, 4\)"):
        attend(torch.ones(2, 2), torch.ones(4, 2), torch.ones(4, 2), score=score)
