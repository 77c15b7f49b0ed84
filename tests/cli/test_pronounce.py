"""Claims about `regard pronounce`, with a model that has learned nothing yet."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.text import Pronouncer, Pronunciation
from regard.text.pronouncer import build_model

safetensors = pytest.importorskip("safetensors.torch", reason="needs regard[text]")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    settings = {"hidden": 16}
    weights = {name: each.contiguous() for name, each in build_model("seq2seq", settings).state_dict().items()}
    described = {"format": "regard pronouncer", "model": json.dumps("seq2seq"), "settings": json.dumps(settings)}
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    safetensors.save_file(weights, str(path), metadata=described)
    return str(path)


def pronounce(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pronounce", *arguments])


def plain(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def test_a_word_is_said_with_its_alignment(model: str) -> None:
    result = pronounce("cat", "--model", model)
    assert result.exit_code == 0, result.stderr
    (said,) = Pronouncer.load(model).say("cat")
    lines = result.stdout.splitlines()
    assert lines[0] == f"cat  {said}"
    assert lines[2] == "rows are sounds, columns are letters"
    assert "rows are queries, columns are keys" in plain(result.stdout)


def test_words_come_from_standard_input_too(model: str) -> None:
    for arguments in ((), ("-",)):
        result = CliRunner().invoke(app, ["pronounce", "--model", model, *arguments], input="cat\n dog\n")
        assert result.stdout.startswith("cat  ")
        assert "\ndog  " in result.stdout


def test_how_sure_the_model_is_and_what_it_read_is_said(model: str) -> None:
    (said,) = Pronouncer.load(model).say("Café")
    assert said.certainty == pytest.approx(said.probability ** (1 / (len(said.phonemes) + 1)))
    assert (
        f"read as cafe; probability {said.certainty:.0%} per sound; with label smoothing, 90% is confident\n"
        in pronounce("Café", "--model", model).stdout
    )
    assert "read as" not in pronounce("Cafe", "--model", model).stdout


def test_what_no_letter_has_is_said(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = torch.tensor([[0.75, 0.0], [0.0, 1.0], [0.0, 0.4]])
    said_so = Pronunciation("ox", "ox", ["AA", "S", "AA"], 0.5, looks)
    monkeypatch.setattr(Pronouncer, "say", lambda self, words: [said_so])
    said = "the end of the word, which has no column, takes 25% of AA₁ and 60% of AA₂"
    assert said in pronounce("ox", "--model", model).stdout
    pronounce("ox", "--model", model, "-o", str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text())[0]["end"] == pytest.approx([0.25, 0, 0.6])
    pronounce("ox", "--model", model, "-o", str(tmp_path / "a.html"))
    assert said in (tmp_path / "a.html").read_text(encoding="utf-8")
    looks[0, 1], looks[2, 0] = 0.25, 0.6
    assert "the end of the word" not in pronounce("ox", "--model", model).stdout


def test_a_running_text_is_said_word_by_word(model: str) -> None:
    text = "“Hello,” said the dog's -- owner!\n"
    result = CliRunner().invoke(app, ["pronounce", "--model", model], input=text)
    assert result.exit_code == 0, result.output
    said = [each.split("  ")[0] for each in result.stdout.split("\n\n")]
    assert said == ["Hello", "said", "the", "dog's", "owner"]


def test_several_words_are_said_one_after_another(model: str) -> None:
    words = [line.split()[0] for line in pronounce("Café", "dog", "--model", model).stdout.splitlines() if "  " in line]
    assert {"Café", "dog"} <= set(words)


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!DOCTYPE html>")]
)
def test_the_alignment_is_saved_as_a_figure(name: str, start: bytes, model: str, tmp_path: Path) -> None:
    assert pronounce("cat", "--model", model, "-o", str(tmp_path / name)).exit_code == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_the_alignment_is_saved_as_numbers(model: str, tmp_path: Path) -> None:
    assert pronounce("cat", "dogs", "--model", model, "-o", str(tmp_path / "a.json")).exit_code == 0
    cat, dogs = json.loads((tmp_path / "a.json").read_text())
    (said,) = Pronouncer.load(model).say("dogs")
    assert (cat["letters"], dogs["phonemes"]) == ("cat", said.phonemes)
    assert torch.allclose(torch.tensor(dogs["alignment"]), said.alignment, atol=1e-5)


def test_a_picture_is_of_one_word(model: str) -> None:
    result = pronounce("cat", "dog", "--model", model, "-o", "a.png")
    assert (result.exit_code, "a picture is of one word: got 2" in plain(result.stderr)) == (2, True)


def test_mistakes_are_said_in_a_line(model: str, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"nothing of the kind")
    for arguments, code, said in [
        (("naïve3", "--model", model), 1, "'naïve3' has '3'"),
        (("", "--model", model), 1, "'' has no letter"),
        (("a" * 65, "--model", model), 1, "A word may have 64 letters"),
        (("cat", "--model", "nowhere.safetensors"), 1, "there is none at nowhere.safetensors"),
        (("cat", "--model", str(other)), 1, "other.safetensors is no whole safetensors file"),
        (("cat", "--model", model, "-o", "a.txt"), 2, "--output must end in one of .png"),
        ((), 2, "name a word"),
    ]:
        result = pronounce(*arguments)
        assert (result.exit_code, result.stdout) == (code, ""), arguments
        assert said in plain(result.stderr), result.stderr


def test_a_copy_without_its_model_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("regard.text.pronouncer.MODEL", tmp_path / "missing.safetensors")
    result = pronounce("cat")
    assert result.exit_code == 1
    assert "no pronouncer in it" in result.stderr
    assert "--model PATH" in result.stderr


def test_a_word_for_which_the_model_says_nothing_is_said_to_be_so(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = Pronunciation("hm", "hm", [], 0.5, torch.zeros(0, 2))
    monkeypatch.setattr(Pronouncer, "say", lambda self, words: [silent])
    assert pronounce("hm", "--model", model).stdout == "hm  (the model says nothing)\n"
    assert pronounce("hm", "--model", model, "-o", str(tmp_path / "a.json")).exit_code == 0
    for name in ("a.png", "a.html"):
        result = pronounce("hm", "--model", model, "-o", str(tmp_path / name))
        assert (result.exit_code, "it says nothing for 'hm'" in plain(result.stderr)) == (1, True)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "html", "json"])
def test_a_file_that_cannot_be_written_is_said(kind: str, model: str, tmp_path: Path) -> None:
    result = pronounce("cat", "--model", model, "-o", str(tmp_path / "no" / f"a.{kind}"))
    assert result.exit_code == 1
    assert "--output must be a file that can be written" in plain(result.stderr)
    assert "saved" not in result.stderr
