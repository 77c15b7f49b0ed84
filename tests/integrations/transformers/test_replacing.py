"""Another rule, score or scope for layers of a model: used, trained, saved, and taken back."""

import pytest
import torch
import transformers
from torch.nn import Parameter

from benchmarks.tiny_models import build, config_class, stir, tiny_config
from regard import (
    Alibi,
    Causal,
    Dot,
    Entmax,
    Gated,
    Gaussian,
    PerHead,
    RandomKeys,
    RelativeBias,
    ScaledDot,
    Sparsemax,
    Where,
    Window,
    nn,
)
from regard.errors import CheckpointError, OptionError
from regard.integrations.transformers import load, replace, restore
from regard.integrations.transformers.attention import attention_forward


def writer(name="llama"):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(tiny_config(config_class(name))).eval()
    stir(model)
    model.set_attn_implementation("regard")
    return model, {"input_ids": torch.randint(3, 50, (2, 9)), "pad_token_id": 0, "eos_token_id": None}


def tiny(name="bert"):
    made = build(name)
    made.model.set_attn_implementation("regard")
    return made.model, made.inputs


def seen_by(model, inputs):
    with nn.record(model) as seen, torch.no_grad():
        model(**inputs)
    return [view.dense() for view in seen.views()]


def test_a_rule_is_used_where_it_was_put_and_nowhere_else():
    model, inputs = tiny()
    before = seen_by(model, inputs)
    replace(model, weights=Sparsemax(), layers="encoder.layer.1")
    first, second = seen_by(model, inputs)
    assert torch.equal(first, before[0])
    assert (second == 0).any()
    assert not (before[1] == 0).any()
    torch.testing.assert_close(second.sum(-1), torch.ones(second.shape[:-1]))


def test_a_score_keeps_the_masks_of_the_model():
    model, inputs = tiny("llama")
    replace(model, score=Gaussian(2.0), layers=0)
    first, _ = seen_by(model, inputs)
    n = first.shape[-1]
    assert (first.masked_select(torch.ones(n, n, dtype=torch.bool).triu(1)) == 0).all()
    plain, _ = seen_by(tiny("llama")[0], inputs)
    assert not torch.allclose(first, plain, atol=1e-3)


def test_a_scope_comes_on_top_of_what_the_model_allows():
    model, inputs = tiny("llama")
    replace(model, mask=Window(before=2, after=2))
    for weights in seen_by(model, inputs):
        n = weights.shape[-1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril().triu(-2)
        assert ((weights > 0) == allowed).all()


def written_with(model, inputs, **cache):
    settings = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    return torch.stack(model.generate(**inputs, **settings, **cache).logits)


CACHES = [{}, {"cache_implementation": "static"}]
PLACED = {
    "window": {"mask": Window(before=2, after=0)},
    "window at the end": {"mask": Window(before=2, after=0, align="end")},
    "windows": {"mask": PerHead([Window(2, 0), Window(3, 0) & ~Window(1, 1), None, Causal()])},
    "slopes": {"score": ScaledDot() + Alibi([1.0, 0.5, 0.25, 0.0])},
    "slopes at the end": {"score": (Gaussian(1.0) + Dot()) + Alibi(0.5, align="end")},
    "table": {"score": ScaledDot() + RelativeBias(3, heads=4)},
}


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("cache", CACHES, ids=["dynamic", "static"])
@pytest.mark.parametrize("given", PLACED.values(), ids=PLACED)
def test_what_is_positional_goes_with_the_queries_whatever_the_cache(given, cache, name):
    model, inputs = writer(name)
    plain = written_with(model, inputs, use_cache=False)
    replace(model, **given)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if name.endswith("table"):
                each.copy_(torch.linspace(-2, 2, each.numel()).reshape(each.shape))
    wanted = written_with(model, inputs, use_cache=False)
    assert not torch.allclose(plain, wanted, atol=1e-3)
    torch.testing.assert_close(written_with(model, inputs, **cache), wanted, atol=1e-5, rtol=1e-4)


def test_what_was_given_is_left_as_it_was():
    model, inputs = writer()
    score, mask = ScaledDot() + Alibi(0.1), Window(before=2, after=0)
    replace(model, score=score, mask=mask)
    written_with(model, inputs, cache_implementation="static")
    assert score.term.align is None
    assert mask.align is None


@pytest.mark.parametrize("align", ["start", 3, torch.tensor([1, 2])], ids=["start", "number", "numbers"])
def test_a_place_of_its_own_is_refused(align):
    model, _ = tiny("llama")
    for given in (
        {"mask": Window(before=2, after=0, align=align)},
        {"mask": PerHead([None, ~Causal(align), None, None])},
        {"score": ScaledDot() + Alibi(0.1, align=align)},
    ):
        with pytest.raises(OptionError, match=r"`align` of \w+ must be left out for a layer of transformers: got"):
            replace(model, **given)


@pytest.mark.parametrize("given", [PLACED["window"], PLACED["slopes"]], ids=["mask", "score"])
def test_a_place_that_nobody_knows_is_refused(given):
    model, inputs = tiny("t5")
    replace(model, **given, layers="encoder")
    inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, :3]
    model(**inputs)
    replace(model, **given)
    with pytest.raises(OptionError, match="attends to another sequence"):
        model(**inputs)
    model, inputs = writer()
    replace(model, **given)
    tokens = inputs["input_ids"]
    first = model(tokens[:, :4])
    allowed = torch.ones(2, 1, 5, 9, dtype=torch.bool).tril(4)
    with pytest.raises(OptionError, match="called with a tensor as its mask"):
        model(tokens[:, 4:], attention_mask=allowed, past_key_values=first.past_key_values)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt_oss", "t5"])
