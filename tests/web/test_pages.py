"""Claims about every room alike: who can use it, and on which screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROOMS = ("formula", "table", "sentence", "sounds")


def settle(tab: Any) -> None:
    """Wait until what a room asks for at first is there."""
    tab.wait_for_selector(".room h1")
    tab.wait_for_load_state("networkidle")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("room", ROOMS)
def test_no_reader_meets_a_barrier_and_nothing_is_cut(
    open_page: Callable[..., Any], barriers: Callable[[Any], list[str]], room: str, width: int, scheme: str
) -> None:
    with open_page(f"#{room}", viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        settle(tab)
        assert barriers(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("room", ROOMS)
def test_every_control_is_reached_by_tab_and_its_focus_is_seen(open_page: Callable[..., Any], room: str) -> None:
    with open_page(f"#{room}") as tab:
        settle(tab)
        controls = tab.evaluate(
            """() => [...document.querySelectorAll("button, input, select, textarea, a[href]")]
                .filter(each => each.offsetParent !== null && !each.disabled && each.tabIndex >= 0)
                .filter(each => each.type !== "radio" || each.checked).length"""
        )
        assert controls > 5
        reached, unseen = set(), []
        for _ in range(3 * controls + 40):
            tab.keyboard.press("Tab")
            found = tab.evaluate(
                """() => {
                    const at = document.activeElement;
                    if (at === document.body) return null;
                    at.dataset.seen ??= String(Math.random());
                    const looks = [at, at.nextElementSibling, at.labels?.[0]].filter(each => each);
                    const outlined = looks.some(each => getComputedStyle(each).outlineStyle !== "none");
                    return [at.dataset.seen, outlined, at.outerHTML.slice(0, 120)];
                }"""
            )
            if found is None:
                break
            reached.add(found[0])
            if not found[1]:
                unseen.append(found[2])
        assert unseen == []
        assert len(reached) >= controls


def test_rooms_are_walked_through_by_their_links_and_back(open_page: Callable[..., Any]) -> None:
    with open_page() as tab:
        for room in ROOMS:
            tab.click(f"nav [data-room='{room}']")
            tab.wait_for_selector(f".room-{room} h1")
            assert tab.get_attribute(f"nav [data-room='{room}']", "aria-current") == "page"
        tab.go_back()
        tab.wait_for_selector(".room-sentence h1")
        assert tab.locator("nav [aria-current]").count() == 1


def test_a_room_is_found_as_it_was_left(open_page: Callable[..., Any]) -> None:
    with open_page("#formula") as tab:
        settle(tab)
        tab.get_by_label("Rule: how scores become weights").first.select_option("sparsemax")
        tab.wait_for_url("**rule=sparsemax**")
        keys = tab.locator(".key-handle:visible").count()
        tab.get_by_role("button", name="Add a key").click()
        tab.click("nav [data-room='sounds']")
        tab.wait_for_selector(".alignment svg")
        tab.fill("#word", "cat")
        tab.wait_for_selector(".alignment svg[aria-label*='cat']")
        tab.click("nav [data-room='formula']")
        tab.wait_for_selector(".room-formula h1")
        assert tab.get_by_label("Rule: how scores become weights").first.input_value() == "sparsemax"
        assert tab.locator(".key-handle:visible").count() == keys + 1
        tab.click("nav [data-room='sounds']")
        tab.wait_for_selector(".alignment svg[aria-label*='cat']")
        assert tab.input_value("#word") == "cat"
        assert "cat" not in tab.url


def test_a_table_that_is_dropped_in_another_room_is_opened(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        settle(tab)
        dropped = tab.evaluate_handle(
            """() => {
                const transfer = new DataTransfer();
                transfer.items.add(new File(["height,weight\\n1,2\\n2,3\\n3,5\\n"], "a.csv", { type: "text/csv" }));
                return transfer;
            }"""
        )
        tab.dispatch_event(".room", "drop", {"dataTransfer": dropped})
        tab.wait_for_selector(".room-table .answer-line:has-text('height = ')")


def test_a_failure_stays_in_sight_whatever_is_said_after_it(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        settle(tab)
        said = """async () => {
            const { fail, say } = await import(new URL("static/said.js", document.baseURI));
            fail(new Error("It failed."));
            say("And so on.");
            return document.getElementById("said").innerText;
        }"""
        assert "It failed." in tab.evaluate(said)
        assert tab.locator("#said.wrong button").is_visible()
        assert "And so on." in tab.text_content("#said")


def test_what_is_saved_runs_in_no_spreadsheet_and_is_xml(open_page: Callable[..., Any]) -> None:
    with open_page("#sounds") as tab:
        settle(tab)
        saved = """async () => {
            const { csv, standalone } = await import(new URL("static/saving.js", document.baseURI));
            const { drawing, text } = await import(new URL("static/elements.js", document.baseURI));
            const picture = standalone(drawing(90, 20, "", text(0, 9, "a\\uffff")), "of\\ufffe it");
            const isXml = !new DOMParser().parseFromString(picture, "image/svg+xml").querySelector("parsererror");
            return [csv([["=1", "\\n=1", "＝1", "x;=1", -3, "-9007199254740993", "-x"]]), isXml];
        }"""
        rows, is_xml = tab.evaluate(saved)
        assert rows == "'=1,\"'\n=1\",'＝1,\"x;=1\",-3,-9007199254740993,'-x\r\n"
        assert is_xml


def test_an_unknown_room_is_the_first_one(open_page: Callable[..., Any]) -> None:
    with open_page("#nowhere?a=1") as tab:
        tab.wait_for_selector(".room-formula h1")


def test_paper_has_no_controls(open_page: Callable[..., Any]) -> None:
    with open_page("#formula") as tab:
        settle(tab)
        tab.emulate_media(media="print")
        assert not tab.locator("header nav").is_visible()
        assert not tab.locator(".saving").first.is_visible()
