"""Layer surgery: ours inside PyTorch's containers and PyTorch's inside ours, against the same formula written out.

Every combination, in training and eval mode, with gradients, under no_grad and inference_mode, with padding and
without. PyTorch's encoder has a path of its own for eval mode without gradients, which reads parameters and not the
layer: it must not be taken. It also makes nested tensors of sequences with padding.
"""

import contextlib

import pytest
import torch
from torch import nn as theirs

from regard import Allowed, Causal, Dot, Gaussian, GlobalKeys, RandomKeys, Sparsemax, TopK, Window, nn
from regard.errors import LayerInputError, OptionError, ShapeError

pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]

DIM, HEADS, HIDDEN, BATCH, N, N_MEMORY = 16, 4, 24, 3, 6, 5
ATTENTIONS = {
    "plain": dict,
    "sparsemax": lambda: {"weights": Sparsemax()},
    "gaussian": lambda: {"score": Gaussian(0.7)},
    "causal": lambda: {"mask": Causal()},
    "scopes": lambda: {"mask": [Causal(), Window(before=1, after=1), None, ~Causal()]},
}
FEW = ["plain", "sparsemax", "causal"]
MODES = {
    "gradients": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
SHAPE, SIZES = (DIM, HEADS, HIDDEN, 0.0), (DIM, HEADS, 2, 2, HIDDEN, 0.0)
KIND = {"batch_first": True, "dtype": torch.float64}


# The formula, written out --------------------------------------------------------------------------------------------


def encoder_layer(layer, src, padding):
    """What an encoder layer computes, its attention called as a function."""
    looked, _ = layer.self_attn(src, src, src, key_padding_mask=padding, need_weights=False)
    src = layer.norm1(src + looked)
    return layer.norm2(src + layer.linear2(torch.relu(layer.linear1(src))))


def decoder_layer(layer, tgt, memory, padding, memory_padding):
    """What a decoder layer computes, its attentions called as functions."""
    looked, _ = layer.self_attn(tgt, tgt, tgt, key_padding_mask=padding, need_weights=False)
    tgt = layer.norm1(tgt + looked)
    looked, _ = layer.multihead_attn(tgt, memory, memory, key_padding_mask=memory_padding, need_weights=False)
    tgt = layer.norm2(tgt + looked)
    return layer.norm3(tgt + layer.linear2(torch.relu(layer.linear1(tgt))))


def encoder(stack, src, padding):
    for layer in stack.layers:
        src = encoder_layer(layer, src, padding)
    return src if stack.norm is None else stack.norm(src)


def decoder(stack, tgt, memory, padding, memory_padding):
    for layer in stack.layers:
        tgt = decoder_layer(layer, tgt, memory, padding, memory_padding)
    return tgt if stack.norm is None else stack.norm(tgt)


# What is put together ------------------------------------------------------------------------------------------------


def our_attention(options):
    return nn.MultiHeadAttention(DIM, HEADS, **KIND, **options)


def their_layer_with_ours(options):
    layer = theirs.TransformerEncoderLayer(*SHAPE, **KIND)
    layer.self_attn = our_attention(options)
    return layer


def their_encoder_of(layer, **flags):
    return theirs.TransformerEncoder(layer, 2, **flags)


def their_encoder_swapped(options):
    """PyTorch's encoder, built with its own attention, which decides about nested tensors then: ours comes after."""
    stack = their_encoder_of(theirs.TransformerEncoderLayer(*SHAPE, **KIND))
    assert stack.use_nested_tensor
    for layer in stack.layers:
        layer.self_attn = our_attention(options)
    return stack


def their_encoder_with_our_layers(options):
    stack = their_encoder_of(theirs.TransformerEncoderLayer(*SHAPE, **KIND))
    stack.layers = theirs.ModuleList(nn.EncoderLayer(*SHAPE, **KIND, **options) for _ in range(2))
    return stack


def their_encoder_with_one_of_ours(options):
    stack = their_encoder_of(theirs.TransformerEncoderLayer(*SHAPE, **KIND))
    stack.layers[1].self_attn = our_attention(options)
    return stack


def our_layer_with_theirs(options):
    layer = nn.EncoderLayer(*SHAPE, **KIND)
    layer.self_attn = theirs.MultiheadAttention(DIM, HEADS, **KIND)
    return layer


ENCODERS = {
    "our attention in their layer": their_layer_with_ours,
    "our attention in their encoder": lambda options: their_encoder_of(their_layer_with_ours(options)),
    "our attention in their encoder, not nested": lambda options: their_encoder_of(
        their_layer_with_ours(options), enable_nested_tensor=False
    ),
    "our attention in their finished encoder": their_encoder_swapped,
    "our attention in one layer of theirs": their_encoder_with_one_of_ours,
    "our layer in their encoder": lambda options: their_encoder_of(nn.EncoderLayer(*SHAPE, **KIND, **options)),
    "our layers in their finished encoder": their_encoder_with_our_layers,
    "their layer with our attention in our encoder": lambda options: nn.Encoder(their_layer_with_ours(options), 2),
    "their attention in our layer": our_layer_with_theirs,
    "their layer in our encoder": lambda options: nn.Encoder(theirs.TransformerEncoderLayer(*SHAPE, **KIND), 2),
}


def their_decoder_layer_with_ours(options):
    layer = theirs.TransformerDecoderLayer(*SHAPE, **KIND)
    layer.self_attn = our_attention(options)
    layer.multihead_attn = our_attention({name: each for name, each in options.items() if name != "mask"})
    return layer


def our_decoder_layer_with_theirs(options):
    layer = nn.DecoderLayer(*SHAPE, **KIND)
    layer.self_attn, layer.multihead_attn = (theirs.MultiheadAttention(DIM, HEADS, **KIND) for _ in range(2))
    return layer


DECODERS = {
    "our attention in their layer": their_decoder_layer_with_ours,
    "our attention in their decoder": lambda options: theirs.TransformerDecoder(
        their_decoder_layer_with_ours(options), 2
    ),
    "our layer in their decoder": lambda options: theirs.TransformerDecoder(
        nn.DecoderLayer(*SHAPE, **KIND, **options), 2
    ),
    "their attention in our layer": our_decoder_layer_with_theirs,
    "their layer in our decoder": lambda options: nn.Decoder(theirs.TransformerDecoderLayer(*SHAPE, **KIND), 2),
}


def their_transformer_swapped(options):
    model = theirs.Transformer(*SIZES, **KIND)
    for layer in model.encoder.layers:
        layer.self_attn = our_attention(options)
    for layer in model.decoder.layers:
        layer.self_attn = our_attention(options)
        layer.multihead_attn = our_attention({name: each for name, each in options.items() if name != "mask"})
    return model


def parts(options):
    return (
        nn.Encoder(nn.EncoderLayer(*SHAPE, **KIND, **options), 2),
        nn.Decoder(nn.DecoderLayer(*SHAPE, **KIND, **options), 2),
    )


def their_parts():
    return (
        theirs.TransformerEncoder(theirs.TransformerEncoderLayer(*SHAPE, **KIND), 2),
        theirs.TransformerDecoder(theirs.TransformerDecoderLayer(*SHAPE, **KIND), 2),
    )


TRANSFORMERS = {
    "our attention in their finished transformer": their_transformer_swapped,
    "our encoder and decoder in their transformer": lambda options: theirs.Transformer(
        *SIZES, custom_encoder=parts(options)[0], custom_decoder=parts(options)[1], **KIND
    ),
    "their encoder and decoder in our transformer": lambda options: nn.Transformer(
        *SIZES, custom_encoder=their_parts()[0], custom_decoder=their_parts()[1], **KIND
    ),
}


def padding_of(n, wanted):
    """True where a sequence of the batch has ended; no sequence is as long as the tensor."""
    return torch.arange(n) >= torch.tensor([[n - 1], [n - 3], [n - 1]]) if wanted else None


def tokens_of(n):
    return torch.randn(BATCH, n, DIM, dtype=torch.float64)


def in_training(model):
    """The model itself in training mode, where PyTorch's attention has no path of its own; nothing is dropped."""
    return model.train()


def check(model, run, wanted, padding, mode, n_tokens=N):
    """That a model and the formula agree where there are tokens, and on the gradients of every parameter."""
    seen = torch.ones(BATCH, n_tokens, dtype=torch.bool) if padding is None else ~padding
    with MODES[mode]():
        found = run(model)
    assert found.shape == (BATCH, n_tokens, DIM)
    assert not found.is_nested
    expected = wanted(model)
    torch.testing.assert_close(found[seen].clone(), expected[seen].detach())
    if mode == "gradients":
        parameters = list(model.parameters())
        ours, formula = (torch.autograd.grad(each[seen].square().sum(), parameters) for each in (found, expected))
        torch.testing.assert_close(ours, formula)


def cases(containers, attentions):
    """(container, attention): those that are asked for where it is ours, the plain one where it is PyTorch's."""
    return [
        (name, attention)
        for name in containers
        for attention in (attentions if "our attention" in name or name.startswith("our ") else ["plain"])
    ]


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("container", "attention"), cases(ENCODERS, ATTENTIONS))
def test_an_encoder_computes_the_formula_with_the_attention_it_was_given(container, attention, training, mode, padded):
    torch.manual_seed(0)
    model = ENCODERS[container](ATTENTIONS[attention]()).train(training)
    src, padding = tokens_of(N), padding_of(N, padded)
    formula = encoder if hasattr(model, "layers") else encoder_layer
    check(
        model,
        lambda model: model(src, src_key_padding_mask=padding),
        lambda model: formula(in_training(model), src, padding),
        padding,
        mode,
    )


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("container", "attention"), cases(DECODERS, FEW))
def test_a_decoder_computes_the_formula_with_the_attention_it_was_given(container, attention, training, mode, padded):
    torch.manual_seed(0)
    model = DECODERS[container](ATTENTIONS[attention]()).train(training)
    tgt, memory = tokens_of(N), tokens_of(N_MEMORY)
    padding, memory_padding = padding_of(N, padded), padding_of(N_MEMORY, padded)
    formula = decoder if hasattr(model, "layers") else decoder_layer
    check(
        model,
        lambda model: model(tgt, memory, tgt_key_padding_mask=padding, memory_key_padding_mask=memory_padding),
        lambda model: formula(in_training(model), tgt, memory, padding, memory_padding),
        padding,
        mode,
    )


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("container", "attention"), cases(TRANSFORMERS, FEW))
def test_a_transformer_computes_the_formula_with_the_attention_it_was_given(
    container, attention, training, mode, padded
):
    torch.manual_seed(0)
    model = TRANSFORMERS[container](ATTENTIONS[attention]()).train(training)
    src, tgt = tokens_of(N), tokens_of(N_MEMORY)
    padding, tgt_padding = padding_of(N, padded), padding_of(N_MEMORY, padded)

    def formula(model):
        model = in_training(model)
        memory = encoder(model.encoder, src, padding)
        return decoder(model.decoder, tgt, memory, tgt_padding, padding)

    check(
        model,
        lambda model: model(
            src,
            tgt,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=padding,
        ),
        formula,
        tgt_padding,
        mode,
        N_MEMORY,
    )


