"""Encoder, decoder and Transformer beside PyTorch's: the same parameters, outputs and gradients, and no other path."""

import pytest
import torch
from torch import nn as theirs

from regard import Alibi, Bias, Causal, Custom, Entmax, Gated, ScaledDot, Sparsemax, Window, nn
from regard.errors import BudgetExceeded, DtypeError, LayerRuntimeError, OptionError, ShapeError
from regard.nn import recording as recording_module

DIM, HEADS, HIDDEN, BATCH, N, M = 8, 2, 16, 2, 5, 6
KINDS = {
    "encoder layer": (theirs.TransformerEncoderLayer, nn.EncoderLayer),
    "decoder layer": (theirs.TransformerDecoderLayer, nn.DecoderLayer),
    "encoder": (theirs.TransformerEncoder, nn.Encoder),
    "decoder": (theirs.TransformerDecoder, nn.Decoder),
    "transformer": (theirs.Transformer, nn.Transformer),
}
OPTIONS = {
    "post-norm": {},
    "pre-norm": {"norm_first": True},
    "gelu": {"activation": "gelu", "batch_first": True},
    "no bias": {"bias": False, "norm_first": True, "batch_first": True},
    "tanh": {"activation": torch.tanh, "layer_norm_eps": 1e-3},
}
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # PyTorch's, where it takes no path


def build(name, which, dtype=torch.float64, dropout=0.0, **options):
    """PyTorch's (0) or ours (1), from one seed."""
    torch.manual_seed(3)
    kind = KINDS[name][which]
    common = {"dim_feedforward": HIDDEN, "dropout": dropout, "dtype": dtype, **options}
    if name == "transformer":
        return kind(DIM, HEADS, 2, 2, **common)
    if name in ("encoder", "decoder"):
        return kind(KINDS[f"{name} layer"][which](DIM, HEADS, **common), 2, theirs.LayerNorm(DIM, dtype=dtype))
    return kind(DIM, HEADS, **common)


def inputs(name, batch_first=False, **_):
    torch.manual_seed(5)
    tensors = [torch.randn(BATCH, n, DIM, dtype=torch.float64) for n in (M, N)]
    tensors = [(each if batch_first else each.transpose(0, 1)).requires_grad_() for each in tensors]
    source, target = tensors
    return {"encoder": [source], "decoder": [target, source], "transformer": [source, target]}[name.split()[0]]


def masks(name, kind):
    """The masks of a call under PyTorch's names."""
    torch.manual_seed(7)
    of_source, of_target = (torch.arange(n) >= torch.tensor([[n], [3]]) for n in (M, N))
    pairs = {
        "source": torch.rand(M, M) < 0.3,
        "target": torch.ones(N, N).triu(1).bool(),
        "memory": torch.rand(N, M) < 0.3,
    }
    for each in pairs.values():
        each[:, 0] = False  # somewhere to look
    if kind == "numbers":
        pairs = {key: torch.randn(each.shape, dtype=torch.float64) for key, each in pairs.items()}
    if kind == "causal":
        pairs = {"target": theirs.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)}
        pairs["source"] = theirs.Transformer.generate_square_subsequent_mask(M, dtype=torch.float64)
    given = {} if kind in ("none", "padding") else pairs
    padding = {"source": of_source, "target": of_target} if kind in ("padding", "all") else {}
    of_encoder = {"mask" if name == "encoder" else "src_mask": given.get("source")}
    of_encoder["src_key_padding_mask"] = padding.get("source")
    of_decoder = {"tgt_mask": given.get("target"), "memory_mask": given.get("memory")}
    of_decoder |= {"tgt_key_padding_mask": padding.get("target"), "memory_key_padding_mask": padding.get("source")}
    return {"encoder": of_encoder, "decoder": of_decoder, "transformer": of_encoder | of_decoder}[name.split()[0]]


def results(model, name, kind, **options):
    tensors = inputs(name, **options)
    output = model(*tensors, **masks(name, kind))
    gradients = torch.autograd.grad(output.pow(3).sum(), [*tensors, *model.parameters()])
    return [output, *gradients]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", KINDS)
def test_a_seed_gives_the_same_parameters_and_a_checkpoint_loads(name, options):
    wanted, got = (build(name, which, **OPTIONS[options]).state_dict() for which in (0, 1))
    assert list(wanted) == list(got)
    assert all(torch.equal(wanted[key], got[key]) for key in wanted)
    trained = build(name, 0, **OPTIONS[options])
    with torch.no_grad():
        for each in trained.parameters():
            each.add_(torch.randn_like(each), alpha=0.1)
    ours = build(name, 1, **OPTIONS[options])
    ours.load_state_dict(trained.state_dict())
    one, other = (results(model, name, "all", **OPTIONS[options]) for model in (trained, ours))
    for theirs_, ours_ in zip(one, other, strict=True):
        torch.testing.assert_close(ours_, theirs_, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["none", "pairs", "numbers", "causal", "padding", "all"])