def test_what_is_learned_trains_and_each_layer_has_its_own(name):
    model, inputs = tiny(name)
    heads = 4
    replace(model, weights=Entmax(Parameter(torch.full((heads,), 1.5))))
    learned = {name: each for name, each in model.named_parameters() if ".regard." in name}
    assert len(learned) == len(nn.record(model).layers) >= 2
    optimizer = torch.optim.SGD(learned.values(), 0.1)
    loss = model(**inputs)[0].square().mean()
    loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in learned.values())
    optimizer.step()
    values = list(learned.values())
    assert not torch.equal(values[0], values[1])


def test_gates_train_too():
    model, inputs = tiny()
    replace(model, score=Gated(8, 8), layers=1)
    model(**inputs)[0].square().mean().backward()
    learned = [each for name, each in model.named_parameters() if ".regard." in name]
    assert learned
    assert all(each.grad is not None for each in learned)


def test_a_score_has_the_dtype_of_its_layer():
    model, inputs = tiny()
    model.to(torch.bfloat16)
    replace(model, score=Gated(8, 8), weights=Entmax(Parameter(torch.tensor(1.5))), layers=1)
    learned = model.encoder.layer[1].attention.self.regard
    assert {each.dtype for each in learned.score.parameters()} == {torch.bfloat16}
    assert learned.weights.alpha.dtype == torch.float32
    model(**inputs)[0].float().square().mean().backward()
    assert all(each.grad is not None for each in learned.parameters())


def give(model):
    replace(model, weights=Entmax(Parameter(torch.tensor(1.5))), layers=0)
    replace(model, score=ScaledDot() + RelativeBias(3, heads=4), mask=Window(before=3, after=3), layers=1)


@pytest.mark.parametrize("shards", ["5GB", "20KB"], ids=["one file", "shards"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "gemma2", "bert"])
def test_it_is_saved_and_loaded_with_the_model(name, shards, tmp_path):
    kind = {"t5": "AutoModelForSeq2SeqLM", "bert": "AutoModelForMaskedLM"}.get(name, "AutoModelForCausalLM")
    kind = getattr(transformers, kind)
    config = tiny_config(config_class(name))
    config.tie_word_embeddings = name != "llama"
    model = kind.from_config(config, attn_implementation="regard").eval()
    give(model)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if ".regard." in name:
                each.copy_(torch.linspace(1.2, 1.9, each.numel()).reshape(each.shape))
    tokens = torch.randint(3, 50, (2, 9))
    inputs = {"input_ids": tokens} | ({"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {})
    model.save_pretrained(tmp_path, max_shard_size=shards)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shards == "20KB")
    again = load(tmp_path, kind=kind, replace=give)
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, model(**inputs).logits)
    body = load(tmp_path, replace=give)  # without its head
    learned = {name: each.detach() for name, each in body.named_parameters() if ".regard." in name}
    assert {round(each.max().item(), 4) for each in learned.values()} == {1.2, 1.9}


