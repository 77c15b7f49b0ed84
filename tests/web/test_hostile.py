"""What must not be answered, and what must be although it is asked in bad faith: the page lives through all of it."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, urlsplit

import pytest

pytest.importorskip("starlette", reason="needs regard[web]")
pytest.importorskip("uvicorn", reason="needs regard[web]")

from regard.web import workers
from regard.web.asked import AboutTable
from regard.web.bench import Job, Reply
from regard.web.settings import Settings

CRLF = b"\r\n"
ECHO = "/ask/trouble/echo"


@dataclass(frozen=True)
class Page:
    """The troubled page, by its sockets."""

    port: int
    token: str
    process: subprocess.Popen[str]
    terminal: Path  # what it wrote there
    folder: Path  # where it may make temporary ones

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@dataclass(frozen=True)
class Answer:
    """What came back: a status of 0 is a connection that was closed without a word."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    home = tmp_path_factory.mktemp("troubled")
    table, link = home / "named.csv", home / "link.csv"
    table.write_text("a,b\n1,2\n", encoding="utf-8")
    link.symlink_to(table)
    folder = home / "temporary"
    folder.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("troubled.py")), str(table), str(link)]
    with (
        (home / "terminal").open("w") as terminal,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=terminal, text=True, env={**os.environ, "TMPDIR": str(folder)}
        ) as process,
    ):
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        assert address.port is not None
        (token,) = parse_qs(address.query)["token"]
        yield Page(address.port, token, process, home / "terminal", folder)
        process.terminate()
        process.wait(20)


def received(connection: socket.socket, method: str = "POST") -> Answer:
    """The next answer on a connection."""
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read()
    except (ConnectionError, http.client.BadStatusLine):
        return Answer(0, {}, b"")
    return Answer(response.status, {name.lower(): each for name, each in response.getheaders()}, body)


def exchange(page: Page, *parts: bytes, method: str = "POST") -> Answer:
    """What is answered to bytes that are sent."""
    with page.connect() as connection:
        with suppress(ConnectionError):  # refused before all of it was sent: the answer is there
            for part in parts:
                connection.sendall(part)
        return received(connection, method)


def everything(connection: socket.socket) -> bytes:
    """All that comes on a connection until it is closed."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def request(
    page: Page,
    method: str = "POST",
    path: str = ECHO,
    body: bytes | None = None,
    /,
    *,
    lines: tuple[str, ...] = (),
    **headers: str | None,
) -> bytes:
    """A request with the headers that it must have, unless another is given; None leaves one out."""
    given: dict[str, str | None] = {"host": page.host, "x-regard-token": page.token}
    if body is not None:
        given |= {"content-type": "application/json", "content-length": str(len(body))}
    given |= {name.replace("_", "-"): each for name, each in headers.items()}
    kept = [f"{name}: {each}" for name, each in given.items() if each is not None]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, *lines, "", ""])
    return head.encode("utf-8", "surrogateescape") + (body or b"")


def ask(page: Page, operation: str, body: Any, room: str = "trouble") -> Answer:
    """The answer to a question in good faith."""
    return exchange(page, request(page, "POST", f"/ask/{room}/{operation}", json.dumps(body).encode()))


def drop(page: Page, name: str, content: bytes) -> Answer:
    """The answer to a file that is dropped."""
    return exchange(page, request(page, "PUT", f"/files?name={quote(name)}", content))


def check(page: Page, answer: Answer) -> None:
    """What holds for every answer: nothing of the server's inside, and what a browser may do with it."""
    assert b"Traceback" not in answer.body
    assert b'File "' not in answer.body
    assert page.token.encode() not in answer.body
    assert str(page.folder).encode() not in answer.body
    if answer.headers.get("content-type", "").startswith("text/plain"):
        return  # HTTP that could not be read: it never came to the page
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


def refused(page: Page, raw: bytes, status: int, words: str, method: str = "POST") -> None:
    """Claim that bytes are answered by a refusal in these words."""
    answer = exchange(page, raw, method=method)
    check(page, answer)
    assert answer.status == status, answer.body
    if method != "HEAD":
        assert words in answer.error
        assert "\n" not in answer.error


