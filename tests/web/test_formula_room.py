"""Claims about the room of the formula as it is touched: by a mouse, a finger and the keyboard, on every screen."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard import Gaussian, Softmax, attend
from tests.web.formula_page import column, columns, eventually, expect, labelled


def expect_count(tab: Any, selector: str, count: int) -> None:
    from playwright.sync_api import expect

    expect(tab.locator(selector)).to_have_count(count)


def middle(tab: Any, selector: str, index: int = 0) -> tuple[float, float]:
    box = tab.locator(selector).nth(index).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def dragged(tab: Any, start: tuple[float, float], by: tuple[float, float]) -> None:
    tab.mouse.move(*start)
    tab.mouse.down()
    tab.mouse.move(start[0] + by[0] / 2, start[1] + by[1] / 2)
    tab.mouse.move(start[0] + by[0], start[1] + by[1])
    tab.mouse.up()


QUERY, KEY, VALUE = ".query-handle .inside", ".key-handle .dot", ".value-handle .value"

SEEN = """() => {
    const all = selector => [...document.querySelectorAll(`.column:first-child ${selector}`)];
    const of = (each, name) => Number(each.getAttribute(name));
    return {
        sum: document.querySelector(".sum").textContent,
        threads: all(".thread").map(each => each.getAttribute("display") === "none" ? 0 : of(each, "stroke-width")),
        bars: all(".weights-list .entry .bar").map(each => of(each, "width")),
        shares: all(".weights-list .entry title").map(each => each.textContent),
        numbers: all(".numbers dd").map(each => each.textContent),
        query: document.querySelector(".query-handle").getAttribute("transform"),
    };
}"""


def units(tab: Any) -> float:
    """Pixels of a unit of the plane, which is six units wide."""
    return float(tab.locator(".plane-drawing").first.bounding_box()["width"]) / 6


def test_all_that_is_seen_follows_the_query_that_is_dragged(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    before, pixels = tab.evaluate(SEEN), units(tab)
    dragged(tab, middle(tab, QUERY), (1.2 * pixels, -0.9 * pixels))
    seen, found = tab.evaluate(SEEN), column(tab)
    assert found["query"] == pytest.approx([0.15 + 1.2, -0.3 + 0.9], abs=0.02)
    query, keys, values = (torch.tensor(found[each], dtype=torch.float64) for each in ("query", "keys", "values"))
    (output,) = attend(query[None], keys, values, score=Gaussian(0.7), weights=Softmax())[0].tolist()
    weights, seen = found["weights"], tab.evaluate(SEEN)
    assert all(seen[each] != before[each] for each in seen if each != "numbers")
    assert seen["sum"].endswith(f"{output:.3f}".rstrip("0"))
    # As thick, and as long, as the weights are heavy.
    heaviest = weights.index(max(weights))
    for drawn in (seen["threads"], seen["bars"]):
        expected = [each / max(weights) * drawn[heaviest] for each in weights]
        assert drawn == pytest.approx(
            [each if each > 0.2 or drawn is seen["bars"] else 0 for each in expected], abs=0.02
        )
    entropy = -sum(each * math.log(each) for each in weights)
    assert seen["numbers"] == [f"{entropy:.3g} nats", f"{1 / sum(each**2 for each in weights):.3g}", "1"]
    shares = [float(each.partition(": ")[2].rstrip("%")) for each in seen["shares"]]
    assert shares == [pytest.approx(100 * each, rel=6e-3) for each in weights]


def test_a_key_is_dragged_deleted_and_switched_off_by_mouse(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    pixels = units(tab)
    dragged(tab, middle(tab, KEY, 8), (-0.6 * pixels, 0.3 * pixels))
    expect(tab, ".stepper output").to_have_text("Key k₉")
    found = column(tab)
    assert found["keys"][8] == pytest.approx([0.3, -1.75], abs=0.02)
    assert found["query"] == [0.15, -0.3]
    heavy = found["weights"][8]
    labelled(tab, "Takes part").uncheck()
    found = column(tab)
    assert found["on"] == [place != 8 for place in range(11)]
    assert found["weights"][8] == 0 != heavy
    expect_count(tab, ".key-handle.is-off", 1)
    tab.click("button:text-is('Delete')")
    expect_count(tab, ".key-handle", 10)
    tab.locator(".weights-list .entry").nth(8).click()
    expect(tab, ".stepper output").to_have_text("Key k₁₀")  # each keeps its name
    found = column(tab)
    assert found["names"] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert len(found["keys"]) == 10


def test_changes_are_undone_one_at_a_time_and_what_one_began_with_comes_back(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    again, first, pixels = tab.get_by_role("button", name="Begin again"), column(tab), units(tab)
    assert again.is_disabled()
    seen = [first]
    dragged(tab, middle(tab, KEY, 8), (-0.6 * pixels, 0.3 * pixels))
    seen.append(column(tab))
    for key in ("m", "ArrowUp", "ArrowUp", "Delete", "a"):
        tab.keyboard.press(key)
        seen.append(column(tab))
    labelled(tab, "Its value").press("Home")
    told = ("keys", "values", "on", "names")
    tab.focus(".plane-drawing")
    assert [seen[-1][each] for each in ("names", "query")] == [[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12], first["query"]]
    while seen:
        tab.keyboard.press("Control+z")
        found, before = column(tab), seen.pop()
        assert [found[each] for each in told] == [before[each] for each in told]
    expect(tab, "#said").to_contain_text("The last change is undone.")
    tab.keyboard.press("Control+z")
    expect(tab, "#said").to_contain_text("There is no change to undo.")
    for key in ("q", "ArrowLeft", "n", "Delete"):
        tab.keyboard.press(key)
    again.click()
    assert column(tab) == first
    assert again.is_disabled()
    tab.focus(".plane-drawing")
    tab.keyboard.press("Meta+z")
    found = column(tab)
    assert len(found["keys"]) == 10
    assert found["query"] == pytest.approx([0.05, -0.3])


def test_a_click_places_the_query_and_a_double_click_adds_a_key_and_leaves_it(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    pixels, (x, y) = units(tab), middle(tab, ".plane-drawing")
    tab.mouse.click(x + 1.5 * pixels, y + 2.5 * pixels)
    assert column(tab)["query"] == pytest.approx([1.5, -2.5], abs=0.02)
    tab.wait_for_timeout(500)  # or it is a third click
    tab.mouse.dblclick(x - 2.5 * pixels, y - 2.5 * pixels)
    found = column(tab)
    assert found["query"] == pytest.approx([1.5, -2.5], abs=0.02)
    assert found["keys"][11] == pytest.approx([-2.5, 2.5], abs=0.02)
    expect(tab, ".stepper output").to_have_text("Key k₁₂")


def test_settings_are_chosen_and_the_formula_says_them(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    score, rule = labelled(tab, "Score a(q, k)"), labelled(tab, "Rule: how scores become weights")

    def says(words: str) -> None:
        expect(tab, ".formulas").to_contain_text(words)

    def slid(label: str, key: str = "ArrowRight") -> None:
        slider = labelled(tab, label)
        before = slider.get_attribute("aria-valuetext")
        slider.press(key)
        assert slider.get_attribute("aria-valuetext") != before

    for name in score.locator("option").all():
        score.select_option(name.get_attribute("value"))
        assert column(tab)["score"] == name.get_attribute("value")
    score.select_option("laplacian")
    slid("Bandwidth")
    says("a(q, k) = −‖q − k‖₁ / 0.7")
    for each in rule.locator("option").all():
        rule.select_option(each.get_attribute("value"))
        assert column(tab)["rule"] == each.get_attribute("value")
    rule.select_option("topk")
    slid("How many keys")
    slid("Temperature", "PageUp")
    found = column(tab)
    assert (found["k"], sum(each > 0 for each in found["weights"])) == (4, 4)
    says("of the 4 largest a")
    assert found["temperature"] > 1
    rule.select_option("entmax")
    slid("Alpha: 1 is softmax, 2 sparsemax")
    says("max(0, 0.51·a − τ)")
    labelled(tab, "The query may attend to").select_option("nearest")
    slid("So many", "ArrowLeft")
    found = column(tab)
    assert (found["nearest"], sum(each > 0 for each in found["weights"])) == (2, 2)
    assert tab.locator(".key-handle[opacity='1']").count() == 2
    labelled(tab, "The query may attend to").select_option("left")
    expect_count(tab, ".column:first-child .key-handle[opacity='1']", sum(key[0] <= 0.15 for key in found["keys"]))


def test_values_are_colours_points_or_heights_and_the_outputs_of_every_query_come_and_go(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    shown = {"Colours": "canvas.outputs", "Points": "path.arrows", "Heights": "path.outputs-curve"}
    for words, drawn in shown.items():
        tab.click(f".segments label:text-is('{words}')")
        expect(tab, drawn).to_be_visible()
        for other in set(shown.values()) - {drawn}:
            expect(tab, other).to_be_hidden()
        labelled(tab, "Show the output of every query").uncheck()
        expect(tab, drawn).to_be_hidden()
        labelled(tab, "Show the output of every query").check()
        found = column(tab)
        assert (len(found["query"]), len(found["values"][0])) == {
            "Colours": (2, 1),
            "Points": (2, 2),
            "Heights": (1, 1),
        }[words]
    tab.click(".segments label:text-is('Points')")
    assert column(tab)["values"] == column(tab)["keys"]
    labelled(tab, "The keys themselves are the values").uncheck()
    pixels = units(tab)
    x, y = middle(tab, KEY, 4)
    dragged(tab, (x, y), (0, 0.5 * pixels))  # away from its value, which lies on it
    expect_count(tab, VALUE, 11)


def test_every_beginning_has_its_keys_and_keeps_the_keyboard_where_it_is(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    begins = labelled(tab, "Begin with")
    begins.focus()
    counts = {}
    for _ in range(begins.locator("option").count() - 1):
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.labels?.[0]?.textContent") == "Begin with"
        counts[labelled(tab, "Begin with").input_value()] = len(column(tab)["keys"])
        labelled(tab, "Begin with").focus()
    assert counts == {"graduates": 12, "lookup": 11, "average": 11, "circle": 8, "cone": 4, "many": 200}
    tab.wait_for_url("**preset=many**")


def test_two_scores_and_rules_are_compared_over_the_same_keys(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    labelled(tab, "Compare with another").check()
    expect_count(tab, ".plane-drawing:visible", 2)
    labelled(tab, "Score a(q, k)", 1).select_option("epanechnikov")
    labelled(tab, "Rule: how scores become weights", 1).select_option("proportional")
    second = tab.locator(".plane-drawing").nth(1).bounding_box()
    tab.mouse.click(second["x"] + second["width"] * 2 / 3, second["y"] + second["height"] / 2)
    first, other = columns(tab)
    assert first["query"] == other["query"] == pytest.approx([1, 0], abs=0.02)
    assert first["keys"] == other["keys"]
    assert (first["rule"], other["rule"]) == ("softmax", "proportional")
    assert first["weights"] != other["weights"]
    # As long, and as thick, for the same weight on both sides.
    weights = first["weights"] + other["weights"]
    for selector, name in ((".columns .bar", "width"), (".columns .thread", "stroke-width")):
        hidden = "each.getAttribute('display') === 'none'"
        drawn = tab.locator(selector).evaluate_all(
            f"all => all.map(each => {hidden} ? 0 : +each.getAttribute('{name}'))"
        )
        assert sum(each > 0 for each in drawn) > 4
        expected = [each / max(weights) * max(drawn) if drawn[place] else 0 for place, each in enumerate(weights)]
        assert drawn == pytest.approx(expected, abs=0.02)
    top = [tab.locator(".plane").nth(place).bounding_box()["y"] for place in (0, 1)]
    assert top[0] == top[1]
    labelled(tab, "Compare with another").uncheck()
    expect_count(tab, ".plane-drawing:visible", 1)


INSIDE = """() => {
    const region = document.querySelector(".layer-region .hull");
    const [x, y] = document.querySelector(".layer-answer g").getAttribute("transform").match(/-?[\\d.]+/g).map(Number);
    const around = [[0, 0], [0.3, 0], [-0.3, 0], [0, 0.3], [0, -0.3]]; // places are rounded to tenths of a pixel
    return around.some(([right, down]) => region.isPointInFill(new DOMPoint(x + right, y + down)));
}"""


@pytest.mark.parametrize("place", ["preset=circle", "preset=circle&rule=sparsemax", "preset=average", "preset=cone"])
def test_the_output_lies_in_the_hull_or_the_cone_of_the_values(open_page: Callable[..., Any], place: str) -> None:
    with open_page(f"#formula?{place}") as tab:
        tab.wait_for_selector(".key-handle")
        (x, y), pixels = middle(tab, ".plane-drawing"), units(tab)
        for across, down in [(0.4, -0.5), (-0.7, 0.3), (-0.2, -0.9), (0.9, 0.8), (0.1, 0)]:
            tab.mouse.click(x + across * pixels, y + down * pixels)
            column(tab)
            assert tab.evaluate(INSIDE), (across, down)
        said = {"cone": "in the cone", "average": "the mean of the values"}.get(place[7:], "in the convex hull")
        expect(tab, ".readings .caption").to_contain_text(said)


def test_all_of_it_is_driven_by_keys_alone_and_told(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    tab.focus(".plane-drawing")

    def pressed(*keys: str) -> None:
        for key in keys:
            tab.keyboard.press(key)

    def told(words: str) -> None:
        expect(tab, "#said").to_contain_text(words)
        expect(tab, ".plane-drawing").to_have_attribute("aria-label", re.compile("The output is"))

    pressed("ArrowRight", "ArrowUp", "Shift+ArrowLeft")
    told("The query at −0.25, −0.2. Weights of 11 keys; the heaviest is key 8.")
    pressed("n")
    told("Key 1 at −2.05, 1.7, value 0.1, weight 0.1 percent")
    pressed("p", "P")
    told("Key 11 at −1.5, −2.35")
    pressed("m")
    told("Key 11 is switched off. Key 11 at −1.5, −2.35, value 0.86, switched off")
    pressed("M")
    told("Key 11 is switched on.")
    pressed("Delete")
    told("Key 11 is deleted; 10 keys are left. Key 10 at")
    pressed("q")
    told("The query at −0.25, −0.2.")
    pressed("a")
    told("Key 11 is added. Key 11 at 0.25, −0.2, value 0.65, weight")
    pressed("ArrowDown")
    told("Key 11 at 0.25, −0.3")
    pressed("Escape", "Delete", "m")  # the query can be neither deleted nor switched off
    found = tab.evaluate(SEEN)
    assert len(found["bars"]) == 11
    labelled(tab, "Choose the next").press("Enter")
    told("Key 1 at −2.05, 1.7")
    labelled(tab, "Its value").press("End")
    labelled(tab, "Takes part").press("Space")
    found = column(tab)
    assert (found["values"][0], found["on"][0]) == ([1], False)
    tab.locator("button:text-is('Add a key')").press("Enter")
    told("Key 12 is added.")
    tab.locator("button:text-is('Delete')").press("Enter")
    told("Key 12 is deleted; 11 keys are left.")


def test_the_value_of_a_key_slides_over_the_heights_that_are_shown(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=graduates") as tab:
        tab.wait_for_selector(".key-handle")
        tab.focus(".plane-drawing")
        tab.keyboard.press("n")
        slider = labelled(tab, "Its value")
        assert slider.get_attribute("aria-valuetext") == "54,000"
        slider.press("ArrowRight")
        assert column(tab)["values"][0] == pytest.approx([54000], abs=400)
        slider.press("Home")
        assert column(tab)["values"][0] == [50000]
        tab.focus(".plane-drawing")
        tab.keyboard.press("Shift+ArrowUp")
        assert column(tab)["values"][0] == pytest.approx([50000 + 38000 / 12])


def test_there_is_a_last_key_that_can_be_added_and_one_that_cannot_be_deleted(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=many&field=0") as tab:
        tab.wait_for_selector(".key-handle")
        tab.focus(".plane-drawing")
        keys = """([key, times]) => { for (let each = 0; each < times; each += 1)
            document.querySelector(".plane-drawing").dispatchEvent(new KeyboardEvent("keydown", { key })); }"""
        tab.evaluate(keys, ["a", 201])
        expect(tab, "#said.wrong").to_contain_text("There are 400 keys")
        expect(tab, ".weights-list figcaption").to_have_text("The 12 heaviest of 400 keys.")
        tab.evaluate(keys, ["Delete", 450])
        expect_count(tab, ".key-handle", 1)
        assert tab.locator("button:text-is('Delete')").is_disabled()
        tab.keyboard.press("m")
        expect(tab, ".readings .caption").to_have_text(re.compile("may attend to no key"))
        assert column(tab)["output"] == [0]


def test_an_answer_that_comes_late_is_not_shown_over_other_keys(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=circle&rule=raw&compare=1&rule2=conic") as tab:
        tab.wait_for_selector(".key-handle")
        column(tab)
        tab.route("**/ask/formula/weigh", lambda route: (tab.wait_for_timeout(300), route.continue_()))
        for preset, compare in [("cone", True), ("circle", False), ("cone", True)]:
            labelled(tab, "Compare with another").set_checked(compare)
            labelled(tab, "Begin with").select_option(preset)
            tab.wait_for_timeout(100)
            for place, settings in enumerate(columns(tab)):
                assert len(settings["weights"]) == len(settings["keys"]), (preset, place)


def test_a_field_whose_question_gave_way_to_a_moved_query_is_asked_for_with_it(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?score=dot&rule=conic") as tab:
        tab.wait_for_selector(".key-handle")
        column(tab)
        asked: list[tuple[str, bool]] = []

        def slow(route: Any) -> None:
            body = json.loads(route.request.post_data)
            asked.append((body["rule"], body["field"] is not None))
            tab.wait_for_timeout(300)
            route.continue_()

        tab.route("**/ask/formula/weigh", slow)
        for rule in ("sigmoid", "raw"):  # the second waits for the first
            labelled(tab, "Rule: how scores become weights").select_option(rule)
            tab.wait_for_timeout(50)
        tab.focus(".plane-drawing")
        tab.keyboard.press("q")
        tab.keyboard.press("ArrowRight")  # and a moved query takes its place
        for _ in range(40):
            if asked and asked[-1][0] == "raw":
                break
            tab.wait_for_timeout(100)
        tab.unroute_all(behavior="ignoreErrors")
        assert any(rule == "raw" and has_field for rule, has_field in asked)


def test_a_finger_drags_the_query_and_scrolls_past_it(open_page: Callable[..., Any]) -> None:
    with open_page("#formula", viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True) as tab:
        tab.wait_for_selector(".key-handle")
        (x, y), pixels = middle(tab, QUERY), units(tab)
        session = tab.context.new_cdp_session(tab)

        def touched(kind: str, *places: tuple[float, float]) -> None:
            points = [{"x": across, "y": down} for across, down in places]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touched("touchStart", (x + 8, y))  # beside it: fingers are broad
        for step in (20, 40, 60):
            touched("touchMove", (x + 8 + step, y + step))
        touched("touchEnd")
        query = column(tab)["query"]
        assert query == pytest.approx([0.15 + 60 / pixels, -0.3 - 60 / pixels], abs=0.1)
        tab.evaluate("scrollTo(0, 0)")
        left, down = tab.locator(".plane").first.bounding_box()["x"], middle(tab, ".plane")[1]
        touched("touchStart", (left + 8, down))
        for step in (30, 60, 120, 180):
            touched("touchMove", (left + 8, down - step))
        touched("touchEnd")
        eventually(tab, "scrollY > 50")
        assert column(tab)["query"] == query
