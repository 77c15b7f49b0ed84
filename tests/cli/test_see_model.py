"""Claims about `regard see --model`: any checkpoint of transformers in a folder, with every option and format."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("transformers", reason="needs regard[transformers]")

from benchmarks.tiny_checkpoints import save_tiny
from regard.cli import app
from regard.cli.console import out
from regard.integrations.transformers import TextModel
from regard.text.seen import most_telling

SENTENCE = "The dog wagged its tail, so he was happy"
TARGET = "the dog was happy"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    root = tmp_path_factory.mktemp("checkpoints")
    made = {kind: save_tiny(kind, root / kind) for kind in ("bert", "gpt2", "t5")}
    logging.set_verbosity(before)
    logging.enable_progress_bar()
    return made


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 80)


def see(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["see", *map(str, arguments)])


def plain(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def saved(path: Path, *arguments: object) -> Any:
    result = see(*arguments, "-o", path)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()


def test_a_decoder_is_seen_with_its_name_and_nothing_else_is_said(folders: dict[str, Path]) -> None:
    result = see(SENTENCE, "--model", folders["gpt2"], "--layer", "1", "--head", "-1")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "gpt2, layer 1, head 3" in lines
    assert [line.split()[0] for line in lines[2:11]] == SENTENCE.replace(",", "").split()
    assert "punctuation is hidden: it takes" in plain(result.stdout)


def test_cross_attention_has_what_is_written_in_rows_and_what_is_read_in_columns(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    arguments = (SENTENCE, "--model", folders["t5"], "--target", TARGET)
    lines = see(*arguments).stdout.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == TARGET.split()
    assert "t5, cross-attention, average of 2 layers, average of 4 heads" in lines
    assert "rows are what is written, each at the step that writes it; columns are read" in lines
    found = saved(tmp_path / "a.json", *arguments, "-q", "dog")
    assert (found["words"], found["keys"]) == (TARGET.split(), SENTENCE.replace(",", "").split())
    (query,) = found["queries"]
    assert sorted(each["word"] for each in query["looks_at"]) == sorted(found["keys"])
    assert torch.tensor(found["weights"]).sum(-1).allclose(torch.ones(4))
    own = TextModel.load(folders["t5"]).look(SENTENCE, target=TARGET).weights()
    kept = own[:4, [place for place in range(own.shape[1] - 1) if place != 5]]
    torch.testing.assert_close(torch.tensor(found["weights"]), kept / kept.sum(-1, keepdim=True))


@pytest.mark.parametrize(("part", "rows"), [("encoder", SENTENCE), ("decoder", TARGET)])
def test_the_other_parts_are_selected_by_name(folders: dict[str, Path], tmp_path: Path, part: str, rows: str) -> None:
    arguments = (SENTENCE, "--model", folders["t5"], "--target", TARGET, "--attention", part)
    found = saved(tmp_path / "a.json", *arguments)
    assert found["words"] == found["keys"] == rows.replace(",", "").split()
    assert found["model"] == f"t5, {part}"
    assert f"t5, {part}, average of 2 layers" in see(*arguments).stdout


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!DOCTYPE html>"), ("a.npz", b"PK")],
)
@pytest.mark.parametrize("query", [(), ("--query", "dog")], ids=["matrix", "row"])
def test_every_format_takes_two_texts(
    folders: dict[str, Path], tmp_path: Path, name: str, start: bytes, query: tuple[str, ...]
) -> None:
    arguments = (SENTENCE, "--model", folders["t5"], "--target", TARGET, "--head", "telling", *query)
    assert saved(tmp_path / name, *arguments).startswith(start)


def test_arrays_hold_both_texts(folders: dict[str, Path], tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    saved(tmp_path / "a.npz", SENTENCE, "--model", folders["t5"], "--target", TARGET)
    with numpy.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["weights"].shape == (4, 9)
        assert arrays["all_weights"].shape == (2, 4, len(arrays["all_words"]), len(arrays["all_keys"]))
        assert list(arrays["all_keys"])[-1] == "</s>"


def test_tokens_are_shown_where_they_are_asked_for(folders: dict[str, Path], tmp_path: Path) -> None:
    model = TextModel.load(folders["gpt2"])
    found = saved(tmp_path / "a.json", "wagged", "--model", folders["gpt2"], "--pieces", "--specials")
    assert len(found["words"]) == len(model.pieces("wagged")) > 1
    assert "".join(found["words"]) == "wagged"
    own = model.look("wagged").views[0].dense()
    assert torch.tensor(found["weights"]).shape == own.shape[-2:]
    assert see("a dog", "--pieces").exit_code == 0  # of MiniLM too


def test_heads_that_tell_nothing_between_two_texts_attend_to_one_word() -> None:
    one = torch.zeros(3, 5)
    one[:, 2] = 1
    aligned = torch.eye(3, 5)
    assert most_telling(torch.stack([one, aligned])[None], square=False) == (0, 1)


def test_under_a_causal_mask_means_are_over_what_is_seen() -> None:
    size = 8
    even = torch.ones(size, size).tril()
    even /= even.sum(-1, keepdim=True)
    before = torch.eye(size).roll(1, 0).tril()
    before[0, 0] = 1
    mates = torch.eye(size)
    mates[6], mates[7] = torch.eye(size)[1], torch.eye(size)[3]
    assert most_telling(torch.stack([even, before, mates])[None], causal=True) == (0, 2)


@pytest.mark.parametrize(
    ("kind", "arguments", "code", "said"),
    [
        ("bert", ("--attention", "cross"), 1, "--attention must be 'encoder' for bert: got 'cross'"),
        ("bert", ("--attention", "all"), 2, "--attention must be one of encoder, decoder, cross: got 'all'"),
        ("gpt2", ("--target", "a dog"), 1, "--target must be left out for a model that does not read one text and"),
        ("t5", ("--target", "a dog", "-q", "tail"), 1, "--query must be a word of the text: got 'tail'"),
        ("gpt2", ("--layer", "3"), 1, "--layer must be from 0 to 2, or from -3 to -1 counted from the end: got 3"),
        ("bert", ("dog " * 70,), 1, "The model reads at most 64 tokens: this text has"),
        ("none", (), 1, "A checkpoint must be a folder on this disk"),
    ],
)
def test_mistakes_are_said_in_a_line(
    folders: dict[str, Path], kind: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = see("The dog", "--model", folders.get(kind, "no/such/folder"), *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in plain(result.stderr), result.stderr


def test_options_of_other_models_are_refused_without_one() -> None:
    for option in ("--attention", "--target"):
        result = see("The dog", option, "cross")
        assert result.exit_code == 2
        assert f"{option} must stand with a --model" in plain(result.stderr)


def test_more_weights_than_a_picture_holds_are_refused_and_one_row_is_not(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("text.seen.MOST_WEIGHTS", "cli.see.MOST_SAVED"):
        monkeypatch.setattr(f"regard.{name}", 10)
    arguments = (SENTENCE, "--model", folders["gpt2"])
    assert "A picture must have at most 10 weights: got 9 × 9 words" in plain(see(*arguments).stderr)
    assert "--head telling must have at most 10" in plain(see(*arguments, "--head", "telling").stderr)
    assert see(*arguments, "--query", "dog").exit_code == 0
    assert "A file of arrays must have at most 10" in plain(see(*arguments, "-o", tmp_path / "a.npz").stderr)


def test_a_missing_extra_is_said_with_how_to_install_it(folders: dict[str, Path]) -> None:
    script = (
        "import sys; sys.modules['transformers'] = None\n"
        "import importlib.metadata as m; version = m.version\n"
        "def absent(name):\n"
        "    if name == 'transformers': raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = absent\n"
        "from regard.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "see", "a dog", "--model", str(folders["bert"])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install "regard[transformers]"' in plain(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_model_cannot_command_the_terminal(folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    folder = shutil.copytree(folders["bert"], tmp_path / "bad\x1b[2J")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        file.write_text(file.read_text().replace("[CLS]", "\\u001b[31mred"))
    for arguments in ((), ("-q", "dog"), ("--specials",)):
        result = see("a dog", "--model", folder, *arguments)
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        assert "�[31mred" in result.output