def process_of(page: Page, about: str) -> int:
    """The worker that answers questions about something."""
    return int(json.loads(ask(page, "who", {"about": about}).body)["process"])


def is_alive(page: Page) -> None:
    """Claim that a question is answered."""
    answer = ask(page, "echo", {"text": "still here"})
    assert answer.status == 200, answer.body
    assert json.loads(answer.body)["text"] == "still here"


# Bodies


BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "EOF"),
    "not json": (b"a=1&b=2", "Invalid JSON"),
    "half of it": (b'{"text": "a', "Invalid JSON"),
    "a comment": (b'{"text": "a" /* b */}', "Invalid JSON"),
    "a trailing comma": (b'{"text": "a",}', "Invalid JSON"),
    "two of them": (b"{}{}", "Invalid JSON"),
    "no utf-8": (b'{"text": "\xff\xfe"}', "Invalid JSON"),
    "half a surrogate": (b'{"text": "\\ud800"}', "Invalid JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "Invalid JSON"),
    "NUL bytes": (b"\x00" * 100, "Invalid JSON"),
    "a list": (b"[]", "`"),
    "null": (b"null", "`"),
    "another type": (b'{"text": 3}', "`text`"),
    "an unknown field": (b'{"texts": "a"}', "`texts`"),
    "a field of Python's": (b'{"__class__": "a"}', "`__class__`"),
    "NaN": (b'{"number": NaN}', "`number`: Input should be a finite number"),
    "Infinity": (b'{"number": -Infinity}', "`number`: Input should be a finite number"),
    "a number beyond floats": (b'{"number": 1e999}', "`number`: Input should be a finite number"),
    "NaN as a text": (b'{"number": "nan"}', "`number`: Input should be a finite number"),
    "a number of 50,000 digits": (b'{"numbers": [' + b"9" * 50_000 + b"]}", "`"),
    "brackets to a depth of 60,000": (b"[" * 60_000, "Invalid JSON"),
    "a field to a depth of 10,000": (b'{"text":' * 5_000 + b"1" + b"}" * 5_000, "Invalid JSON"),
    "gzip": (gzip.compress(b"{}" + b" " * 10_000_000), "Invalid JSON"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_question_is_refused(page: Page, name: str) -> None:
    body, words = BODIES[name]
    raw = request(page, "POST", ECHO, body, content_encoding="gzip" if name == "gzip" else None)
    answer = exchange(page, raw)
    check(page, answer)
    assert answer.status == 400
    assert words.strip("`") in answer.error
    assert len(answer.error) <= 300


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(page: Page) -> None:
    refused(page, request(page, lines=("content-length: 1000000000",)), 413, "A question may have 65,536 bytes.")


def chunked(*chunks: bytes) -> bytes:
    return b"".join(f"{len(each):x}".encode() + CRLF + each + CRLF for each in (*chunks, b""))


def test_a_body_in_chunks_that_becomes_too_large_is_refused(page: Page) -> None:
    raw = request(page, lines=("transfer-encoding: chunked",)) + chunked(*[b" " * 4096] * 20)
    refused(page, raw, 413, "A question may have 65,536 bytes.")


def test_a_body_in_chunks_is_answered(page: Page) -> None:
    raw = request(page, lines=("transfer-encoding: chunked",)) + chunked(b'{"te', b'xt": "a"', b"}")
    assert json.loads(exchange(page, raw).body)["text"] == "a"


UNREADABLE: dict[str, Callable[[Page], bytes]] = {
    "a negative length": lambda page: request(page, lines=("content-length: -1",)),
    "a length that is no number": lambda page: request(page, lines=("content-length: many",)),
    "a length of 5,000 digits": lambda page: request(page, lines=(f"content-length: {'9' * 5000}",)),
    "two lengths": lambda page: request(page, lines=("content-length: 2", "content-length: 3")) + b"{}",
    "a chunk whose size is none": lambda page: request(page, lines=("transfer-encoding: chunked",)) + b"zz\r\n{}\r\n",
    "an unknown encoding": lambda page: request(page, lines=("transfer-encoding: rot13",)) + b"{}",
    "two hosts": lambda page: request(page, "GET", "/about", lines=("host: evil.example",)),
    "no host": lambda page: request(page, "GET", "/about", host=None),
    "a header without a colon": lambda page: request(page, "GET", "/about", lines=("nonsense",)),
    "a header with NUL": lambda page: request(page, "GET", "/about", lines=("x-a: \x00",)),
    "a space in the address": lambda page: request(page, "GET", "/a b"),
    "letters that are no address": lambda page: request(page, "GET", "/é"),
    "no method": lambda page: request(page, "", "/about"),
    "a method that is none": lambda page: request(page, "GE(T", "/about"),
    "TLS": lambda page: bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "zeros": lambda page: bytes(1000),
    "no HTTP": lambda page: b"EHLO example.org\r\n\r\n",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_http_is_refused_as_such(page: Page, name: str) -> None:
    answer = exchange(page, UNREADABLE[name](page))
    check(page, answer)
    assert answer.status == 400
    assert answer.body == b"Invalid HTTP request received."


HEADS: dict[str, Callable[[Page], bytes]] = {
    "a header of 100 kB": lambda page: request(page, "GET", "/about", lines=(f"x-a: {'a' * 100_000}",)),
    "10,000 headers": lambda page: request(page, "GET", "/about", lines=tuple(f"x-{n}: 12345" for n in range(10_000))),
    "an address of 100 kB": lambda page: request(page, "GET", "/" + "a" * 100_000),
    "a token of 100 kB": lambda page: request(page, "GET", f"/?token={'a' * 100_000}", x_regard_token=None),
}


@pytest.mark.parametrize("name", HEADS)
def test_too_much_before_a_body_is_refused(page: Page, name: str) -> None:
    answer = exchange(page, HEADS[name](page))
    # Where it arrives in pieces, of which the first has no end yet, it is no HTTP; then nobody reads the rest.
    assert answer.status in (0, 400, 431)
    if answer.status:
        check(page, answer)
    is_alive(page)


@pytest.mark.parametrize("version", ["0.9", "2.0", "9.9"])
def test_another_version_of_http_is_refused(page: Page, version: str) -> None:
    raw = request(page, "GET", "/about").replace(b"HTTP/1.1", f"HTTP/{version}".encode())
    refused(page, raw, 505, "This is not HTTP/1.1.", "GET")


def test_http_2_is_not_begun(page: Page) -> None:
    refused(page, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "This is not HTTP/1.1.", "GET")


@pytest.mark.parametrize("length", [4, 0, 5])
def test_a_length_beside_chunks_smuggles_nothing(page: Page, length: int) -> None:
    hidden = request(page, "POST", "/stop", b"")
    raw = request(page, lines=(f"content-length: {length}", "transfer-encoding: chunked")) + b"0\r\n\r\n" + hidden
    with page.connect() as connection:
        connection.sendall(raw)
        assert everything(connection).count(b"HTTP/1.1 ") == 1  # one answer, a refusal, and no more on this connection
    is_alive(page)


# Addresses


@pytest.mark.parametrize(
    "path",
    [
        "/static/../settings.py",
        "/static/../../../../../../etc/passwd",
        "/static/%2e%2e/settings.py",
        "/static/..%2f..%2fsettings.py",
        "/static/%252e%252e/settings.py",
        "/static/..%5c..%5csettings.py",
        "/static//etc/passwd",
        "/static/%2fetc/passwd",
        "/static/%00",
        "/static/style.css%00.html",
        "/static/rooms",
        "/static/",
        "/static",
        "/static/" + "a" * 5000,
        "/static/" + "a/" * 5000,
        "/static/%ff%fe",
        "/../about",
        "//about",
        "/about/",
        "/.git/config",
        "/index.html",
    ],
)
def test_an_address_that_leads_nowhere_is_refused(page: Page, path: str) -> None:
    refused(page, request(page, "GET", path), 404, "There is nothing at this address.", "GET")


@pytest.mark.parametrize(
    "path",
    ["/ask/trouble/__init__", "/ask/trouble/operations", "/ask/__class__/echo", "/ask/trouble/%65cho%00", "/ask/no/no"],
)
def test_a_question_that_there_is_not_is_refused(page: Page, path: str) -> None:
    refused(page, request(page, "POST", path, b"{}"), 404, "There is no such question.")


@pytest.mark.parametrize(
    "table", ["../../etc/passwd", "/etc/passwd", "t0", "t3", "T1", "", "\x00", "named.csv", "d" * 999]
)
def test_a_table_that_nobody_named_is_not_opened(page: Page, table: str) -> None:
    answer = ask(page, "size", {"table": table})
    check(page, answer)
    assert (answer.status, answer.error) == (
        404,
        "That table is not here any more. Drop the file on the page again.",
    )


@pytest.mark.parametrize("table", ["t1", "t2"])
def test_a_table_that_was_named_is_opened_through_a_link_too(page: Page, table: str) -> None:
    assert json.loads(ask(page, "size", {"table": table}).body) == {"bytes": 8}


# Files


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.csv",
        "/etc/cron.d/evil.csv",
        "a\x00.csv",
        "\x1b[31m.csv",
        "<script>.csv",
        "a\r\nb: c.csv",
        ".csv",
        "%2e%2e.csv",
    ],
)
def test_a_file_is_kept_where_files_are_kept_whatever_it_is_called(page: Page, name: str) -> None:
    answer = drop(page, name, b"a,b\n1,2\n")
    check(page, answer)
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)
    assert not set(found["name"]) & set(map(chr, range(32)))
    kept = [each for each in page.folder.rglob("*") if each.is_file()]
    assert f"{found['table']}.csv" in {each.name for each in kept}
    assert all(re.fullmatch(r"d[0-9a-f]{16}\.csv", each.name) for each in kept)
    assert json.loads(ask(page, "size", {"table": found["table"]}).body) == {"bytes": 8}


