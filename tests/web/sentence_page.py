"""The room of a sentence in a browser: what tests wait for there, and what they read."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.web.conftest import opened


@contextlib.contextmanager
def open_at(browser: Any, page: Any, text: str | None = None, settings: str = "", **options: Any) -> Iterator[Any]:
    """The room of a server, with a text of its own."""
    with opened(browser, page, f"#sentence{settings}", **options) as tab:
        drawn(tab)
        if text is not None:
            write(tab, text)
        yield tab


def write(tab: Any, text: str, field: str = "text") -> None:
    """Write a text into the room, or what is to be written of it, and wait until all is drawn."""
    with tab.expect_response(lambda response: response.url.endswith("/sentence/look")) as found:
        tab.fill(f"#sentence-{field}", text)
    assert found.value.request.post_data_json[field] == text
    drawn(tab)


def drawn(tab: Any) -> None:
    """Wait until all that was asked for is drawn."""
    tab.wait_for_selector(".shown:not([hidden])")
    tab.wait_for_selector(".heads canvas")
    expect(tab, ".busy").to_have_count(0)


def expect(tab: Any, selector: str) -> Any:
    """Claims about elements that may come a little later."""
    from playwright.sync_api import expect

    return expect(tab.locator(selector))


def names(tab: Any) -> list[str]:
    """The names of the rows of a matrix."""
    return list(tab.locator(".picture svg text.ink[text-anchor=end]").all_text_contents())


def numbers(tab: Any) -> list[str]:
    """What is written into the cells of a matrix."""
    return list(tab.locator(".picture svg text.number").all_text_contents())


def in_cells(weights: Any) -> list[str]:
    """Weights as cells have them; one that is 0 has nothing."""
    return ["·" if each < 0.005 else str(int(100 * each + 0.5)) for each in weights.flatten().tolist() if each]


def saved(tab: Any, kind: str) -> str:
    """What is in a file that is saved."""
    with tab.expect_download() as found:
        tab.click(f".saving button:text-is('{kind}')")
    return Path(found.value.path()).read_text(encoding="utf-8")


def computed(tab: Any) -> Any:
    """The weights that the lines of Python find."""
    if not tab.locator("pre.python").is_visible():
        tab.click(".saving button:text-is('Python')")
    expect(tab, "pre.python").not_to_be_empty()
    found: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(tab.inner_text("pre.python"), found)
    return found["weights"]
