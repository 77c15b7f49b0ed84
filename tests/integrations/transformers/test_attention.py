"""What a model hands to attention is honoured as eager honours it, or refused by name."""

import pytest
import torch

from benchmarks.tiny_models import build
from regard import Causal, KeyMask
from regard.errors import DtypeError, OptionError, ShapeError
from regard.integrations.transformers.attention import Call, attention_forward
from regard.integrations.transformers.refusals import HARMLESS, REFUSED

BATCH, HEADS, N, M, DIM = 2, 6, 5, 8, 4


def tensors(shared=HEADS, n_queries=N, **options):
    generator = torch.Generator().manual_seed(0)
    shapes = ((HEADS, n_queries, DIM), (shared, M, DIM), (shared, M, 3))
    return [torch.randn(BATCH, *shape, generator=generator).to(**options).requires_grad_() for shape in shapes]


def eager(query, key, value, *, mask=None, scaling=DIM**-0.5, softcap=None, bias=None, sinks=None):
    """As transformers' models have it: numbers are added, and the least of the dtype means "may not attend"."""
    key, value = (each.repeat_interleave(HEADS // each.shape[1], 1) for each in (key, value))
    scores = query @ key.mT * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores + mask
    if sinks is not None:
        sinks = sinks.reshape(1, -1, 1, 1).expand(BATCH, -1, scores.shape[-2], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1)[..., : key.shape[-2]]
    return (weights @ value).transpose(1, 2), weights


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def hidden(*shape):
    """Numbers as models add them, of which some say "may not attend"; every row sees something."""
    some = randn(*shape) < -0.3
    some[..., 0] = False
    return torch.zeros(shape).masked_fill(some, torch.finfo(torch.float32).min)


SETTINGS = {
    "plain": ({}, {}),
    "scale": ({"scaling": 0.9}, {"scaling": 0.9}),
    "no scale": ({"scaling": None}, {}),
    "soft cap": ({"softcap": 1.5}, {"softcap": 1.5}),
    "position bias": ({"position_bias": randn(1, HEADS, N, M)}, {"bias": randn(1, HEADS, N, M)}),
    "sinks": ({"s_aux": randn(HEADS)}, {"sinks": randn(HEADS)}),
    "numbers": ({"attention_mask": hidden(BATCH, 1, N, M)}, {"mask": hidden(BATCH, 1, N, M)}),
    "numbers by head": ({"attention_mask": hidden(BATCH, HEADS, N, M)}, {"mask": hidden(BATCH, HEADS, N, M)}),
    "a matrix": ({"attention_mask": hidden(N, M)}, {"mask": hidden(N, M)}),
    "bool": ({"attention_mask": hidden(BATCH, 1, N, M) == 0}, {"mask": hidden(BATCH, 1, N, M)}),
    "bool by head": ({"attention_mask": hidden(1, HEADS, N, M) == 0}, {"mask": hidden(1, HEADS, N, M)}),
    "a mask of regard": (
        {"attention_mask": Causal(align=2)},
        {"mask": torch.zeros(N, M).masked_fill(torch.ones(N, M).triu(3).bool(), -torch.inf)},
    ),
    "padding": (
        {"attention_mask": KeyMask(hidden(BATCH, M) == 0)},
        {"mask": hidden(BATCH, M)[:, None, None]},
    ),
    "causal by word": (
        {"is_causal": True},
        {"mask": torch.zeros(N, M).masked_fill(torch.ones(N, M).triu(1).bool(), -torch.inf)},
    ),
    "all": (
        {
            "softcap": 2.0,
            "position_bias": randn(BATCH, 1, 1, M),
            "s_aux": randn(HEADS),
            "attention_mask": hidden(BATCH, 1, N, M),
        },
        {"softcap": 2.0, "bias": randn(BATCH, 1, 1, M), "sinks": randn(HEADS), "mask": hidden(BATCH, 1, N, M)},
    ),
}


@pytest.mark.parametrize("shared", [HEADS, 2, 1])
@pytest.mark.parametrize("name", SETTINGS)
def test_outputs_gradients_and_weights_are_those_of_eager(name, shared):
    given, wanted = SETTINGS[name]
    given = {"attention_mask": None, "scaling": DIM**-0.5, **given}
    ours, theirs = tensors(shared), tensors(shared)
    output, weights = attention_forward(torch.nn.Identity(), *ours, **given)
    assert weights is None
    wanted_output, wanted_weights = eager(*theirs, **wanted)
    torch.testing.assert_close(output, wanted_output)
    again, weights = attention_forward(torch.nn.Identity(), *ours, **given, output_attentions=True)
    torch.testing.assert_close(again, wanted_output)
    torch.testing.assert_close(weights, wanted_weights)
    factors = randn(*output.shape)
    gradients = torch.autograd.grad((output * factors).sum(), ours)
    wanted_gradients = torch.autograd.grad((wanted_output * factors).sum(), theirs)
    torch.testing.assert_close(gradients, wanted_gradients, atol=1e-5, rtol=1e-4)


def test_sinks_and_biases_learn():
    sinks, bias = randn(HEADS).requires_grad_(), randn(1, HEADS, N, M).requires_grad_()
    output, _ = attention_forward(torch.nn.Identity(), *tensors(2), None, s_aux=sinks, position_bias=bias)
    gradients = torch.autograd.grad(output.square().sum(), [sinks, bias])
    wanted, _ = eager(*tensors(2), sinks=sinks, bias=bias)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted.square().sum(), [sinks, bias]))


