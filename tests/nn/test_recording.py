"""Recordings: what is kept, what it weighs, and that it gives the weights that the model used."""

import gc
import weakref

import numpy
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard import (
    Additive,
    Alibi,
    Allowed,
    Bias,
    Causal,
    Custom,
    Entmax,
    Gated,
    Padding,
    ScaledDot,
    Sparsemax,
    Strided,
    Window,
    nn,
)
from regard.engines import Sdpa
from regard.errors import BudgetExceeded, MissingKey, OptionError
from regard.nn import recording as module
from regard.view.few_weights import FewWeights
from regard.view.passes import Passes

DIM, HEADS, BATCH, N = 12, 3, 2, 9
SETTINGS = {
    "plain": {},
    "causal": {"mask": Causal()},
    "strided": {"mask": Strided(3) | Window(before=1, after=0)},
    "by head": {"mask": [Causal(), Window(before=2, after=1), Strided(2)]},
    "all in one head": {"mask": [Causal(), None, Strided(2)]},
    "padded": {"mask": Padding(torch.tensor([9, 4]))},
    "pairs": {"mask": Allowed(torch.rand(N, N, generator=torch.Generator().manual_seed(1)) < 0.7)},
    "alibi": {"score": ScaledDot() + Alibi.for_heads(HEADS)},
    "bias": {"score": ScaledDot() + Bias(torch.linspace(-1, 1, HEADS * N * N).reshape(HEADS, N, N))},
    "gated": {"score": Gated(4, 4)},
    "additive": {"score": Additive(4, 4, 6), "mask": Causal()},
    "sparsemax": {"weights": Sparsemax(), "mask": [Causal()] * 3},
    "learned pair": {"add_bias_kv": True, "add_zero_attn": True},
    "shared keys": {"num_kv_heads": 1},
    "shared keys, causal": {"num_kv_heads": 1, "mask": Causal()},
}


def layer_of(name="plain", **options):
    torch.manual_seed(3)
    return nn.MultiHeadAttention(DIM, HEADS, batch_first=True, **(SETTINGS[name] | options))


def tokens(n=N):
    return torch.randn(BATCH, n, DIM, generator=torch.Generator().manual_seed(5))


def whole(layer, x, **options):
    with torch.no_grad():
        return layer(x, x, x, average_attn_weights=False, **options)[1]


