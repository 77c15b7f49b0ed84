"""The samples that PyTorch tests its own attention with, run through ours: outputs, gradients, second derivatives.

They are in PyTorch's internal databases: `module_db` for layers, `op_db` for functions.
"""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest
import torch
from torch.func import functional_call

from regard import Bias, Causal, ScaledDot, attend, nn, weigh

OURS = {
    "nn.MultiheadAttention": nn.MultiHeadAttention,
    "nn.Transformer": nn.Transformer,
    "nn.TransformerEncoder": nn.Encoder,
    "nn.TransformerEncoderLayer": nn.EncoderLayer,
    "nn.TransformerDecoderLayer": nn.DecoderLayer,
}
# How many samples there are at least, in training and in eval mode: fewer means that they were not read.
N_SAMPLES = {
    "nn.MultiheadAttention": (64, 64),
    "nn.Transformer": (64, 64),
    "nn.TransformerEncoder": (39, 35),
    "nn.TransformerEncoderLayer": (39, 35),
    "nn.TransformerDecoderLayer": (67, 67),
}
# Second derivatives that PyTorch's own entries skip.
SKIPPED_THERE = {
    "nn.Transformer",
    "nn.TransformerEncoder",
    "nn.TransformerEncoderLayer",
    "nn.TransformerDecoderLayer",
    "nn.functional.scaled_dot_product_attention",
}
SDPA, MULTI_HEAD = "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}  # times the largest number there is

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's encoder warns of each fast path not taken


@pytest.fixture(scope="module")
def databases():
    """PyTorch's entries, layers and functions, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db
    return {entry.name: entry for entry in [*module_db, *op_db] if entry.name in {*OURS, SDPA, MULTI_HEAD}}


def assert_near(got, wanted, inputs=(), bound=0.0):
    """Compare lists of tensors. What is summed on the way is as large as the largest input, output or gradient."""
    scale = max(1.0, *(largest(each) for each in (*wanted, *inputs)))
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=max(bound, TOLERANCE[theirs.dtype] * scale), rtol=0)


def largest(tensor):
    return float(tensor.detach().abs().max())


def assert_second_derivatives(compute, leaves):
    """`gradgradcheck` of a function of all leaves in one vector, which takes a few calls, not a few for each leaf."""
    shapes = [each.shape for each in leaves]
    sizes = [each.numel() for each in leaves]

    def flat(vector):
        parts = [part.reshape(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True)]
        return torch.cat([each.flatten() for each in tensors_of(compute(*parts))])

    vector = torch.cat([each.detach().flatten() for each in leaves]).requires_grad_()
    assert torch.autograd.gradgradcheck(flat, [vector], fast_mode=True)


def tensors_of(result):
    return [each for each in (result if isinstance(result, tuple) else (result,)) if each is not None]


# Layers ---------------------------------------------------------------------------------------------------------------


def ours_for(layer: torch.nn.TransformerEncoderLayer) -> nn.EncoderLayer:
    """Our encoder layer with the sizes and weights of PyTorch's."""
    attention = layer.self_attn
    ours = nn.EncoderLayer(
        attention.embed_dim,
        attention.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        layer.activation,
        layer.norm1.eps,
        attention.batch_first,
        layer.norm_first,
        layer.linear1.bias is not None,
        dtype=layer.linear1.weight.dtype,
    )
    ours.load_state_dict(layer.state_dict())
    return ours


def build(entry, sample, dtype, training):
    """PyTorch's layer of a sample and ours, each from the same seed."""
    args, kwargs = sample.constructor_input.args, dict(sample.constructor_input.kwargs)
    ours_args = tuple(ours_for(each) if isinstance(each, torch.nn.Module) else each for each in args)
    if entry.name != "nn.TransformerEncoder":  # which takes a layer that has a dtype
        kwargs["dtype"] = dtype
    layers = []
    for kind, arguments in ((entry.module_cls, args), (OURS[entry.name], ours_args)):
        torch.manual_seed(7)
        layers.append(kind(*arguments, **kwargs).train(training))
    theirs, ours = (layer.state_dict() for layer in layers)
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    for layer in layers:
        with torch.no_grad():
            for parameter in layer.parameters():  # biases start at 0, where a gradient to the wrong one is not seen
                torch.manual_seed(parameter.numel())
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layers


def samples_of(entry, dtype, training):
    torch.manual_seed(11)
    return entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=True, training=training)


