"""PyTorch's layers in a model become ours in place, and back: the same numbers from the same parameters."""

import pytest
import torch
from torch import nn as theirs

from regard import Causal, Entmax, nn
from regard.errors import OptionError

DIM, HEADS = 16, 4
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


def tokens(n=6, batch=3):
    return torch.randn(batch, n, DIM, generator=torch.Generator().manual_seed(n))


def encoder(**options):
    layer = theirs.TransformerEncoderLayer(DIM, HEADS, 24, 0.1, batch_first=True, **options)
    return theirs.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Mixed(theirs.Module):
    """A model of a user's, with attention in its own places."""

    def __init__(self):
        super().__init__()
        self.plain = theirs.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.odd = theirs.MultiheadAttention(DIM, 2, bias=False, add_bias_kv=True, add_zero_attn=True, kdim=DIM, vdim=8)
        self.again = self.plain
        self.stack = encoder()

    def forward(self, x):
        x = x + self.plain(x, x, x)[0]
        y = x.transpose(0, 1)
        y = self.odd(y, y, y[..., :8])[0].transpose(0, 1)
        return self.stack(x + y + self.again(x, x, x)[0])


MODELS = {
    "attention": (lambda: theirs.MultiheadAttention(DIM, HEADS, batch_first=True), lambda m, x: m(x, x, x)[0]),
    "encoder layer": (
        lambda: theirs.TransformerEncoderLayer(DIM, HEADS, 24, activation="gelu", norm_first=True, batch_first=True),
        lambda m, x: m(x),
    ),
    "decoder layer": (
        lambda: theirs.TransformerDecoderLayer(DIM, HEADS, 24, layer_norm_eps=1e-3, bias=False, batch_first=True),
        lambda m, x: m(x, x[:, :4]),
    ),
    "encoder": (encoder, lambda m, x: m(x)),
    "transformer": (
        lambda: theirs.Transformer(DIM, HEADS, 2, 2, 24, activation=theirs.SiLU(), batch_first=True),
        lambda m, x: m(x, x[:, :3], tgt_mask=theirs.Transformer.generate_square_subsequent_mask(3)),
    ),
    "mixed": (Mixed, lambda m, x: m(x)),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", MODELS)
def test_there_and_back_with_the_same_numbers(name, training):
    make, call = MODELS[name]
    torch.manual_seed(0)
    model = make().train(training)
    for module in model.modules():  # nothing random, also in training
        if isinstance(module, theirs.Dropout):
            module.p = 0.0
        elif isinstance(module, theirs.MultiheadAttention):
            module.dropout = 0.0
    parameters = dict(model.named_parameters())
    kinds = [type(each) for each in model.modules()]
    wanted = call(model, tokens())
    converted = nn.convert(model)
    assert not any(type(each) is theirs.MultiheadAttention for each in converted.modules())
    torch.testing.assert_close(call(converted, tokens()), wanted)
    assert all(each.training is training for each in converted.modules())
    back = nn.convert(converted, to="torch")
    assert torch.equal(call(back, tokens()), wanted)
    assert [type(each) for each in back.modules()] == kinds
    for stage in (converted, back):
        assert {key: id(each) for key, each in stage.named_parameters()} == {
            key: id(each) for key, each in parameters.items()
        }
    if name not in ("attention", "encoder layer", "decoder layer"):
        assert converted is back is model


def test_layers_become_ours_and_stacks_stay():
    model = nn.convert(encoder())
    assert type(model) is theirs.TransformerEncoder
    assert all(type(each) is nn.EncoderLayer for each in model.layers)
    assert all(type(each.self_attn) is nn.MultiHeadAttention for each in model.layers)
    decoder = nn.convert(theirs.TransformerDecoderLayer(DIM, HEADS, 24))
    assert type(decoder) is nn.DecoderLayer


def test_what_is_used_twice_stays_one():
    model = nn.convert(Mixed())
    assert model.plain is model.again


def test_an_optimizer_goes_on():
    model = encoder().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    nn.convert(model)
    before = model.layers[0].self_attn.in_proj_weight.detach().clone()
    model(tokens()).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.layers[0].self_attn.in_proj_weight, before)


def test_recording_and_another_rule():
    model, x = nn.convert(encoder().eval()), tokens()
    model.layers[1].self_attn.weights = Entmax(2.0)
    with nn.record(model) as seen:
        model(x)
    assert seen.layers == ["layers.0.self_attn", "layers.1.self_attn"]
    assert (seen["layers.1"].dense() == 0).any()
    assert not (seen["layers.0"].dense() == 0).any()


