"""Bias, Alibi and RelativeBias: what may be added to a score."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import Alibi, Bias, Dot, OneHot, RelativeBias, ScaledDot, Softmax, Sparsemax, Uniform, attend, weigh
from regard.errors import DtypeError, OptionError, ShapeError

OFFSETS = {None: 0, "start": 0, "end": 2, 3: 3, -1: -1}


def zeros(n_queries: int, n_keys: int, *batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(*batch, n_queries, 2).double(), torch.zeros(*batch, n_keys, 2).double()


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (2, 3, 4), (5, 1, 1, 4)])
def test_a_bias_is_added_to_each_pair_and_broadcasts_from_the_right(shape, draw):
    q, k, bias = draw(5, 2, 3, 2), draw(5, 2, 4, 2, seed=1), draw(*shape, seed=2)
    torch.testing.assert_close((Dot() + Bias(bias))(q, k), q @ k.mT + bias)


def test_the_batch_axes_of_a_bias_are_batch_axes_of_the_output(draw):
    q, k, bias = draw(3, 2), draw(4, 2, seed=1), draw(5, 3, 4, seed=2)
    for engine in ("reference", "tiled"):
        output = attend(q, k, k, score=Dot() + Bias(bias), engine=engine)
        torch.testing.assert_close(output, torch.softmax(q @ k.mT + bias, -1) @ k)


@pytest.mark.parametrize("rule", [Softmax(), Sparsemax(), Uniform(), OneHot()])
@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_a_bias_of_minus_infinity_means_not_allowed(rule, engine, draw):
    q, k, v = draw(3, 2), draw(4, 2, seed=1), draw(4, 2, seed=2)
    bias = torch.zeros(3, 4).double()
    bias[0, 1] = bias[1, :2] = bias[2] = -torch.inf  # the last query is fully masked
    output = attend(q, k, v, score=Dot() + Bias(bias), weights=rule, engine=engine)
    for row, columns in enumerate(([0, 2, 3], [2, 3])):
        torch.testing.assert_close(
            output[row : row + 1], attend(q[row : row + 1], k[columns], v[columns], score=Dot(), weights=rule)
        )
    assert torch.equal(output[2], torch.zeros(2).double())


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_a_learned_bias_and_one_computed_from_something_learned_get_gradients(engine, draw):
    q, k, v = draw(3, 2), draw(4, 2, seed=1), draw(4, 2, seed=2)
    parameter = nn.Parameter(draw(3, 4, seed=3))
    score = Dot() + Bias(parameter)
    assert [name for name, _ in score.named_parameters()] == ["term.bias"]
    attend(q, k, v, score=score, engine=engine).square().sum().backward()
    source = parameter.detach().clone().requires_grad_()
    attend(q, k, v, score=Dot() + Bias(source * 2 - source.detach()), engine=engine).square().sum().backward()
    plain = parameter.detach().clone().requires_grad_()
    (torch.softmax(q @ k.mT + plain, -1) @ v).square().sum().backward()
    torch.testing.assert_close(parameter.grad, plain.grad)
    torch.testing.assert_close(source.grad, 2 * plain.grad)


@pytest.mark.parametrize("align", OFFSETS)
def test_alibi_subtracts_slope_times_distance(align, by_pairs):
    n_queries = 3 if align is not None else 5
    q, k = zeros(n_queries, 5)
    expected = torch.tensor([[-0.5 * abs(i + OFFSETS[align] - j) for j in range(5)] for i in range(n_queries)])
    torch.testing.assert_close((Dot() + Alibi(0.5, align=align))(q, k), expected.double())


def test_alibi_has_one_slope_for_each_head():
    q, k = zeros(4, 4, 3, 2)
    scores = (Dot() + Alibi([0.5, 0.25]))(q, k)
    assert scores[1, 0, 0].tolist() == [0, -0.5, -1, -1.5]
    assert scores[2, 1, 3].tolist() == [-0.75, -0.5, -0.25, 0]


def test_the_slopes_of_the_paper_are_powers_of_two():
    assert Alibi.for_heads(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]
    assert Alibi.for_heads(4).slopes.tolist() == [2.0 ** (-2 * i) for i in range(1, 5)]


@pytest.mark.parametrize("term", ["alibi", "relative"])
@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_one_offset_for_each_batch_row_stands_the_queries_where_it_says(term, engine, draw):
    q, k = draw(2, 3, 2, 4), draw(2, 3, 5, 4, seed=1)
    offsets = torch.tensor([3, -1])
    table = draw(5, seed=2)

    def made(align):
        if term == "alibi":
            return ScaledDot() + Alibi(0.5, align=align)
        bias = RelativeBias(2, align=align).double()
        bias.table.data = table
        return ScaledDot() + bias

    together = attend(q, k, k, score=made(offsets), engine=engine)
    alone = [attend(q[b], k[b], k[b], score=made(int(offsets[b])), engine=engine) for b in range(2)]
    torch.testing.assert_close(together, torch.stack(alone))


@pytest.mark.parametrize("align", OFFSETS)
def test_relative_bias_looks_up_the_clamped_distance(align):
    n_queries = 3 if align is not None else 5
    q, k = zeros(n_queries, 5)
    bias = RelativeBias(2, align=align).double()
    bias.table.data = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0]).double()  # for distances −2 … 2
    place = [[max(-2, min(2, j - (i + OFFSETS[align]))) + 2 for j in range(5)] for i in range(n_queries)]
    torch.testing.assert_close((Dot() + bias)(q, k), 10.0 * torch.tensor(place).double() + 10)


def test_relative_bias_has_a_table_for_each_head():
    q, k = zeros(3, 3, 2)
    bias = RelativeBias(1, heads=2).double()
    bias.table.data = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).double()
    assert (Dot() + bias)(q, k).tolist() == [[[2, 3, 3], [1, 2, 3], [1, 1, 2]], [[5, 6, 6], [4, 5, 6], [4, 4, 5]]]


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_slopes_and_tables_learn(engine, draw):
    q = draw(2, 4, 3)
    alibi = Alibi(nn.Parameter(torch.tensor([0.5, 0.1]).double()))
    relative = RelativeBias(2, heads=2).double()
    attend(q, q, q, score=ScaledDot() + alibi, engine=engine).square().sum().backward()
    attend(q, q, q, score=ScaledDot() + relative, engine=engine).square().sum().backward()
    distance = (torch.arange(4)[:, None] - torch.arange(4)).double()
    plain_slopes = alibi.slopes.detach().clone().requires_grad_()
    (torch.softmax(q @ q.mT / 3**0.5 - plain_slopes[:, None, None] * distance.abs(), -1) @ q).square().sum().backward()
    plain_table = relative.table.detach().clone().requires_grad_()
    bias = plain_table[:, (-distance).clamp(-2, 2).long() + 2]
    (torch.softmax(q @ q.mT / 3**0.5 + bias, -1) @ q).square().sum().backward()
    torch.testing.assert_close(alibi.slopes.grad, plain_slopes.grad)
    torch.testing.assert_close(relative.table.grad, plain_table.grad)


@pytest.mark.parametrize("term", [Alibi(0.5), RelativeBias(2)])
def test_terms_must_be_told_how_to_align(term):
    text = (
        rf"{type(term).__name__} must be told how to align 2 queries with 5 keys\. Pass align=\"start\", align=\"end\" "
    )
    with pytest.raises(ShapeError, match=text):
        weigh(torch.ones(2, 3), torch.ones(5, 3), torch.ones(5, 1), score=Dot() + term)


@pytest.mark.parametrize(("bias", "got"), [(torch.ones(2, 2, dtype=torch.bool), "torch.bool"), (3.0, "float")])
def test_a_bias_that_is_not_a_tensor_of_floats_is_refused(bias, got):
    with pytest.raises(
        DtypeError, match=rf"`bias` must be a floating-point tensor: got {got}\. For true/false use mask=Allowed"
    ):
        Bias(bias)


def test_a_bias_of_one_axis_is_refused():
    with pytest.raises(
        ShapeError,
        match=r"`bias` must have axes \(\.\.\., n_queries or 1, n_keys or 1\): got \(4,\)\. Use bias\[None, :\]",
    ):
        Bias(torch.ones(4))


def test_a_bias_of_another_size_is_refused():
    text = (
        r"`bias` must be \(\.\.\., 2 or 1, 5 or 1\) for 2 queries and 5 keys: got \(2, 4\)\. Slice it to the problem\."
    )
    with pytest.raises(ShapeError, match=text):
        attend(torch.ones(2, 3), torch.ones(5, 3), torch.ones(5, 1), score=Dot() + Bias(torch.ones(2, 4)))


BROADCAST = r"What a score or rule has for each head must broadcast with the last batch axis: .* do not broadcast\."
EACH = (
    r"must be one for all heads, or one for each entry of the last batch axis: got 2 for batch axes \(3,\)\. Pass 3\."
)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (Alibi([1.0, 2.0]), f"`slopes` of Alibi {EACH}"),
        (RelativeBias(2, heads=2), f"`heads` of RelativeBias {EACH}"),
        (Bias(torch.ones(2, 5, 5)), BROADCAST),
    ],
)
def test_terms_for_another_number_of_heads_are_refused(term, text):
    with pytest.raises(ShapeError, match=text):
        attend(torch.ones(3, 5, 2), torch.ones(5, 2), torch.ones(5, 1), score=Dot() + term)


def test_slopes_of_two_axes_are_refused():
    with pytest.raises(ShapeError, match=r"`slopes` of Alibi must be one number, or one for each head: got \(2, 2\)"):
        Alibi(torch.ones(2, 2))


def test_a_negative_reach_is_refused():
    with pytest.raises(OptionError, match=r"`max_distance` of RelativeBias must be at least 0: got -1"):
        RelativeBias(-1)


def test_reprs_show_what_was_given():
    assert repr(Bias(torch.ones(2, 3))) == "Bias(tensor of (2, 3))"
    assert repr(Alibi([1.0, 2.0], align="end")) == "Alibi(slopes of (2,), align='end')"
    assert repr(RelativeBias(3, heads=2)) == "RelativeBias(max_distance=3, heads=2, align=None)"
