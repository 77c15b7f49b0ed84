"""The room of the formula in a browser: what tests wait for there, and what they read."""

from __future__ import annotations

from typing import Any

# What is handed out as JSON, without the file that it would be saved as.
HANDED = """async () => {
    const { createObjectURL } = URL, { click } = HTMLAnchorElement.prototype;
    const given = new Promise(take => { URL.createObjectURL = blob => (take(blob.text()), "data:,"); });
    HTMLAnchorElement.prototype.click = () => {};
    [...document.querySelectorAll(".saving button")].find(each => each.textContent === "JSON").click();
    const text = await given;
    await new Promise(done => setTimeout(done));
    Object.assign(URL, { createObjectURL });
    Object.assign(HTMLAnchorElement.prototype, { click });
    return JSON.parse(text);
}"""


def columns(tab: Any) -> list[dict[str, Any]]:
    """What each column asks and has found, once it is at rest."""
    tab.wait_for_selector(".key-handle")
    found = tab.evaluate(HANDED)
    assert isinstance(found, list)
    return found


def column(tab: Any) -> dict[str, Any]:
    return columns(tab)[0]


def expect(tab: Any, selector: str) -> Any:
    """Claims about an element of the first column that may come a little later."""
    from playwright.sync_api import expect

    return expect(tab.locator(selector).first)


def eventually(tab: Any, expression: str) -> None:
    """Wait until it is true: the page allows no script of others that would wait within it."""
    for _ in range(100):
        if tab.evaluate(expression):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"{expression} is not so")


def labelled(tab: Any, words: str, column: int = 0) -> Any:
    """A control of a column."""
    return tab.get_by_label(words).nth(column)