def test_attention_put_into_an_encoder_that_is_in_eval_mode_already_runs():
    model = their_encoder_of(theirs.TransformerEncoderLayer(*SHAPE, **KIND)).eval()
    for layer in model.layers:
        layer.self_attn = our_attention({"weights": Sparsemax()})
    src, padding = tokens_of(N), padding_of(N, True)
    check(
        model,
        lambda model: model(src, src_key_padding_mask=padding),
        lambda model: encoder(model, src, padding),
        padding,
        "no_grad",
    )


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask", [Allowed(torch.ones(N, N, dtype=torch.bool)), GlobalKeys([-1]), Causal() & RandomKeys(2, seed=0)], ids=repr
)
def test_nested_tensors_of_their_encoder_are_refused_where_a_mask_needs_the_whole_length(mask):
    model = their_encoder_swapped({"mask": mask}).eval()
    src, padding = tokens_of(N), padding_of(N, True)
    with torch.no_grad(), pytest.raises(LayerInputError, match="enable_nested_tensor=False"):
        model(src, src_key_padding_mask=padding)
    model.use_nested_tensor = False
    with torch.no_grad():
        found = model(src, src_key_padding_mask=padding)
    torch.testing.assert_close(found[~padding], encoder(model, src, padding)[~padding])


def nested(layout):
    return torch.nested.nested_tensor([torch.rand(n, DIM, dtype=torch.float64) for n in (3, 5)], layout=layout)