@pytest.mark.parametrize(
    "name", ["", "a", "a.exe", "a.csv.exe", "a.pickle", "a.csv/", "a.html", "x" * 5000, "a.csv\x00"]
)
def test_a_file_of_another_kind_is_refused(page: Page, name: str) -> None:
    refused(page, request(page, "PUT", f"/files?name={quote(name)}", b"a"), 422, "A table must be a .csv")


def test_a_file_that_says_it_is_too_large_is_refused(page: Page) -> None:
    raw = request(page, "PUT", "/files?name=a.csv", lines=("content-length: 99999999999",))
    refused(page, raw, 413, "A table may have 1,048,576 bytes.")


def test_a_file_in_chunks_that_becomes_too_large_is_refused_and_removed(page: Page) -> None:
    raw = request(page, "PUT", "/files?name=big.tsv", lines=("transfer-encoding: chunked",))
    refused(page, raw + chunked(*[b" " * 65536] * 20), 413, "A table may have 1,048,576 bytes.")
    assert not list(page.folder.rglob("*.tsv"))


def test_a_file_whose_reader_leaves_is_removed(page: Page) -> None:
    with page.connect() as connection:
        connection.sendall(request(page, "PUT", "/files?name=left.tsv", lines=("content-length: 1000",)) + b"a\tb\n")
        wait_until(lambda: list(page.folder.rglob("*.tsv")))
    wait_until(lambda: not list(page.folder.rglob("*.tsv")))


