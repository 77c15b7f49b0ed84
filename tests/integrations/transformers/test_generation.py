"""Generation on regard: the tokens that eager writes, wherever eager is sure of them."""

import contextlib

import pytest
import torch
import transformers

import regard.integrations.transformers  # noqa: F401
from benchmarks.tiny_models import config_class, stir, tiny_config

NEW, SURE = 32, 1e-4  # tokens that are written; by how much eager's best logit must lead
PROMPT = torch.randint(3, 50, (3, 9), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones_like(PROMPT)
PADDED[0, :5] = 0
PADDED[1, :2] = 0


def causal_model(name, **options):
    torch.manual_seed(0)
    config = tiny_config(config_class(name))
    for option, value in options.items():
        setattr(config, option, value)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    stir(model)
    return model


def write(model, implementation, inputs, **options):
    model.set_attn_implementation(implementation)
    settings = {
        "max_new_tokens": NEW,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": 0,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    return model.generate(inputs, **(settings | options))


def check_same_tokens(model, inputs, **options):
    """Tokens are equal up to the first at which eager's best two are so near that rounding may decide."""
    ours, eager = (write(model, name, inputs, **options) for name in ("regard", "eager"))
    logits = torch.stack(eager.logits, 1)  # (batch, written, vocabulary)
    best = logits.topk(2).values
    sure = (best[..., 0] - best[..., 1] > SURE).cumprod(-1).bool()
    assert sure.float().mean() > 0.9  # otherwise nothing would be tested
    start = eager.sequences.shape[1] - sure.shape[1]
    assert torch.equal(ours.sequences[:, start:][sure], eager.sequences[:, start:][sure])
    written = eager.sequences[:, start:]
    assert len(set(written.flatten().tolist())) > 2  # it says more than one thing


@pytest.mark.parametrize("cache", [None, "static"], ids=["dynamic cache", "static cache"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "gpt2", "llama4_text"])
def test_left_padding(name, cache):
    check_same_tokens(causal_model(name), PROMPT, attention_mask=PADDED, cache_implementation=cache)


@pytest.mark.parametrize("cache", [None, "static"], ids=["dynamic cache", "static cache"])
@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_windows_shorter_than_what_was_written(name, cache):
    model = causal_model(name)
    assert model.config.sliding_window < 9
    check_same_tokens(model, PROMPT, cache_implementation=cache)


class Stream(contextlib.nullcontext):
    """What stands for a stream of a GPU where there is none: caches are moved in their turn."""

    def wait_stream(self, other):
        pass


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize("cache", ["dynamic", "offloaded", "offloaded_static"])
def test_caches_that_wait_elsewhere(name, cache, monkeypatch):
    model = causal_model(name)
    if torch.cuda.is_available():
        model.cuda()
    else:
        monkeypatch.setattr(torch, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream())
    prompt, mask = PROMPT.to(model.device), PADDED.to(model.device)
    check_same_tokens(model, prompt, attention_mask=mask, cache_implementation=cache)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which they are tried themselves")
@pytest.mark.parametrize("cache", ["offloaded", "offloaded_static"])
def test_without_a_gpu_it_is_not_regard_that_refuses_to_move_caches(cache):
    model = causal_model("llama")
    for implementation in ("regard", "eager"):
        with pytest.raises((AssertionError, RuntimeError), match="CUDA|NVIDIA"):
            write(model, implementation, PROMPT, cache_implementation=cache)


def test_a_cache_in_eight_bits():
    model = causal_model("llama")
    cache = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    check_same_tokens(model, PROMPT, attention_mask=PADDED, max_new_tokens=8, **cache)


def test_without_a_cache():
    check_same_tokens(causal_model("llama"), PROMPT, attention_mask=PADDED, use_cache=False)


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"do_sample": True, "top_k": 5}], ids=["beams", "sampling"])
def test_other_ways_to_write(options):
    model, found = causal_model("llama"), []
    for implementation in ("regard", "eager"):
        torch.manual_seed(7)
        found.append(write(model, implementation, PROMPT, attention_mask=PADDED, max_new_tokens=8, **options).sequences)
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_and_a_decoder(name):
    torch.manual_seed(0)
    config = tiny_config(config_class(name))
    model = transformers.AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval()
    stir(model)
    padded = PADDED.flip(-1)  # what is read has its padding on the right
    check_same_tokens(model, PROMPT, attention_mask=padded, decoder_start_token_id=4)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_packed_sequences_do_not_see_each_other(name):
    model = causal_model(name)
    lengths = [5, 9, 4]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    tokens = torch.randint(3, 50, (1, sum(lengths)), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = {}
        for implementation in ("regard", "eager"):
            model.set_attn_implementation(implementation)
            found[implementation] = model(tokens, position_ids=positions, use_cache=False).logits
        model.set_attn_implementation("regard")
        alone = torch.cat([model(part).logits for part in tokens.split(lengths, 1)], 1)
    torch.testing.assert_close(found["regard"], found["eager"], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found["regard"], alone, atol=1e-5, rtol=1e-4)


def test_a_continued_cache():
    model = causal_model("mistral")
    found = []
    for implementation in ("regard", "eager"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            first = model(PROMPT[:, :4], attention_mask=PADDED[:, :4])
            later = model(PROMPT[:, 4:], attention_mask=PADDED, past_key_values=first.past_key_values)
        found.append(later.logits[:, 1:])  # the first of them is padding in one sequence
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_weights_of_a_call_are_those_of_eager_under_padding():
    model = causal_model("llama")
    found = []
    for implementation in ("regard", "eager"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(model(PROMPT, attention_mask=PADDED, output_attentions=True).attentions)
    for ours, eager in zip(*found, strict=True):
        real = PADDED.bool()[:, None, :, None].expand_as(eager)
        torch.testing.assert_close(ours[real], eager[real], atol=1e-5, rtol=1e-4)


def test_weights_of_every_written_token():
    model, found = causal_model("llama"), []
    for implementation in ("regard", "eager"):
        written = write(model, implementation, PROMPT, max_new_tokens=4, output_attentions=True)
        found.append([each for step in written.attentions for each in step])
    assert len(found[0]) == len(found[1]) == 4 * model.config.num_hidden_layers
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)


def test_weights_in_the_configuration_are_refused_by_transformers():
    model = causal_model("llama")
    model.set_attn_implementation("regard")
    with pytest.raises(ValueError, match="`output_attentions` attribute is not supported"):
        model.config.output_attentions = True


def test_gradient_checkpointing_changes_no_gradient():
    model = causal_model("gemma2").train()
    model.set_attn_implementation("regard")
    gradients = []
    for checkpointed in (False, True):
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.zero_grad()
        model(PROMPT, attention_mask=PADDED, labels=PROMPT, use_cache=False).loss.backward()
        gradients.append([each.grad.clone() for each in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    model = causal_model("llama").to(dtype)
    found = []
    for implementation in ("regard", "eager"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(model(PROMPT, attention_mask=PADDED).logits[PADDED.bool()].float())
    assert (found[0] - found[1]).abs().max() < 0.05 * found[1].abs().max()
