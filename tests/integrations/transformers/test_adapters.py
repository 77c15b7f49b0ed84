"""Models that PEFT wraps: adapters train as on eager, layers are found, and what is replaced goes with the adapter."""

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import Parameter

from benchmarks.tiny_models import config_class, stir, tiny_config
from regard import Entmax, Sparsemax, nn
from regard.errors import OptionError
from regard.integrations.transformers import replace, restore
from regard.integrations.transformers.replacing import replacement_of

peft = pytest.importorskip("peft", reason="peft is not installed")
TOKENS = torch.randint(3, 50, (3, 9), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones_like(TOKENS)
PADDED[0, 6:] = 0
CALL = {"input_ids": TOKENS, "attention_mask": PADDED, "labels": TOKENS.masked_fill(PADDED == 0, -100)}
LAYERS = [f"base_model.model.model.layers.{place}.self_attn" for place in range(2)]


def writer(implementation="regard", alpha=None):
    torch.manual_seed(0)
    config = tiny_config(config_class("llama"))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    stir(model)
    if alpha is not None:
        replace(model, weights=Entmax(Parameter(torch.tensor(alpha))))
    return model


def lora(**options):
    targets = ["q_proj", "v_proj"]
    return peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False, **options)


def adapted(model, config=None):
    torch.manual_seed(1)
    return peft.get_peft_model(model, lora() if config is None else config)


def learned(model):
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def logits(model):
    with torch.no_grad():
        return model.eval()(**CALL).logits[PADDED.bool()]


CONFIGS = {
    "lora": lora,
    "ia3": lambda: peft.IA3Config(
        task_type="CAUSAL_LM", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]
    ),
    "prefixes": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_and_gradients_are_those_of_eager(name):
    found = []
    for implementation in ("regard", "eager"):
        model = adapted(writer(implementation), CONFIGS[name]())
        output = model(**CALL)
        output.loss.backward()
        gradients = {name: each.grad for name, each in learned(model).items()}
        assert gradients
        found.append((output.logits[PADDED.bool()], gradients))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_layers_are_found_through_the_wrapper():
    model = adapted(writer()).eval()
    with nn.record(model) as seen, torch.no_grad():
        model(**CALL)
    assert seen.layers == LAYERS
    wanted = adapted(writer("eager")).eval()(**CALL, output_attentions=True).attentions
    real = PADDED.bool()[:, None, :, None]
    for view, weights in zip(seen.views(), wanted, strict=True):
        torch.testing.assert_close(view.dense() * real, weights * real, atol=1e-5, rtol=1e-4)


def test_a_name_of_the_model_within_is_answered_with_its_whole_name():
    with pytest.raises(OptionError, match=rf"got \['layers.1'\]. Near to that: '{LAYERS[1]}'. There are"):
        nn.record(adapted(writer()), layers="layers.1")


def test_an_adapter_is_saved_and_loaded(tmp_path):
    model = adapted(writer())
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(writer(), str(tmp_path))
    assert torch.equal(logits(again), logits(model))
    assert not torch.equal(logits(writer()), logits(model))
    torch.testing.assert_close(logits(model.merge_and_unload()), logits(again), atol=1e-4, rtol=1e-4)


def test_layers_of_a_wrapped_model_are_replaced_and_restored():
    model = adapted(writer())
    before = logits(model)
    replace(model, weights=Entmax(Parameter(torch.tensor(1.5))), layers=LAYERS[1])
    model(**CALL).loss.backward()
    assert float(model.get_parameter(f"{LAYERS[1]}.regard.weights.alpha").grad.abs()) > 0
    assert not torch.allclose(logits(model), before, atol=1e-3)
    restore(model)
    assert torch.equal(logits(model), before)


def test_what_was_replaced_trains_with_the_adapter_and_is_saved_with_it(tmp_path):
    model = adapted(writer(alpha=1.5), lora(modules_to_save=["regard"]))
    alphas = {name: each for name, each in learned(model).items() if name.endswith("alpha")}
    assert len(alphas) == len(LAYERS)
    model(**CALL).loss.backward()
    assert all(float(each.grad.abs()) > 0 for each in alphas.values())
    with torch.no_grad():
        for each in alphas.values():
            each.fill_(1.9)
    sparse = logits(model)
    with model.disable_adapter():  # the rule is then what it was before
        torch.testing.assert_close(logits(model), logits(writer(alpha=1.5)))

    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert [float(saved[f"{name}.regard.weights.alpha"]) for name in LAYERS] == pytest.approx([1.9, 1.9])
    again = peft.PeftModel.from_pretrained(writer(alpha=1.5), str(tmp_path))
    assert torch.equal(logits(again), sparse)


def test_what_an_adapter_saves_is_not_replaced_behind_its_back():
    model = adapted(writer(alpha=1.5), lora(modules_to_save=["regard"]))
    with pytest.raises(OptionError, match=r"in a ModulesToSaveWrapper. Replace before peft.get_peft_model wraps"):
        replace(model, weights=Sparsemax())
    restore(model)
    replace(model, weights=Sparsemax())
    assert isinstance(replacement_of(model.get_submodule(LAYERS[0])).weights, Sparsemax)