def test_only_the_latest_files_are_kept(page: Page) -> None:
    first, *_, last = [json.loads(drop(page, f"{n}.csv", b"a\n1\n").body)["table"] for n in range(3)]
    assert ask(page, "size", {"table": first}).status == 404
    assert ask(page, "size", {"table": last}).status == 200


def wait_until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until something holds, which may take its time on a busy machine."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.05)


# Who asks


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.nip.io:PORT",
        "localhost.evil.example:PORT",
        "localhost.:PORT",
        "0.0.0.0:PORT",
        "2130706433:PORT",
        "0x7f.1:PORT",
        "[::ffff:127.0.0.1]:PORT",
        "localhost:PORT@evil.example",
        "localhost:PORT, evil.example",
        "",
    ],
)
def test_a_name_that_is_not_ours_is_refused_with_the_right_token_too(page: Page, host: str) -> None:
    named = host.replace("PORT", str(page.port))
    refused(page, request(page, "GET", "/about", host=named), 421, "not served under that name", "GET")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "file://",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "ftp://127.0.0.1:PORT",
        "http://127.0.0.1:PORT.evil.example",
        "",
    ],
)
def test_another_origin_is_refused_with_the_right_token_too(page: Page, origin: str) -> None:
    named = origin.replace("PORT", str(page.port))
    refused(page, request(page, "POST", ECHO, b"{}", origin=named), 403, "Another page asked for this.")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_another_site_is_refused_by_what_its_browser_says(page: Page, site: str) -> None:
    refused(page, request(page, "GET", "/about", sec_fetch_site=site), 403, "Another page asked for this.", "GET")


