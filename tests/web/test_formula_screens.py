"""Claims about the room of the formula as it is shown: on a phone, on paper, in the address, and in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.web.formula_page import column, columns, eventually, expect, labelled


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_on_a_phone_whatever_is_shown(
    open_page: Callable[..., Any], barriers: Callable[[Any], list[str]], scheme: str
) -> None:
    places = [
        "preset=graduates&compare=1",
        "rule=proportional",
        "preset=cone&mask=nearest",
        "preset=many&rule=raw&score=dot",
    ]
    with open_page("#formula", viewport={"width": 400, "height": 800}, color_scheme=scheme) as tab:
        for place in places:
            tab.evaluate("place => { location.hash = `formula?${place}`; }", place)
            column(tab)
            eventually(tab, "document.documentElement.scrollWidth <= 400")
            cut = tab.evaluate(
                """() => [...document.querySelectorAll(".room svg text, .room button, .room label")]
                    .filter(each => each.checkVisibility() && each.textContent)
                    .map(each => [each.textContent, each.getBoundingClientRect()])
                    .filter(([words, { left, right }]) => left < 0 || right > 400).map(([words]) => words)"""
            )
            assert cut == [], place
        assert barriers(tab) == []


def test_the_plane_stays_in_sight_on_a_phone(open_page: Callable[..., Any]) -> None:
    with open_page("#formula", viewport={"width": 400, "height": 800}) as tab:
        tab.wait_for_selector(".key-handle")
        labelled(tab, "Show the output of every query").scroll_into_view_if_needed()
        assert tab.locator(".plane").first.bounding_box()["y"] == 0
        labelled(tab, "Temperature").press("PageUp")
        box = labelled(tab, "Temperature").bounding_box()
        plane = tab.locator(".plane").first.bounding_box()
        assert box["y"] >= plane["y"] + plane["height"]
        assert plane["height"] <= 0.47 * 800
        labelled(tab, "Compare with another").check()
        labelled(tab, "Rule: how scores become weights", 1).select_option("topk")
        labelled(tab, "How many keys", 1).press("ArrowRight")
        box = labelled(tab, "How many keys", 1).bounding_box()
        for place in (0, 1):  # both
            plane = tab.locator(".plane").nth(place).bounding_box()
            assert (plane["y"], plane["width"] > 150) == (0, True)
            assert box["y"] >= plane["height"]


def test_the_address_has_the_settings_and_never_the_points(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=circle&values=colours") as tab:
        tab.wait_for_selector(".key-handle")
        labelled(tab, "Compare with another").check()
        labelled(tab, "Rule: how scores become weights", 1).select_option("topk")
        labelled(tab, "How many keys", 1).press("ArrowRight")
        labelled(tab, "Temperature").press("PageUp")
        labelled(tab, "The query may attend to").select_option("nearest")
        labelled(tab, "Show the output of every query").uncheck()
        tab.focus(".plane-drawing")
        for key in ("ArrowRight", "n", "ArrowDown", "a"):
            tab.keyboard.press(key)
        first = columns(tab)
        tab.wait_for_url("**field=0**")
        fragment = tab.url.partition("#")[2]
        settings = dict(each.split("=") for each in fragment.partition("?")[2].split("&"))
        temperature = settings.pop("temperature")
        expected = {
            "preset": "circle",
            "values": "colours",
            "compare": "1",
            "rule2": "topk",
            "k2": "4",
            "mask": "nearest",
        }
        assert settings == expected | {"field": "0"}
        assert float(temperature) == pytest.approx(first[0]["temperature"], rel=1e-3)
    with open_page(f"#{fragment}") as tab:
        again = columns(tab)
        told = ("score", "rule", "k", "mask", "nearest", "bandwidth")
        assert [[each[name] for name in told] for each in again] == [[each[name] for name in told] for each in first]
        assert again[0]["query"] == [1.3, 0.9]
        assert len(again[0]["keys"]) == 8


@pytest.mark.parametrize(
    "fragment",
    [
        "formula?preset=__proto__&values=constructor&score=toString&rule=&mask=<script>",
        "formula?bandwidth=-1&temperature=NaN&alpha=1e999&k=2.5&nearest=0&field=yes&compare=2",
        "formula?bandwidth=&k=&%E0%A4%A&&&==&preset=circle%00",
        "formula?" + "score=" + "x" * 5000,
        "toString",
    ],
)
def test_a_damaged_address_does_no_harm(open_page: Callable[..., Any], fragment: str) -> None:
    with open_page(f"#{fragment}") as tab:
        tab.wait_for_selector(".key-handle")
        found = column(tab)
        assert (found["score"], found["rule"], found["bandwidth"], found["k"]) == ("gaussian", "softmax", 0.7, 3)
        assert tab.title() == "The formula · regard"


def test_going_back_leads_to_the_settings_before_and_leaves_the_points(tab: Any) -> None:
    tab.wait_for_selector(".key-handle")
    tab.focus(".plane-drawing")
    tab.keyboard.press("ArrowRight")
    query = column(tab)["query"]
    tab.evaluate("location.hash = 'formula?compare=1'")  # another column is shown, for the first time
    tab.locator(".column").nth(1).locator(".key-handle").first.wait_for()
    tab.evaluate("location.hash = 'formula?rule=sparsemax'")
    expect(tab, ".formulas").to_contain_text("max(0, a − τ)")
    tab.go_back()
    expect(tab, ".formulas").to_contain_text("exp(a)")
    assert len(columns(tab)) == 2
    assert column(tab)["query"] == query


def test_what_is_refused_is_said_in_the_librarys_words_in_place_of_the_sum(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=circle&score=dot&rule=proportional") as tab:
        expect(tab, ".refusal").to_contain_text("Proportional() must have scores that are not negative")
        expect(tab, ".refusal").to_contain_text("Move the query to where no score is below 0, or choose Boxcar")
        expect(tab, ".sum").to_be_hidden()
        labelled(tab, "Score a(q, k)").select_option("gaussian")
        expect(tab, ".refusal").to_contain_text(
            "Choose Boxcar, Epanechnikov or Triangular for proportional weights. Prop"
        )
        labelled(tab, "Rule: how scores become weights").select_option("softmax")
        expect(tab, ".refusal").to_be_hidden()
        expect(tab, ".sum").to_be_visible()
        assert column(tab)["weights"] is not None


def test_weights_below_0_are_told_apart_and_numbers_that_mean_nothing_are_not_told(
    open_page: Callable[..., Any],
) -> None:
    with open_page("#formula?preset=circle&score=dot&rule=raw") as tab:
        weights = column(tab)["weights"]
        for selector in (".thread", ".weights-list .bar"):
            below = tab.locator(f".column:first-child {selector}").evaluate_all(
                "each => each.map(one => one.classList.contains('is-below'))"
            )
            assert below == [each < 0 for each in weights]
        assert tab.locator(".numbers dd").all_inner_texts()[:3] == ["–", "–", "0"]  # they cancel
        # Numbers, as their sum is free: not shares in percent.
        told = tab.locator(".column:first-child .weights-list .entry").all_text_contents()
        assert not [each for each in told if "%" in each]
        largest = max(range(8), key=lambda place: abs(weights[place]))
        said = f"the largest by size is that of key {largest + 1}, {weights[largest]:.3g}".replace("-", "−")
        assert said in tab.locator(".plane-drawing").first.get_attribute("aria-label")
        labelled(tab, "Score a(q, k)").select_option("boxcar")
        labelled(tab, "Radius").press("Home")
        expect(tab, ".readings .caption").to_contain_text("No key has a score above 0")
        expect(tab, ".sum").to_contain_text("No key has a weight, so the output is (0.00, 0.00)")


def test_a_sum_has_no_terms_that_are_written_as_nothing(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?mask=left") as tab:
        expect(tab, ".sum").to_have_text("Attention(q, D) = 0.27·v₆ + 0.72·v₈ + 4 more = 0.0929")
        tab.evaluate("location.hash = 'formula?preset=many&rule=uniform'")
        expect(tab, ".sum").to_contain_text("0.005·v₁ + 0.005·v₂ + 0.005·v₃ + 0.005·v₄ + 196 more of as much = ")
        expect(tab, ".side .caption").to_contain_text("Uniform weights are the same for every score and width.")
        assert labelled(tab, "Bandwidth").is_disabled()
        # What weighs as much as a term that is told is told, too.
        tab.evaluate("location.hash = 'formula?preset=graduates'")
        expect(tab, ".sum").to_contain_text(
            "0.18·v(Fay) + 0.18·v(Gil) + 0.29·v(Hal) + 0.18·v(Ida) + 0.18·v(Jon) + 7 more"
        )
        assert tab.locator(".weights-list svg > text").all_text_contents()[:3] == ["key", "salary", "weight"]


def test_an_output_beyond_the_values_is_seen_and_said_to_be(open_page: Callable[..., Any]) -> None:
    with open_page("#formula?preset=cone") as tab:
        expect(tab, ".readings .caption").to_contain_text(
            "in the cone of the values. This output lies outside of their hull."
        )
        expect(tab, ".values-hull").to_be_visible()
        assert tab.locator(".column:first-child .scales text").all_text_contents() == ["−2", "−1", "0", "1", "2"] * 2
        labelled(tab, "The keys themselves are the values").check()
        expect(tab, ".readings .caption").to_contain_text("Here that is the whole plane.")
        tab.evaluate("location.hash = 'formula?rule=conic&score=epanechnikov&bandwidth=3'")
        expect(tab, ".readings .caption").to_contain_text(
            "This output is above every value: they go from 0.04 to 0.95."
        )
        expect(tab, ".readings .caption").to_contain_text("It is beyond the scale of colours.")
        tab.evaluate("location.hash = 'formula?rule=onehot'")
        expect(tab, ".side .caption").to_have_text("The nearest key is the nearest at every bandwidth.")
        expect(tab, ".values-hull").to_be_hidden()
        assert tab.locator(".column:first-child .numbers dd").first.inner_text() == "0 nats"


def test_nothing_moves_by_itself(open_page: Callable[..., Any]) -> None:
    with open_page("#formula", reduced_motion="no-preference") as tab:
        tab.wait_for_selector(".key-handle")
        labelled(tab, "Begin with").select_option("graduates")
        tab.focus(".plane-drawing")
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.querySelector('.room').getAnimations({ subtree: true }).length") == 0
        column(tab)
        before = tab.inner_html(".columns")
        tab.wait_for_timeout(300)
        assert tab.inner_html(".columns") == before


PICTURE = "document.querySelector('canvas.outputs').toDataURL()"


def test_paper_is_light_has_no_help_and_two_columns_side_by_side(open_page: Callable[..., Any]) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        with open_page("#formula?compare=1", color_scheme=scheme, viewport={"width": 800, "height": 900}) as tab:
            column(tab)
            colours[scheme] = tab.evaluate(PICTURE)
            tab.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert tab.evaluate(PICTURE) == colours["light"]
            tab.emulate_media(media="print")
            expect(tab, ".help").to_be_hidden()
            tops = [tab.locator(".plane").nth(place).bounding_box()["y"] for place in (0, 1)]
            assert tops[0] == tops[1]
            tab.emulate_media(media="screen", color_scheme=scheme)
            tab.evaluate("dispatchEvent(new Event('afterprint'))")
            assert tab.evaluate(PICTURE) == colours[scheme]
    assert colours["light"] != colours["dark"]
