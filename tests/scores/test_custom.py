"""Custom: whatever the function says, with gradients for what it closes over."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import Custom, Dot, OneHot, Sparsemax, attend, weigh
from regard.engines import Tiled
from regard.errors import OptionError, ScoreError

ENGINES = [pytest.param("reference", id="reference"), pytest.param(Tiled(tile_elements=64), id="tiled")]


def chebyshev(q, k):
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().amax(-1)


class Bilinear(nn.Module):
    """A user's module with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3).double())

    def forward(self, q, k):
        return q @ self.matrix @ k.mT


def tensors(draw):
    return draw(2, 9, 3), draw(2, 20, 3, seed=1), draw(2, 20, 2, seed=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_score_is_what_the_function_says_for_each_pair(engine, by_pairs, draw):
    q, k, v = tensors(draw)
    expected = by_pairs(lambda q, k, _: -max(abs(a - b) for a, b in zip(q, k, strict=True)), q, k)
    torch.testing.assert_close(Custom(chebyshev)(q, k), expected)
    output = attend(q, k, v, score=Custom(chebyshev), engine=engine)
    torch.testing.assert_close(output, torch.softmax(expected, -1) @ v)


def test_the_function_is_called_with_tiles():
    shapes = []

    def watched(q, k):
        shapes.append((q.shape[-2], k.shape[-2]))
        return q @ k.mT

    x = torch.rand(40, 2)
    attend(x, x, x, score=Custom(watched), engine=Tiled(tile_elements=64))
    assert len(shapes) > 10
    assert all(rows * columns < 40 * 40 / 4 for rows, columns in shapes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_captured_leaf_gets_its_gradient(engine, draw):
    q, k, v = tensors(draw)
    sharpness = torch.tensor(2.0).double().requires_grad_()
    attend(q, k, v, score=Custom(lambda q, k: sharpness * chebyshev(q, k)), engine=engine).square().sum().backward()
    plain = torch.tensor(2.0).double().requires_grad_()
    (torch.softmax(plain * chebyshev(q, k), -1) @ v).square().sum().backward()
    torch.testing.assert_close(sharpness.grad, plain.grad)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_captured_tensor_that_was_computed_passes_its_gradient_on(engine, draw):
    q, k, v = tensors(draw)
    source = draw(3, 3, seed=4).requires_grad_()
    matrix = source @ source.mT
    q.requires_grad_()
    attend(q, k, v, score=Custom(lambda q, k: q @ matrix @ k.mT), engine=engine).square().sum().backward()
    found = (source.grad, q.grad)
    source.grad = q.grad = None
    (torch.softmax(q @ (source @ source.mT) @ k.mT, -1) @ v).square().sum().backward()
    torch.testing.assert_close(found, (source.grad, q.grad))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rule", [None, Sparsemax()])
def test_a_module_is_a_function_and_its_parameters_are_the_scores_own(engine, rule, draw):
    q, k, v = tensors(draw)
    module = Bilinear()
    score = Custom(module)
    assert [each is module.matrix for each in score.parameters()] == [True]
    options = {} if rule is None else {"weights": rule}
    attend(q, k, v, score=score, engine=engine, **options).square().sum().backward()
    plain = torch.eye(3).double().requires_grad_()
    scores = q @ plain @ k.mT
    alpha = torch.softmax(scores, -1) if rule is None else rule(scores)
    (alpha @ v).square().sum().backward()
    torch.testing.assert_close(module.matrix.grad, plain.grad)


@pytest.mark.parametrize("engine", ENGINES)
def test_captured_tensors_reach_inside_a_sum_and_a_multiple(engine, draw):
    q, k, v = tensors(draw)
    weight = torch.tensor(0.5).double().requires_grad_()
    score = Dot() + 2.0 * Custom(lambda q, k: weight * chebyshev(q, k))
    attend(q, k, v, score=score, engine=engine).square().sum().backward()
    plain = torch.tensor(0.5).double().requires_grad_()
    (torch.softmax(q @ k.mT + 2 * plain * chebyshev(q, k), -1) @ v).square().sum().backward()
    torch.testing.assert_close(weight.grad, plain.grad)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rule_without_gradient_leaves_a_captured_tensor_with_zeros(engine, draw):
    q, k, v = tensors(draw)
    weight = torch.tensor(0.5).double().requires_grad_()
    output = attend(
        q, k, v.requires_grad_(), score=Custom(lambda q, k: weight * (q @ k.mT)), weights=OneHot(), engine=engine
    )
    output.sum().backward()
    assert weight.grad is None or weight.grad == 0
    assert v.grad is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_an_exception_in_the_function_reaches_the_caller(engine):
    def broken(q, k):
        raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Custom(broken), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", [lambda q, k: (q * k).sum(-1), lambda q, k: q @ k])
def test_sizes_that_do_not_fit_in_the_function_are_explained(function, engine):
    with pytest.raises(
        ScoreError, match=r"\(\.\.\., rows, dim\) and keys .* for \(2, 3\) and \(4, 3\) it raised"
    ) as refused:
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Custom(function), engine=engine)
    assert type(refused.value.__cause__) is RuntimeError
    assert str(refused.value.__cause__) in str(refused.value)


@pytest.mark.parametrize("error", [RuntimeError("no such table"), torch.OutOfMemoryError("a size too large")])
def test_other_errors_of_the_function_pass_through(error):
    def broken(queries, keys):
        raise error

    with pytest.raises(RuntimeError) as raised:
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Custom(broken))
    assert raised.value is error


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda q, k: 1.0, r"must return a tensor of scores: got float\. Return one score for each pair, of shape"),
        (
            lambda q, k: q @ q.mT,
            r"must return scores of shape \(\.\.\., 2, 4\) for queries \(2, 3\) and keys \(4, 3\): got \(2, 2\)",
        ),
        (
            lambda q, k: q.sum(),
            r"must return scores of shape \(\.\.\., 2, 4\) .*: got \(\)\. Return one score for each pair of the",
        ),
        (
            lambda q, k: (q @ k.mT).long(),
            r"must return floating-point scores: got torch\.int64\. Convert with \.to\(queries\.dtype\)",
        ),
    ],
)
def test_what_is_no_matrix_of_scores_is_refused(engine, function, text):
    with pytest.raises(ScoreError, match=r"The function of Custom " + text):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 1), score=Custom(function), engine=engine)


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(OptionError, match=r"Custom must be given a function of \(queries, keys\): got int"):
        Custom(3)


def test_a_view_differentiates_what_the_function_closes_over(draw):
    q, k, v = tensors(draw)
    weight = torch.tensor(0.5).double().requires_grad_()
    weigh(q, k, v, score=Custom(lambda q, k: weight * (q @ k.mT))).entropy().sum().backward()
    plain = torch.tensor(0.5).double().requires_grad_()
    alpha = torch.softmax(plain * (q @ k.mT), -1)
    (-alpha * alpha.log()).sum().backward()
    torch.testing.assert_close(weight.grad, plain.grad)


def test_the_repr_shows_the_functions_name():
    assert repr(Custom(chebyshev)) == "Custom(chebyshev)"