# What it gives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "rows"),
    [
        (None, None),
        ([2], None),
        (None, [7, 0, 4]),
        ([-1, 0], [5]),
        ([1], slice(2, 8, 3)),
        (None, [-1]),
        (None, slice(0, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", SETTINGS)
def test_parts_are_parts_of_the_dense_weights(name, heads, rows):
    layer, x = layer_of(name), tokens()
    with nn.record(layer, heads=heads, rows=rows) as recording:
        layer(x, x, x, need_weights=False)
    wanted = whole(layer, x)
    wanted = wanted if heads is None else wanted[:, heads]
    wanted = wanted if rows is None else wanted[:, :, rows]
    (view,) = recording.views()
    assert view.shape == tuple(wanted.shape)
    torch.testing.assert_close(view.dense(), wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(view.received(), wanted.sum(-2), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(view.top(2).weights, wanted.topk(2).values, atol=1e-6, rtol=1e-5)


def test_a_recorded_view_says_that_it_has_no_gradient_and_what_has_one():
    layer, x = layer_of(), tokens().requires_grad_()
    with nn.record(layer) as recording:
        layer(x, x, x, need_weights=False)
    (view,) = recording.views()
    assert not view.dense().requires_grad
    assert "without a gradient: the layer's own weigh(...) has one" in repr(view)
    with pytest.raises(OptionError, match="keeps queries and keys, and no values"):
        view.output  # noqa: B018
    live = layer.weigh(x, x, x)
    assert "gradient" not in repr(live)
    for reading in (live.rows([0]), live.entropy(), live.received(), live.dense()):  # as the docstring of `record` says
        assert reading.requires_grad


@pytest.mark.parametrize("rows", [None, [8, 1]])
@pytest.mark.parametrize("heads", [None, [1]])
@pytest.mark.parametrize("kind", ["bool", "numbers", "by head", "padding", "both"])
def test_the_masks_of_a_call_are_recorded_with_it(kind, heads, rows):
    layer, x = layer_of("causal"), tokens()
    torch.manual_seed(7)
    padding = torch.arange(N) >= torch.tensor([[N], [5]])
    options = {
        "bool": {"attn_mask": torch.rand(N, N) < 0.3},
        "numbers": {"attn_mask": torch.randn(N, N)},
        "by head": {"attn_mask": torch.rand(BATCH * HEADS, N, N) < 0.3},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": torch.rand(N, N) < 0.3, "key_padding_mask": padding},
    }[kind]
    with nn.record(layer, heads=heads, rows=rows) as recording:
        layer(x, x, x, need_weights=False, **options)
    wanted = whole(layer, x, **options)
    wanted = wanted if heads is None else wanted[:, heads]
    wanted = wanted if rows is None else wanted[:, :, rows]
    torch.testing.assert_close(recording[0].dense(), wanted)


@pytest.mark.parametrize("rows", [None, [2, 6]])
def test_a_mask_that_is_written_into_later_does_not_change_what_was_recorded(rows):
    layer, x = layer_of("causal"), tokens()
    allowed = torch.rand(N, N, generator=torch.Generator().manual_seed(4)) < 0.8
    wanted = whole(layer, x, mask=Allowed(allowed.clone()))
    with nn.record(layer, rows=rows) as recording:
        layer(x, x, x, need_weights=False, mask=Allowed(allowed))
    allowed.fill_(False)
    torch.testing.assert_close(recording[0].dense(), wanted if rows is None else wanted[:, :, rows])


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("padded", "pairs", "bias")])
def test_heads_are_told_from_other_axes_of_the_same_size(name):
    layer = layer_of(name)
    x = torch.randn(HEADS, HEADS, DIM, generator=torch.Generator().manual_seed(5))  # as many sequences and tokens
    with nn.record(layer, heads=[2, 0], rows=[1]) as recording:
        layer(x, x, x, need_weights=False)
    torch.testing.assert_close(recording[0].dense(), whole(layer, x)[:, [2, 0]][:, :, [1]])


def test_weights_that_are_asked_for_are_recorded_too():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        weights = layer(x, x, x, average_attn_weights=False)[1]
        layer.weigh(x, x, x)
    assert len(recording) == 2
    for view in recording.views():
        torch.testing.assert_close(view.dense(), weights)


def test_in_training_gradients_are_as_without_and_the_record_stays_as_it_was():
    x, gradients = tokens(), []
    for recorded in (False, True):
        layer = layer_of(weights=Entmax(torch.nn.Parameter(torch.tensor(1.3))), dropout=0.5)
        wanted = layer.weigh(x, x, x).dense().detach()
        torch.manual_seed(11)
        if recorded:
            with nn.record(layer) as recording:
                loss = layer(x, x, x)[0].square().sum()
        else:
            loss = layer(x, x, x)[0].square().sum()
        loss.backward()
        gradients.append([each.grad for each in layer.parameters()])
        torch.optim.SGD(layer.parameters(), 0.005).step()
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    dense = recording[0].dense()
    assert not dense.requires_grad
    torch.testing.assert_close(dense, wanted)  # before dropout, and before the step
    assert not torch.allclose(layer.weigh(x, x, x).dense(), wanted, atol=1e-4)


def test_a_score_with_parameters_that_nobody_declared_is_read_from_what_was_kept():
    slope = torch.nn.Parameter(torch.tensor(0.7))
    layer, x = layer_of(score=Custom(lambda q, k: slope * (q @ k.mT))), tokens()
    with nn.record(layer, rows=[4, 2]) as recording:
        layer(x, x, x)[0].sum().backward()
    wanted, view = whole(layer, x)[:, :, [4, 2]], recording[0]
    torch.testing.assert_close(view.dense(), wanted)
    torch.testing.assert_close(view.entropy(), -(wanted * wanted.log()).sum(-1))
    assert not view.rows(0).requires_grad
    assert not view.entropy().requires_grad


def test_layers_are_named_and_calls_are_in_order():
    model, x = nn.Transformer(DIM, HEADS, 2, 1, 16, dropout=0.0, batch_first=True), tokens()
    with nn.record(model) as everything, nn.record(model, layers=["encoder.layers.1.self_attn", -1]) as some:
        model(x, x[:, :4])
        model(x, x[:, :2])
    assert [name for name, _ in everything] == everything.layers * 2
    assert some.layers == ["encoder.layers.1.self_attn", "decoder.layers.0.multihead_attn"]
    assert [view.shape[-2] for view in some.views(-1)] == [4, 2]
    for name in some.layers:
        for one, other in zip(some.views(name), everything.views(name), strict=True):
            assert torch.equal(one.dense(), other.dense())
    some.clear()
    assert (len(some), some.bytes, some.views(1)) == (0, 0, [])


# What it keeps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "rows"), [(None, None), ([0, 2], [1, 5, 6])], ids=["all", "some"])
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in ("padded", "pairs")])
def test_it_says_beforehand_how_many_bytes_it_will_keep(name, heads, rows):
    layer, x = layer_of(name), tokens()
    with nn.record(layer, heads=heads, rows=rows) as recording:
        said = recording.estimate(N, batch=BATCH)
        layer(x, x, x, need_weights=False)
    assert recording.bytes == said
    layer(x, x, x)
    assert recording.bytes == said


def test_a_plain_layer_keeps_its_queries_and_keys_and_nothing_else():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        layer(x, x, x)
    assert recording.bytes == 2 * BATCH * N * DIM * 4
    gc.collect()
    problem = recording[0]._problem
    kept = [each for each in vars(problem).values() if isinstance(each, torch.Tensor)]
    kept += problem.form.tensors()
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in kept}
    blanks = 3 * x.element_size()  # what stands for queries, keys and values
    assert recording.bytes <= sum(storages.values()) <= recording.bytes + blanks