TOKENS: dict[str, Callable[[Page], bytes]] = {
    "none": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token=None),
    "an empty one": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token=""),
    "another": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token="a" * 32),
    "half of it": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token=page.token[:-1]),
    "more than it": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token=page.token + "a"),
    "letters of no alphabet": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token="ünïcödé"),
    "60 kB of it": lambda page: request(page, "POST", ECHO, b"{}", x_regard_token="a" * 60_000),
    "in the address of a POST": lambda page: request(
        page, "POST", f"{ECHO}?token={page.token}", b"{}", x_regard_token=None
    ),
    "in the body": lambda page: request(
        page, "POST", ECHO, json.dumps({"token": page.token}).encode(), x_regard_token=None
    ),
    "a cookie of another name": lambda page: request(
        page, "POST", ECHO, b"{}", x_regard_token=None, cookie=f"regard_1={page.token}"
    ),
    "a cookie of another value": lambda page: request(
        page, "POST", ECHO, b"{}", x_regard_token=None, cookie=f"regard_{page.port}=a"
    ),
    "a cookie that is none": lambda page: request(
        page, "POST", ECHO, b"{}", x_regard_token=None, cookie='=;;"\\,\xff;a b'
    ),
    "as a password": lambda page: request(
        page, "POST", ECHO, b"{}", x_regard_token=None, authorization=f"Bearer {page.token}"
    ),
    "to stop": lambda page: request(page, "POST", "/stop", b"", x_regard_token=None),
    "to drop a file": lambda page: request(page, "PUT", "/files?name=a.csv", b"a", x_regard_token=None),
    "for a module": lambda page: request(page, "GET", "/static/main.js", x_regard_token=None),
    "wrong in an address": lambda page: request(page, "GET", "/?token=a", x_regard_token=None),
    "second in an address": lambda page: request(page, "GET", f"/?token=a&token={page.token}", x_regard_token=None),
    "no text in an address": lambda page: request(page, "GET", "/?token=%ff%00%f0", x_regard_token=None),
}


@pytest.mark.parametrize("name", TOKENS)
def test_without_the_token_nothing_is_answered(page: Page, name: str) -> None:
    refused(page, TOKENS[name](page), 401, "The token is missing or wrong.")


def test_a_stranger_with_a_browser_is_told_where_the_address_is(page: Page) -> None:
    answer = exchange(page, request(page, "GET", "/", x_regard_token=None, accept="text/html"), method="GET")
    check(page, answer)
    assert answer.status == 401
    assert b"<script" not in answer.body
    assert b"This page has a key" in answer.body


# Methods


@pytest.mark.parametrize("path", ["/", "/about", ECHO, "/files", "/stop", "/static/main.js"])
@pytest.mark.parametrize("method", ["DELETE", "PATCH", "TRACE", "OPTIONS", "BREW", "PROPFIND"])
def test_another_method_is_refused(page: Page, method: str, path: str) -> None:
    refused(page, request(page, method, path), 405, "This address is asked in another way.", method)


def test_a_preflight_is_given_no_permission(page: Page) -> None:
    raw = request(
        page, "OPTIONS", ECHO, x_regard_token=None, origin="http://evil.example", access_control_request_method="POST"
    )
    refused(page, raw, 403, "Another page asked for this.", "OPTIONS")


def test_a_tunnel_is_refused(page: Page) -> None:
    assert exchange(page, request(page, "CONNECT", "example.org:443"), method="CONNECT").status in (404, 405)


def test_heads_are_answered_without_a_body(page: Page) -> None:
    for path, status in (("/", 200), ("/about", 200), ("/static/main.js", 200), ("/none", 404)):
        answer = exchange(page, request(page, "HEAD", path), method="HEAD")
        check(page, answer)
        assert (answer.status, answer.body) == (status, b"")


