"""The sentence encoder: what transformers computes with the same weights, and texts of every kind."""

from __future__ import annotations

import re

import pytest
import torch

from regard import nn
from regard.errors import OptionError, ShapeError

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


@pytest.mark.parametrize("size", [0, -1, True, 2.5])
def test_a_batch_must_have_a_size(encoder, size):
    with pytest.raises(OptionError, match="`batch_size` must be a positive integer"):
        encoder.embed(["a", "b"], batch_size=size)