@pytest.mark.parametrize("options", ["post-norm", "pre-norm", "gelu"])
@pytest.mark.parametrize("name", KINDS)
def test_it_computes_what_pytorch_does(name, options, kind, training):
    wanted, got = (
        results(build(name, which, **OPTIONS[options]).train(training), name, kind, **OPTIONS[options])
        for which in (0, 1)
    )
    for one, other in zip(wanted, got, strict=True):
        torch.testing.assert_close(other, one, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_without_a_batch(name):
    wanted, got = (
        build(name, which, batch_first=True)(*(each[0] for each in inputs(name, batch_first=True))) for which in (0, 1)
    )
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_eval_mode_runs_the_attention_that_was_given(name, monkeypatch):
    calls = []
    attend = recording_module.attend
    monkeypatch.setattr(
        recording_module, "attend", lambda *args, **options: calls.append(1) or attend(*args, **options)
    )
    n_layers = {"encoder layer": 1, "decoder layer": 2, "encoder": 2, "decoder": 4, "transformer": 6}[name]
    model, tensors = build(name, 1, batch_first=True).eval(), inputs(name, batch_first=True)
    with torch.inference_mode():
        plain = model(*tensors)
    assert len(calls) == n_layers
    seen = []
    scored = build(
        name, 1, batch_first=True, score=Custom(lambda q, k: seen.append(1) or q[..., :1] * 0 + k[..., None, :, 0])
    )
    with torch.inference_mode():
        other = scored.eval()(*tensors)
    assert len(seen) >= n_layers
    assert not torch.allclose(plain, other)


@pytest.mark.parametrize("name", KINDS)
def test_dropout_acts_in_training_alone(name):
    model, tensors = build(name, 1, dropout=0.5), inputs(name)
    assert not torch.equal(model(*tensors), model(*tensors))
    model.eval()
    assert torch.equal(model(*tensors), model(*tensors))
    torch.testing.assert_close(model(*tensors), build(name, 0)(*tensors))


def test_masks_as_regard_says_them():
    encoder, (x,) = build("encoder", 1, batch_first=True), inputs("encoder", batch_first=True)
    causal = theirs.Transformer.generate_square_subsequent_mask(M, dtype=torch.float64)
    torch.testing.assert_close(encoder(x, Causal()), encoder(x, causal))
    own = build("encoder", 1, batch_first=True, mask=Causal())
    torch.testing.assert_close(own(x), encoder(x, causal))
    decoder, pair = build("decoder", 1), inputs("decoder")
    torch.testing.assert_close(decoder(*pair, Causal()), decoder(*pair, causal[:N, :N]))
    assert not torch.allclose(decoder(*pair, Causal()), decoder(*pair))
    model, pair = build("transformer", 1), inputs("transformer")
    got = model(*pair, src_mask=Window(before=1, after=0), tgt_mask=Causal())
    near = ~torch.ones(M, M).tril().triu(-1).bool()
    torch.testing.assert_close(got, model(*pair, src_mask=near, tgt_mask=causal[:N, :N] != 0))


def test_a_mask_of_regards_in_the_place_of_pytorchs():
    (x,), (tgt, memory) = inputs("encoder layer"), inputs("decoder")
    for call in (
        lambda: build("encoder layer", 1)(x, Causal()),
        lambda: build("encoder", 1)(x, None, Causal()),
        lambda: build("decoder", 1)(tgt, memory, memory_mask=Causal()),
    ):
        with pytest.raises(DtypeError, match=r"must be a tensor, as in PyTorch: got Causal\(.*mask="):
            call()
    torch.testing.assert_close(
        build("encoder layer", 1)(x, mask=Causal()),
        build("encoder layer", 1)(x, nn.Transformer.generate_square_subsequent_mask(M)),
    )


def test_a_promise_of_causality_is_checked_by_nobody_and_needs_a_mask():
    for which in (0, 1):
        layer, (x,) = build("encoder layer", which), inputs("encoder layer")
        with pytest.raises(RuntimeError):
            layer(x, is_causal=True)
    mask = theirs.Transformer.generate_square_subsequent_mask(M, dtype=torch.float64)
    model, (x,) = build("encoder", 1), inputs("encoder")
    torch.testing.assert_close(model(x, mask, is_causal=True), model(x, mask, is_causal=False))
    torch.testing.assert_close(model(x, torch.zeros_like(mask), is_causal=True), model(x, mask))  # broken, and kept


def test_every_layer_can_be_read():
    encoder, (x,) = build("encoder", 1, batch_first=True, weights=Sparsemax()), inputs("encoder", batch_first=True)
    padding = torch.arange(M) >= torch.tensor([[M], [3]])
    views = encoder.weigh(x, Causal(), padding)
    assert [view.shape for view in views] == [(BATCH, HEADS, M, M)] * 2
    for view in views:
        dense = view.dense()
        torch.testing.assert_close(dense.sum(-1), torch.ones_like(dense[..., 0]))
        assert float(dense[1, ..., 3:].abs().max()) == 0
        assert float(dense.triu(1).abs().max()) == 0


def test_each_layer_has_a_score_and_a_rule_of_its_own():
    score, rule = Gated(DIM // HEADS, DIM // HEADS), Entmax(torch.nn.Parameter(torch.tensor(1.5)))
    model = nn.Transformer(DIM, HEADS, 2, 2, HIDDEN, score=score, weights=rule)
    layers = [each for each in model.modules() if isinstance(each, nn.MultiHeadAttention)]
    assert len(layers) == 6
    for parts in ([score, *(each.score for each in layers)], [rule, *(each.weights for each in layers)]):
        learned = [parameter for part in parts for parameter in part.parameters()]
        assert len({id(each) for each in learned}) == 7 * len(list(parts[0].parameters())) > 0


def test_what_a_score_or_a_rule_learns_starts_where_it_was_told_to():
    rule = Entmax(torch.nn.Parameter(torch.full((1, HEADS), 1.5)))
    score = ScaledDot() + Bias(torch.nn.Parameter(torch.zeros(HEADS, 1, 1)))
    model = nn.Transformer(DIM, HEADS, 1, 1, HIDDEN, score=score, weights=rule)
    layers = [each for each in model.modules() if isinstance(each, nn.MultiHeadAttention)]
    assert len(layers) == 3
    for layer in layers:
        assert torch.equal(layer.weights.alpha, rule.alpha)
        (own,), (given,) = layer.score.parameters(), score.parameters()
        assert torch.equal(own, given)
        assert own is not given
    assert model(torch.rand(4, 2, DIM), torch.rand(3, 2, DIM)).shape == (3, 2, DIM)


def test_layers_with_pytorchs_signature_alone_can_be_stacked():
    torch.manual_seed(3)
    layer = theirs.TransformerEncoderLayer(DIM, HEADS, HIDDEN, 0.0, dtype=torch.float64)
    (x,) = inputs("encoder")
    torch.testing.assert_close(nn.Encoder(layer, 2)(x), theirs.TransformerEncoder(layer, 2)(x))
    layer = theirs.TransformerDecoderLayer(DIM, HEADS, HIDDEN, 0.0, dtype=torch.float64)
    pair = inputs("decoder")
    torch.testing.assert_close(nn.Decoder(layer, 2)(*pair), theirs.TransformerDecoder(layer, 2)(*pair))


def test_what_does_not_fit_raises_what_pytorch_raises():
    x = torch.zeros(4, 2, DIM)
    for kind in KINDS["transformer"]:
        model = kind(DIM, HEADS, 1, 1, HIDDEN)
        for src, tgt in ((x, x[:, :1]), (x[..., :4], x), (x, x[..., :4])):
            with pytest.raises(RuntimeError) as caught:
                model(src, tgt)
    assert isinstance(caught.value, LayerRuntimeError)
    for kind in KINDS["encoder layer"]:
        with pytest.raises(RuntimeError, match="activation"):
            kind(DIM, HEADS, activation="swish")
        with pytest.raises(AssertionError, match="divisible"):
            kind(DIM, 3)


def test_a_checkpoint_with_other_names_says_which():
    state = build("encoder layer", 0).state_dict()
    state["extra"] = state.pop("linear1.bias")
    with pytest.raises(RuntimeError, match=r"(?s)Missing.*linear1\.bias.*Unexpected.*extra"):
        build("encoder layer", 1).load_state_dict(state)


def test_the_causal_mask_is_pytorchs():
    for dtype in (None, torch.float64):
        wanted, got = (kind.generate_square_subsequent_mask(4, dtype=dtype) for kind in KINDS["transformer"])
        assert torch.equal(got, wanted)
        assert got.dtype == wanted.dtype


# A decoder that writes token by token ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_gives_what_the_whole_sequence_gives(grad, rotary):
    options = {"rotary": nn.Rotary(DIM // HEADS)} if rotary else {}
    decoder = build("decoder", 1, batch_first=True, **options).eval()
    target, memory = inputs("decoder", batch_first=True)
    padding = torch.arange(M) >= torch.tensor([[M], [3]])
    wanted = decoder(target, memory, Causal(), memory_key_padding_mask=padding)
    cache, parts = nn.KeyValueCache(2), []
    with torch.set_grad_enabled(grad):
        for part in target.split([2, 1, 2], 1):
            parts.append(decoder(part, memory, memory_key_padding_mask=padding, cache=cache))
    got = torch.cat(parts, 1)
    torch.testing.assert_close(got.detach(), wanted.detach())
    assert cache.length == N
    if grad:
        one, other = (torch.autograd.grad(each.square().sum(), [target, memory]) for each in (wanted, got))
        torch.testing.assert_close(other, one)


def test_a_cache_with_scores_of_positions_among_the_tokens():
    decoder = build("decoder", 1, batch_first=True, score=ScaledDot() + Alibi.for_heads(HEADS, align="end")).eval()
    for layer in decoder.layers:
        layer.multihead_attn.score = ScaledDot()
    target, memory = inputs("decoder", batch_first=True)
    cache = nn.KeyValueCache(2)
    with torch.no_grad():
        got = torch.cat([decoder(part, memory, cache=cache) for part in target.split([2, 1, 2], 1)], 1)
        torch.testing.assert_close(got, decoder(target, memory, Causal()))
    plain = build("decoder", 1, batch_first=True).eval()
    assert not torch.allclose(got, plain(target, memory, Causal()))


def test_a_cache_that_is_reordered_follows_its_sequences():
    decoder = build("decoder", 1, batch_first=True).eval()
    target, memory = inputs("decoder", batch_first=True)
    index = torch.tensor([1, 1, 0])
    with torch.no_grad():
        cache = nn.KeyValueCache(2)
        decoder(target[:, :3], memory, cache=cache)
        cache.reorder(index)
        got = decoder(target[index][:, 3:], memory[index], cache=cache)
        wanted = decoder(target, memory, Causal())[index][:, 3:]
    torch.testing.assert_close(got, wanted)


def test_a_cache_does_not_fit_every_call():
    decoder, pair = build("decoder", 1), inputs("decoder")
    with pytest.raises(OptionError, match=r"KeyValueCache\(2\)"):
        decoder(*pair, cache=nn.KeyValueCache(3))
    with pytest.raises(OptionError, match="must be None"):
        decoder(*pair, Causal(), cache=nn.KeyValueCache(2))
    fixed = nn.LayerCache(is_fixed=True)
    with pytest.raises(OptionError, match="empty"):
        fixed.pairs()
    assert fixed.nbytes == 0
    keys = torch.rand(1, 2, 3, 4)
    fixed.extend(keys, keys)
    with pytest.raises(OptionError, match="takes keys and values once"):
        fixed.extend(keys, keys)


def test_a_cache_that_was_begun_in_inference_mode_goes_on_outside():
    decoder = build("decoder", 1, batch_first=True).eval()
    target, memory = (each.detach() for each in inputs("decoder", batch_first=True))
    cache = nn.KeyValueCache(2)
    with torch.inference_mode():
        first = decoder(target[:, :2], memory, cache=cache)
    with torch.no_grad():
        got = torch.cat([first, decoder(target[:, 2:], memory, cache=cache)], 1)
        torch.testing.assert_close(got, decoder(target, memory, Causal()))


def test_a_decoder_does_not_write_other_sequences_into_a_cache():
    decoder = build("decoder", 1, batch_first=True).eval()
    target, memory = inputs("decoder", batch_first=True)
    cache = nn.KeyValueCache(2)
    with torch.no_grad():
        decoder(target[:1], memory[:1], cache=cache)
        with pytest.raises(ShapeError, match="Make a new cache for other sequences"):
            decoder(target, memory, cache=cache)


def test_reading_every_layer_has_no_budget(monkeypatch):
    monkeypatch.setattr(recording_module.record, "__defaults__", (None, None, None, 1, None))
    encoder, (x,) = build("encoder", 1), inputs("encoder")
    with pytest.raises(BudgetExceeded), nn.record(encoder):
        encoder(x)
    assert len(encoder.weigh(x)) == 2