@pytest.mark.parametrize(
    ("mask", "shapes"),
    [
        (None, ((BATCH, 2, 3 * N, DIM), (BATCH, 2, M, DIM))),
        (KeyMask(torch.ones(BATCH, M).bool()), ((BATCH, 2, 3 * N, DIM), (BATCH, 2, M, DIM))),
        (Causal(align=2), ((BATCH, 2, 3, N, DIM), (BATCH, 2, 1, M, DIM))),
    ],
    ids=["none", "padding", "causal"],
)
def test_heads_share_keys_without_a_copy(mask, shapes):
    query, key, value = tensors(2)
    call = Call(query, key, value, None, None, mask, None, None, None, None, None)
    queries, keys, values, _ = call.arguments()
    assert (queries.shape, keys.shape) == shapes
    for ours, theirs in ((queries, query), (keys, key), (values, value)):
        assert ours.data_ptr() == theirs.data_ptr()


def test_keys_that_each_query_selects():
    indices = torch.tensor([[[0, 3], [1, 1], [7, 2], [5, 6], [4, 0]]] * BATCH, dtype=torch.int32)
    allowed = torch.zeros(BATCH, 1, N, M).scatter(-1, indices[:, None].long(), 1.0)
    wanted, _ = eager(*tensors(2), mask=allowed.log())
    output, _ = attention_forward(torch.nn.Identity(), *tensors(2), None, indices=indices)
    torch.testing.assert_close(output, wanted)


def test_a_query_that_may_look_nowhere_gets_zeros():
    mask = torch.zeros(BATCH, 1, N, M)
    mask[0, :, 2] = torch.finfo(torch.float32).min
    output, _ = attention_forward(torch.nn.Identity(), *tensors(), mask)
    assert (output[0, 2] == 0).all()
    assert (output[1] != 0).all()


def test_one_query_sees_all_whatever_is_causal():
    one = tensors(n_queries=1)
    output, _ = attention_forward(torch.nn.Identity(), *one, None, is_causal=True)
    torch.testing.assert_close(output, eager(*one)[0])


def test_dropout_is_for_training_alone():
    layer, ours = torch.nn.Identity(), tensors()
    plain, _ = attention_forward(layer.eval(), *ours, None, dropout=0.5)
    torch.testing.assert_close(plain, eager(*ours)[0])
    torch.manual_seed(0)
    dropped, weights = attention_forward(layer.train(), *ours, None, dropout=0.5, output_attentions=True)
    assert 0.2 < float((weights == 0).float().mean()) < 0.8
    torch.testing.assert_close(dropped.transpose(1, 2), weights @ ours[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays(dtype):
    ours = tensors(2, dtype=dtype)
    output, weights = attention_forward(
        torch.nn.Identity(), *ours, KeyMask(torch.ones(BATCH, M).bool()), output_attentions=True
    )
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output, eager(*ours)[0], atol=2e-2, rtol=2e-2)


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REFUSED, "something_new"])
def test_what_would_be_ignored_is_refused_by_name(name):
    with pytest.raises(OptionError, match=rf"`{name}` must be left out or None for Identity .*: got int, .*\. \w+"):
        attention_forward(torch.nn.Identity(), *tensors(), None, **{name: 1})
    attention_forward(torch.nn.Identity(), *tensors(), None, **{name: None})


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_changes_nothing_is_taken(name):
    output, _ = attention_forward(torch.nn.Identity(), *tensors(), None, **{name: 4})
    torch.testing.assert_close(output, eager(*tensors())[0])


@pytest.mark.parametrize(
    "mask", [torch.ones(BATCH, 1, N, M, dtype=torch.long), "causal"], ids=["whole numbers", "text"]
)
def test_a_mask_that_could_mean_two_things_is_refused(mask):
    with pytest.raises(DtypeError, match=r"must be one of regard's, or a tensor of bool.*got (torch.int64|str)\. Let"):
        attention_forward(torch.nn.Identity(), *tensors(), mask)


def test_heads_that_do_not_divide():
    query, key, value = tensors(4)
    with pytest.raises(ShapeError, match="must be a multiple of those of keys"):
        attention_forward(torch.nn.Identity(), query, key, value, None)


@pytest.mark.parametrize("shape", [(2, 1, 9, 8), (2, 3, 9, 9), (3, 1, 9, 9), (2, 1, 8, 9)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_of_another_size_is_named_as_the_user_knows_it(shape, dtype):
    model = build("llama").model
    model.set_attn_implementation("regard")
    text = rf"`attention_mask` as it comes to LlamaAttention must be \(2 or 1, 4 or 1, 9 or 1, 9\).* got \({shape[0]}, "
    with pytest.raises(ShapeError, match=text):
        model(torch.randint(3, 50, (2, 9)), attention_mask=torch.ones(shape, dtype=dtype))


def test_lengths_of_packed_sequences_are_refused_with_what_holds_for_them():
    with pytest.raises(OptionError, match="position_ids that begin again, in a call with use_cache=False and without"):
        attention_forward(torch.nn.Identity(), *tensors(), None, cu_seq_lens_q=1)