@contextlib.contextmanager
def fast_path(enabled):
    """With or without the path that PyTorch's encoders take in eval mode."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def run(layer, sample):
    """What a layer gives for a sample, with the gradients of its inputs and parameters."""
    inputs = [each for each in sample.forward_input.args if isinstance(each, torch.Tensor)]
    outputs = tensors_of(layer(*sample.forward_input.args, **sample.forward_input.kwargs))
    torch.manual_seed(13)
    loss = sum((each * torch.randn_like(each)).sum() for each in outputs)
    return [*outputs, *torch.autograd.grad(loss, [*inputs, *layer.parameters()])]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", OURS)
def test_every_sample_of_a_layer_gives_what_pytorch_gives(databases, name, training, dtype):
    entry = databases[name]
    samples = samples_of(entry, dtype, training)
    assert len(samples) >= N_SAMPLES[name][0 if training else 1]
    n_zeroed = 0
    for sample in samples:
        theirs, ours = build(entry, sample, dtype, training)
        assert_near(run(ours, sample), run(theirs, sample), sample.forward_input.args)
        # Without gradients PyTorch's encoders take a path of their own in eval mode. It writes zeros where tokens are
        # padding, and a decoder that was not told of the padding looks at them: not what PyTorch gives in training, nor
        # what we give.
        padding = sample.forward_input.kwargs.get("src_key_padding_mask")
        zeroed = not training and name == "nn.Transformer" and padding is not None and padding.ndim == 2
        n_zeroed += zeroed
        with torch.no_grad(), fast_path(enabled=not zeroed):
            wanted, got = (
                tensors_of(layer(*sample.forward_input.args, **sample.forward_input.kwargs)) for layer in (theirs, ours)
            )
        assert_near(got, wanted, sample.forward_input.args)
    assert n_zeroed == (len(samples) // 4 if name == "nn.Transformer" and not training else 0)


def test_pytorch_skips_the_second_derivatives_that_are_checked_here(databases):
    skipped = {
        name
        for name, entry in databases.items()
        if any(getattr(each, "test_name", None) in ("test_gradgrad", "test_fn_gradgrad") for each in entry.decorators)
    }
    assert skipped <= SKIPPED_THERE
    assert skipped, "PyTorch's entries skip nothing: were they read?"


@pytest.mark.parametrize("name", OURS)
def test_second_derivatives_of_a_layer(databases, name):
    entry = databases[name]
    samples = samples_of(entry, torch.float64, training=True)
    assert len(samples) >= N_SAMPLES[name][0]
    for sample in samples:
        ours = build(entry, sample, torch.float64, training=True)[1]
        arguments, names = sample.forward_input.args, [each for each, _ in ours.named_parameters()]

        def compute(*tensors, ours=ours, names=names, sample=sample):
            n = len(tensors) - len(names)
            parameters = dict(zip(names, tensors[n:], strict=True))
            return functional_call(ours, parameters, tensors[:n], sample.forward_input.kwargs)

        assert_second_derivatives(compute, [*arguments, *ours.parameters()])


# Functions ------------------------------------------------------------------------------------------------------------


def attention_samples(databases, dtype):
    torch.manual_seed(17)
    return list(databases[SDPA].sample_inputs("cpu", dtype, requires_grad=True))


def as_options(is_causal=False, attn_mask=None, **_):
    """A call of `scaled_dot_product_attention` as `attend` says it."""
    return {
        "mask": Causal(align="start") if is_causal else None,
        "score": ScaledDot() if attn_mask is None else ScaledDot() + Bias(attn_mask),
    }


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_every_sample_of_attention_gives_what_pytorch_gives(databases, dtype):
    samples = attention_samples(databases, dtype)
    n_dropped = 0
    for sample in samples:
        tensors = (sample.input, *sample.args)
        leaves = [*tensors, *([sample.kwargs["attn_mask"]] if "attn_mask" in sample.kwargs else [])]
        rate = sample.kwargs["dropout_p"]
        wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, **{**sample.kwargs, "dropout_p": 0.0})
        got = attend(*tensors, **as_options(**sample.kwargs))
        seen = torch.randn_like(wanted)
        gradients = [torch.autograd.grad(each, leaves, seen) for each in (got, wanted)]
        assert_near([got, *gradients[0]], [wanted, *gradients[1]], leaves)
        if rate:
            # The two draw other numbers. What was drawn is read with values that say which key they are of.
            n_dropped += 1
            q, k, v = (each.detach() for each in tensors)
            marks = torch.eye(k.shape[-2], dtype=dtype).expand(*v.shape[:-1], -1)
            whole = torch.nn.functional.scaled_dot_product_attention(q, k, marks, is_causal=sample.kwargs["is_causal"])
            torch.manual_seed(19)
            kept = attend(q, k, marks, **as_options(**sample.kwargs), dropout=rate)
            torch.manual_seed(19)
            output = attend(q, k, v, **as_options(**sample.kwargs), dropout=rate)
            assert_near([output], [kept @ v], [v])
            assert_near([kept], [torch.where(kept > 0, whole / (1 - rate), 0)])
            share = ((kept > 0) & (whole > 0)).sum() / (whole > 0).sum()
            assert 0.2 < share < 0.8
    assert len(samples) >= 25
    assert n_dropped >= 12


def test_second_derivatives_of_attention(databases):
    samples = attention_samples(databases, torch.float64)
    assert len(samples) >= 25
    for sample in samples:
        bias = sample.kwargs.get("attn_mask")
        leaves = [sample.input, *sample.args, *([] if bias is None else [bias])]

        def compute(q, k, v, *bias, sample=sample):
            options = {**sample.kwargs, **({"attn_mask": bias[0]} if bias else {})}
            return attend(q, k, v, **as_options(**options))

        assert_second_derivatives(compute, leaves)


def layer_for(sample, dtype):
    """Our layer for a call of `multi_head_attention_forward`, and what the call gives for its parameters."""
    _, _, dim, heads, packed, in_bias, bias_k, bias_v, zero, dropout, out_weight, out_bias = sample.args
    if packed is None:
        packed = torch.cat([sample.kwargs[f"{each}_proj_weight"] for each in "qkv"])
    layer = nn.MultiHeadAttention(dim, heads, dropout, add_bias_kv=True, add_zero_attn=zero, dtype=dtype)
    parameters = {
        "in_proj_weight": packed,
        "in_proj_bias": in_bias,
        "bias_k": bias_k.reshape(1, 1, dim),
        "bias_v": bias_v.reshape(1, 1, dim),
        "out_proj.weight": out_weight,
        "out_proj.bias": out_bias,
    }
    assert set(parameters) == set(layer.state_dict())
    return layer.train(sample.kwargs["training"]), parameters


def halves(parameters):
    """The projections of keys and values."""
    return parameters["in_proj_weight"].detach().chunk(3)[1:]


def multi_head_samples(databases, dtype):
    torch.manual_seed(23)
    return list(databases[MULTI_HEAD].sample_inputs("cpu", dtype, requires_grad=False))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_every_sample_of_multi_head_attention_gives_what_pytorch_gives(databases, dtype):
    samples = multi_head_samples(databases, dtype)
    n_dropped = 0
    for sample in samples:
        key, value, *rest = sample.args
        leaves = [
            each for each in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(each, torch.Tensor)
        ]
        for leaf in leaves:
            leaf.requires_grad_()
        rest[7] = 0.0  # PyTorch's dropout
        wanted = torch.nn.functional.multi_head_attention_forward(sample.input, key, value, *rest, **sample.kwargs)
        layer, parameters = layer_for(sample, dtype)
        arguments = (sample.input, key, value), {"attn_mask": sample.kwargs["attn_mask"]}
        if layer.dropout:
            n_dropped += 1
            output, weights = functional_call(layer, parameters, *arguments)
            assert not torch.allclose(weights, wanted[1])
            assert not torch.allclose(output, wanted[0])
            layer.eval()
        got = functional_call(layer, parameters, *arguments)
        seen = [torch.randn_like(each) for each in wanted]
        gradients = [torch.autograd.grad(each, leaves, seen) for each in (got, wanted)]
        assert_near(got, wanted, leaves)
        # Some scores are so large that all weight is on one key. The gradient of a score is then the difference of two
        # equal numbers, (what came from above) · (a value), which a key and a projection multiply: its rounding stays.
        # PyTorch's fused kernel rounds alike; its path with weights, compared with here, is nearer to 0 in float32.
        above, out_weight = seen[0], parameters["out_proj.weight"].detach()
        sizes = [largest(above @ out_weight), largest(parameters["in_proj_weight"])]
        sizes += [largest(each @ matrix.T) for each, matrix in zip((key, value), halves(parameters), strict=True)]
        bound = torch.finfo(dtype).eps * math.prod(sizes)
        assert_near(*gradients, leaves, bound=bound)
    assert len(samples) >= 192
    assert n_dropped >= 96


def test_second_derivatives_of_multi_head_attention(databases):
    samples = multi_head_samples(databases, torch.float64)
    assert len(samples) >= 192
    for sample in samples:
        layer, parameters = layer_for(sample, torch.float64)
        layer.eval()  # dropout would be drawn anew in every call
        mask, names = sample.kwargs["attn_mask"], list(parameters)
        leaves = [sample.input, *sample.args[:2], *([] if mask is None else [mask]), *parameters.values()]

        def compute(q, k, v, *others, layer=layer, names=names, n=0 if mask is None else 1):
            given = dict(zip(names, others[n:], strict=True))
            return functional_call(layer, given, (q, k, v), {"attn_mask": others[0] if n else None})

        assert_second_derivatives(compute, leaves)


def test_the_weights_of_every_sample_are_those_of_the_definition(databases):
    for sample in attention_samples(databases, torch.float64):
        q, k, v = (each.detach() for each in (sample.input, *sample.args))
        options = {name: each for name, each in sample.kwargs.items() if name != "dropout_p"}
        marks = torch.eye(k.shape[-2], dtype=q.dtype).expand(*v.shape[:-1], -1)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, marks, **options)
        assert_near([weigh(q, k, v, **as_options(**options)).dense()], [wanted])