LAYERS = {
    "attention": lambda x: nn.Attention()(x, x, x),
    "self-attention": lambda x: nn.SelfAttention(DIM)(x),
    "multi-head": lambda x: our_attention({})(x, x, x),
    "multi-head, weighed": lambda x: our_attention({}).weigh(x, x, x),
    "multi-head, in training": lambda x: our_attention({})(x, x, x, need_weights=False),
    "multi-head, across": lambda x: our_attention({}).eval()(x, x.clone(), x, need_weights=False),
    "multi-head, sequences second": lambda x: (
        nn.MultiHeadAttention(DIM, HEADS).double().eval()(x, x, x, need_weights=False)
    ),
    "multi-head, masked": lambda x: our_attention({}).eval()(x, x, x, need_weights=False, mask=Causal()),
    "multi-head, keys alone": lambda x: our_attention({})(torch.rand(2, 5, DIM).double(), x, x),
    "encoder layer": lambda x: nn.EncoderLayer(*SHAPE, **KIND)(x),
    "encoder": lambda x: nn.Encoder(nn.EncoderLayer(*SHAPE, **KIND), 1).eval()(x),
    "decoder layer": lambda x: nn.DecoderLayer(*SHAPE, **KIND)(x, x),
    "decoder layer, memory": lambda x: nn.DecoderLayer(*SHAPE, **KIND)(torch.rand(2, 5, DIM).double(), x),
    "decoder": lambda x: nn.Decoder(nn.DecoderLayer(*SHAPE, **KIND), 1).eval()(x, x),
    "transformer": lambda x: nn.Transformer(*SIZES, **KIND).eval()(x, x),
    "waves": lambda x: nn.SinusoidalPositions(DIM)(x),
    "learned positions": lambda x: nn.LearnedPositions(8, DIM)(x),
    "rotary": lambda x: nn.Rotary(DIM)(x),
}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_refuses_nested_tensors_with_the_way_out(layer, layout):
    with pytest.raises(ShapeError, match=r"nested.*torch\.nested\.to_padded_tensor"):
        LAYERS[layer](nested(layout))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: our_layer_with_theirs({})(x, mask=Causal()),
        lambda x: our_decoder_layer_with_theirs({})(x, x, mask=Causal()),
        lambda x: nn.Encoder(theirs.TransformerEncoderLayer(*SHAPE, **KIND), 1)(x, Causal()),
        lambda x: nn.Decoder(theirs.TransformerDecoderLayer(*SHAPE, **KIND), 1)(x, x, Causal()),
        lambda x: nn.Decoder(theirs.TransformerDecoderLayer(*SHAPE, **KIND), 1)(x, x, cache=nn.KeyValueCache(1)),
        lambda x: TRANSFORMERS["their encoder and decoder in our transformer"]({})(x, x, src_mask=Causal()),
        lambda x: TRANSFORMERS["their encoder and decoder in our transformer"]({})(x, x, tgt_mask=Causal()),
    ],
)
def test_what_only_our_layers_take_is_refused_where_theirs_stand(call):
    with pytest.raises(OptionError, match=r"PyTorch's \w+ must be called with PyTorch's masks"):
        call(tokens_of(N))


@pytest.mark.parametrize("name", ["score", "weights", "mask"])
def test_what_a_layer_would_not_read_is_refused_with_where_it_belongs(name):
    given = {"score": Dot(), "weights": TopK(1), "mask": Causal()}[name]
    encoder, decoder = nn.EncoderLayer(8, 2), nn.DecoderLayer(8, 2)
    with pytest.raises(
        OptionError, match=rf"got {type(given).__name__} for the layer, .* Use layer.self_attn.{name}\."
    ):
        setattr(encoder, name, given)
    with pytest.raises(OptionError, match=rf"Use layer.self_attn.{name} or layer.multihead_attn.{name}\."):
        setattr(decoder, name, given)
    setattr(encoder.self_attn, name, given)
