"""Recordings of models of transformers: the weights that eager would have given, by the names of layers."""

import threading

import pytest
import torch

from benchmarks.tiny_models import build, config_class, model_of, tiny_config
from regard import Sparsemax, nn
from regard.errors import BudgetExceeded, MissingKey, OptionError
from regard.integrations.transformers import replace, restore


def tiny(name):
    made = build(name)
    made.model.set_attn_implementation("regard")
    return made.model, made.inputs


def eager_attentions(model, inputs):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    model.set_attn_implementation("regard")
    return output


@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "gpt_oss", "vit"])
def test_views_have_the_weights_of_eager(name):
    model, inputs = tiny(name)
    wanted = eager_attentions(model, inputs).attentions
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs)
    assert len(seen) == len(seen.layers) == len(wanted) >= 2
    for view, weights in zip(seen.views(), wanted, strict=True):
        assert view.shape == tuple(weights.shape)
        torch.testing.assert_close(view.dense(), weights, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(view.top(3).weights, weights.topk(3).values, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_encoder_decoder_and_cross_attention(name):
    model, inputs = tiny(name)
    wanted = eager_attentions(model, inputs)
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs)
    groups = (wanted.encoder_attentions, wanted.decoder_attentions, wanted.cross_attentions)
    assert len(seen) == sum(map(len, groups))
    everything = [view.dense() for view in seen.views()]
    for weights in (each for group in groups for each in group):
        assert any(mine.shape == weights.shape and torch.allclose(mine, weights, atol=1e-5) for mine in everything)


@pytest.mark.parametrize("heads", [None, [3, 0]])
def test_rows_and_heads_of_heads_that_share_keys(heads):
    model, inputs = tiny("llama")
    wanted = eager_attentions(model, inputs).attentions[1]
    with nn.record(model, layers=1, heads=heads, rows=[-1, 2]) as seen, torch.no_grad():
        model(**inputs)
    wanted = (wanted if heads is None else wanted[:, heads])[:, :, [-1, 2]]
    torch.testing.assert_close(seen[1].dense(), wanted, atol=1e-5, rtol=1e-4)


def test_padding_is_recorded_with_the_call():
    model, inputs = tiny("bert")
    mask = torch.ones(inputs["input_ids"].shape, dtype=torch.long)
    mask[0, 7:] = 0
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs, attention_mask=mask)
    for view in seen.views():
        assert view.received()[0, :, 7:].abs().max() == 0
        assert (view.received()[1] > 0).all()


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_layer_is_named_by_its_number_its_name_or_what_holds_it():
    model, inputs = tiny("bert")
    for layers in (1, "encoder.layer.1", "encoder.layer.1.attention.self", ["encoder.layer.1.attention"]):
        with nn.record(model, layers=layers) as seen, torch.no_grad():
            model(**inputs)
        assert seen.layers == ["encoder.layer.1.attention.self"]
        assert seen["encoder.layer.1"] is seen[1] is seen["encoder.layer.1.attention.self"]
        assert seen.numbers == [1]
        with pytest.raises(MissingKey, match="No layer 0 was recorded"):
            seen[0]
    assert len(nn.record(model, layers="encoder").layers) == 2


def test_near_names_are_offered():
    model, inputs = tiny("bert")
    with pytest.raises(
        OptionError, match=r"got \['encoder.layers.1'\]. Near to that: 'encoder.layer.1.attention.self'"
    ):
        nn.record(model, layers="encoder.layers.1")
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs)
    with pytest.raises(MissingKey, match="Near to that: 'encoder.layer.0.attention.self'"):
        seen["encoder.layer.0.attention.selves"]
    with pytest.raises(MissingKey, match="'encoder' must stand for one layer: it holds 'encoder.layer.0"):
        seen["encoder"]


def test_a_name_is_whole():
    config = tiny_config(config_class("bert"))
    config.num_hidden_layers = 11
    model = model_of("bert", config)
    model.set_attn_implementation("regard")
    assert nn.record(model, layers="encoder.layer.1").layers == ["encoder.layer.1.attention.self"]


