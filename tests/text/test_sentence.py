"""The sentence encoder: what transformers computes with the same weights, and texts of every kind."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import nn
from regard.errors import CheckpointError, OptionError, ShapeError
from regard.text import SentenceEncoder, sentence

DOG = "When he saw his owner, the dog was happy, so he wagged his tail"
UNEQUAL = [DOG, "Cats sleep.", "Unbelievably, electroencephalographers disagreed about it all!", ""]


@pytest.fixture(scope="module")
def bert(folder):
    """BERT of transformers, with the same weights, in the plain form that gives attention."""
    from transformers import BertModel

    return BertModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()


def theirs(bert, encoder, texts):
    """Hidden states and attention of transformers' model, on our pieces."""
    pieces = [encoder.pieces(text) for text in texts]
    longest = max(map(len, pieces))
    numbers = torch.tensor([each.numbers + [0] * (longest - len(each)) for each in pieces])
    present = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in pieces])
    with torch.no_grad():
        found = bert(numbers, attention_mask=present, output_hidden_states=True, output_attentions=True)
    return found.hidden_states, found.attentions, present.bool()


def ours(encoder, texts):
    """The states after the embeddings and after each layer, and the weights of each layer."""
    states = []
    parts = [encoder.norm, *encoder.encoder.layers]
    hooks = [part.register_forward_hook(lambda part, inputs, output: states.append(output)) for part in parts]
    try:
        with torch.no_grad(), nn.record(encoder) as recording:
            encoder(texts)
    finally:
        for hook in hooks:
            hook.remove()
    return states, [view.dense() for view in recording.views()]


@pytest.mark.parametrize("texts", [[DOG], UNEQUAL], ids=["one", "unequal lengths"])
def test_hidden_states_and_attention_of_every_layer_match_transformers(bert, encoder, texts):
    states, weights = ours(encoder, texts)
    their_states, their_weights, present = theirs(bert, encoder, texts)
    assert len(states) == len(their_states) == 7
    assert len(weights) == len(their_weights) == 6
    for mine, other in zip(states, their_states, strict=True):
        torch.testing.assert_close(mine[present], other[present], rtol=0, atol=1e-5)
    for mine, other in zip(weights, their_weights, strict=True):
        rows = present[:, None, :].expand(mine.shape[:3])  # rows of padding say nothing
        torch.testing.assert_close(mine[rows], other[rows], rtol=0, atol=1e-5)


def test_pieces_are_those_of_transformers_tokenizer(encoder, folder):
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast.from_pretrained(folder, local_files_only=True)
    for text in [*UNEQUAL, "Ünïcödé don't", "שלום עולם", "I 💜 it"]:
        assert encoder.pieces(text).numbers == tokenizer(text)["input_ids"]


def test_a_text_has_the_same_vector_alone_and_in_a_batch(encoder):
    together = encoder.embed(UNEQUAL, batch_size=3)
    alone = torch.stack([encoder.embed(text) for text in UNEQUAL])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(len(UNEQUAL)))


def test_a_cat_is_nearer_to_a_kitten_than_to_stocks(encoder):
    cat, kitten, stocks = encoder.embed(["cat", "kitten", "stocks"])
    assert cat @ kitten > cat @ stocks + 0.3


def test_loaded_weights_are_in_eval_mode_and_can_be_trained(encoder):
    assert not encoder.training
    assert all(weight.requires_grad for weight in encoder.parameters())
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}


def test_an_empty_sentence_has_a_vector_and_nothing_to_look_at(encoder):
    assert encoder.pieces("").words == ["[CLS]", "[SEP]"]
    assert encoder.embed("").isfinite().all()
    for text in ("", " \n"):
        with pytest.raises(OptionError, match="the text is empty. Write a sentence"):
            encoder.look(text)


def test_no_sentences_have_no_vectors(encoder):
    assert encoder.embed([]).shape == (0, 384)
    with pytest.raises(ShapeError, match="at least one text to read: got none"):
        encoder([])


