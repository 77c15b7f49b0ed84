"""Claims about the page for browsers, in a real browser where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import OptionError, ShapeError
from regard.plots import Picture, page
from regard.plots.palette import STOPS

AXES = "rows are queries, columns are keys"
WORDS = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "dog & “cat”", "<!--"]
WEIGHTS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 1.0, 0.0]])


def data_in(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_words_are_in_the_file_as_data_and_never_as_markup():
    text = page(Picture(WEIGHTS, WORDS, WORDS, title=WORDS[0], note=WORDS[1]), title=WORDS[1])
    assert "<img" not in text
    assert text.count("</script>") == 2  # the data's own and the program's own
    assert text.count("<!--") == 0
    picture = data_in(text)["pictures"][0]
    assert picture["rows"] == picture["columns"] == WORDS
    assert (picture["title"], picture["note"]) == (WORDS[0], WORDS[1])


def test_text_may_stand_alone_and_below_a_matrix():
    alone, below = data_in(page([Picture(title=WORDS[0], printed=WORDS[1]), Picture(WEIGHTS, printed="a\n  b")]))[
        "pictures"
    ]
    assert alone == {"title": WORDS[0], "note": "", "printed": WORDS[1], "weights": None}
    assert (below["printed"], len(below["weights"])) == ("a\n  b", 4)


def test_the_file_has_the_exact_weights():
    weights = torch.rand(3, 5)
    found = torch.tensor(data_in(page(Picture(weights)))["pictures"][0]["weights"])
    assert torch.equal(found, weights)


def test_the_file_names_no_other_place():
    text = page(Picture(WEIGHTS, WORDS, WORDS))
    assert not re.search(r"https?:|src=|href=|@import|url\(", text.replace(WORDS[0].replace("<", "\\u003c"), ""))
    assert "default-src 'none'" in text


def test_no_script_runs_but_the_page_s_own(browser, tmp_path):
    text = page(Picture(WEIGHTS, WORDS, WORDS))
    assert "unsafe-inline" not in text
    stranger = "<script>document.title = 'taken over'</script><style>h1 { color: red }</style>"
    (tmp_path / "page.html").write_text(text.replace("</main>", f"</main>{stranger}"), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.title() == "Attention weights"
    assert tab.locator("table.map tbody td").count() == WEIGHTS.numel()  # its own did
    assert tab.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(255, 0, 0)"
    tab.close()


def test_what_is_not_a_number_is_null():
    found = data_in(page(Picture([[float("nan"), 1.0]])))
    assert found["pictures"][0]["weights"] == [[None, 1.0]]
    assert found["pictures"][0]["caption"] == f"{AXES}; a grey cell is no finite number"
    assert data_in(page(Picture([[0.5, 1.0]])))["pictures"][0]["caption"] == AXES


def test_long_inputs_are_pooled_and_the_page_says_so():
    picture = data_in(page(Picture(torch.eye(1000))))["pictures"][0]
    assert (len(picture["weights"]), len(picture["weights"][0])) == (200, 200)
    assert "of 1,000 × 1,000" in picture["caption"]


def test_a_page_must_have_a_picture_and_its_selected_row():
    with pytest.raises(OptionError, match="at least one picture"):
        page([])
    with pytest.raises(OptionError, match="`selected` must be a row from 0 to 3: got 4"):
        page(Picture(WEIGHTS, selected=4))


def test_pictures_one_after_the_other_are_told_to_be_a_list():
    with pytest.raises(OptionError, match=r"`title` must be text: got Picture.*page\(\[first, second\]\)"):
        page(Picture(WEIGHTS), Picture(WEIGHTS))
    assert len(data_in(page((Picture(WEIGHTS), Picture(WEIGHTS))))["pictures"]) == 2


@pytest.mark.parametrize(
    "weights", [WEIGHTS, [WEIGHTS, WEIGHTS], [[0.5, 0.5]], None], ids=["one", "two", "list", "none"]
)
def test_weights_without_a_picture_are_told_to_be_wrapped(weights):
    with pytest.raises(OptionError, match=r"page\(Picture\(weights\)\)"):
        page(weights)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The page with words that look like markup; its complaints and requests are collected."""
    file = tmp_path / "page.html"
    file.write_text(page(Picture(WEIGHTS, WORDS, WORDS, title="a map"), title=WORDS[0]), encoding="utf-8")
    tab = browser.new_page()
    tab.complaints, tab.requests = [], []
    tab.on("console", lambda message: tab.complaints.append(message.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.complaints.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.goto(file.as_uri())
    yield tab
    assert tab.complaints == []
    assert tab.requests == [file.as_uri()]
    tab.close()


def test_a_browser_shows_words_as_text(opened):
    assert opened.locator("tbody th").all_inner_texts() == WORDS
    assert opened.locator("h1").inner_text() == WORDS[0]
    assert opened.title() == WORDS[0]
    assert opened.locator("img").count() == 0
    assert AXES in opened.locator("main").inner_text()


def test_pointing_at_a_cell_gives_its_percents_to_three_digits(browser, tmp_path):
    (tmp_path / "page.html").write_text(page(Picture([[0.0923456, 0.5], [1.0, 1e-6]])), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    said = []
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        tab.locator(f"td[data-row='{row}'][data-column='{column}']").hover()
        said.append(tab.locator(".value").inner_text())
    assert said == ["0 → 0: 9.23%", "0 → 1: 50%", "1 → 0: 100%", "1 → 1: 0.0001%"]
    assert tab.locator("td[data-row='0'][data-column='0']").get_attribute("aria-label") == "0 to 0: 9.23%"
    tab.locator("tbody th").nth(1).click()
    assert tab.locator(".ranked tr td:nth-child(2)").all_inner_texts() == ["100.0%", "<0.01%"]
    tab.close()


def test_clicking_a_word_ranks_its_row(opened):
    assert opened.locator("aside").inner_text() == ""
    opened.locator("tbody th").nth(0).click()
    ranked = opened.locator(".ranked tr td:first-child").all_inner_texts()
    assert ranked == [WORDS[3], WORDS[2], WORDS[1], WORDS[0]]
    assert opened.locator(".ranked tr td:nth-child(2)").all_inner_texts() == ["40.0%", "30.0%", "20.0%", "10.0%"]
    opened.locator("thead th").nth(1).click()  # the same words stand above
    assert WORDS[1] in opened.locator("aside h2").inner_text()


def test_the_bar_of_the_largest_has_the_full_width_and_the_others_are_shares_of_it(opened):
    opened.locator("tbody th").nth(0).click()
    widths = [each.bounding_box()["width"] for each in opened.locator(".bar").all()]
    assert widths == pytest.approx([160.0, 120.0, 80.0, 40.0], abs=1)  # of 10rem


def test_the_legend_ends_at_the_largest_weight_and_has_its_weights_where_their_colours_are(browser, tmp_path):
    (tmp_path / "page.html").write_text(page(Picture(0.26 * WEIGHTS)), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    assert "weight, up to the largest" in tab.locator(".legend").inner_text()
    ramp = tab.locator(".ramp").bounding_box()
    texts = tab.locator(".tick").all_inner_texts()
    assert texts == ["0%", "3.25%", "9.19%", "16.9%", "26%"]
    boxes = [each.bounding_box() for each in tab.locator(".tick").all()]
    for text, box in zip(texts, boxes, strict=True):
        middle = (box["x"] + box["width"] / 2 - ramp["x"]) / ramp["width"]
        assert middle == pytest.approx((float(text[:-1]) / 26) ** (2 / 3), abs=0.01)
    assert all(one["x"] + one["width"] <= other["x"] for one, other in pairwise(boxes))
    tab.close()


def test_cells_have_the_colours_of_figures_in_light_and_in_dark(opened):
    def colours(row: int, column: int) -> tuple[str, str]:
        style = f"getComputedStyle(document.querySelector(\"td[data-row='{row}'][data-column='{column}']\"))"
        found: list[str] = opened.evaluate(f"[{style}.backgroundColor, {style}.color]")
        return found[0], found[1]

    ends = [tuple(int(stop[at : at + 2], 16) for at in (1, 3, 5)) for stop in (STOPS[0], STOPS[-1])]
    near_white, deep = (f"rgb{end}" for end in ends)
    black, white = "rgb(0, 0, 0)", "rgb(255, 255, 255)"
    opened.emulate_media(color_scheme="light")
    assert (colours(3, 0), colours(3, 2)) == ((near_white, black), (deep, white))
    opened.emulate_media(color_scheme="dark")
    assert (colours(3, 0), colours(3, 2)) == ((deep, white), (near_white, black))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_reader_meets_a_barrier(opened, barriers, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.click("text=dog")
    assert barriers(opened) == []


def test_a_barrier_is_found_where_there_is_one(browser, barriers):
    tab = browser.new_page()
    tab.set_content("<html lang=en><title>t</title><main><h1>h</h1><button></button></main>")
    assert [each.split()[0] for each in barriers(tab)] == ["button-name"]
    tab.close()


def test_everything_can_be_reached_by_keyboard(opened):
    for key in ("Tab", "Tab", "Tab", "ArrowRight", "ArrowRight", "ArrowDown"):  # past matrix and lines
        opened.keyboard.press(key)
    assert opened.locator(".value").inner_text().startswith(f"{WORDS[1]} → {WORDS[1]}: 10%")
    opened.keyboard.press("Enter")
    assert WORDS[1] in opened.locator("aside h2").inner_text()
    assert opened.locator(".ranked tr").first.inner_text().startswith(WORDS[0])
    for _ in range(9):  # no further than the edge
        opened.keyboard.press("ArrowDown")
        opened.keyboard.press("ArrowRight")
    assert opened.locator(".value").inner_text() == f"{WORDS[3]} → {WORDS[3]}: 0%"


def test_the_page_is_light_or_dark_as_the_reader_prefers(opened):
    def background() -> str:
        found: str = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    opened.emulate_media(color_scheme="light")
    light = background()
    opened.emulate_media(color_scheme="dark")
    assert (light, background()) == ("rgb(255, 255, 255)", "rgb(22, 24, 28)")


def test_on_a_small_screen_a_wide_map_scrolls_and_the_page_does_not(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(Picture(torch.rand(3, 30))), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 400, "height": 700})
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    assert tab.evaluate("document.querySelector('.scroll').scrollWidth") > 400
    tab.close()


def test_the_row_that_was_asked_for_is_ranked_at_once(browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page([Picture(WEIGHTS, selected=1), Picture(WEIGHTS[:2])]), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("section").count() == 2
    assert "“1”" in tab.locator("aside h2").inner_text()
    tab.close()


HEADS = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)


@pytest.fixture
def with_heads(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A page whose picture has every head beside it."""
    file = tmp_path / "page.html"
    file.write_text(page(Picture(HEADS.mean((0, 1)), WORDS, WORDS, title="the average", heads=HEADS)), encoding="utf-8")
    tab = browser.new_page()
    tab.complaints = []
    tab.on("console", lambda message: tab.complaints.append(message.text))
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.goto(file.as_uri())
    yield tab
    assert tab.complaints == []
    tab.close()


def labels_of(tab: Any) -> list[str]:
    return [str(each.get_attribute("aria-label")) for each in tab.locator("tbody td").all()]


def expected_labels(weights: torch.Tensor) -> list[str]:
    return [
        f"{one} to {other}: {float(f'{100 * weight:.3g}'):g}%"
        for one, line in zip(WORDS, weights.tolist(), strict=True)
        for other, weight in zip(WORDS, line, strict=True)
    ]


def test_a_head_that_is_chosen_takes_the_place_of_the_average_and_gives_it_back(with_heads):
    assert labels_of(with_heads) == expected_labels(HEADS.mean((0, 1)))
    with_heads.click("[aria-label='Layer 1, head 2']")
    assert with_heads.inner_text("h2 >> nth=0") == "Layer 1, head 2"
    assert labels_of(with_heads) == expected_labels(HEADS[1, 2])
    with_heads.locator("tbody th").nth(2).click()
    order = HEADS[1, 2, 2].argsort(descending=True).tolist()
    assert with_heads.locator(".ranked tr td:first-child").all_inner_texts() == [WORDS[place] for place in order]
    with_heads.click("text=the average >> nth=-1")
    assert labels_of(with_heads) == expected_labels(HEADS.mean((0, 1)))


def test_heads_are_walked_through_by_keys_and_drawn_as_lines(with_heads, barriers):
    with_heads.focus("[aria-label='Layer 0, head 0']")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft"):
        with_heads.keyboard.press(key)
    assert with_heads.inner_text("h2 >> nth=0") == "Layer 1, head 0"
    with_heads.click("text=Lines")
    widths = {
        (row, column): float(with_heads.get_attribute(f"path[data-row='{row}'] >> nth={column}", "stroke-width"))
        for row in range(4)
        for column in range(4)
    }
    heaviest = max(widths, key=lambda pair: widths[pair])
    assert heaviest == divmod(int(HEADS[1, 0].argmax()), 4)
    with_heads.focus(".word >> nth=3")
    with_heads.keyboard.press("Enter")
    assert WORDS[3] in with_heads.inner_text("aside h2")
    assert barriers(with_heads) == []


def test_each_small_map_has_the_colours_of_its_weights(with_heads):
    pixels = "[...document.querySelectorAll('canvas')[4].getContext('2d').getImageData(0, 0, 4, 4).data]"
    shades = torch.tensor(with_heads.evaluate(pixels)).view(16, 4)[:, :3].sum(-1)
    by_weight = shades[HEADS[1, 1].flatten().argsort()]
    assert (by_weight.diff() <= 0).all()  # near weights may share a shade
    assert by_weight[0] - by_weight[-1] > 200


def test_many_heads_of_a_long_text_are_pooled_within_a_budget():
    text = page(Picture(torch.rand(300, 300), heads=torch.rand(6, 12, 300, 300)))
    heads = data_in(text)["pictures"][0]["heads"]
    assert len(text) < 5e6
    assert heads["size"][0] * heads["size"][1] * 72 <= 1 << 19
    assert "each cell is the largest of about 3.5" in heads["caption"]


def test_one_of_few_large_heads_is_drawn_and_the_chosen_row_keeps_its_place(browser, tmp_path):
    few = torch.rand(1, 1, 360, 360)
    assert data_in(page(Picture(few[0, 0], heads=few)))["pictures"][0]["heads"]["size"] == [200, 200]
    file = tmp_path / "page.html"
    many = torch.rand(8, 16, 150, 150)
    file.write_text(page(Picture(many[0, 0], selected=100, heads=many)), encoding="utf-8")
    tab = browser.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(file.as_uri())
    tab.click("[aria-label='Layer 7, head 15']")
    assert tab.locator("tbody tr").count() == 64
    chosen = tab.locator("tbody th").all_inner_texts().index(tab.locator("tbody th.on").inner_text())
    assert chosen == 100 * 64 // 150
    assert complaints == []
    tab.close()


def test_heads_must_have_the_words_of_the_picture():
    with pytest.raises(ShapeError, match="`heads` must have the queries and keys of `weights`, 4 × 4: got 5 × 5"):
        page(Picture(WEIGHTS, heads=torch.rand(1, 2, 5, 5)))