def test_a_model_that_runs_on_something_else_says_what_to_do():
    model = build("bert").model
    with pytest.raises(
        OptionError, match=r'attention.self: .* got "eager". Call model.set_attn_implementation\("regard"'
    ):
        nn.record(model)


def test_a_model_outside_the_interface():
    model = build("xlnet").model
    with pytest.raises(OptionError, match="nothing to record. .*models that follow its AttentionInterface"):
        nn.record(model)


# Where and when -------------------------------------------------------------------------------------------------------


def test_generation_has_a_view_for_every_token():
    import transformers

    torch.manual_seed(0)
    config = tiny_config(config_class("llama"))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="regard").eval()
    prompt = torch.randint(3, 50, (1, 5))
    with nn.record(model, layers=0) as seen:
        model.generate(prompt, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert [view.shape[-2:] for view in seen.views(0)] == [(5, 5), (1, 6), (1, 7), (1, 8)]
    for view in seen.views(0):
        torch.testing.assert_close(view.dense().sum(-1), torch.ones(view.shape[:-1]))


def test_in_training_gradients_are_as_without_and_the_graph_is_let_go():
    model, inputs = tiny("gpt_oss")
    gradients = []
    for recorded in (False, True):
        model.zero_grad()
        if recorded:
            with nn.record(model) as seen:
                model(**inputs)[0].square().sum().backward()
        else:
            model(**inputs)[0].square().sum().backward()
        gradients.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
    assert not seen[0].dense().requires_grad


def test_each_thread_has_its_own():
    model, inputs = tiny("bert")
    counts, barrier = {}, threading.Barrier(2)

    def work(name, times):
        with nn.record(model) as seen, torch.no_grad():
            barrier.wait()
            for _ in range(times):
                model(**inputs)
        counts[name] = len(seen)

    threads = [threading.Thread(target=work, args=(name, times)) for name, times in (("one", 1), ("three", 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"one": 2, "three": 6}


def test_a_budget_holds_and_sizes_are_not_known_before():
    model, inputs = tiny("bert")
    with nn.record(model, budget=100), pytest.raises(BudgetExceeded, match="encoder.layer.0"):
        model(**inputs)
    with pytest.raises(OptionError, match="a layer of another library"):
        nn.record(model).estimate(5)


def test_several_calls_of_one_layer():
    model, inputs = tiny("albert")  # whose layers are one
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs)
    assert len(seen.layers) == 1
    assert len(seen.views(0)) == model.config.num_hidden_layers


@pytest.mark.parametrize("kind", ["bert", "llama", "t5"])
def test_the_heaviest_weights_are_found_while_a_model_runs(kind, monkeypatch):
    model, inputs = tiny(kind)
    with nn.record(model) as seen, torch.no_grad():
        expected = model(**inputs)[0]
    with nn.record(model, top=3) as told, torch.no_grad():
        torch.testing.assert_close(model(**inputs)[0], expected)
    wanted = [view.top(3) for view in seen.views()]

    def nothing_is_read(passes, readers, **options):
        assert not readers

    monkeypatch.setattr("regard.view.few_weights.FewWeights.read", nothing_is_read)
    for view, top in zip(told.views(), wanted, strict=True):
        torch.testing.assert_close(view.top(3).weights, top.weights)


def test_a_recording_of_a_model_that_was_switched_says_so():
    model = build("bert").model
    model.set_attn_implementation("regard")
    with nn.record(model) as seen:
        model.set_attn_implementation("eager")
        model(torch.randint(3, 50, (2, 9)))
    with pytest.raises(MissingKey, match=r'got no call. By now a layer .* got "eager". Call model.set_attn'):
        seen[0]


def test_what_is_no_model_is_refused_and_one_that_was_never_on_regard_is_left_alone():
    for call in (lambda model: replace(model, weights=Sparsemax()), restore):
        with pytest.raises(OptionError, match="`model` must be a torch.nn.Module: got"):
            call("llama")
    restore(build("bert").model)
    restore(torch.nn.Linear(2, 2))
