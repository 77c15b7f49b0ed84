"""`MultiHeadAttention` against PyTorch's, and what it has besides."""

import itertools
import re
import sys

import pytest
import torch

from regard import (
    Additive,
    Alibi,
    Allowed,
    Bias,
    Causal,
    Conic,
    Entmax,
    Gated,
    NotSelf,
    Padding,
    PerHead,
    RelativeBias,
    ScaledDot,
    SoftCap,
    Sparsemax,
    Window,
    attend,
    nn,
)
from regard.errors import OptionError, ShapeError
from regard.grid import Grid

DIM, HEADS, BATCH, N_QUERIES, N_KEYS = 12, 3, 2, 5, 7
LAYERS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "learned pair": {"add_bias_kv": True},
    "zero pair": {"add_zero_attn": True},
    "both pairs": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    "other sizes": {"kdim": 5, "vdim": 8},
}
MASKS = {
    "none": dict,
    "bool": lambda: {"attn_mask": torch.rand(N_QUERIES, N_KEYS) < 0.3},
    "numbers": lambda: {"attn_mask": torch.randn(N_QUERIES, N_KEYS, dtype=torch.float64)},
    "by head": lambda: {"attn_mask": torch.rand(BATCH * HEADS, N_QUERIES, N_KEYS) < 0.3},
    "padding": lambda: {"key_padding_mask": torch.arange(N_KEYS) >= torch.tensor([[N_KEYS], [4]])},
    "added padding": lambda: {"key_padding_mask": torch.randn(BATCH, N_KEYS, dtype=torch.float64)},
    "both in numbers": lambda: {
        "attn_mask": torch.randn(N_QUERIES, N_KEYS, dtype=torch.float64),
        "key_padding_mask": torch.randn(BATCH, N_KEYS, dtype=torch.float64),
    },
    "both": lambda: {
        "attn_mask": (torch.rand(N_QUERIES, N_KEYS) < 0.2),
        "key_padding_mask": torch.arange(N_KEYS) >= torch.tensor([[N_KEYS], [4]]),
    },
}


def pair(dtype=torch.float64, **options):
    """PyTorch's layer and ours, from the same seed."""
    layers = []
    for kind in (torch.nn.MultiheadAttention, nn.MultiHeadAttention):
        torch.manual_seed(3)
        layers.append(kind(DIM, HEADS, **options, dtype=dtype))
    return layers


def inputs(kdim=DIM, vdim=DIM, batch_first=False, dtype=torch.float64, **_):
    torch.manual_seed(5)
    shapes = [(N_QUERIES, DIM), (N_KEYS, kdim), (N_KEYS, vdim)]
    tensors = [torch.randn(BATCH, n, dim, dtype=dtype) for n, dim in shapes]
    return [(each if batch_first else each.transpose(0, 1)).requires_grad_() for each in tensors]


@pytest.mark.parametrize("name", LAYERS)
def test_a_seed_gives_the_same_parameters_under_the_same_names(name):
    theirs, ours = (layer.state_dict() for layer in pair(**LAYERS[name]))
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", LAYERS)
def test_it_computes_what_pytorch_does(name, mask):
    theirs, ours = pair(**LAYERS[name])
    torch.manual_seed(9)
    options = MASKS[mask]()
    for need, average in itertools.product((True, False), (True, False)):
        found = []
        for layer in (theirs, ours):
            q, k, v = inputs(**LAYERS[name])
            output, weights = layer(q, k, v, need_weights=need, average_attn_weights=average, **options)
            gradients = torch.autograd.grad(output.square().sum(), (q, k, v, *layer.parameters()))
            found.append([output, *gradients, *([weights] if need else [])])
            assert (weights is not None) == need
        for wanted, got in zip(*found, strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("need_weights", [True, False])
def test_without_a_batch(need_weights):
    theirs, ours = pair()
    q, k, v = (each[:, 0] for each in inputs())
    padding = torch.arange(N_KEYS) > 4
    for options in ({}, {"key_padding_mask": padding}, {"attn_mask": torch.zeros(HEADS, N_QUERIES, N_KEYS).bool()}):
        wanted, got = (layer(q, k, v, need_weights=need_weights, **options) for layer in (theirs, ours))
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-10)