def test_a_text_as_long_as_the_model_is_read_and_a_longer_one_is_refused(encoder):
    assert len(encoder.pieces("dog " * 510)) == 512
    assert encoder.embed("dog " * 510).isfinite().all()
    with pytest.raises(ShapeError, match="at most 512 tokens: this text has 513. Cut it into sentences"):
        encoder.embed(["short", "dog " * 511])
    with pytest.raises(ShapeError, match="It begins 'cats and dogs and .*…'"):  # which of many it is
        encoder.embed(["short", "cats and " + "dogs and " * 600])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "must be a string: got NoneType"),
        (3, "got int"),
        ("caf\udce9", r"must be Unicode: got '\\udce9' in 'caf"),
    ],
)
def test_what_is_no_text_is_refused(encoder, text, said):
    for read in (encoder.pieces, lambda text: encoder.embed(["a dog", text])):
        with pytest.raises(OptionError, match=said):
            read(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DOG, re.findall(r"\w+|,", DOG)),
        ("The Électroencéphalogramme!", ["The", "Électroencéphalogramme", "!"]),
        ("  two   spaces\n", ["two", "spaces"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("I 💜 dogs👨‍👩‍👧", None),
        ("狗很高兴", list("狗很高兴")),
        ("Don't e-mail Smith’s 3.50, rock'n'roll.", ["Don't", "e-mail", "Smith’s", "3.50", ",", "rock'n'roll", "."]),
        ("मैं खुश हूँ", ["मैं", "खुश", "हूँ"]),
    ],
    ids=["sentence", "accents", "spaces", "hebrew", "arabic", "emoji", "chinese", "joined", "hindi"],
)
def test_words_come_out_as_they_stand_in_the_text(encoder, text, words):
    pieces = encoder.pieces(text)
    shown = [word for word, special in zip(pieces.words, pieces.special, strict=True) if not special]
    assert "".join(shown) == "".join(text.split())
    if words is not None:
        assert shown == words
    look = encoder.look(text)
    assert look.words == pieces.words
    torch.testing.assert_close(look.weights().sum(-1), torch.ones(len(pieces.words)))


def test_a_look_is_printed_as_one_line(encoder):
    said = repr(encoder.look(DOG + "\n" + DOG))
    assert said == str(encoder.look(DOG + "\n" + DOG))
    assert "\n" not in said
    assert len(said) < 160
    assert said.startswith(f"<Look at {DOG[:30]!r}"[:-1])
    assert "6 layers × 12 heads" in said


def test_a_word_that_the_model_has_never_seen_is_one_word_of_several_pieces(encoder):
    pieces = encoder.pieces("Zqxvyk dog")
    assert pieces.words == ["[CLS]", "Zqxvyk", "dog", "[SEP]"]
    assert pieces.word_of.count(1) > 1
    assert pieces.names[1 + pieces.word_of.count(1)] == "dog"


def test_what_cannot_be_cut_into_pieces_is_one_unknown_piece_with_its_text(encoder):
    pieces = encoder.pieces("see 🦤 fly")
    assert pieces.names == ["[CLS]", "see", "[UNK]", "fly", "[SEP]"]
    assert pieces.words[2] == "🦤"
    assert pieces.unknown == ["", "", "🦤", "", ""]
    joined = encoder.pieces("don't🦤 see")  # t🦤 is one piece, and part of a longer word
    assert (joined.words, joined.unknown) == (["[CLS]", "don't🦤", "see", "[SEP]"], ["", "t🦤", "", ""])


def test_the_pieces_of_a_joined_word_are_summed_as_keys_and_averaged_as_queries(encoder):
    look = encoder.look("I don't")  # i, don, ' and t
    dense = look.views[0].dense()[0]
    torch.testing.assert_close(look.all_weights()[0, :, 2, 1], dense[:, 2:5, 1].mean(-1))
    torch.testing.assert_close(look.all_weights()[0, :, 1, 2], dense[:, 1, 2:5].sum(-1))


def test_a_look_has_every_layer_and_head_over_words_and_its_rows_sum_to_one(encoder):
    look = encoder.look(DOG)
    assert (look.n_layers, look.n_heads) == (6, 12)
    assert len(look.words) < len(look.pieces)  # "wagged" has several pieces
    every = look.all_weights()
    assert every.shape == (6, 12, len(look.words), len(look.words))
    torch.testing.assert_close(every.sum(-1), torch.ones(every.shape[:-1]))
    torch.testing.assert_close(look.weights(layer=2, head=3), every[2, 3])
    torch.testing.assert_close(look.weights(layer=2), every[2].mean(0))
    torch.testing.assert_close(look.weights(head=-1), every[:, 11].mean(0))
    torch.testing.assert_close(look.weights(), every.mean((0, 1)))


@pytest.mark.parametrize(
    ("layer", "head", "said"), [(6, None, "`layer` .* 0 to 5: got 6"), (0, 12, "`head` .* 0 to 11")]
)
def test_a_layer_or_head_that_is_not_there_is_refused(encoder, layer, head, said):
    with pytest.raises(OptionError, match=said):
        encoder.look("A dog").weights(layer, head)


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


@pytest.mark.parametrize("size", [0, -1, True, 2.5])
def test_a_batch_must_have_a_size(encoder, size):
    with pytest.raises(OptionError, match="`batch_size` must be a positive integer"):
        encoder.embed(["a", "b"], batch_size=size)