def test_a_state_is_loaded_as_ever_and_says_what_is_not_the_same(tmp_path):
    model, again = tiny()[0], tiny()[0]
    give(model)
    give(again)
    again.load_state_dict(model.state_dict())
    with torch.device("meta"):
        empty = transformers.AutoModel.from_config(model.config, attn_implementation="regard")
        give(empty)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    assert torch.equal(
        empty.encoder.layer[1].attention.self.regard.description,
        again.encoder.layer[1].attention.self.regard.description,
    )
    replace(again, weights=Entmax(Parameter(torch.tensor(1.5))), layers=1)
    with pytest.raises(
        CheckpointError, match=r"layer.1.attention.self.regard must be what .* got .*Entmax\(alpha=learned"
    ):
        again.load_state_dict(model.state_dict())


@pytest.mark.parametrize("given", [{"weights": Entmax(Parameter(torch.tensor(1.5)))}, {"weights": Sparsemax()}])
def test_what_was_saved_with_replaced_parts_is_not_loaded_without(given, tmp_path):
    model, _ = tiny()
    replace(model, **given, layers=1)
    model.save_pretrained(tmp_path)
    name = type(given["weights"]).__name__
    with pytest.raises(CheckpointError, match=rf"nothing takes encoder.layer.1.* had weights={name}.*Replace the same"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match=r"nothing takes encoder.layer.1"):
        load(tmp_path, replace=lambda model: replace(model, **given, layers=0))
    with pytest.raises(CheckpointError, match="must be what the checkpoint was saved with"):
        load(tmp_path, replace=lambda model: replace(model, mask=Causal(), weights=given["weights"], layers=1))
    load(tmp_path, replace=lambda model: replace(model, **given, layers=1))
    with pytest.raises(OptionError, match="`replace` must be a function of the model: got Sparsemax"):
        load(tmp_path, replace=Sparsemax())


def test_what_is_replaced_must_all_be_saved(tmp_path):
    model, _ = tiny()
    replace(model, weights=Sparsemax(), layers=1)
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"it lacks encoder.layer.0.attention.self.regard.weights.alpha"):
        load(tmp_path, replace=lambda model: (replace(model, weights=Sparsemax(), layers=1), give(model)))
    plain, _ = tiny()
    plain.save_pretrained(tmp_path)
    load(tmp_path, replace=give)  # a plain one lacks nothing: parts are as they were made


def test_a_pickle_has_what_was_replaced(tmp_path):
    model, inputs = tiny()
    give(model)
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="nothing takes"):
        load(tmp_path, pickles=True)
    again = load(tmp_path, pickles=True, replace=give)
    with torch.no_grad():
        assert torch.equal(again(**inputs)[0], model(**inputs)[0])


def test_restoring_gives_the_model_that_there_was():
    model, inputs = tiny("gpt_oss")
    names = list(model.state_dict())
    with torch.no_grad():
        before = model(**inputs)[0]
        replace(model, weights=Sparsemax(), mask=Causal())
        replace(model, score=Gaussian(1.0), layers=0)
        assert not torch.allclose(model(**inputs)[0], before, atol=1e-3)
        restore(model, layers=1)
        assert not torch.allclose(model(**inputs)[0], before, atol=1e-3)
        restore(model)
        assert torch.equal(model(**inputs)[0], before)
    assert list(model.state_dict()) == names
    restore(model)  # there is nothing left to take back


def test_a_second_call_keeps_what_it_does_not_name():
    model, inputs = tiny()
    replace(model, weights=Sparsemax())
    replace(model, mask=Window(before=1, after=1))
    weights = seen_by(model, inputs)[0]
    assert (weights.sum(-1) > 0.99).all()
    assert ((weights > 0).sum(-1) <= 3).all()
    assert isinstance(model.encoder.layer[0].attention.self.regard.weights, Sparsemax)


