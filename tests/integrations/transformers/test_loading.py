"""Checkpoints from folders: loaded on regard, or refused in words before anything is read that should not be."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.utils import logging

from benchmarks.tiny_models import config_class, model_of, tiny_config
from regard import nn
from regard.errors import CheckpointError, MissingDependency, OptionError
from regard.integrations.transformers import load
from regard.integrations.transformers.hosted_layers import implementation_of, is_attention

TOKENS = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True, scope="module")
def no_bars():
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


def saved(name, folder, **options):
    model_of(name, tiny_config(config_class(name))).save_pretrained(folder, **options)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return saved("bert", tmp_path_factory.mktemp("checkpoints") / "minibert")


@pytest.fixture
def copied(bert, tmp_path):
    return shutil.copytree(bert, tmp_path / "minibert")


@pytest.fixture
def pickled(copied):
    """A checkpoint whose weights are a pickle alone."""
    torch.save(load(copied).state_dict(), copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    return copied


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def change(folder, **entries):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def refused(folder, text, **options):
    with pytest.raises(CheckpointError, match=text):
        load(folder, **options)


# What is loaded -------------------------------------------------------------------------------------------------------


def test_a_model_runs_on_regard_says_what_eager_says_and_is_recorded(bert):
    model = load(bert)
    assert type(model) is transformers.BertModel
    assert not model.training
    eager = transformers.AutoModel.from_pretrained(bert, attn_implementation="eager")
    with nn.record(model) as seen, torch.no_grad():
        torch.testing.assert_close(model(TOKENS)[0], eager(TOKENS)[0], atol=1e-5, rtol=1e-4)
    assert len(seen.layers) == 2


def test_the_class_and_options_are_passed_on(bert):
    model = load(str(bert), kind=transformers.AutoModelForMaskedLM, dtype=torch.bfloat16)
    assert type(model) is transformers.BertForMaskedLM
    assert model.dtype == torch.bfloat16
    assert type(load(bert, kind=transformers.BertModel)) is transformers.BertModel


def test_weights_in_several_files(tmp_path):
    folder = saved("bert", tmp_path, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    load(folder)
    next(folder.glob("model-00002-*")).unlink()
    refused(folder, "model-00002-of.* must be a whole file: it cannot be read .*No such file")
    (folder / "model.safetensors.index.json").write_text("{")
    refused(folder, r"model.safetensors.index.json must be JSON: it cannot be read \(Expecting")


# Folders --------------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there(bert):
    refused(bert.parent / "minbert", r"minbert is not there\. Near to that: 'minibert'\. Pass the folder")
    refused("google-bert/bert-base-uncased", "a name on a hub is not looked up: download it first")
    refused("x" * 5000, "must be a folder on this disk")


def test_a_file_is_no_folder(bert):
    refused(bert / "config.json", r"config.json is a file\. Pass the folder that holds config.json")


def test_a_folder_without_a_configuration(copied):
    refused(copied.parent, r"must have a config.json: .* has none\. There is one in .*minibert\. Pass")
    (copied / "config.json").rename(copied / "confg.json")
    refused(copied, r"has none\. Near to that: 'confg.json'\. Pass")


@pytest.mark.parametrize("path", [None, 3, b"folder", ""])
def test_a_path_is_text(path):
    with pytest.raises(OptionError, match="`path` must name a folder, as text or a pathlib.Path: got"):
        load(path)


def test_a_user_that_is_not_there():
    refused("~nosuchuser/model", "must be a folder on this disk: ~nosuchuser/model is not there")


def test_an_adapter_does_not_lead_elsewhere(copied):
    (copied / "adapter_config.json").write_text('{"base_model_name_or_path": "somewhere/else"}')
    refused(copied, r"holds an adapter of PEFT\. Load its model, and then peft.PeftModel")


# Configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"model_type": "be', r"config.json must be JSON: it cannot be read \(Unterminated"),
        (b"\xff\xfe", "config.json must be JSON: it cannot be read .*decode"),
        (b"[" * 100_000, "config.json must be JSON: it cannot be read .*recursion"),
        (b"[1]", "config.json must hold names and values: got a list"),
    ],
    ids=["cut off", "no text", "deep", "a list"],
)
def test_a_damaged_configuration_is_named(copied, content, text):
    (copied / "config.json").write_bytes(content)
    refused(copied, text)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"model_type": "brt", "transformers_version": "9.1"}, r"'brt', saved by 9.1\. Near to that: 'bert'.*upgrade"),
        ({"model_type": None}, r"must say a `model_type` that transformers [\d.]+ knows: got None"),
        ({"model_type": ["bert"]}, r"knows: got \['bert'\]"),
        ({"hidden_size": "wide"}, r"must be a checkpoint that AutoModel of transformers .*Error \("),
        ({"num_attention_heads": 5}, "minibert must be a checkpoint that .* is not a multiple"),
        ({"hidden_size": 64}, "must be a checkpoint that AutoModel .*got RuntimeError"),
    ],
    ids=["unknown", "none", "a list", "no number", "heads", "another size"],
)
def test_a_configuration_that_does_not_fit(copied, entries, text):
    change(copied, **entries)
    refused(copied, text)


def test_a_configuration_nested_too_deep_is_not_of_another_class(copied):
    text = (copied / "config.json").read_text().strip()
    (copied / "config.json").write_text(text[:-1] + ', "deep": ' + "[" * 900 + "]" * 900 + "}")
    refused(copied, r"config.json must be nested at most 100 deep: it is deeper\. Get it again")


def test_a_configuration_that_is_none_by_its_size_is_not_read(copied, monkeypatch):
    monkeypatch.setattr("json.loads", None)
    with (copied / "config.json").open("a") as file:
        file.write(" " * 10_000_000)
    refused(copied, "config.json must be a configuration, of 10,000,000 bytes at most: it has 10,000,")


@pytest.mark.parametrize("name", ["_attn_implementation", "attn_implementation", "_attn_implementation_internal"])
@pytest.mark.parametrize("kind", [transformers.AutoModel, transformers.BertModel])
def test_attention_is_on_regard_whatever_the_configuration_says(copied, name, kind):
    change(copied, **{name: "eager"})
    model = load(copied, kind=kind)
    with nn.record(model) as seen, torch.no_grad():
        model(TOKENS)
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["AutoModel", "CLIPModel", "CLIPTextModel"])
def test_parts_of_a_model_are_on_regard_whatever_their_configurations_say(tmp_path, kind):
    folder = saved("clip", tmp_path)
    read = json.loads((folder / "config.json").read_text())
    change(folder, text_config=read["text_config"] | {"_attn_implementation": "eager"})
    model = load(folder, kind=getattr(transformers, kind))
    assert {implementation_of(module) for module in model.modules() if is_attention(module)} == {"regard"}


def test_attention_that_is_not_on_regard_is_refused(bert, monkeypatch):
    monkeypatch.setattr("regard.integrations.transformers.loading.implementation_of", lambda module: "eager")
    refused(bert, "whose attention is all on regard: BertSelfAttention has 'eager'. Remove that")


@pytest.mark.parametrize(
    "entries",
    [
        {"_attn_implementation": "kernels-community/flash-attn2"},
        {"parts": [{"attn_implementation": {"text_config": "kernels-community/flash-attn2:flash"}}]},
        {"transformers_weights": "adapter_model.bin"},
        {"text_config": {"transformers_weights": "adapter_model.bin"}},
        {"configuration_files": ["config.4.0.0.json"]},
    ],
    ids=str,
)
def test_a_configuration_does_not_lead_elsewhere(copied, entries):
    change(copied, **entries)
    refused(copied, r"config.json must not lead to other files: got '.*'.*\. Remove that entry")


def test_python_of_another_repository_is_not_fetched(copied):
    change(copied, auto_map={"AutoModel": "somebody/else--own.Own", "AutoTokenizer": [None, None]})
    refused(copied, "must bring its Python itself: .* names that of another repository", trust_remote_code=True)


@pytest.mark.parametrize("auto_map", [[], {}], ids=str)
@pytest.mark.parametrize("options", [{}, {"trust_remote_code": True}], ids=str)
def test_an_auto_map_that_names_nothing_is_none(copied, auto_map, options):
    change(copied, auto_map=auto_map)
    assert type(load(copied, **options)) is transformers.BertModel


def test_an_auto_map_that_is_null_is_named(copied):
    change(copied, auto_map=None)
    refused(copied, "must name classes in its `auto_map`: got None. Remove that entry")


def test_python_in_a_checkpoint_runs_only_when_asked(copied):
    (copied / "own.py").write_text(
        "import pathlib\n"
        "pathlib.Path(__file__).with_name('ran').touch()\n"
        "from transformers import BertConfig, BertModel\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class Own(BertModel):\n    config_class = OwnConfig\n"
    )
    own = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.Own"}
    change(copied, auto_map=own)
    refused(copied, "names some in its `auto_map`. Read it, and pass trust_remote_code=True to run it, or False")
    assert type(load(copied, trust_remote_code=False)) is transformers.BertModel
    change(copied, model_type="own")
    refused(copied, "names some in its `auto_map`")
    refused(copied, "got 'own'", trust_remote_code=False)


def test_trusted_python_is_run(copied, monkeypatch, tmp_path):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (copied / "own.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class Own(BertModel):\n    config_class = OwnConfig\n"
    )
    change(copied, model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.Own"})
    model = load(copied, trust_remote_code=True)
    assert type(model).__name__ == "Own"
    with nn.record(model) as seen, torch.no_grad():
        model(TOKENS)
    assert len(seen.layers) == 2


# Weights --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickles_are_not_read(pickled, name, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a pickle was read")

    monkeypatch.setattr(torch, "load", refuse)
    (pickled / "pytorch_model.bin").rename(pickled / name)
    refused(pickled, rf"must have weights in safetensors: .* has only {name}, which may run code .*pickles=True")
    # Nor are they where safetensors of another name lie beside them.
    (pickled / "other.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    refused(pickled, rf"must have weights in safetensors: .* has only {name}")


def test_an_index_does_not_lead_to_pickles(tmp_path):
    folder = saved("bert", tmp_path, max_shard_size="20KB")
    index = folder / "model.safetensors.index.json"
    for weight_map in (["weights"], {"pooler.dense.bias": "pytorch_model.bin"}):
        index.write_text(json.dumps({"weight_map": weight_map}))
        refused(folder, "index.json must name safetensors in its `weight_map`")


def test_a_variant_does_not_lead_to_pickles(tmp_path):
    folder = saved("bert", tmp_path, max_shard_size="20KB", variant="fp16")
    load(folder, variant="fp16")
    (index,) = folder.glob("*.index.fp16.json")
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"pooler.dense.bias": "pytorch_model.bin"}}))
    refused(folder, "index.fp16.json must name safetensors in its `weight_map`", variant="fp16")


def test_how_pickles_are_read_is_an_option_only_where_they_are(pickled):
    with pytest.raises(OptionError, match="`weights_only` must be left out where no pickles are read: got False"):
        load(pickled, weights_only=False)
    load(pickled, pickles=True, weights_only=True)


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
@pytest.mark.parametrize("place", ["../outside.safetensors", "/outside.safetensors"])
def test_an_index_does_not_lead_out_of_its_folder(copied, name, place):
    shutil.move(copied / "model.safetensors", copied.parent / "outside.safetensors")
    place = str(copied.parent / "outside.safetensors") if place[0] == "/" else place
    (copied / name).write_text(json.dumps({"metadata": {}, "weight_map": {"pooler.dense.bias": place}}))
    refused(copied, f"{name} must name files of its folder: got '{place}'", pickles=True)


def test_what_is_not_read_need_not_be_whole(copied):
    (copied / "junk.safetensors").write_bytes(b"")
    (copied / "folder.safetensors").mkdir()
    load(copied)


def test_a_folder_of_links_as_a_cache_has_them(copied, tmp_path):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in copied.iterdir():
        (snapshot / file.name).symlink_to(file)
    load(snapshot)


@pytest.mark.parametrize("gone", ["", "encoder.layer.1.", "encoder.layer.0.output.dense.weight"])
def test_random_weights_are_not_handed_back(copied, gone):
    file = copied / "model.safetensors"
    read = load_file(file)
    kept = {(f"un.{name}" if name.startswith(gone) else name): weight for name, weight in read.items()}
    save_file(kept, file, metadata={"format": "pt"})
    refused(copied, r"must have the weights of every layer: \d+ of BertModel are missing .*; it has others, as un\.")


def test_weights_of_another_shape_are_not_replaced_by_random_ones(copied):
    change(copied, intermediate_size=7)
    refused(copied, "must have the weights of every layer", ignore_mismatched_sizes=True)


def test_a_head_may_be_new(bert):
    assert type(load(bert, kind=transformers.AutoModelForTokenClassification)).__name__ == "BertForTokenClassification"


def test_pickles_are_read_when_asked(pickled, bert):
    with torch.no_grad():
        assert torch.equal(load(pickled, pickles=True)(TOKENS)[0], load(bert)(TOKENS)[0])


def test_no_weights_at_all(copied):
    (copied / "model.safetensors").unlink()
    (copied / "training_args.bin").write_bytes(b"")  # of a Trainer: no weights
    for pickles in (False, True):
        refused(copied, "must have weights in safetensors: .* has none", pickles=pickles)


@pytest.mark.parametrize("kept", [0, 5, 500, -5])
def test_damaged_weights_are_named(copied, kept):
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(copied, r"model.safetensors must be a whole file: it cannot be read \(.*\)\. Get it again")


# What cannot run on regard, and options -------------------------------------------------------------------------------


def test_a_model_outside_the_interface_is_named(tmp_path):
    refused(saved("resnet", tmp_path), r"AttentionInterface: ResNetModel does not, .*docs/architectures.md")


def test_a_model_without_layers_is_not_outside_the_interface(copied):
    change(copied, num_hidden_layers=0)
    refused(copied, "must hold a model with layers: .* `num_hidden_layers` is 0")


def test_what_transformers_needs_besides(copied):
    change(copied, quantization_config={"quant_method": "hqq"})
    with pytest.raises(MissingDependency, match="must have what transformers loads it with: .*hqq"):
        load(copied)


@pytest.mark.parametrize(
    "option",
    [
        {"attn_implementation": "sdpa"},
        {"_attn_implementation": "eager"},
        {"_attn_implementation_internal": "eager"},
        {"transformers_weights": "adapter_model.bin"},
        {"config": "elsewhere"},
        {"use_safetensors": False},
        {"local_files_only": False},
    ],
)
def test_what_loading_decides_is_no_option(bert, option):
    (name,) = option
    with pytest.raises(OptionError, match=rf"`{name}` must be left out: got .*\. Call from_pretrained"):
        load(bert, **option)


@pytest.mark.parametrize("kind", ["AutoTokenizer", "AutoConfig", "BertConfig", "BertTokenizer"])
def test_a_class_that_makes_no_models(kind):
    with pytest.raises(OptionError, match="`kind` must be a class of transformers that makes models: got"):
        load("nowhere", kind=getattr(transformers, kind))


def test_a_class_for_another_type(tmp_path):
    refused(
        saved("llama", tmp_path),
        "must be of the `model_type` that BertModel is for, 'bert': its config.json says 'llama'. Pass",
        kind=transformers.BertModel,
    )


def test_a_class_that_does_not_load_it(bert):
    with pytest.raises(OptionError, match="`kind` must be a class of transformers that makes models: got 'AutoModel'"):
        load(bert, kind="AutoModel")
    refused(
        bert,
        "that AutoModelForVideoClassification of .*Unrecognized",
        kind=transformers.AutoModelForVideoClassification,
    )
    refused(bert, "unexpected keyword argument 'wide'", wide=3)


@pytest.mark.parametrize("name", ["model.gguf", "tf_model.h5", "flax_model.msgpack"])
def test_weights_of_another_kind_are_named(copied, name):
    (copied / "model.safetensors").rename(copied / name)
    refused(copied, rf"has only {name}, which .* Get the safetensors, or convert it")


def test_a_pointer_of_git_lfs_is_named(copied):
    (copied / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refused(copied, r"model.safetensors must be a whole file: it is a pointer of git-lfs to one\. Get .*git lfs pull")


@pytest.mark.parametrize(("wrong", "right"), [("pickle", "pickles"), ("replaced", "replace"), ("kinds", "kind")])
def test_an_option_that_is_nearly_one_is_named(bert, wrong, right):
    with pytest.raises(OptionError, match=rf"`{wrong}` is no option of load.*: pass {right}=, if it is that"):
        load(bert, **{wrong: True})
