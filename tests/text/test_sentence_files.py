"""Files of the sentence encoder: those that it loads, and what is said of those that it refuses."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import CheckpointError, ShapeError
from regard.text import SentenceEncoder, sentence


def test_a_changed_file_of_weights_is_refused(folder, tmp_path, monkeypatch):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    monkeypatch.setattr(sentence, "installed_folder", lambda: copy)
    SentenceEncoder.load()
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))  # one bit of one number
    with pytest.raises(CheckpointError, match="model.safetensors is not the file that it should be: its SHA-256"):
        SentenceEncoder.load()


def test_a_folder_without_safetensors_is_refused_also_where_there_is_a_pickle(folder, tmp_path):
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    with pytest.raises(CheckpointError, match="has no model.safetensors. Weights in other formats, such as pickles"):
        SentenceEncoder.load(tmp_path)


@pytest.fixture
def small(folder, tmp_path):
    """A folder with a small model of the same kind, and its weights by name."""
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 1}
    config = json.loads((folder / "config.json").read_text()) | sizes | {"max_position_embeddings": 12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(folder / "tokenizer.json", tmp_path)

    def cut(weight):
        for axis, size in enumerate(weight.shape):
            weight = weight.narrow(axis, 0, {384: 8, 1536: 16, 512: 12}.get(size, size))
        return weight.clone()

    whole = load_file(folder / "model.safetensors")
    weights = {name: cut(weight) for name, weight in whole.items() if ".layer." not in name or ".layer.0." in name}
    return tmp_path, weights


def test_a_folder_of_ones_own_is_loaded_without_a_hash_and_its_length_counts(small):
    place, weights = small
    save_file(weights, place / "model.safetensors")
    encoder = SentenceEncoder.load(place)
    assert encoder.embed("a dog").shape == (8,)
    with pytest.raises(ShapeError, match="at most 12 tokens"):
        encoder.embed("dog " * 11)


def test_training_a_loaded_model_does_not_change_its_file(small):
    place, weights = small
    save_file(weights, place / "model.safetensors")
    before = (place / "model.safetensors").read_bytes()
    with torch.no_grad():
        for weight in SentenceEncoder.load(place).parameters():
            weight.fill_(7.0)
    assert (place / "model.safetensors").read_bytes() == before


def test_half_precision_weights_are_computed_with_in_float32(small):
    place, weights = small
    save_file({name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()},
              place / "model.safetensors")  # fmt: skip
    assert SentenceEncoder.load(place).embed("a dog").dtype == torch.float32


def test_names_that_are_missing_or_unknown_are_all_listed_as_the_file_has_them(small):
    place, weights = small
    del weights["encoder.layer.0.attention.self.key.bias"]
    del weights["embeddings.LayerNorm.weight"]
    weights["cls.predictions.bias"] = torch.zeros(3)
    save_file(weights, place / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        SentenceEncoder.load(place)
    missing, _, unknown = str(caught.value).partition(", unknown ")
    assert missing.endswith("missing ['embeddings.LayerNorm.weight', 'encoder.layer.0.attention.self.key.bias']")
    assert unknown.startswith("['cls.predictions.bias'].")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("hidden_size", "384"),
        ("hidden_size", 7),
        ("hidden_size", 10**18),
        ("hidden_size", 10**5 * 2),
        ("layer_norm_eps", None),
        ("layer_norm_eps", "tiny"),
        ("max_position_embeddings", -1),
        ("num_attention_heads", 0),
        ("num_attention_heads", True),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", [1]),
        ("vocab_size", {"a": 1}),
        ("vocab_size", 10**12),
    ],
)
def test_a_wrong_size_in_a_configuration_is_an_error_that_names_the_file(small, name, wrong):
    place, weights = small
    sizes = json.loads((place / "config.json").read_text()) | {name: wrong}
    (place / "config.json").write_text(json.dumps(sizes))
    save_file(weights, place / "model.safetensors")
    with pytest.raises(CheckpointError, match=re.escape(str(place))):
        SentenceEncoder.load(place)


def test_a_tokenizer_with_more_pieces_than_the_model_is_refused(small):
    place, weights = small
    sizes = json.loads((place / "config.json").read_text())
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"][:100]
    (place / "config.json").write_text(json.dumps(sizes | {"vocab_size": 100}))
    save_file(weights, place / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tokenizer.json .* must have ids in the vocabulary of the model"):
        SentenceEncoder.load(place)


def test_a_tokenizer_with_an_id_beyond_the_vocabulary_is_refused(small):
    place, weights = small
    tokenizer = json.loads((place / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[next(iter(vocabulary))] = 10**6
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    save_file(weights, place / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tokenizer.json .* it has id 1,000,000, and config.json says"):
        SentenceEncoder.load(place)


def test_a_layer_too_many_or_too_few_is_listed(small):
    place, weights = small
    for config, said in ((2, "missing ['encoder.layer.1."), (0, "unknown ['encoder.layer.0.")):
        sizes = json.loads((place / "config.json").read_text()) | {"num_hidden_layers": config}
        (place / "config.json").write_text(json.dumps(sizes))
        save_file(weights, place / "model.safetensors")
        with pytest.raises(CheckpointError, match=re.escape(said)):
            SentenceEncoder.load(place)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "encoder.layer.0.output.dense.bias",
            r"of another shape \['encoder.layers.0.linear2.bias \(9,\) for \(8,\)'\]",
        ),
        ("encoder.layer.0.attention.self.key.bias", r"one shape: got .*query.bias \(8,\), .*key.bias \(9,\), .*value"),
    ],
)
def test_weights_of_another_shape_are_listed_with_it(small, name, said):
    place, weights = small
    save_file(weights | {name: torch.zeros(9)}, place / "model.safetensors")
    with pytest.raises(CheckpointError, match=said):
        SentenceEncoder.load(place)


def test_weights_by_berts_names_are_taken_with_its_prefix_too(small):
    place, weights = small
    save_file(weights, place / "model.safetensors")
    encoder = SentenceEncoder.load(place)
    before = encoder.embed("a dog")
    other = {f"bert.{name}": -weight if "word_embeddings" in name else weight for name, weight in weights.items()}
    encoder.load_bert(other)
    assert not torch.allclose(encoder.embed("a dog"), before, atol=1e-3)
    encoder.load_bert(weights)
    assert torch.equal(encoder.embed("a dog"), before)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("data", [b"", b"nothing of the kind", b"[1]"], ids=["empty", "other", "list"])
def test_a_damaged_file_is_named(small, name, data):
    place, weights = small
    save_file(weights, place / "model.safetensors")
    (place / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} must be a whole file of its kind"):
        SentenceEncoder.load(place)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "relu"}, "hidden_act 'gelu': config.json says 'relu'"),
        ({"model_type": "roberta"}, "model_type 'bert': config.json says 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'absolute'"),
        ({"vocab_size": None}, "got no vocab_size"),
    ],
)
def test_a_model_of_another_kind_is_refused(small, change, said):
    place, weights = small
    save_file(weights, place / "model.safetensors")
    config = json.loads((place / "config.json").read_text()) | change
    (place / "config.json").write_text(json.dumps({name: each for name, each in config.items() if each is not None}))
    with pytest.raises(CheckpointError, match=said):
        SentenceEncoder.load(place)