def test_float32_is_as_near_to_the_truth_as_pytorch():
    theirs, ours = pair(dtype=torch.float32, batch_first=True)
    exact = pair(batch_first=True)[0]
    exact.load_state_dict({name: tensor.double() for name, tensor in theirs.state_dict().items()})
    x = torch.randn(4, 100, DIM)
    with torch.no_grad():
        truth, wanted, got = exact(x.double(), x.double(), x.double())[0], theirs(x, x, x)[0], ours(x, x, x)[0]
    unit = torch.finfo(torch.float32).eps * float(truth.abs().max())
    assert (got - truth).abs().max() <= 2 * (wanted - truth).abs().max() + unit


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_fully_masked_query_gets_zeros_with_and_without_weights(need_weights):
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True)
    x = torch.randn(BATCH, N_KEYS, DIM)
    blind = torch.zeros(N_KEYS, N_KEYS, dtype=torch.bool)
    blind[2] = True
    output, weights = layer(x, x, x, attn_mask=blind, need_weights=need_weights)
    torch.testing.assert_close(output[:, 2], layer.out_proj.bias.expand(BATCH, DIM))
    if need_weights:
        assert torch.equal(weights[:, 2], torch.zeros(BATCH, N_KEYS))


def test_is_causal_is_a_hint_about_the_mask():
    theirs, ours = pair(batch_first=True)
    x = torch.randn(BATCH, 6, DIM, dtype=torch.float64)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    wanted = theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    torch.testing.assert_close(ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0], wanted)
    torch.testing.assert_close(ours(x, x, x, mask=Causal(), need_weights=False)[0], wanted)
    for layer in (theirs, ours):
        with pytest.raises(RuntimeError):
            layer(x, x, x, is_causal=True)


# What it has besides --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [None, Gated(4, 4), Additive(4, 4, 6)], ids=["dot", "gated", "additive"])
@pytest.mark.parametrize("weights", [None, Sparsemax(), Conic()], ids=["softmax", "sparsemax", "conic"])
def test_any_score_and_rule(score, weights):
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, score=score, weights=weights).eval()
    x = torch.randn(BATCH, N_KEYS, DIM)
    output, found = layer(x, x, x, average_attn_weights=False)
    heads = [
        attend(x @ layer.W_Q[i], x @ layer.W_K[i], x @ layer.W_V[i], score=layer.score, weights=layer.weights)
        for i in range(HEADS)
    ]
    torch.testing.assert_close(output, torch.cat(heads, -1) @ layer.W_O + layer.out_proj.bias)
    torch.testing.assert_close(found, layer.weigh(x, x, x).dense())


def test_each_head_has_its_own_scope():
    layer = nn.MultiHeadAttention(DIM, 2, batch_first=True, mask=[Causal(), Window(before=1, after=1)])
    x = torch.randn(1, 6, DIM)
    weights = layer(x, x, x, average_attn_weights=False)[1][0]
    assert torch.equal(weights[0] > 0, torch.ones(6, 6).tril().bool())
    assert torch.equal(weights[1] > 0, torch.ones(6, 6).tril(1).triu(-1).bool())


