"""Claims about the room of a sentence with models of others: decoders, models that read and write, and long texts."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs regard[transformers]")

from benchmarks.tiny_checkpoints import save_tiny
from regard.integrations.transformers import TextModel
from regard.text import Look
from regard.text.seen import choose_maps
from tests.web.sentence_page import computed, drawn, expect, in_cells, names, numbers, open_at, saved, write

SENTENCE, TARGET = "The dog wagged its tail, so he was happy", "the dog was happy"
WORDS = ["The", "dog", "wagged", "its", "tail", "so", "he", "was", "happy"]
LONG = "When he saw his owner the dog wagged its tail, so he was happy. " * 40
LEFT, TOP, RIGHT = 92, 74, 26  # pixels around a map


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for kind, length in (("gpt2", 2048), ("t5", None)):
        save_tiny(kind, root / kind, length)
    said = root / "t5" / "generation_config.json"
    said.write_text(json.dumps(json.loads(said.read_text()) | {"max_new_tokens": 8}))
    return root


@pytest.fixture(scope="module")
def decoder(exploring: Callable[..., AbstractContextManager[Any]], checkpoints: Path) -> Iterator[Any]:
    """A page on a model in which a word attends to itself and those before it."""
    with exploring("--model", checkpoints / "gpt2") as page:
        yield page


@pytest.fixture(scope="module")
def writer(exploring: Callable[..., AbstractContextManager[Any]], checkpoints: Path) -> Iterator[Any]:
    """A page on a model that reads one text and writes another."""
    with exploring("--model", checkpoints / "t5") as page:
        yield page


def weights_in(found: Any) -> Any:
    return torch.frombuffer(bytearray(b64decode(found["weights"])), dtype=torch.float32).reshape(found["size"])


# A decoder ----------------------------------------------------------------------------------------------------------


def test_in_a_decoder_a_word_attends_to_itself_and_those_before_it(
    browser: Any, decoder: Any, checkpoints: Path
) -> None:
    look = TextModel.load(checkpoints / "gpt2").look(SENTENCE)
    with open_at(browser, decoder, SENTENCE) as tab:
        assert tab.inner_text(".lead").startswith(
            "gpt2 reads 18 pieces (words, parts of words, signs), in 3 layers of 4 heads."
        )
        assert "over itself and the words before it" in tab.inner_text(".lead")
        assert not tab.get_by_label("Attention").is_visible()
        tab.click(".heads [aria-label^='Layer 2, head 3']")
        drawn(tab)
        weights = choose_maps(look, 2, 3).weights
        assert not weights.triu(1).any()
        assert (names(tab), numbers(tab)) == (WORDS, in_cells(weights))
    told = decoder.answer("sentence", "look", {"text": SENTENCE})
    assert (told["is_causal"], told["parts"], told["max_length"]) == (True, ["decoder"], 2048)


# A model that reads and writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "rows", "columns"), [("cross", 4, 9), ("encoder", 9, 9), ("decoder", 4, 4)])
def test_each_part_of_a_model_that_writes_is_answered_as_the_library_has_it(
    writer: Any, checkpoints: Path, part: Any, rows: int, columns: int
) -> None:
    target = None if part == "encoder" else TARGET
    look = TextModel.load(checkpoints / "t5").look(SENTENCE, part, target=target)
    body = {"text": SENTENCE, "part": part, **({} if target is None else {"target": target})}
    told = writer.answer("sentence", "look", body)
    assert (told["part"], told["parts"]) == (part, ["encoder", "decoder", "cross"])
    assert [len(told["queries"]), len(told["keys"] or told["queries"])] == [rows, columns]
    assert (told["is_square"], told["is_causal"]) == (part != "cross", part == "decoder")
    found = writer.answer("sentence", "map", {**body, "layer": 1, "head": 2})
    torch.testing.assert_close(weights_in(found), choose_maps(look, 1, 2).weights)
    assert found["notes"] == choose_maps(look, 1, 2).notes
    distances = writer.answer("sentence", "heads", body)["distances"]
    assert (distances is None) == (part == "cross")
    status, refused = writer.ask("sentence", "map", {**body, "rollout": True})
    assert (status == 422 and "Rollout" in refused["error"]) == (part == "cross")


def test_what_is_read_stands_above_and_what_is_written_below(
    browser: Any, writer: Any, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TextModel.load(checkpoints / "t5")
    with open_at(browser, writer, SENTENCE) as tab:
        written = model.look(SENTENCE).pieces.text
        assert tab.get_attribute("#sentence-target", "placeholder") == written
        write(tab, TARGET, "target")
        assert names(tab) == TARGET.split()
        at = tab.get_attribute(".heads [aria-checked=true]", "aria-label")
        layer, head = (int(each) for each in re.findall(r"\d+", at)[:2])
        seen = choose_maps(model.look(SENTENCE, target=TARGET), layer, head)
        assert numbers(tab) == in_cells(seen.weights)
        assert TARGET not in tab.url
        monkeypatch.chdir(checkpoints)
        torch.testing.assert_close(computed(tab), seen.weights)
        tab.click("label:text-is('Lines')")
        expect(tab, ".picture .read").to_have_count(9)
        assert tab.locator(".picture .read text:first-of-type").all_text_contents() == WORDS
        lowest = max(each.bounding_box()["y"] for each in tab.locator(".picture .read rect").all())
        words = tab.locator(".picture .word")
        assert words.all_text_contents() == TARGET.split()
        assert all(each.bounding_box()["y"] > lowest for each in words.all())
        words.nth(3).click()
        expect(tab, ".word-name").to_have_text("“happy” attends to")
        tab.focus(".frame")
        tab.keyboard.press("ArrowUp")
        expect(tab, ".word-name").to_have_text("“was” attends to")


def test_the_three_parts_are_chosen_by_name(browser: Any, writer: Any) -> None:
    with open_at(browser, writer, SENTENCE) as tab:
        write(tab, TARGET, "target")
        shows = tab.locator("[name=sentence-show] option")
        assert "Rollout" not in shows.all_text_contents()
        tab.select_option("[name=sentence-part]", "encoder")
        expect(tab, ".picture svg text.ink[text-anchor=end]").to_have_text(WORDS)
        assert not tab.locator("#sentence-target").is_visible()
        assert "Rollout" in shows.all_text_contents()
        tab.select_option("[name=sentence-part]", "decoder")
        expect(tab, ".picture svg text.ink[text-anchor=end]").to_have_text(TARGET.split())
        assert tab.inner_text(".lead").startswith("t5 writes")
        tab.wait_for_url("**part=decoder**")


# Long texts ---------------------------------------------------------------------------------------------------------


@contextmanager
def asking(tab: Any) -> Iterator[list[Any]]:
    """What was asked for of the map, and what was answered, once that is on the screen: [rows, columns, answer]."""
    found: list[Any] = []
    with tab.expect_response(lambda response: response.url.endswith("/sentence/map")) as response:
        yield found
    body = response.value.request.post_data_json
    found[:] = [body["rows"], body["columns"], response.value.json()]
    assert max(body["size"]) <= 768  # cells, whatever is looked at
    expect(tab, ".busy").to_have_count(0)


@pytest.fixture(scope="module")
def long_look(checkpoints: Path) -> Look:
    return TextModel.load(checkpoints / "gpt2").look(LONG)


def middle(span: list[int]) -> float:
    return sum(span) / 2


def test_a_long_text_is_zoomed_and_moved_by_buttons_keys_wheel_and_dragging(
    browser: Any, decoder: Any, long_look: Look, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = len(long_look.pieces)
    assert n * n > 1 << 20
    with open_at(browser, decoder, LONG) as tab:
        tab.wait_for_selector("canvas.zoom")
        assert "A cell is about" in tab.inner_text(".large figcaption")
        assert tab.locator("[name=sentence-unit][value=words]").is_disabled()

        def at(across: float, down: float) -> tuple[float, float]:
            box = tab.locator("canvas.zoom").bounding_box()
            size = box["width"] - LEFT - RIGHT
            return box["x"] + LEFT + across * size, box["y"] + TOP + down * size

        with asking(tab) as asked:
            tab.click("[aria-label='Zoom in']")
        for span in asked[:2]:
            assert span[1] - span[0] == pytest.approx(n / 2, abs=2)
            assert middle(span) == pytest.approx(n / 2, abs=2)
        with asking(tab) as asked:
            tab.click("[aria-label='Zoom out']")
        assert asked[:2] == [[0, n], [0, n]]

        tab.focus("canvas.zoom")
        for key, rows, columns, width in [
            ("+", 1 / 2, 1 / 2, 1 / 2),
            ("+", 1 / 2, 1 / 2, 1 / 4),
            ("ArrowRight", 1 / 2, 1 / 2 + 1 / 32, 1 / 4),
            ("ArrowUp", 1 / 2 - 1 / 32, 1 / 2 + 1 / 32, 1 / 4),
            ("ArrowLeft", 1 / 2 - 1 / 32, 1 / 2, 1 / 4),
            ("ArrowDown", 1 / 2, 1 / 2, 1 / 4),
            ("-", 1 / 2, 1 / 2, 1 / 2),
            ("0", 1 / 2, 1 / 2, 1),
        ]:
            with asking(tab) as asked:
                tab.keyboard.press(key)
            assert [middle(each) / n for each in asked[:2]] == pytest.approx([rows, columns], abs=2 / n), key
            assert (asked[0][1] - asked[0][0]) / n == pytest.approx(width, abs=2 / n)

        # Cells of one size, the last of which reaches beyond the text: each is named by what it has.
        found, answer = json.loads(saved(tab, "JSON")), asked[2]
        tab.focus("canvas.zoom")
        tab.evaluate("scrollTo(0, 0)")
        words = long_look.by_pieces().words
        layer, head = (int(tab.inner_text("h2.source").split(", ")[at].split()[1]) for at in (0, 1))
        dense = long_look.views[layer].dense()[0, head].detach()
        step = -(-n // answer["size"][0])
        cells = [(start, min(start + step, n)) for start in range(0, n, step)]
        assert (step, n % step) == (4, 1)
        assert found["rows"][:-1] == [f"{words[start]} … {words[stop - 1]}" for start, stop in cells[:-1]]
        assert found["rows"][-1] == words[-1]
        together = torch.stack([dense[start:stop].mean(0) for start, stop in cells])
        together = torch.stack([together[:, start:stop].sum(1) for start, stop in cells], 1)
        torch.testing.assert_close(torch.tensor(found["weights"]), together, atol=1e-6, rtol=1e-4)
        box = tab.locator("canvas.zoom").bounding_box()
        size = box["width"] - LEFT - RIGHT
        for cell in (200, -1):
            tab.mouse.move(box["x"] + LEFT + 4, box["y"] + TOP + (cells[cell][0] + 0.5) / n * size)
            assert tab.inner_text(".pointed").startswith(f"{found['rows'][cell]} → ")

        # What is under the pointer stays there; what is told of it is what is now to be seen.
        tab.mouse.move(*at(0.25, 0.75))
        assert tab.inner_text(".pointed").count("…") == 2  # from the first to the last of a cell
        for key in "++":
            with asking(tab) as asked:
                tab.keyboard.press(key)
        assert tab.inner_text(".pointed").count("…") == 0
        with asking(tab) as asked:
            tab.keyboard.press("0")
        for _ in range(8):
            with asking(tab) as asked:
                tab.mouse.wheel(0, -120)
        (top, bottom), (left, right), answer = asked
        assert bottom - top == pytest.approx(n * 2.718281828 ** (-8 * 0.4), abs=2)
        assert (top + 0.75 * (bottom - top)) / n == pytest.approx(0.75, abs=4 / n)
        assert (left + 0.25 * (right - left)) / n == pytest.approx(0.25, abs=4 / n)
        layer, head = int(tab.inner_text("h2.source")[6]), int(tab.inner_text("h2.source")[-1])
        dense = long_look.views[layer].dense()[0, head].detach()
        torch.testing.assert_close(weights_in(answer), dense[top:bottom, left:right])
        told = float(tab.inner_text(".pointed").split(": ")[-1].removesuffix("%")) / 100
        assert told <= answer["largest"] * 1.01
        assert float((dense[top:bottom, left:right] - told).abs().min()) < 1e-2 * told

        # What is visible is saved, and the lines of Python compute it.
        found = json.loads(saved(tab, "JSON"))
        torch.testing.assert_close(torch.tensor(found["weights"]), dense[top:bottom, left:right])
        assert found["rows"] == long_look.by_pieces().words[top:bottom]
        assert 'href="data:image/png' in saved(tab, "SVG")
        monkeypatch.chdir(checkpoints)
        torch.testing.assert_close(computed(tab), dense[top:bottom, left:right], atol=1e-6, rtol=1e-4)

        tab.evaluate("scrollTo(0, 0)")  # from the lines of Python, which were scrolled to
        tab.mouse.move(*at(0.25, 0.75))
        with asking(tab) as asked:
            tab.mouse.down()
            tab.mouse.move(*at(0.5, 0.5))
            tab.mouse.up()
        assert middle(asked[0]) - (top + bottom) / 2 == pytest.approx((bottom - top) / 4, abs=3)
        assert middle(asked[1]) - (left + right) / 2 == pytest.approx((left - right) / 4, abs=3)


def test_of_a_long_text_words_are_chosen_and_seen_among_their_neighbours(
    browser: Any, decoder: Any, long_look: Look
) -> None:
    n, words = len(long_look.pieces), long_look.by_pieces().words
    with open_at(browser, decoder, LONG, settings="?show=head&layer=1&head=2") as tab:
        tab.wait_for_selector("canvas.zoom")
        tab.focus("canvas.zoom")
        tab.keyboard.press("]")
        expect(tab, ".word-name").to_have_text(f"“{words[1]}” attends to")
        tab.keyboard.press("[")
        expect(tab, ".word-name").to_have_text(f"“{words[0]}” attends to")
        box = tab.locator("canvas.zoom").bounding_box()
        size = box["width"] - LEFT - RIGHT
        tab.mouse.click(box["x"] + LEFT + 30, box["y"] + TOP + 0.7 * size)
        place = int(0.7 * n)
        expect(tab, ".word-name").to_have_text(f"“{words[place]}” attends to")
        row = long_look.views[1].dense()[0, 2, place]
        expect(tab, ".list text.ink.number >> nth=0").to_have_text(f"{100 * float(row.max()):.2f}%")
        assert f"{n - 14:,} more share" in tab.inner_text(".one .caption")
        tab.click("label:text-is('Lines')")
        expect(tab, ".picture .word").to_have_count(40)
        assert tab.locator(".picture .word.is-chosen").text_content() == words[place]
        assert f"40 of {n:,} are drawn" in tab.inner_text(".large figcaption")
        share = float(row[place - 20 : place + 20].sum())
        assert f"of whose weight {100 * share:.1f}% is here" in tab.inner_text(".large figcaption")
        tab.click("label:text-is('Matrix')")
        tab.wait_for_selector("canvas.zoom")
        tab.click(".heads [aria-label='Layer 2, head 0']")
        expect(tab, "h2.source").to_have_text("Layer 2, head 0")
        assert tab.locator("[name=sentence-order] option:disabled").count() == 2
        tab.evaluate("location.hash = '#sentence'")
        expect(tab, "h2.source").to_have_text("Layer 0, head 0")
        drawn(tab)
        assert tab.inner_text(".trouble") == ""


def test_a_query_all_of_whose_weight_is_set_aside_attends_to_no_key_that_is_shown(browser: Any, decoder: Any) -> None:
    nothing = {"places": [*range(14)], "weights": [0.0] * 14, "rest": 0.0, "entropy": 0.0}
    with open_at(browser, decoder, LONG) as tab:
        tab.route("**/sentence/row", lambda route: route.fulfill(json=nothing))
        tab.click("[aria-label='The next word']")
        expect(tab, ".one .caption").to_have_text("It attends to no key that is shown.")
        assert tab.locator(".list .entry").count() == 0


def test_small_maps_are_of_one_text(browser: Any, decoder: Any) -> None:
    with open_at(browser, decoder, SENTENCE) as tab:
        expect(tab, ".heads canvas").to_have_count(12)
        held: list[Any] = []
        is_later = 'layer":1'
        tab.route(
            "**/sentence/heads",
            lambda route: held.append(route) if is_later in (route.request.post_data or "") else route.continue_(),
        )
        tab.fill("#sentence-text", LONG)
        while not held:
            tab.wait_for_timeout(10)
        labels = [each.get_attribute("aria-label") for each in tab.locator(".heads .head").all()]
        assert labels == [f"Layer 0, head {head}" for head in range(4)]  # those of the text before are gone
        held.pop().continue_()
        drawn(tab)
        expect(tab, ".heads canvas").to_have_count(12)


@pytest.mark.parametrize("width", [400, 1280])
def test_a_long_text_fits_the_screen_and_its_legend_can_be_read(browser: Any, decoder: Any, width: int) -> None:
    with open_at(browser, decoder, LONG, viewport={"width": width, "height": 900}) as tab:
        tab.wait_for_selector("canvas.zoom")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.focus("canvas.zoom")
        for _ in range(2):
            with asking(tab):
                tab.keyboard.press("+")
        entries = [each.bounding_box() for each in tab.locator(".legend text").all()]
        assert len(entries) == 5
        for one, other in pairwise(entries):
            assert one["x"] + one["width"] <= other["x"]


def test_who_moves_a_map_that_is_still_to_come_is_shown_nothing_of_the_text_before(browser: Any, decoder: Any) -> None:
    held: list[Any] = []
    with open_at(browser, decoder, SENTENCE) as tab:
        before = tab.inner_text(".word-name")
        tab.route("**/sentence/map", lambda route: held.append(route))
        tab.fill("#sentence-text", LONG)
        tab.wait_for_selector("canvas.zoom")
        tab.focus("canvas.zoom")
        tab.keyboard.press("+")
        while len(held) < 2:
            tab.wait_for_timeout(10)
        assert tab.locator(".shown.busy").count() == 1
        assert tab.inner_text(".word-name") == before
        held[1].continue_()
        drawn(tab)
        expect(tab, ".word-name").to_have_text("“Whe” attends to")  # a piece