def test_what_a_layer_computed_does_not_stay_alive():
    layer, x = layer_of(), tokens()
    seen = []
    layer.rotary = lambda queries, start: seen.append(weakref.ref(queries.untyped_storage())) or queries
    with nn.record(layer, rows=[0]) as recording:
        layer(x, x, x, need_weights=False)
    gc.collect()
    assert len(recording) == 1
    assert all(each() is None for each in seen)


def test_masks_of_a_call_count():
    layer, x = layer_of(), tokens()
    mask = torch.zeros(N, N, dtype=torch.bool)
    with nn.record(layer) as recording:
        layer(x, x, x, attn_mask=mask)
    assert recording.bytes == recording.estimate(N, batch=BATCH) + mask.nbytes
    with nn.record(layer, rows=[3]) as recording:
        layer(x, x, x, attn_mask=mask)
    assert recording.bytes == recording.estimate(N, batch=BATCH) + N


def test_the_mask_of_a_layer_is_not_kept_again():
    allowed = torch.ones(N, N, dtype=torch.bool)
    layer, x = layer_of(mask=Allowed(allowed) & Causal()), tokens()
    with nn.record(layer) as recording:
        layer(x, x, x, mask=Window(before=3, after=0))
        said = recording.estimate(N, batch=BATCH)
    assert recording.bytes == said
    assert [each.data_ptr() for each in recording[0]._problem.mask.tensors()] == [allowed.data_ptr()]


def test_a_budget_is_refused_before_anything_is_kept():
    layer, x = layer_of(), tokens()
    size = nn.record(layer).estimate(N, batch=BATCH)
    with nn.record(layer, budget=2 * size) as recording:
        layer(x, x, x)
        layer(x, x, x)
        with pytest.raises(BudgetExceeded, match=f"{3 * size:,} in all: the budget is {2 * size:,}"):
            layer(x, x, x)
        assert (len(recording), recording.bytes) == (2, 2 * size)
    with nn.record(layer, budget=None) as recording:
        layer(x, x, x)
    assert recording.bytes == size