@pytest.mark.parametrize(
    "options", [{}, {"score": Gated(3, 3)}, {"mask": [Causal()] * 2 + [Window(before=1, after=1)] * 2}]
)
def test_heads_of_keys_that_are_shared(options):
    layer = nn.MultiHeadAttention(DIM, 4, batch_first=True, num_kv_heads=2, **options)
    x = torch.randn(BATCH, 6, DIM)
    output, weights = layer(x, x, x, average_attn_weights=False)
    masks = options.get("mask", [None] * 4)
    heads = [
        attend(x @ layer.W_Q[i], x @ layer.W_K[i // 2], x @ layer.W_V[i // 2], score=layer.score, mask=masks[i])
        for i in range(4)
    ]
    torch.testing.assert_close(output, torch.cat(heads, -1) @ layer.W_O + layer.out_proj.bias)
    assert weights.shape == (BATCH, 4, 6, 6)
    torch.testing.assert_close(layer.weigh(x, x, x).dense(), weights)
    torch.testing.assert_close(layer(x, x, x, need_weights=False)[0], output)


@pytest.mark.parametrize("of_layer", [True, False])
@pytest.mark.parametrize("name", ["by head", "by sequence", "by both"])
def test_heads_of_keys_that_are_shared_under_masks_with_axes_of_their_own(name, of_layer):
    torch.manual_seed(2)
    pairs = (BATCH, 1 if name == "by sequence" else 4, 6, 6)
    mask = PerHead([Causal(), NotSelf()] * 2) if name == "by head" else Allowed(torch.rand(pairs) < 0.6)
    layer = nn.MultiHeadAttention(DIM, 4, batch_first=True, num_kv_heads=2, mask=mask if of_layer else None)
    x, option = torch.randn(BATCH, 6, DIM), None if of_layer else mask
    queries, keys, values = ((x[:, None] @ each).to(x) for each in (layer.W_Q, layer.W_K, layer.W_V))
    pooled = attend(queries, keys.repeat_interleave(2, 1), values.repeat_interleave(2, 1), mask=mask)
    wanted = pooled.transpose(1, 2).flatten(2) @ layer.W_O + layer.out_proj.bias
    for need in (True, False):
        torch.testing.assert_close(layer(x, x, x, need_weights=need, mask=option)[0], wanted)


def test_rotary_queries_and_keys_see_distance_alone():
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, rotary=nn.Rotary(DIM // HEADS)).double()
    token = torch.randn(1, 1, DIM, dtype=torch.float64).expand(1, 8, DIM)
    weights = layer(token, token, token, average_attn_weights=False)[1]
    logits = weights.log()
    distance = logits - logits.diagonal(dim1=-2, dim2=-1)[..., None]
    for shift in range(3):
        torch.testing.assert_close(
            distance[..., 1:, 1:].diagonal(shift, -2, -1), distance.diagonal(shift, -2, -1)[..., 1:]
        )


def test_a_cache_gives_what_a_whole_sequence_gives():
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, num_kv_heads=1, rotary=nn.Rotary(4)).eval()
    x = torch.randn(BATCH, 200, DIM)
    wanted = layer(x, x, x, mask=Causal(), need_weights=False)[0]
    with torch.no_grad():
        cache = nn.LayerCache()
        parts = [x[:, :3], x[:, 3:4], *x[:, 4:].split(49, 1)]
        got = [layer(p, p, p, mask=Causal(align="end"), need_weights=False, cache=cache)[0] for p in parts]
    torch.testing.assert_close(torch.cat(got, 1), wanted)
    assert cache.length == 200
    assert cache.nbytes >= 2 * BATCH * 200 * 4 * 4


def test_entmax_alpha_is_learned_with_the_layer():
    alpha = torch.nn.Parameter(torch.tensor(1.3))
    layer = nn.MultiHeadAttention(DIM, HEADS, weights=Entmax(alpha))
    assert any(each is alpha for each in layer.parameters())
    x = torch.randn(6, 2, DIM)
    layer(x, x, x)[0].square().sum().backward()
    assert alpha.grad is not None


# What does not fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.MultiHeadAttention(10, 3), AssertionError, "nearest number of heads that fits is 2"),
        (lambda: nn.MultiHeadAttention(0, 1), ValueError, "must be positive"),
        (lambda: nn.MultiHeadAttention(12, 4, num_kv_heads=3), OptionError, "multiple of `num_kv_heads`"),
        (lambda: nn.MultiHeadAttention(12, 4, dropout=-1), OptionError, "dropout"),
        (lambda: nn.MultiHeadAttention(12, 4, score="dot"), OptionError, "`score` must be a"),
        (lambda: nn.MultiHeadAttention(12, 4, weights=ScaledDot()), OptionError, "`weights` must be a"),
    ],
)
def test_a_layer_that_cannot_be_made(make, error, text):
    with pytest.raises(error, match=text):
        make()


