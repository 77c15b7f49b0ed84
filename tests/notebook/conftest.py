"""A notebook's kernel, as far as pictures know one; and a browser, as far as they know a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="needs regard[notebook]")
IPython = pytest.importorskip("IPython")

MIME = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python runs as the kernel of a notebook."""
    from regard.view.notebook import widget

    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(widget, "_shown", [])
    yield
    for each in widget._shown:
        each.close()


class Picture:
    """What a notebook shows, and what it may ask of Python: messages go the way that ipywidgets gives them."""

    def __init__(self, shown: Any) -> None:
        from regard.view.notebook import widget

        data, _ = shown._repr_mimebundle_()
        self.widget = widget._shown[-1]
        assert data[MIME]["model_id"] == self.widget.model_id
        self.asked: list[dict[str, Any]] = []
        self.sent: list[int] = []

    @property
    def state(self) -> dict[str, Any]:
        """What a notebook knows of it from the start."""
        return {name: each for name, each in self.widget.get_state().items() if not name.startswith("_")}

    def ask(self, question: Any) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a message."""
        answers: list[tuple[dict[str, Any], list[bytes]]] = []
        self.widget.send = lambda content, buffers=None: answers.append((content, buffers or []))
        self.asked.append(question)
        self.widget._handle_custom_msg(question, [])
        (answer,) = answers
        self.sent.append(sum(map(len, answer[1])))
        return answer


@pytest.fixture
def show(kernel: None) -> Callable[[Any], Picture]:
    """What shows a view or a recording in the notebook."""
    return Picture


NOTEBOOK = """<!doctype html><html lang="en"><title>Notebook</title><meta name="viewport" content="width=device-width">
<style>:root { color-scheme: light dark } body { margin: 0; padding: 8px }</style>
<main><h1>Notebook</h1><div id="output"></div></main>"""

# As anywidget does: the module by an address of its own, the style in the page, a model that is asked and told.
SHOW = """async ([module, style, state]) => {
  const heard = new Map(), fire = (name, ...given) => [...heard.get(name) ?? []].forEach(each => each(...given));
  const unpacked = packed => {
    const bytes = Uint8Array.from(atob(packed), sign => sign.charCodeAt(0)), whole = new Uint8Array(bytes.length + 3);
    whole.set(bytes, 3); // a message's buffers begin anywhere
    return new DataView(whole.buffer, 3);
  };
  window.model = {
    get: name => state[name],
    set: (name, value) => { state[name] = value; fire(`change:${name}`); },
    save_changes: () => {},
    on: (name, each) => heard.set(name, (heard.get(name) ?? new Set()).add(each)),
    off: (name, each) => heard.get(name)?.delete(each),
    send: async content => {
      const [answer, packed] = await window.python(content);
      fire("msg:custom", answer, packed.map(unpacked));
    },
  };
  const sheet = document.createElement("style");
  sheet.textContent = style;
  document.head.append(sheet);
  const widget = (await import(URL.createObjectURL(new Blob([module], { type: "text/javascript" })))).default;
  window.render = (place = "output") =>
    widget.render({ model: window.model, el: place instanceof Node ? place : document.getElementById(place) });
  window.end = await window.render();
}"""


@pytest.fixture
def in_browser(browser: Any) -> Callable[..., Any]:
    """What opens a picture in a notebook in a browser, which must not complain, nor ask anybody but Python."""

    @contextmanager
    def opened(picture: Picture, **options: Any) -> Iterator[Any]:
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        complaints: list[str] = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.route("**/*", lambda route: route.abort())
        tab.route("http://notebook.test/", lambda route: route.fulfill(body=NOTEBOOK, content_type="text/html"))

        def answer(question: Any) -> Any:
            content, buffers = picture.ask(question)
            return content, [b64encode(each).decode() for each in buffers]

        tab.expose_function("python", answer)
        tab.goto("http://notebook.test/")
        tab.evaluate(SHOW, [str(picture.widget._esm), str(picture.widget._css), picture.state])
        tab.wait_for_selector(".legend span")
        tab.wait_for_selector(".row li")
        yield tab
        tab.close()
        assert complaints == []

    return opened