def test_an_exception_leaves_no_recording_open():
    layer, x = layer_of(), tokens()
    with pytest.raises(BudgetExceeded), nn.record(layer), nn.record(layer, budget=1):
        layer(x, x, x)
    assert module._open == module._here.get() == ()
    with nn.record(layer) as recording:
        pass
    layer(x, x, x)
    assert len(recording) == 0


def test_other_models_are_not_recorded():
    layer, other, x = layer_of(), layer_of(), tokens()
    with nn.record(layer) as recording:
        other(x, x, x)
    assert len(recording) == 0


def test_one_call_is_read_by_name_and_several_from_a_list():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        with pytest.raises(MissingKey, match="got no call"):
            recording[0]
        layer(x, x, x)
        ((name, view),) = recording
        assert recording[name] is recording[0] is view
        assert recording.views(name) == recording.views() == [view]
        layer(x, x, x)
        with pytest.raises(OptionError, match=r"was called 2 times\. Use recording\.views\(0\)"):
            recording[0]
    assert recording.views(0) == [each for _, each in recording]


# What does not fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heads": [3]}, "`heads` must be from 0 to 2"),
        ({"rows": [0, N]}, "`rows` must be among the 9 queries"),
    ],
)
def test_parts_that_there_are_not(options, text):
    layer, x = layer_of(), tokens()
    with nn.record(layer, **options), pytest.raises(OptionError, match=text):
        layer(x, x, x)


@pytest.mark.parametrize("name", ["heads", "rows"])
def test_one_head_or_row_is_a_list_of_one(name):
    with pytest.raises(OptionError, match=rf"`{name}` must be a list of numbers: got 1\. Use {name}=\[1\]"):
        nn.record(layer_of(), **{name: 1})


def test_transforms_of_functions():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        torch.func.grad(lambda x: layer(x, x, x, need_weights=False)[0].sum())(x)
    torch.testing.assert_close(recording[0].dense(), whole(layer, x))
    with nn.record(layer), pytest.raises(OptionError, match=r"must not be recorded inside torch\.vmap"):
        torch.vmap(lambda x: layer(x, x, x, need_weights=False)[0])(x)


def test_a_layer_without_heads_has_none_to_choose():
    layer, x = nn.SelfAttention(DIM), tokens()
    with nn.record(layer, heads=[0]), pytest.raises(OptionError, match="a layer without heads"):
        layer(x)


def test_heads_with_a_rule_of_their_own_are_recorded_together():
    layer, x = layer_of(weights=Entmax(torch.tensor([1.2, 1.5, 2.0]))), tokens()
    with nn.record(layer, heads=[0]), pytest.raises(OptionError, match="a number for each head"):
        layer(x, x, x)
    with nn.record(layer, rows=[2]) as recording:
        layer(x, x, x)
    torch.testing.assert_close(recording[0].dense(), whole(layer, x)[:, :, [2]])


def test_layers_that_there_are_not():
    model = nn.Encoder(nn.EncoderLayer(DIM, HEADS), 2)
    for wrong in ("self_attn", 2, -3, ["layers.0.self_attn", "nope"]):
        with pytest.raises(OptionError, match="must name attention layers"):
            nn.record(model, layers=wrong)
    with pytest.raises(OptionError, match="nothing to record"):
        nn.record(torch.nn.Linear(2, 2))
    for wrong in ("nope", 2):
        with pytest.raises(MissingKey, match="There are 'layers.0.self_attn'"):
            nn.record(model)[wrong]


def test_sizes_that_a_layer_does_not_know_beforehand():
    with pytest.raises(OptionError, match="budget="):
        nn.record(nn.Attention()).estimate(5)


# The heaviest weights, found while the model runs --------------------------------------------------------------------