# Keys that follow every sequence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_layer", [True, False])
@pytest.mark.parametrize("name", ["learned pair", "zero pair", "both pairs"])
def test_a_mask_of_regards_speaks_of_the_sequence_and_what_follows_is_always_seen(name, of_layer):
    options = {**LAYERS[name], "batch_first": True}
    theirs, ours = pair(**options)
    x = inputs(**options)[1]
    later = torch.ones(N_KEYS, N_KEYS, dtype=torch.bool).triu(1)
    padding = torch.arange(N_KEYS) >= torch.tensor([[N_KEYS], [4]])
    wanted = theirs(x, x, x, attn_mask=later, key_padding_mask=padding)
    ours.mask = Causal() if of_layer else None
    mask = None if of_layer else Causal()
    for got in (
        ours(x, x, x, mask=mask, key_padding_mask=padding),
        ours(x, x, x, mask=Padding([N_KEYS, 4]) if of_layer else Causal() & Padding([N_KEYS, 4])),
    ):
        torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(ours(x, x, x, mask=mask, key_padding_mask=padding, need_weights=False)[0], wanted[0])
    with nn.record(ours) as recording:
        ours(x, x, x, mask=mask, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(recording[0].dense().mean(1), wanted[1])


@pytest.mark.parametrize("shared", [{}, {"num_kv_heads": 2}], ids=["own keys", "shared keys"])
def test_masks_of_heads_with_keys_that_follow(shared):
    masks = [Causal(), Window(before=1, after=1), NotSelf(), Causal()]
    layer = nn.MultiHeadAttention(DIM, 4, batch_first=True, add_bias_kv=True, add_zero_attn=True, mask=masks, **shared)
    x = torch.randn(BATCH, 6, DIM)
    output, weights = layer(x, x, x, average_attn_weights=False)
    for head, mask in enumerate(masks):
        seen = torch.cat([mask.tile(range(6), range(6), Grid((), 6, 6)), torch.ones(6, 2, dtype=torch.bool)], -1)
        assert torch.equal(weights[:, head] > 0, seen.expand(BATCH, 6, 8))
    torch.testing.assert_close(layer(x, x, x, need_weights=False)[0], output)


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 1}, {"add_zero_attn": True}], ids=str)
def test_a_head_without_a_mask_is_one_that_sees_all(options):
    torch.manual_seed(0)
    masks = [Causal(), None, Window(before=1, after=1), None]
    some = nn.MultiHeadAttention(DIM, 4, batch_first=True, mask=masks, **options)
    none = nn.MultiHeadAttention(DIM, 4, batch_first=True, **options)
    none.load_state_dict(some.state_dict())
    x = torch.randn(BATCH, 6, DIM)
    output, weights = some(x, x, x, average_attn_weights=False)
    _, without = none(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(weights[:, 1::2], without[:, 1::2])
    assert not torch.allclose(weights[:, 0::2], without[:, 0::2])
    torch.testing.assert_close(some(x, x, x, need_weights=False)[0], output)


@pytest.mark.parametrize("added", [{"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("align", [None, "start", "end"])
@pytest.mark.parametrize("term", [Alibi.for_heads, RelativeBias], ids=["Alibi", "RelativeBias"])
def test_distances_are_refused_where_keys_are_added_that_stand_nowhere(term, align, added):
    score = SoftCap(ScaledDot() + term(2, align=align), 5.0)
    with pytest.raises(OptionError, match=r"must not stand with add_bias_kv or add_zero_attn.*have no position"):
        nn.MultiHeadAttention(DIM, 2, score=score, **added)
    nn.MultiHeadAttention(DIM, 2, score=score)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_zero_attn": True, "mask": Causal()}, {"weights": Sparsemax()}], ids=str)
def test_it_compiles_into_one_graph(monkeypatch, options, need_weights):
    monkeypatch.setattr(
        sys.modules[Entmax.__module__], "TRACED_PASSES", 8
    )  # each is unrolled in the graph; six keys need no more
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, **options)
    x = torch.randn(BATCH, 6, DIM)

    def function(x):
        return layer(x, x, x, need_weights=need_weights)

    torch.compiler.reset()
    got = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(got, function(x))


# What a score or a rule has for each head -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["output", "weights", "view"])
@pytest.mark.parametrize(
    ("heads", "options", "found"),
    [
        (1, {"weights": Entmax(torch.full((5,), 1.3))}, "(2, 5)"),
        (3, {"weights": Entmax(torch.full((4, 2, 3), 1.3))}, "(4, 2, 3)"),
        (3, {"score": ScaledDot() + Bias(torch.zeros(4, 1, 1, 6, 6))}, "(4, 2, 3)"),
        (3, {"weights": Entmax(torch.full((4, 2, 3), 1.3)), "num_kv_heads": 1}, "(4, 2, 3)"),
    ],
    ids=str,
)
def test_numbers_that_are_not_one_for_each_head_are_refused(heads, options, found, call):
    layer = nn.MultiHeadAttention(DIM, heads, batch_first=True, **options)
    x = torch.randn(BATCH, 6, DIM)
    with pytest.raises(ShapeError, match=re.escape(f"must be ({heads},), or ({BATCH}, {heads})")) as caught:
        layer.weigh(x, x, x) if call == "view" else layer(x, x, x, need_weights=call == "weights")
    assert found in str(caught.value)


def test_numbers_for_each_sequence_and_head_fit():
    alpha = torch.tensor([[1.2, 1.5, 1.9], [1.4, 1.1, 1.6]])
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, weights=Entmax(alpha))
    x = torch.randn(BATCH, 6, DIM)
    weights = layer(x, x, x, average_attn_weights=False)[1]
    alone = nn.MultiHeadAttention(DIM, HEADS, batch_first=True, weights=Entmax(1.6))
    alone.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(weights[1, 2], alone(x, x, x, average_attn_weights=False)[1][1, 2])


@pytest.mark.parametrize("compiled", [False, True])
def test_in_training_the_weights_are_those_that_dropout_left_as_in_pytorch(compiled):
    x = torch.rand(2, 12, 8)
    layer = nn.MultiHeadAttention(8, 2, dropout=0.5, batch_first=True)
    _, before = layer.eval()(x, x, x, average_attn_weights=False)
    layer.train()
    call = torch.compile(layer, backend="eager") if compiled else layer
    output, weights = call(x, x, x, average_attn_weights=False)
    kept = weights != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(weights[kept], 2 * before[kept])
    values = (x @ layer.W_V.unsqueeze(1)).transpose(0, 1)  # (batch, heads, n, head_dim); no bias yet
    torch.testing.assert_close(output, (weights @ values).transpose(1, 2).flatten(2) @ layer.W_O)


@pytest.mark.parametrize("compiled", [False, True])
def test_nan_of_padding_reaches_no_output_in_training_with_weights_and_dropout(compiled):
    layer = nn.MultiHeadAttention(8, 2, dropout=0.1, batch_first=True)
    keys = torch.randn(1, 5, 8)
    keys[0, -1] = torch.nan
    padding = torch.tensor([[False, False, False, False, True]])
    call = torch.compile(layer, backend="eager") if compiled else layer
    output, weights = call(torch.randn(1, 3, 8), keys, keys, key_padding_mask=padding)
    assert output.isfinite().all()
    assert (weights[..., -1] == 0).all()
