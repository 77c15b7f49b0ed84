"""A part of the survey of architectures: outputs and gradients beside eager, within what the page promises."""

import json

import pytest
import torch
from transformers import AttentionInterface

import regard.integrations.transformers  # noqa: F401
from benchmarks import architectures, results, tiny_models
from regard.integrations.transformers.attention import attention_forward

SAMPLE = [
    "bert",
    "gpt2",
    "llama",
    "mistral",
    "gemma2",
    "gemma3_text",
    "t5",
    "whisper",
    "bart",
    "gpt_oss",
    "llama4_text",
]


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_sample_matches_eager(model_type):
    verdict = architectures.examine(model_type)
    assert (verdict.outcome, verdict.reason) == (architectures.MATCHED, "")
    assert verdict.calls >= 2


@pytest.mark.parametrize("model_type", ["mistral", "gemma3_text", "llama4_text"])
def test_tiny_models_are_longer_than_their_windows(model_type):
    config = tiny_models.build(model_type).model.config
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    assert any(size is not None and size < tiny_models.LENGTH for size in sizes)


def test_weights_of_tiny_models_are_far_from_equal():
    tiny = tiny_models.build("bert")
    with torch.no_grad():
        weights = tiny.model(**tiny.inputs, output_attentions=True).attentions[0]
    assert float(weights.amax(-1).mean()) > 2 / tiny_models.LENGTH


def test_an_architecture_without_attention_is_outside():
    assert architectures.examine("mobilenet_v2").outcome == architectures.OUTSIDE


def test_a_wrong_attention_deviates(monkeypatch):
    def wrong(module, query, *arguments, **options):
        return attention_forward(module, 1.01 * query, *arguments, **options)

    monkeypatch.setitem(AttentionInterface._global_mapping, "regard", wrong)
    verdict = architectures.examine("bert")
    assert verdict.outcome == architectures.DEVIATES
    assert "outputs differ by" in verdict.reason


def test_what_cannot_be_built_says_why():
    verdict = architectures.examine("dinat")
    assert verdict.outcome == architectures.NOT_BUILT
    assert "natten" in verdict.reason


def test_the_page_is_that_of_the_figures():
    figures = results.read("architectures")
    verdicts = [architectures.Verdict(**each) for each in figures["verdicts"]]
    assert architectures.PAGE.read_text() == architectures.page(verdicts, figures["transformers"])
    outcomes = [each.outcome for each in verdicts]
    assert outcomes.count(architectures.MATCHED) >= 100
    assert architectures.DEVIATES not in outcomes
    assert "/site-packages/" not in json.dumps(figures)