def test_a_websocket_is_not_opened(page: Page) -> None:
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "YQ==",
    }
    refused(page, request(page, "GET", "/ws", **upgrade), 404, "There is nothing at this address.", "GET")
    refused(page, request(page, "GET", "/ws", **{**upgrade, "x_regard_token": None}), 401, "The token", "GET")


# Texts


TEXTS = [
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;owned\x07",
    "\x00",
    "\u202e\u2066",
    "' OR 1=1 --",
    "{{7*7}}",
    "=cmd|' /C calc'!A0",
    "\U0001f4a9" * 1000,
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_said_again_as_data_alone(page: Page, text: str) -> None:
    answer = ask(page, "echo", {"text": text})
    check(page, answer)
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["text"] == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_in_a_refusal_steers_no_terminal(page: Page, text: str) -> None:
    answer = ask(page, "refuse", {"text": f"It must not be {text}."})
    check(page, answer)
    assert answer.status == 422
    assert answer.error.startswith("It must not be ")
    assert not set(answer.error) & {*map(chr, range(32)), "\x7f", "\u202e", "\u2066"}


# Work that goes wrong


def test_a_defect_is_told_without_its_secrets(page: Page) -> None:
    answer = ask(page, "fail", {})
    check(page, answer)
    assert answer.status == 500
    assert answer.error == "This is a defect of regard: ZeroDivisionError. The terminal has its details."
    assert "a secret of the server" in page.terminal.read_text(encoding="utf-8")


def test_a_worker_that_dies_is_started_again(page: Page) -> None:
    for _ in range(3):
        answer = ask(page, "die", {})
        check(page, answer)
        assert (answer.status, answer.error) == (500, "What computed this ended. It was started again: ask once more.")
        is_alive(page)


def test_a_worker_that_is_killed_while_it_rests_is_not_missed(page: Page) -> None:
    process = process_of(page, "rest")
    os.kill(process, signal.SIGKILL)
    answer = ask(page, "who", {"about": "rest"})  # at once, whether the server knows of it yet or not
    assert answer.status == 200, answer.body
    assert json.loads(answer.body)["process"] != process


def has_ended(process: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    return True


def test_more_memory_than_is_allowed_is_refused_in_words(page: Page) -> None:
    for _ in range(2):
        answer = ask(page, "fill", {})
        check(page, answer)
        assert (answer.status, answer.error) == (
            422,
            "That needs more memory than one request may take. Ask for less of it.",
        )
        is_alive(page)


def test_more_time_than_is_allowed_is_ended_in_words(page: Page) -> None:
    before = process_of(page, "late")
    answer = ask(page, "wait", {"seconds": 600, "about": "late"})
    check(page, answer)
    assert answer.status == 504
    assert answer.error == "That takes longer than 2 seconds, and was ended. Ask for less of it."
    assert process_of(page, "late") != before
    assert has_ended(before)


def working(page: Page, connection: socket.socket, seconds: float, about: str) -> None:
    """Ask for something that takes so long, and return when it has begun."""
    connection.sendall(
        request(
            page, "POST", "/ask/trouble/wait", json.dumps({"seconds": seconds, "about": about, "mark": about}).encode()
        )
    )
    mark = page.folder / f"began {about}"
    wait_until(mark.exists)
    mark.unlink()


def test_work_ends_with_the_reader_who_asked_for_it(page: Page) -> None:
    before = process_of(page, "left")
    with page.connect() as connection:
        working(page, connection, 600, "left")
    wait_until(lambda: has_ended(before), 1.8)  # before its time would have been over


def test_work_that_is_nearly_done_keeps_its_worker(page: Page) -> None:
    before = process_of(page, "brief")
    with page.connect() as connection:
        working(page, connection, 0.05, "brief")
    assert process_of(page, "brief") == before


def test_who_leaves_while_others_are_before_takes_nothing_with_them(page: Page) -> None:
    before = process_of(page, "queue")
    with page.connect() as first:
        working(page, first, 1.0, "queue")
        with page.connect() as second:
            second.sendall(request(page, "POST", "/ask/trouble/wait", b'{"seconds": 600, "about": "queue"}'))
        assert received(first).status == 200
    assert process_of(page, "queue") == before


def test_long_work_for_one_does_not_stop_another(page: Page) -> None:
    with page.connect() as connection:
        working(page, connection, 1.5, "long")
        for _ in range(5):
            is_alive(page)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(30)
        assert received(connection).status == 200


class Standing:
    """A worker that is as busy as it is told to be, and says which one it is."""

    made: ClassVar[list[Standing]] = []

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.load, self.busy_for = 0, 0.0
        self.made.append(self)

    async def run(self, job: Job) -> Reply:
        return Reply(200, str(self.made.index(self)).encode())


def test_who_asks_about_the_same_goes_to_another_worker_where_that_one_is_busy_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workers, "Worker", Standing)
    monkeypatch.setattr(Standing, "made", [])
    both = workers.Workers(Settings(workers=2), tmp_path)

    def asked(table: str) -> int:
        return int(asyncio.run(both.run(Job("table", "open", AboutTable(table=table)))).body)

    known = asked("a")
    busy, idle = Standing.made[known], Standing.made[1 - known]
    busy.load, busy.busy_for = 1, workers.LONG / 2
    assert asked("a") == known  # it has the table in memory, and soon has time
    assert asked("b") == 1 - known
    idle.load, busy.busy_for = 1, workers.LONG * 2
    assert asked("a") == known  # the other has no time either
    idle.load = 0
    assert asked("a") == 1 - known
    busy.load, busy.busy_for = 0, 0.0
    assert asked("a") == 1 - known  # it has the table now


def test_200_who_ask_at_once_are_all_answered(page: Page) -> None:
    with ThreadPoolExecutor(200) as threads:
        found = list(threads.map(lambda n: ask(page, "echo", {"number": n}), range(200)))
    assert [each.status for each in found] == [200] * 200
    assert [json.loads(each.body)["number"] for each in found] == list(range(200))


def test_more_than_may_wait_are_told_to_come_again(page: Page) -> None:
    body = json.dumps({"seconds": 0.5, "about": "crowd"}).encode()
    with ThreadPoolExecutor(170) as threads:
        answers = list(threads.map(lambda n: first_of(page, body), range(170)))
    crowded = [each for each in answers if each is not None and each.status == 503]
    assert crowded
    for each in crowded:
        assert each.error == "Too much is asked at the same time. Ask again in a moment."
        assert each.headers["retry-after"] == "1"


def first_of(page: Page, body: bytes) -> Answer | None:
    """What is answered at once; None where there is a wait, and the reader leaves."""
    with page.connect() as connection:
        connection.sendall(request(page, "POST", "/ask/trouble/wait", body))
        connection.settimeout(2)
        with suppress(TimeoutError):
            return received(connection)
    return None


# Those who are slow


def drip(page: Page, head: bytes, drop: bytes) -> Answer | None:
    """What comes back while a request drips; None where nothing comes, but the connection ends."""
    with page.connect() as connection:
        with suppress(ConnectionError):
            connection.sendall(head)
            for _ in range(200):
                if select.select([connection], [], [], 0.1)[0]:
                    break
                connection.sendall(drop)
        answer = received(connection)
        return answer if answer.status else None


SLOW: dict[str, Callable[[Page], Answer | None]] = {
    "a question stops": lambda page: drip(page, request(page, lines=("content-length: 100",)) + b"{", b""),
    "a question drips": lambda page: drip(page, request(page, lines=("content-length: 1000",)), b" "),
    "a file stops": lambda page: drip(
        page, request(page, "PUT", "/files?name=slow.tsv", lines=("content-length: 100",)) + b"a", b""
    ),
    "a file drips": lambda page: drip(
        page, request(page, "PUT", "/files?name=slow.tsv", lines=("content-length: 100000",)), b"a"
    ),
    "nothing is said": lambda page: drip(page, b"", b""),
    "a method stops": lambda page: drip(page, b"GET", b""),
    "a header stops": lambda page: drip(page, b"GET /about HTTP/1.1\r\nx-a: ", b""),
    "headers drip": lambda page: drip(page, b"GET /about HTTP/1.1\r\n", b"x-a: b\r\n"),
    "a second request drips": lambda page: drip_after_answer(page),
    "the body of a refusal drips": lambda page: hung_up_after_refusal(page),
}


def drip_after_answer(page: Page) -> Answer | None:
    """The same on a connection that was kept."""
    with page.connect() as connection:
        connection.sendall(request(page, "GET", "/static/icon.svg"))
        assert received(connection).status == 200
        with suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"G")
                if select.select([connection], [], [], 0.1)[0]:
                    break
        answer = received(connection)
        return answer if answer.status else None