def nothing_is_read(passes, readers, **options):
    assert not readers


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("heads", "rows"),
    [
        (None, None),
        ([2, 0], None),
        (None, [7, -1]),
        ([-1], slice(2, 8, 3)),
        (None, slice(5, 0, -2)),
        ([1, 0], [1, 0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["plain", "by head", "bias", "sparsemax", "learned pair", "shared keys, causal"])
def test_the_heaviest_weights_that_a_call_found_are_those_of_its_view(name, heads, rows, grad, monkeypatch):
    layer, x = layer_of(name), tokens()
    with torch.set_grad_enabled(grad):
        with nn.record(layer, heads=heads, rows=rows) as recording:
            expected = layer(x, x, x, need_weights=False)[0]
        with nn.record(layer, heads=heads, rows=rows, top=4) as told:
            output = layer(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(output, expected)
    assert output.requires_grad == grad
    wanted = recording.views()[0].top(4)
    for kind in (Passes, FewWeights):
        monkeypatch.setattr(kind, "read", nothing_is_read)
    (view,) = told.views()
    for k in (4, 2):
        torch.testing.assert_close(view.top(k).weights, wanted.weights[..., :k])
        assert torch.equal(view.top(k).indices, wanted.indices[..., :k])


def test_nested_recordings_are_told_as_many_as_each_wants():
    layer, x = layer_of(), tokens()
    with nn.record(layer, top=2) as two, nn.record(layer) as none, nn.record(layer, top=5) as five, torch.no_grad():
        layer(x, x, x, need_weights=False)
    wanted = none.views()[0].top(9)
    for recording, k in ((two, 2), (five, 5)):
        (view,) = recording.views()
        assert view._top.weights.shape[-1] == k
        torch.testing.assert_close(view.top(9).weights, wanted.weights)


def test_the_heaviest_weights_count_towards_the_budget_and_the_estimate():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as without, nn.record(layer, top=3) as told, torch.no_grad():
        layer(x, x, x, need_weights=False)
    found = BATCH * HEADS * N * 3 * 12
    assert told.bytes - without.bytes == found
    assert told.estimate(N, batch=BATCH) == told.bytes
    with (
        nn.record(layer, top=3, budget=told.bytes - 1),
        torch.no_grad(),
        pytest.raises(BudgetExceeded, match="would keep"),
    ):
        layer(x, x, x, need_weights=False)


@pytest.mark.parametrize("top", [0, True, 2.5])
def test_a_number_of_heaviest_weights_that_is_none_is_refused(top):
    with pytest.raises(OptionError, match="^`top` must be an integer of at least 1: got .* It is a number of keys"):
        nn.record(layer_of(), top=top)


@pytest.mark.parametrize("batch", [(4,), (1,), (2, 1)], ids=str)
def test_values_may_have_batch_axes_that_weights_have_not(batch):
    layer, queries, keys, values = nn.Attention(), torch.randn(5, 8), torch.randn(7, 8), torch.randn(*batch, 7, 3)
    with nn.record(layer, top=3) as told, torch.no_grad():
        output = layer(queries, keys, values)
    torch.testing.assert_close(output, layer(queries, keys, values))
    wanted = layer.weigh(queries, keys, keys).top(3)
    torch.testing.assert_close(told[0].top(3).weights, wanted.weights)
    assert torch.equal(told[0].top(3).indices, wanted.indices)


@pytest.mark.parametrize("name", ["plain", "bias", "gated", "sparsemax"])
def test_checkpointing_may_go_back_after_the_recording_was_closed(name):
    layer, x = layer_of(name), tokens().requires_grad_()

    def call(x):
        return layer(x, x, x, need_weights=False)[0]

    with nn.record(layer, top=3) as told:
        output = checkpoint(call, x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(output.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(call(x).sum(), x)[0])
    assert told[0].top(3).indices.shape == (BATCH, HEADS, N, 3)


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_draws_what_it_draws_without_a_recording(grad):
    layer, x = layer_of(dropout=0.5), tokens()
    with torch.set_grad_enabled(grad):
        torch.manual_seed(0)
        expected, after = layer(x, x, x, need_weights=False)[0], torch.rand(1)
        torch.manual_seed(0)
        with nn.record(layer, top=3) as told:
            assert torch.equal(layer(x, x, x, need_weights=False)[0], expected)
    assert torch.equal(torch.rand(1), after)
    torch.testing.assert_close(told[0].top(3).weights, layer.weigh(x, x, x).dense().topk(3).values)


def test_without_a_gradient_one_pass_finds_output_and_heaviest_weights(monkeypatch):
    pytest.importorskip("numba")
    from regard.engines.cpu.passes import weight_readings

    def refuse(*arguments):
        raise AssertionError

    layer, x = layer_of(), tokens(200)
    with torch.no_grad():
        expected = layer(x, x, x, need_weights=False)[0]
        monkeypatch.setattr(weight_readings._Reading, "run", refuse)
        monkeypatch.setattr(Sdpa, "run", refuse)
        with nn.record(layer, top=8) as told:
            output = layer(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(output, expected)
    assert told[0].top(8).indices.shape == (BATCH, HEADS, 200, 8)


def test_few_heaviest_weights_do_not_keep_many_alive():
    layer, x = layer_of(), tokens()
    with nn.record(layer, top=2) as two, nn.record(layer, top=500), torch.no_grad():
        layer(x, x, x, need_weights=False)
    for each in two[0]._top:
        assert each.untyped_storage().nbytes() == BATCH * HEADS * N * 2 * each.itemsize


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heads": [1.5]}, "`heads` must be a list of whole numbers, at least one: got"),
        ({"heads": []}, "`heads` must be a list of whole numbers, at least one: got"),
        ({"heads": "a"}, "`heads` must be a list of whole numbers, at least one: got 'a'"),
        ({"heads": [True]}, "`heads` must be a list of whole numbers"),
        ({"heads": 1.5}, "`heads` must be a list of whole numbers"),
        ({"rows": [0.5]}, "`rows` must be a list of whole numbers"),
        ({"rows": []}, "`rows` must be a list of whole numbers"),
        ({"layers": True}, "`layers` must be names or numbers of layers: got True"),
        ({"layers": [0, False]}, "`layers` must be names or numbers of layers"),
        ({"layers": [7]}, r"got \[7\]. There are 'layers.0.self_attn', 'layers.1.self_attn', by number 0 to 1"),
        ({"budget": "1GiB"}, "`budget` must be a number of bytes, .* got '1GiB'"),
        ({"budget": -1}, "`budget` must be a number of bytes"),
        ({"budget": True}, "`budget` must be a number of bytes"),
    ],
)
def test_options_are_checked_when_a_recording_is_made(options, text):
    with pytest.raises(OptionError, match=text):
        nn.record(nn.Encoder(nn.EncoderLayer(DIM, HEADS, 16, batch_first=True), 2), **options)


def test_numbers_of_any_library_choose_heads_and_rows():
    layer, x = layer_of(), tokens()
    with nn.record(layer, heads=torch.tensor([0, -1]), rows=numpy.array([1])) as seen:
        layer(x, x, x)
    assert seen[0].shape[1:3] == (2, 1)
    with nn.record(layer, heads=[99]), pytest.raises(OptionError, match=f"0 to {HEADS - 1}, or from -{HEADS} to -1"):
        layer(x, x, x)


@pytest.mark.parametrize("call", [nn.record, nn.convert])
@pytest.mark.parametrize("model", ["llama", None])
def test_what_is_no_model_is_refused(call, model):
    with pytest.raises(OptionError, match="`model` must be a torch.nn.Module: got"):
        call(model)


def test_a_number_that_was_not_recorded_is_answered_with_those_that_were():
    model = nn.Encoder(nn.EncoderLayer(DIM, HEADS, 16, batch_first=True), 3)
    with pytest.raises(MissingKey, match="There are 'layers.0.self_attn', 'layers.2.self_attn', by number 0, 2"):
        nn.record(model, layers=[0, 2])[1]
    with pytest.raises(MissingKey, match=r"got no call. Call the model in the `with`, in the thread that opened it"):
        nn.record(model)[1]