def test_what_does_not_fit_is_refused():
    model, _ = tiny()
    with pytest.raises(OptionError, match="must be given: got none"):
        replace(model)
    with pytest.raises(OptionError, match="`weights` must be a regard Weights: got Gaussian"):
        replace(model, weights=Gaussian(1.0))
    with pytest.raises(OptionError, match="Near to that: 'encoder.layer.1"):
        replace(model, weights=Sparsemax(), layers="encoder.layers.1")
    with pytest.raises(OptionError, match="is a MultiHeadAttention of regard.nn"):
        replace(nn.MultiHeadAttention(8, 2), weights=Sparsemax())
    model.set_attn_implementation("sdpa")
    with pytest.raises(OptionError, match=r'set_attn_implementation\("regard"\) first'):
        replace(model, weights=Sparsemax())


def test_another_attention_does_not_leave_out_what_was_replaced():
    model, inputs = tiny()
    replace(model, weights=Sparsemax())
    model.set_attn_implementation("sdpa")
    with pytest.raises(OptionError, match="which knows nothing of it"):
        model(**inputs)
    restore(model, layers=0)
    restore(model)
    model(**inputs)


def test_a_layer_of_whole_numbers_takes_a_score():
    model, _ = tiny()
    layer = model.encoder.layer[0].attention.self
    layer.query.weight = torch.nn.Parameter(layer.query.weight.to(torch.int8), requires_grad=False)
    replace(model, score=Gaussian(2.0), layers=0)


def test_a_scaling_that_is_a_tensor_is_refused():
    model, _ = tiny("llama")
    q = torch.rand(1, 4, 3, 8)
    with pytest.raises(OptionError, match="`scaling` of LlamaAttention must be a number"):
        attention_forward(model.layers[0].self_attn, q, q, q, None, scaling=torch.tensor(0.7))


def test_a_part_without_parameters_must_be_saved_too(tmp_path):
    model, _ = tiny()
    replace(model, weights=Sparsemax(), layers=1)
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"it lacks encoder.layer.0"):
        load(tmp_path, replace=lambda model: replace(model, weights=Sparsemax()))


def test_two_parts_of_a_checkpoint_are_not_taken_for_one(tmp_path):
    """Text and pictures have layers of one name in the whole model, and the text model has them alone."""
    made = build("clip")

    def give_both(model):
        for layer, alpha in (("text_model", 1.2), ("vision_model", 1.9)):
            names = [name for name, _ in model.named_modules() if layer in name and name.endswith("self_attn")]
            for name in names:
                replace(model, weights=Entmax(Parameter(torch.tensor(alpha))), layers=name)

    made.model.set_attn_implementation("regard")
    give_both(made.model)
    made.model.save_pretrained(tmp_path)

    def give_one(model):
        replace(model, weights=Entmax(Parameter(torch.tensor(1.5))))

    with pytest.raises(CheckpointError, match=r"must say what|nothing takes"):
        load(tmp_path, kind=transformers.CLIPTextModel, replace=give_one)


@pytest.mark.parametrize("mask", [Where(lambda row, column: row - column < 3), RandomKeys(3, seed=0)], ids=str)
def test_a_mask_that_counts_rows_in_its_own_way_is_refused_in_a_cache(mask):
    model, given = writer()
    replace(model, mask=mask)
    with torch.no_grad():
        model(given["input_ids"])
    with pytest.raises(OptionError, match="can be placed among the keys of a cache"):
        model.generate(**given, max_new_tokens=3)
    model.generate(**given, max_new_tokens=3, use_cache=False)


def test_a_model_that_adds_its_mask_itself_is_given_numbers():
    made = build("git")
    with torch.no_grad():
        made.model.set_attn_implementation("eager")
        expected = made.model(**made.inputs)[0]
        made.model.set_attn_implementation("regard")
        torch.testing.assert_close(made.model(**made.inputs)[0], expected)