def hung_up_after_refusal(page: Page) -> Answer | None:
    """The refusal of a request that goes on, which must be hung up on."""
    with page.connect() as connection:
        connection.sendall(request(page, x_regard_token=None, lines=("content-length: 1000000",)))
        answer = received(connection)
        for _ in range(200):
            try:
                connection.sendall(b"a")
            except ConnectionError:
                return answer
            time.sleep(0.1)
    return None


@pytest.fixture(scope="module")
def slow(page: Page) -> dict[str, Answer | None]:
    """What became of those who are slow, all of them at the same time."""
    with ThreadPoolExecutor(len(SLOW)) as threads:
        return dict(zip(SLOW, threads.map(lambda each: each(page), SLOW.values()), strict=True))


@pytest.mark.parametrize("name", ["a question stops", "a question drips"])
def test_a_question_that_arrives_too_slowly_is_refused(page: Page, slow: dict[str, Answer | None], name: str) -> None:
    answer = slow[name]
    assert answer is not None
    check(page, answer)
    assert (answer.status, answer.error) == (408, "A question must arrive within 1.5 seconds.")


@pytest.mark.parametrize("name", ["a file stops", "a file drips"])
def test_a_file_that_does_not_go_on_is_refused_and_removed(
    page: Page, slow: dict[str, Answer | None], name: str
) -> None:
    answer = slow[name]
    assert answer is not None
    check(page, answer)
    assert (answer.status, answer.error) == (408, "A file must go on: 16 KiB a second, and within 1.5 seconds.")
    assert not list(page.folder.rglob("*.tsv"))


