"""The page as `regard explore` serves it, and a browser on it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

pytest.importorskip("starlette", reason="needs regard[web]")
pytest.importorskip("uvicorn", reason="needs regard[web]")


class Served:
    """A page that is served: its address, and what may be asked of it from outside a browser."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address, self.process = address, process
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.root = f"http://{parts.netloc}"
        (self.token,) = parse_qs(parts.query)["token"]

    def ask(self, room: str, operation: str, body: Any) -> tuple[int, Any]:
        """The status and the JSON of a question."""
        headers = {"x-regard-token": self.token, "content-type": "application/json"}
        request = urllib.request.Request(
            f"{self.root}/ask/{room}/{operation}", json.dumps(body).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def drop(self, name: str, content: bytes | str) -> str:
        """Drop a file on the page; the number of its table."""
        body = content.encode() if isinstance(content, str) else content
        request = urllib.request.Request(
            f"{self.root}/files?name={quote(name)}", body, {"x-regard-token": self.token}, method="PUT"
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return str(json.load(response)["table"])

    def answer(self, room: str, operation: str, body: Any) -> Any:
        """The JSON of a question that must be answered."""
        status, found = self.ask(room, operation, body)
        assert status == 200, found
        return found


@contextmanager
def explore(*arguments: str | Path) -> Iterator[Served]:
    """`regard explore` in a process of its own, until the block ends."""
    command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), process.stderr.read()
        try:
            yield Served(address, process)
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """One page for all tests that need no options."""
    with explore() as page:
        yield page


@contextmanager
def opened(browser: Any, page: Served, fragment: str = "", **options: Any) -> Iterator[Any]:
    """A page in a browser, which must not complain, nor ask anybody else for anything."""
    tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    complaints: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(f"{page.address}{fragment}")
    yield tab
    tab.close()
    # A browser notes every refusal of what the reader asked for, which the page tells in words.
    assert [each for each in complaints if "status of 422" not in each] == []
    assert {urlsplit(each).netloc for each in requests if not each.startswith(("data:", "blob:"))} <= {
        urlsplit(page.address).netloc
    }


@pytest.fixture(scope="session")
def exploring() -> Callable[..., AbstractContextManager[Served]]:
    """What serves a page with options of its own."""
    return explore


@pytest.fixture
def tab(browser: Any, served: Served) -> Iterator[Any]:
    """The page in a browser, at its first room."""
    with opened(browser, served) as page:
        yield page


@pytest.fixture
def open_page(browser: Any, served: Served) -> Callable[..., Any]:
    """What opens the page, or another, at a fragment of its address, with options of a browser's page."""
    return lambda fragment="", page=served, **options: opened(browser, page, fragment, **options)