def test_hooks_are_kept():
    model, called = encoder(), []
    handle = model.layers[0].self_attn.register_forward_hook(lambda *_: called.append("attention"))
    model.layers[1].register_forward_pre_hook(lambda *_: called.append("layer"))
    nn.convert(model)(tokens())
    assert called == ["attention", "layer"]
    handle.remove()
    model(tokens())
    assert called == ["attention", "layer", "layer"]


def test_subclasses_are_left():
    class Own(theirs.MultiheadAttention):
        pass

    model = theirs.ModuleList([Own(DIM, HEADS), theirs.MultiheadAttention(DIM, HEADS)])
    nn.convert(model)
    assert [type(each) for each in model] == [Own, nn.MultiHeadAttention]
    with pytest.raises(
        OptionError, match=r"must have layers to convert, as they were made: got none of 'torch.nn.MultiheadAttention'"
    ):
        nn.convert(theirs.Sequential(Own(DIM, HEADS)))
    with pytest.raises(OptionError, match="got none of 'regard.nn.MultiHeadAttention'"):
        nn.convert(theirs.Linear(2, 2), to="torch")


def test_a_layer_with_a_part_of_somebody_elses_stays_and_its_attention_does_not():
    layer = theirs.TransformerEncoderLayer(DIM, HEADS, 24, batch_first=True).eval()
    layer.norm1 = theirs.RMSNorm(DIM)
    wanted = layer(tokens())
    converted = nn.convert(layer)
    assert converted is layer
    assert type(layer.self_attn) is nn.MultiHeadAttention
    torch.testing.assert_close(layer(tokens()), wanted)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": Entmax(1.5)}, "the rule Entmax"),
        ({"mask": Causal()}, "the mask Causal"),
        ({"num_kv_heads": 2}, "2 heads of keys"),
    ],
)
def test_what_pytorch_does_not_have_stays_ours(options, said):
    model = theirs.Sequential(nn.MultiHeadAttention(DIM, HEADS, **options))
    with pytest.raises(OptionError, match=f"0 must be plain to become PyTorch's: got {said}"):
        nn.convert(model, to="torch")
    assert type(model[0]) is nn.MultiHeadAttention


def test_where_to():
    with pytest.raises(OptionError, match='`to` must be "regard" or "torch": got \'jax\''):
        nn.convert(encoder(), to="jax")


def test_tied_parameters_stay_tied():
    layer = torch.nn.MultiheadAttention(16, 4, kdim=6, vdim=6)
    layer.v_proj_weight = layer.k_proj_weight
    x, context = torch.rand(5, 2, 16), torch.rand(7, 2, 6)
    wanted = layer(x, context, context)[0]
    converted = nn.convert(layer)
    assert converted.v_proj_weight is converted.k_proj_weight is layer.k_proj_weight
    torch.testing.assert_close(converted(x, context, context)[0], wanted)


def _weight_norm(layer):
    torch.nn.utils.parametrizations.weight_norm(layer.out_proj, "weight")


def _another_projection(layer):
    layer.out_proj = torch.nn.Sequential(torch.nn.Linear(16, 16))


def _another_forward(layer):
    layer.forward = lambda *inputs, **options: inputs


def _buffer(layer):
    layer.register_buffer("mine", torch.zeros(3))


@pytest.mark.parametrize("change", [_weight_norm, _another_projection, _another_forward, _buffer])
def test_changed_layers_are_left_alone(change):
    changed, plain = torch.nn.MultiheadAttention(16, 4), torch.nn.MultiheadAttention(16, 4)
    change(changed)
    model = nn.convert(torch.nn.ModuleList([changed, plain]))
    assert model[0] is changed
    assert type(model[1]) is nn.MultiHeadAttention
    with pytest.raises(OptionError, match="as they were made"):
        nn.convert(torch.nn.ModuleList([changed]))


def test_backward_hooks_fire_in_what_was_converted():
    layer, fired = torch.nn.MultiheadAttention(16, 4), []
    layer.register_full_backward_hook(lambda *_: fired.append(1))
    x = torch.rand(5, 2, 16, requires_grad=True)
    nn.convert(layer)(x, x, x)[0].sum().backward()
    assert fired


def test_converting_twice_changes_nothing():
    model = nn.convert(torch.nn.Sequential(torch.nn.MultiheadAttention(16, 4)))
    layer = model[0]
    assert nn.convert(model)[0] is layer
