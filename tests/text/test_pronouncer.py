"""Claims about spellings, the pronouncer, and files that are none."""

from __future__ import annotations

import json

import pytest
import torch

from regard.errors import CheckpointError, OptionError, ShapeError
from regard.text import Pronouncer
from regard.text.packing import pack, unpack
from regard.text.pronouncer import MODEL, build_model
from regard.text.spelling import plain_letters

safetensors = pytest.importorskip("safetensors.torch", reason="needs regard[text]")

SMALL = {"hidden": 8}


@pytest.mark.parametrize(
    ("word", "plain"),
    [("Café", "cafe"), ("NAÏVE", "naive"), ("naïve", "naive"), ("don’t", "don't"), ("‘tis", "'tis"), (" ox ", "ox")],
)
def test_a_word_is_read_in_plain_letters(word: str, plain: str) -> None:
    assert plain_letters(word) == plain


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("①", "'①' has '①'"),
        ("двa", "has 'в', 'д'"),
        ("שלום", "has 'ו'"),
        ("a b", "'a b' has ' '"),
        ("🐕", "has '🐕'"),
        ("", "'' has no letter"),
        ("'", "has no letter"),
    ],
)
def test_what_is_no_letter_is_named_as_it_was_given(word: str, said: str) -> None:
    with pytest.raises(OptionError, match="letters a to z") as error:
        plain_letters(word)
    assert said in str(error.value)


def test_packed_weights_are_off_by_half_a_step_at_most() -> None:
    weights = {
        "matrix": torch.randn(7, 5),
        "zeros": torch.zeros(2, 3),
        "bias": torch.randn(5),
        "none": torch.ones(0, 3),
        "score.scale": torch.randn(5),
    }
    packed = pack(weights)
    dtypes = [packed[name].dtype for name in weights]
    assert dtypes == [torch.int8, torch.int8, torch.float16, torch.int8, torch.float16]
    again = unpack(packed)
    assert list(again) == list(weights)
    step = weights["matrix"].abs().amax(-1, keepdim=True) / 127
    assert bool(((again["matrix"] - weights["matrix"]).abs() <= 0.501 * step).all())
    assert again["zeros"].equal(weights["zeros"])
    assert torch.allclose(again["bias"], weights["bias"], atol=1e-2)


def described(**changes: object) -> dict[str, str]:
    told = {"model": json.dumps("seq2seq"), "settings": json.dumps(SMALL), "format": "regard pronouncer"}
    return {name: str(value) for name, value in (told | changes).items() if value is not None}


def test_a_file_is_loaded_as_it_was_saved_but_for_rounding(tmp_path) -> None:
    torch.manual_seed(0)
    model = build_model("seq2seq", SMALL)
    safetensors.save_file(pack(model.state_dict()), tmp_path / "a.safetensors", described())
    loaded = Pronouncer.load(tmp_path / "a.safetensors").model.state_dict()
    assert all(torch.allclose(loaded[name], each, atol=2e-2) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": None}, "is no pronouncer"),
        ({"model": None}, "of the kind seq2seq or transformer"),
        ({"model": '"other"'}, 'model="other"'),
        ({"settings": "{"}, "and its settings"),
        ({"settings": '{"hiden": 8}'}, "hiden"),
        ({"settings": '{"hidden": -1}'}, "negative dimension"),
        ({"settings": '{"hidden": 16}'}, "of another shape"),
        ({"settings": '{"hidden": 1000000}'}, "of another shape"),  # 60 TB, if it were built
        ({"settings": '{"hidden": 1e30}'}, "and its settings"),
        ({"settings": '{"hidden": 8, "layers": 300}'}, "300 layers"),
        ({"settings": '{"hidden": 8, "layers": 1000000000}'}, "1000000000 layers"),
        ({"settings": '{"hidden": 8, "layers": "two"}'}, "'two' layers"),
        ({"settings": "[8]"}, "and its settings"),
    ],
)
def test_a_file_that_describes_no_model_is_refused(changes, said, tmp_path) -> None:
    safetensors.save_file(
        pack(build_model("seq2seq", SMALL).state_dict()), tmp_path / "a.safetensors", described(**changes)
    )
    with pytest.raises(CheckpointError) as error:
        Pronouncer.load(tmp_path / "a.safetensors")
    assert said in str(error.value)
    assert "a.safetensors" in str(error.value)


def test_a_shape_the_other_way_round_is_refused_by_the_name_of_the_file(tmp_path) -> None:
    packed = pack(build_model("seq2seq", SMALL).state_dict())
    for name in ("first_cell.weight", "first_cell.weight.scale"):
        turned = packed | {name: packed[name].mT.contiguous()}
        safetensors.save_file(turned, tmp_path / "a.safetensors", described())
        with pytest.raises(CheckpointError, match=r"a\.safetensors"):
            Pronouncer.load(tmp_path / "a.safetensors")


@pytest.mark.parametrize("size", [0, 5000])
def test_a_damaged_file_is_refused_by_its_name(size, tmp_path) -> None:
    (tmp_path / "a.safetensors").write_bytes(MODEL.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"a\.safetensors is no whole safetensors file"):
        Pronouncer.load(tmp_path / "a.safetensors")


def test_a_long_list_is_said_in_batches_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    pronouncer = Pronouncer(build_model("seq2seq", SMALL))
    words = ["cat", "attention", "a", "dog", "of"]
    at_once = pronouncer.say(words)
    sizes = []
    whole = pronouncer.model.start
    monkeypatch.setattr("regard.text.pronouncer.TOGETHER", 2)
    monkeypatch.setattr(
        pronouncer.model, "start", lambda source, padding: sizes.append(len(source)) or whole(source, padding)
    )
    in_batches = pronouncer.say(word for word in words)
    assert sizes == [2, 2, 1]
    assert [each.word for each in in_batches] == words
    for one, other in zip(at_once, in_batches, strict=True):
        assert one.phonemes == other.phonemes
        torch.testing.assert_close(one.alignment, other.alignment)
    assert pronouncer.say([]) == []


def test_a_word_that_is_no_string_is_refused() -> None:
    with pytest.raises(OptionError, match="A word must be a string: got int"):
        Pronouncer(build_model("seq2seq", SMALL)).say(["cat", 3])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="several in a list: got int"):
        Pronouncer(build_model("seq2seq", SMALL)).say(3)  # type: ignore[arg-type]


def test_the_model_that_comes_with_regard_says_words_and_looks_along_the_letters() -> None:
    assert MODEL.stat().st_size < 10_000_000
    pronouncer = Pronouncer.load()
    said = pronouncer.say(["attention", "queries", "softmax"])
    assert [str(each) for each in said] == ["AH T EH N SH AH N", "K W IH R IY Z", "S AO F T M AE K S"]
    assert said[0].alignment.argmax(-1).tolist() == [0, 2, 3, 4, 5, 7, 8]  # a-t-e-n-t-o-n: each further right
    assert pronouncer.say([]) == []


def test_a_long_word_is_refused_with_the_limit() -> None:
    with pytest.raises(ShapeError, match="64 letters"):
        Pronouncer(build_model("seq2seq", SMALL)).say("a" * 65)
