"""Attention, self-attention, the feed-forward part and positions."""

import math

import pytest
import torch

from regard import Additive, Causal, Conic, Gaussian, Sparsemax, Window, attend, nn
from regard.errors import DtypeError, LayerRuntimeError, OptionError, ShapeError

# Attention ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, Sparsemax(), Conic()], ids=["softmax", "sparsemax", "conic"])
@pytest.mark.parametrize("score", [None, Additive(4, 4, 6), Gaussian(0.7)], ids=["dot", "additive", "gaussian"])
def test_attention_is_attend(score, weights):
    torch.manual_seed(1)
    layer = nn.Attention(score, weights, mask=Causal(align="end"))
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 7)
    options = {"score": layer.score, "weights": layer.weights}
    torch.testing.assert_close(layer(q, k, v), attend(q, k, v, **options, mask=Causal(align="end")))
    torch.testing.assert_close(layer.weigh(q, k, v).dense() @ v, layer(q, k, v))
    narrow = Window(before=1, after=0, align="end")
    torch.testing.assert_close(layer(q, k, v, mask=narrow), attend(q, k, v, **options, mask=narrow))


def test_what_a_score_learns_is_the_layers():
    score = Additive(4, 4, 6)
    layer = nn.Attention(score)
    assert {id(each) for each in layer.parameters()} == {id(each) for each in score.parameters()}


def test_dropout_acts_in_training_alone():
    layer, x = nn.Attention(dropout=0.5), torch.randn(6, 4)
    assert not torch.equal(layer(x, x, x), layer(x, x, x))
    torch.testing.assert_close(layer.eval()(x, x, x), attend(x, x, x))
    for wrong in (1.5, 1.0, -0.1, math.nan):  # 1.0 would be refused by every call in training
        with pytest.raises(OptionError, match="dropout"):
            nn.Attention(dropout=wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: nn.Attention(**options),
        lambda **options: nn.SelfAttention(8, **options),
        lambda **options: nn.MultiHeadAttention(8, 2, **options),
        lambda **options: nn.EncoderLayer(8, 2, **options),
        lambda **options: nn.Decoder(nn.DecoderLayer(8, 2, **options), 2),
    ],
    ids=["attention", "self-attention", "multi-head", "encoder layer", "decoder"],
)
def test_a_layer_says_its_score_rule_and_mask(make):
    said = repr(make(score=Gaussian(0.7), weights=Sparsemax(), mask=Causal() & Window(before=3, after=0)))
    for part in ("(score): Gaussian(", "(weights): Sparsemax()", "mask=Causal() & Window(before=3, after=0)"):
        assert part in said
    assert "mask" not in repr(make())


def test_a_layer_says_its_dropout_and_the_scopes_of_its_heads():
    said = repr(nn.MultiHeadAttention(8, 2, 0.25, mask=[Causal(), None]))
    assert "8, 2, batch_first=False, mask=PerHead([Causal(), Window(" in said
    assert "dropout=0.25" in said


# Self-attention -------------------------------------------------------------------------------------------------------


def test_self_attention_in_the_documents_orientation():
    torch.manual_seed(2)
    layer, x = nn.SelfAttention(8, key_dim=4, value_dim=6).double(), torch.randn(10, 8, dtype=torch.float64)
    assert [tuple(each.shape) for each in (layer.W_Q, layer.W_K, layer.W_V)] == [(8, 4), (8, 4), (8, 6)]
    scores = (x @ layer.W_Q) @ (x @ layer.W_K).T / math.sqrt(4)
    weights = scores.softmax(-1)
    torch.testing.assert_close(layer(x), weights @ (x @ layer.W_V))  # n × d_V
    torch.testing.assert_close(layer.weigh(x).dense(), weights)
    torch.testing.assert_close(layer(x, mask=Causal())[0], x[0] @ layer.W_V)


def test_sizes_of_self_attention():
    assert nn.SelfAttention(8)(torch.rand(3, 5, 8)).shape == (3, 5, 8)
    assert nn.SelfAttention(8, 4)(torch.rand(5, 8)).shape == (5, 4)
    assert nn.SelfAttention(8, 4, 9)(torch.rand(5, 8)).shape == (5, 9)
    with pytest.raises(ShapeError, match="`query_dim` and `key_dim` must be the same.*got 3 and 4"):
        nn.SelfAttention(8, 4, query_dim=3)
    other = nn.SelfAttention(8, 4, query_dim=3, score=Additive(3, 4, 5))
    assert other.W_Q.shape == (8, 3)
    assert other(torch.rand(5, 8)).shape == (5, 4)
    for wrong in (torch.rand(5, 7), torch.rand(8)):
        with pytest.raises(ShapeError, match=r"Tokens must be \(\.\.\., n, 8\)"):
            nn.SelfAttention(8)(wrong)
    with pytest.raises(OptionError):
        nn.SelfAttention(8, 0)


def test_self_attention_starts_as_a_linear_layer_does():
    torch.manual_seed(0)
    layer = nn.SelfAttention(100, 50)
    for matrix in (layer.W_Q, layer.W_K, layer.W_V):
        assert 0.09 < float(matrix.detach().abs().max()) <= 0.1
    before = layer.W_Q.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.W_Q)


