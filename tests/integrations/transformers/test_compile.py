"""Models on regard under torch.compile, in one graph."""

import pytest
import torch
import transformers

import regard.integrations.transformers  # noqa: F401
from benchmarks.tiny_models import build, config_class, stir, tiny_config


@pytest.mark.parametrize(("name", "padded"), [("llama", False), ("mistral", True)])
def test_one_graph_gives_what_eager_gives(name, padded):
    torch._dynamo.reset()
    tiny = build(name)
    mask = torch.ones(tiny.inputs["input_ids"].shape, dtype=torch.long)
    mask[0, :3] = 0
    inputs = tiny.inputs | ({"attention_mask": mask} if padded else {})
    with torch.no_grad():
        wanted = tiny.model(**inputs)[0]
        tiny.model.set_attn_implementation("regard")
        output = torch.compile(tiny.model, backend="aot_eager", fullgraph=True)(**inputs)[0]
    real = mask.bool() if padded else torch.ones_like(mask).bool()
    torch.testing.assert_close(output[real], wanted[real], atol=1e-5, rtol=1e-4)


def test_a_static_cache_whose_masks_were_made_before():
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = tiny_config(config_class("llama"))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="regard").eval()
    stir(model)
    prompt = torch.randint(3, 50, (2, 6), generator=torch.Generator().manual_seed(0))
    settings = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(prompt)
    mask[0, :2] = 0
    wanted = model.generate(prompt, attention_mask=mask, **settings)
    model.forward = torch.compile(model.forward, backend="aot_eager")
    written = model.generate(prompt, attention_mask=mask, **settings, cache_implementation="static")
    assert torch.equal(written, wanted)
