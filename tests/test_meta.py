"""On the meta device, which has shapes and no numbers, attention and its layers say what shapes they give."""

import copy

import pytest
import torch

from regard import (
    Additive,
    Alibi,
    Allowed,
    Causal,
    Custom,
    Entmax,
    Gated,
    Gaussian,
    KeyMask,
    OneHot,
    Padding,
    PerHead,
    Proportional,
    ScaledDot,
    Softmax,
    Sparsemax,
    TopK,
    attend,
    nn,
    plan,
    weigh,
)
from regard.errors import DeviceError

META = torch.device("meta")
SCORES = [ScaledDot(), Gaussian(0.5), Additive(8, 8, 4), Gated(8, 8), Custom(lambda q, k: q @ k.mT)]
RULES = [Softmax(), Softmax(sink=torch.zeros(3)), Sparsemax(), Entmax(torch.tensor([1.2, 1.5, 1.8])), TopK(2), OneHot()]
MASKS = [
    Causal(align="end"),
    Padding(torch.tensor([2, 5])),
    KeyMask(torch.ones(2, 5, dtype=torch.bool)),
    PerHead([Causal(align=0), Allowed(torch.ones(4, 5, dtype=torch.bool)), Padding([1, 2])]),
]


def three(device=META, **options):
    return (torch.ones(2, 3, n, dim, device=device, **options) for n, dim in ((4, 8), (5, 8), (5, 7)))


@pytest.mark.parametrize(
    "options",
    [
        *({"score": score} for score in SCORES),
        *({"weights": rule} for rule in RULES),
        *({"mask": mask} for mask in MASKS),
        {"dropout": 0.5},
        {"score": Gaussian(torch.nn.Parameter(torch.tensor(0.5)))},
        {"weights": Proportional(), "score": Custom(lambda q, k: (q @ k.mT).exp())},
    ],
    ids=str,
)
def test_attention_has_its_shape(options):
    there = {name: copy.deepcopy(each).to(META) if hasattr(each, "to") else each for name, each in options.items()}
    tensors = [each.requires_grad_() for each in three()]
    output = attend(*tensors, **there)
    assert output.device == META
    assert output.shape == attend(*three("cpu"), **options).shape
    assert weigh(*three(), **there).dense().shape == (2, 3, 4, 5)
    gradients = torch.autograd.grad(output.sum(), tensors)
    assert [each.shape for each in gradients] == [each.shape for each in tensors]


@pytest.mark.parametrize("mask", [None, Causal(align="end")], ids=str)
def test_a_view_says_the_shapes_of_its_readings(mask):
    view = weigh(*three(), mask=mask)
    seen = view.collect(top=2, entropy=True, received=True, map=(2, 3), output=True)
    assert seen.top.weights.shape == seen.top.indices.shape == (2, 3, 4, 2)
    assert (seen.entropy.shape, seen.received.shape, seen.map.shape) == ((2, 3, 4), (2, 3, 5), (2, 3, 2, 3))
    assert view.rows([0, -1]).shape == (2, 3, 2, 5)
    assert view.tile(slice(1, 3), slice(0, 2)).shape == (2, 3, 2, 2)
    assert view.log_normalizer().shape == (2, 3, 4)
    assert "2 × 3 × 4 × 5" in repr(view)


def test_the_plan_is_the_definition():
    assert plan(*three()).engine == "reference"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_dtype_is_kept(dtype):
    assert attend(*three(dtype=dtype)).dtype == dtype


def test_autocast_of_another_device_does_not_matter():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(*three()).dtype == torch.float32


def test_tensors_with_and_without_numbers_do_not_mix():
    queries, keys, values = three()
    with pytest.raises(DeviceError, match="on one device"):
        attend(queries, keys, torch.ones(2, 3, 5, 7))
    assert values.is_meta


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "mask": Causal()}, {"num_kv_heads": 1}], ids=str)
def test_multi_head_attention(options):
    layer = nn.MultiHeadAttention(12, 3, batch_first=True, device="meta", **options)
    x = torch.empty(2, 6, 12, device="meta")
    output, weights = layer(x, x, x)
    assert output.shape == x.shape
    assert weights.shape == (2, 6, 7 if "add_bias_kv" in options else 6)
    assert layer(x, x, x, need_weights=False)[0].shape == x.shape
    output.sum().backward()
    assert all(each.grad.shape == each.shape for each in layer.parameters())
    output, view = layer.attend_and_weigh(x, x, x, top=2)
    assert output.shape == x.shape
    assert view.top(2).indices.shape == (2, 3, 6, 2)


def test_layers_that_are_made_there():
    with META:
        model = nn.Transformer(12, 3, 1, 1, 16, batch_first=True, score=Gated(4, 4), weights=Entmax(torch.tensor(1.5)))
        source, target = torch.empty(2, 6, 12), torch.empty(2, 4, 12)
        causal = nn.Transformer.generate_square_subsequent_mask(4, device="meta")
        assert model(source, target, tgt_mask=causal).shape == (2, 4, 12)
        assert nn.SelfAttention(12, 8, 6)(source).shape == (2, 6, 6)
        assert nn.Seq2SeqTransformer(9, 7, 12, 3, 1, rotary=True)(
            torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)
        ).shape == (2, 3, 7)
        assert nn.Seq2Seq(9, 7, 12)(torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)).shape[
            :2
        ] == (2, 3)


def test_a_score_on_another_device_says_how_to_move_it():
    q = torch.randn(3, 4)
    with pytest.raises(DeviceError, match=r"got \w+ on meta and queries on cpu. Move it with score.to\('cpu'\)"):
        attend(q, q, q, score=(ScaledDot() + Alibi(0.5)).to("meta"))