# The feed-forward part ------------------------------------------------------------------------------------------------


def test_the_feed_forward_part_works_on_each_token_alone():
    torch.manual_seed(1)
    layer, x = nn.FeedForward(4, 9, activation="gelu"), torch.randn(2, 5, 4)
    wanted = layer.linear2(torch.nn.functional.gelu(layer.linear1(x)))
    torch.testing.assert_close(layer(x), wanted)
    torch.testing.assert_close(layer(x[:, 2]), wanted[:, 2])
    assert nn.FeedForward(4, 9, bias=False).linear1.bias is None
    dropping = nn.FeedForward(4, 9, 0.5)
    assert not torch.equal(dropping(x), dropping(x))
    assert torch.equal(dropping.eval()(x), dropping(x))
    with pytest.raises(LayerRuntimeError, match="'relu' or 'gelu'"):
        nn.FeedForward(4, 9, activation="swish")


# Positions ------------------------------------------------------------------------------------------------------------


def test_sines_and_cosines_are_the_papers():
    layer = nn.SinusoidalPositions(6)
    got = layer(torch.zeros(2, 7, 6, dtype=torch.float64))
    for position in range(7):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            assert float(got[1, position, 2 * pair]) == pytest.approx(math.sin(angle))
            assert float(got[1, position, 2 * pair + 1]) == pytest.approx(math.cos(angle))
    assert list(layer.parameters()) == []
    x = torch.randn(7, 6)
    torch.testing.assert_close(layer(x) - x, got[0].float())


@pytest.mark.parametrize(
    "layer", [nn.SinusoidalPositions(6), nn.LearnedPositions(20, 6), nn.Rotary(6)], ids=["waves", "learned", "rotary"]
)
def test_a_sequence_may_start_later(layer):
    x = torch.randn(3, 9, 6)
    torch.testing.assert_close(layer(x[:, 4:], 4), layer(x)[:, 4:])
    assert not torch.allclose(layer(x[:, 4:]), layer(x)[:, 4:])


def test_far_positions_keep_their_digits():
    # sin(100 000) in float32 angles would be off in the third digit.
    got = nn.SinusoidalPositions(2)(torch.zeros(1, 2), 100_000)[0, 0]
    assert float(got) == pytest.approx(math.sin(100_000), abs=1e-6)


def test_learned_positions_are_added_and_end():
    layer, x = nn.LearnedPositions(5, 4), torch.randn(2, 5, 4)
    torch.testing.assert_close(layer(x), x + layer.weight)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, torch.full((5, 4), 2.0))
    with pytest.raises(ShapeError, match="learned up to 5: got 7 tokens"):
        layer(x, 2)


def test_rotary_keeps_lengths_and_sees_distance_alone():
    layer, q, k = nn.Rotary(8).double(), torch.randn(1, 8).double(), torch.randn(1, 8).double()
    torch.testing.assert_close(layer(q, 17).norm(), q.norm())
    torch.testing.assert_close(layer(q, 0), q)
    near, far, other = (layer(q, i) @ layer(k, j).T for i, j in ((5, 2), (1005, 1002), (5, 3)))
    torch.testing.assert_close(near, far)
    assert not torch.allclose(near, other)
    # Each pair of numbers is a complex number, turned.
    turned = torch.view_as_complex(q.reshape(4, 2)) * torch.exp(1j * 3 * 10_000 ** (-torch.arange(4).double() / 4))
    torch.testing.assert_close(layer(q, 3).reshape(4, 2), torch.view_as_real(turned))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.SinusoidalPositions(5), OptionError, "must be even"),
        (lambda: nn.Rotary(5), OptionError, "must be even"),
        (lambda: nn.Rotary(4)(torch.rand(3, 6)), ShapeError, "embed_dim / num_heads"),
        (lambda: nn.Rotary(4)(torch.rand(4)), ShapeError, r"\(\.\.\., n, 4\)"),
        (lambda: nn.Rotary(4)(torch.ones(3, 4).long()), DtypeError, "Embed token ids first"),
        (lambda: nn.Rotary(4, base=0.0), OptionError, "`base` of Rotary"),
        (lambda: nn.SinusoidalPositions(4)(torch.rand(3, 1)), ShapeError, r"got \(3, 1\)"),  # it would broadcast
        (lambda: nn.SinusoidalPositions(4)(torch.rand(3, 6)), ShapeError, r"\(\.\.\., n, 4\)"),
        (lambda: nn.SinusoidalPositions(4)(torch.ones(3, 4).long()), DtypeError, "got torch.int64"),
        (lambda: nn.SinusoidalPositions(4, base=-1.0), OptionError, "`base` of SinusoidalPositions"),
        (lambda: nn.LearnedPositions(5, 4)(torch.rand(3, 1)), ShapeError, r"got \(3, 1\)"),
        (lambda: nn.LearnedPositions(5, 4)(torch.rand(1, 4), -3), OptionError, "`start` must be 0 or more"),
        (lambda: nn.LearnedPositions(0, 4), ValueError, "max_length"),
    ],
)
def test_positions_that_do_not_fit(make, error, text):
    with pytest.raises(error, match=text):
        make()