@pytest.mark.parametrize(
    "name", ["nothing is said", "a method stops", "a header stops", "headers drip", "a second request drips"]
)
def test_a_request_that_never_begins_is_hung_up_on(slow: dict[str, Answer | None], name: str) -> None:
    assert slow[name] is None


def test_who_goes_on_after_a_refusal_is_hung_up_on(slow: dict[str, Answer | None]) -> None:
    answer = slow["the body of a refusal drips"]
    assert answer is not None
    assert answer.status == 401


def test_who_reads_slowly_does_not_stop_another(page: Page) -> None:
    with page.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        for _ in range(200):  # more than fits between them, and none of it is read
            slow.sendall(request(page, "GET", "/static/scale.js"))
        for _ in range(5):
            is_alive(page)


def test_connections_that_say_nothing_do_not_stop_another(page: Page) -> None:
    silent = [page.connect() for _ in range(200)]
    try:
        is_alive(page)
    finally:
        for each in silent:
            each.close()


def test_requests_in_one_piece_are_answered_in_turn(page: Page) -> None:
    with page.connect() as connection:
        requests = [request(page, "POST", ECHO, b'{"number": %d}' % n) for n in range(20)]
        connection.sendall(b"".join(requests) + request(page, "GET", "/about", connection="close"))
        answers = everything(connection)
    assert re.findall(rb'"number":(\d+)\.0', answers) == [b"%d" % n for n in range(20)]
    assert answers.count(b"HTTP/1.1 200 ") == 21


# After all


def test_the_page_is_alive_after_all(page: Page) -> None:
    is_alive(page)
    assert page.process.poll() is None
    for path, words in (("/", b"<!DOCTYPE html>"), ("/about", b'"version"'), ("/static/main.js", b"import")):
        answer = exchange(page, request(page, "GET", path), method="GET")
        check(page, answer)
        assert answer.status == 200
        assert words in answer.body
    asked = {"query": [0.0], "keys": [[0.0], [1.0]], "values": [[5.0], [7.0]], "on": [True, True]}
    found = ask(page, "weigh", asked | {"score": "gaussian", "rule": "onehot"}, room="formula")
    assert json.loads(found.body)["output"] == [5.0]
    assert threading.active_count() < 100
    told = page.terminal.read_text(encoding="utf-8")
    assert told.count("Traceback") == told.count("ZeroDivisionError: a secret of the server"), told  # asked for
