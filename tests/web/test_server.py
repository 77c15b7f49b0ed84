"""Claims about the server: where it listens, who opens it, what stands before it, and what is left when it ends."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import resource
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("starlette", reason="needs regard[web]")
pytest.importorskip("uvicorn", reason="needs regard[web]")

from regard.errors import OptionError
from regard.web import connection, guard, server
from regard.web.settings import Limits, Settings

# What is served in this process ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Served:
    """A page that a thread of this process serves."""

    address: str
    is_opened: bool
    thread: threading.Thread

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.address).query)["token"][0]

    @property
    def port(self) -> int:
        found = urlsplit(self.address).port
        assert found is not None
        return found

    def ask(
        self,
        method: str = "GET",
        path: str = "/about",
        body: bytes | None = None,
        at: str | None = None,
        **headers: str | None,
    ) -> http.client.HTTPResponse:
        """The answer to a request, with its body read; `at` is where to connect, if not as the address says."""
        connection = http.client.HTTPConnection(at or urlsplit(self.address).hostname or "", self.port, timeout=30)
        given = {"Host": urlsplit(self.address).netloc, "X-Regard-Token": self.token} | {
            name.replace("_", "-"): each for name, each in headers.items()
        }
        connection.request(method, path, body, {name: each for name, each in given.items() if each is not None})
        response = connection.getresponse()
        response.content = response.read()  # type: ignore[attr-defined]
        connection.close()
        return response

    def json(self, *given: Any, **headers: str | None) -> Any:
        """The JSON of an answer."""
        return json.loads(self.ask(*given, **headers).content)  # type: ignore[attr-defined]


@contextmanager
def serving(
    host: str = "127.0.0.1", port: int | None = 0, *, browse: bool = False, idle: float | None = None, **settings: Any
) -> Iterator[Served]:
    """A page until the block ends, unless it has ended before."""
    announced: queue.Queue[tuple[str, bool]] = queue.Queue()
    given = {"idle": idle, "browse": browse, "announce": lambda *told: announced.put(told)}
    thread = threading.Thread(target=server.serve, args=(Settings(workers=1, **settings), host, port), kwargs=given)
    thread.start()
    page = Served(*announced.get(timeout=60), thread)
    try:
        yield page
    finally:
        with suppress(OSError):
            page.ask("POST", "/stop")
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    """One page for tests that need no options."""
    with serving() as found:
        yield found


def test_a_model_whose_folder_is_no_text_is_told_in_signs_that_are(tmp_path: Path) -> None:
    with serving(model=tmp_path / os.fsdecode(b"gp\xff\x1b2")) as page:
        told = page.ask()
        assert told.status == 200
        assert json.loads(told.content)["model"] == "gp��2"  # type: ignore[attr-defined]


# Where it listens --------------------------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def refused(words: str, *given: Any, **named: Any) -> None:
    """Claim that there is no page, and why."""
    with pytest.raises(OptionError, match=re.escape(words)):
        server.serve(Settings(hosts=named.pop("hosts", ())), *given, browse=False, announce=print, **named)


def test_a_port_that_is_named_and_taken_is_said(taken: int) -> None:
    refused(f"--port must be free: {taken} is taken. Name another, or leave it out.", port=taken)


def test_where_no_port_is_named_the_next_one_is_taken(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PORT", taken)
    with serving(port=None) as page:
        assert taken < page.port < taken + server.TRIED
    monkeypatch.setattr(server, "TRIED", 1)
    refused(f"A port from {taken} to {taken} must be free: all are taken.", port=None)


@pytest.mark.parametrize(
    "host", ["", "256.1.1.1", "203.0.113.7", "no.such.name.invalid", "a..b", "ü..b", "x" * 300, "::zz"]
)
def test_a_host_that_is_not_of_this_machine_is_said(host: str) -> None:
    refused("--host must be an address of this machine: got", host, 0)


@pytest.mark.parametrize(
    "name", ["", ":8443", "*", "*.example", "https://page.example", "page.example/path", "::1", "a b", "ü.example"]
)
def test_a_name_that_no_browser_would_use_is_said(name: str) -> None:
    refused("--allow-host must be a name, with a port or without: got", port=0, hosts=(name,))


@pytest.mark.parametrize("host", ["0.0.0.0", "0"])
def test_who_listens_everywhere_is_still_called_by_names_that_it_knows(host: str) -> None:
    with serving(host, hosts=("Page.example", "other.example:8443")) as page:
        assert urlsplit(page.address).hostname == "localhost"
        names = {"localhost", "127.0.0.1", "page.example"}
        for name in (*names, host, socket.gethostname(), "evil.example", "other.example"):
            status = page.ask(at="127.0.0.1", Host=f"{name}:{page.port}").status
            assert status == (200 if name in names else 421), name
        for name, status in (("page.example", 200), ("other.example:8443", 200), ("localhost", 421)):
            assert page.ask(at="127.0.0.1", Host=name).status == status, name


def test_the_other_loopback_is_one_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving("::1") as page:
        assert page.address.startswith("http://[::1]:")
        assert page.ask().status == 200
        assert page.ask(origin=f"http://[::1]:{page.port}").status == 200


def test_no_answer_waits_for_the_piece_before_it_to_be_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []
    begin = connection.Patient.connection_made

    def connection_made(self: connection.Patient, transport: Any) -> None:
        begin(self, transport)
        at_once.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(connection.Patient, "connection_made", connection_made)
    with serving() as page:
        assert page.ask().status == 200
    assert all(at_once)
    assert at_once


def test_what_listens_on_loopback_is_reached_from_nowhere_else(page: Served) -> None:
    outside = [each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for address in {*outside} - {"127.0.0.1"} | {"127.0.0.2"}:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, page.port), timeout=5)


# Who opens it ------------------------------------------------------------------------------------------------------


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the browser of this machine is called with, which is there, and seen."""
    addresses: list[str] = []

    def call(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setattr(webbrowser, "open", call)
    return addresses


def enter(page: Served, address: str, **headers: str | None) -> http.client.HTTPResponse:
    """The answer to an address of the page, as a browser asks that was never there."""
    parts = urlsplit(address)
    return page.ask("GET", f"{parts.path}?{parts.query}", X_Regard_Token=None, **headers)


def test_a_browser_is_called_with_what_opens_the_page_once(
    called: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(browse=True) as page:
        (address,) = called
        assert page.is_opened
        assert page.token not in address
        assert [enter(page, address).status for _ in range(3)] == [303, 401, 401]
        assert "was shown once more, and refused" in capsys.readouterr().err
        assert [enter(page, page.address).status for _ in range(3)] == [303, 303, 303]


def test_what_a_browser_was_called_with_is_worth_nothing_later(
    called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "TICKET", 0.0)
    with serving(browse=True) as page:
        assert enter(page, called[0]).status == 401


def no_browser(address: str) -> bool:
    raise webbrowser.Error("could not locate runnable browser")


@pytest.mark.parametrize("opens", [lambda address: False, no_browser])
def test_a_machine_without_a_browser_is_told_the_address(
    called: list[str], monkeypatch: pytest.MonkeyPatch, opens: Callable[[str], bool]
) -> None:
    monkeypatch.setattr(webbrowser, "open", opens)
    with serving(browse=True) as page:
        assert not page.is_opened
        assert page.ask().status == 200


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="has a screen")
def test_no_browser_takes_the_terminal_away(called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in server.SCREENS:
        monkeypatch.delenv(name, raising=False)
    with serving(browse=True) as page:
        assert not page.is_opened
    assert called == []


def test_the_token_moves_from_the_address_to_a_cookie_that_no_script_reads(page: Served) -> None:
    answer = enter(page, f"{page.address}&a=1%262")
    assert (answer.status, answer.headers["location"]) == (303, "./?a=1%262")
    cookie, *flags = answer.headers["set-cookie"].split("; ")
    assert cookie == f"regard_{page.port}={page.token}"
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(flags)
    assert page.ask(X_Regard_Token=None, cookie=f"other=1; {cookie}; regard_{page.port + 1}=another").status == 200
    again = page.ask("GET", f"/?token={page.token}", X_Regard_Token=None, cookie=cookie)
    assert (again.status, again.headers["location"]) == (303, "./")  # also where the browser is known
    for strange in ('theme={"dark":1}', "user@x=1", "n=\xe9", '=;;"\\,'):  # of another program at the same name
        assert page.ask(X_Regard_Token=None, cookie=f"{strange}; {cookie}").status == 200
    assert page.ask(X_Regard_Token=None, cookie=f"regard_{page.port + 1}={page.token}").status == 401


@pytest.mark.parametrize(
    "path", ["javascript:alert(1)", "https:evil.example", "%5c%5cevil.example", "/evil.example", "a%0d%0aSet-Cookie: b"]
)
def test_the_token_leads_nowhere_else(page: Served, path: str) -> None:
    answer = page.ask("GET", f"/{path.replace(' ', '%20')}?token={page.token}", X_Regard_Token=None)
    assert answer.status == 303
    assert re.fullmatch(r"\./[^/\\\s]*", answer.headers["location"])
    assert len(answer.headers.get_all("set-cookie")) == 1


# What stands before it ---------------------------------------------------------------------------------------------

PREFIX = "/some/path/"


class Relay(socketserver.StreamRequestHandler):
    """Passes a request on to the page behind, without the path that is the proxy's own, and its answer back."""

    def handle(self) -> None:
        head = b"".join(iter(self.rfile.readline, b"\r\n"))
        line, _, headers = head.partition(b"\r\n")
        method, path, _ = line.decode().split(" ")
        if not path.startswith(PREFIX):
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        length = re.search(rb"(?i)content-length: (\d+)", headers)
        body = self.rfile.read(int(length[1])) if length else b""
        headers = re.sub(rb"(?i)connection: [^\r]*\r\n", b"", headers) + b"Connection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.behind)) as onward:  # type: ignore[attr-defined]
            onward.sendall(f"{method} /{path.removeprefix(PREFIX)} HTTP/1.1\r\n".encode() + headers + body)
            with suppress(ConnectionError):  # who asked may have left
                while part := onward.recv(1 << 16):
                    self.wfile.write(part)


@contextmanager
def proxy() -> Iterator[Any]:
    """What passes on what lies under a path of its own; `behind` is the port of the page."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


def test_every_room_works_behind_a_path_of_a_proxy_under_another_name(browser: Any) -> None:
    with proxy() as before, serving(hosts=(f"localhost:{before.server_address[1]}",)) as page:
        outside, before.behind = f"localhost:{before.server_address[1]}", page.port
        tab = browser.new_page()
        said: list[str] = []
        asked: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(f"http://{outside}{PREFIX}?token={page.token}#table")
        tab.wait_for_selector(".room-table .answer-line:not(:empty)")
        assert "token" not in tab.url
        for room in ("formula", "sentence", "sounds"):
            tab.click(f"nav [data-room='{room}']")
            tab.wait_for_selector(f".room-{room} h1")
        tab.click("text=Python >> nth=0")
        tab.wait_for_load_state("networkidle")
        tab.close()
    assert said == []
    assert [each for each in asked if not each.startswith((f"http://{outside}{PREFIX}", "data:", "blob:"))] == []
    assert any("/ask/table/answer" in each for each in asked)


# What is dropped, and who reads ------------------------------------------------------------------------------------


def test_the_same_table_dropped_twice_is_two_tables(page: Served) -> None:
    found = [page.json("PUT", "/files?name=grades.csv", b"a,b\n1,2\n3,4\n") for _ in range(2)]
    assert found[0]["name"] == found[1]["name"] == "grades.csv"
    assert found[0]["table"] != found[1]["table"]
    listed = [each["table"] for each in page.json()["tables"]]
    assert listed[-2:] == [each["table"] for each in found]
    for each in found:
        opened = page.json("POST", "/ask/table/open", json.dumps({"table": each["table"]}).encode())
        assert opened["rows"] == 2


def ask_without_end(connection: socket.socket, question: bytes) -> None:
    """Ask again and again, for as long as that goes on."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(TimeoutError):
            connection.sendall(question)


def test_who_asks_and_never_reads_is_hung_up_on() -> None:
    with serving(limits=Limits(arrival=0.5)) as page, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", page.port))
        deaf.settimeout(0.2)
        question = f"GET /about HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n\r\n"  # without the token
        with pytest.raises(ConnectionError):
            ask_without_end(deaf, 100 * question.encode())
        assert page.ask().status == 200


def test_the_page_ends_by_its_own_button_and_says_so_in_every_tab(browser: Any) -> None:
    with serving() as page:
        first, second = browser.new_page(), browser.new_page()
        for tab in (first, second):
            tab.goto(f"{page.address}#sounds")
            tab.wait_for_selector(".room-sounds h1")
        first.click("#stop")
        assert page.ask().status == 200  # it asks whether one is sure
        first.click("text=Stop now?")
        first.wait_for_selector("text=The server has ended.")
        page.thread.join(20)
        assert not page.thread.is_alive()
        second.click("nav [data-room='table']")
        second.wait_for_selector("text=The server does not answer. Has it been stopped?")
        first.close()
        second.close()


# When it ends ------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is looked for all the time."""
    monkeypatch.setattr(server, "CHECKED", 0.05)


@pytest.mark.usefixtures("impatient")
def test_who_is_refused_does_not_keep_a_page_from_ending() -> None:
    with serving(idle=0.01) as page:

        def has_ended() -> bool:
            with suppress(OSError, http.client.HTTPException):
                assert page.ask(X_Regard_Token=None).status == 401
            return not page.thread.is_alive()

        wait_until(has_ended)


@pytest.mark.usefixtures("impatient")
def test_a_page_does_not_end_while_something_is_asked() -> None:
    with serving(idle=0.01) as page:
        connection = http.client.HTTPConnection("127.0.0.1", page.port)
        connection.putrequest("PUT", "/files?name=slow.csv")
        connection.putheader("X-Regard-Token", page.token)
        connection.putheader("Content-Length", "20")
        connection.endheaders()
        for _ in range(20):
            connection.send(b"a")
            time.sleep(0.08)
        assert page.thread.is_alive()
        assert page.ask().status == 200
        assert connection.getresponse().status == 200
        connection.close()


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it left."""

    code: int
    said: str
    processes: list[str]
    files: list[str]
    answers: list[tuple[int, str]]


def ended_by(how: str, home: Path) -> Ended:
    """What became of a page of its own session, whose terminal says so."""
    home.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("troubled.py"))]
    if how == "Ctrl-C at once":
        command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "TMPDIR": str(home)}
    with subprocess.Popen(command, **pipes, env=environment, start_new_session=True) as process:  # type: ignore[call-overload]
        address = process.stdout.readline().strip()
        page = Served(address, False, threading.current_thread())
        answers = SIGNALS[how](page, process, home)
        _, said = process.communicate(timeout=60)
    with suppress(AssertionError):
        wait_until(lambda: not of_session(process.pid))
    return Ended(process.returncode, said, of_session(process.pid), [str(each) for each in home.rglob("*")], answers)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, which may take its time on a busy machine."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)


def of_session(number: int) -> list[str]:
    """The processes of a session that are still there."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session, *_ = (each / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
            if int(session) == number and state != "Z":
                found.append(each.name)
    return found


def kept(page: Served, process: subprocess.Popen[str], home: Path) -> None:
    """Have a file kept, and a worker started."""
    assert page.ask("PUT", "/files?name=kept.csv", b"a,b\n1,2\n").status == 200
    assert page.ask("POST", "/ask/trouble/echo", b"{}").status == 200
    assert len(list(home.rglob("*.csv"))) == 1
    assert len(of_session(process.pid)) >= 4  # the server, what forks, and two who compute


def hung_up(page: Served, process: subprocess.Popen[str], home: Path) -> list[tuple[int, str]]:
    kept(page, process, home)
    os.killpg(process.pid, signal.SIGHUP)
    return []


def quit_at_the_keyboard(page: Served, process: subprocess.Popen[str], home: Path) -> list[tuple[int, str]]:
    kept(page, process, home)
    os.killpg(process.pid, signal.SIGQUIT)
    return []


def killed(page: Served, process: subprocess.Popen[str], home: Path) -> list[tuple[int, str]]:
    kept(page, process, home)
    process.kill()
    return []


def interrupted(page: Served, process: subprocess.Popen[str], home: Path) -> list[tuple[int, str]]:
    """While what computes is still imported."""
    wait_until(lambda: any(imports_torch(each) for each in of_session(process.pid) if each != str(process.pid)))
    os.killpg(process.pid, signal.SIGINT)
    return []


def imports_torch(process: str) -> bool:
    """Whether a process has begun to."""
    with suppress(OSError):
        return "libtorch" in Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    return False


def terminated(page: Served, process: subprocess.Popen[str], home: Path) -> list[tuple[int, str]]:
    """In the midst of work, and after a file for which there was no room."""
    kept(page, process, home)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    full = page.ask("PUT", "/files?name=large.tsv", b"a\tb\n" * (1 << 16))
    assert not list(home.rglob("*.tsv"))
    with ThreadPoolExecutor(1) as thread:
        body = json.dumps({"seconds": 600, "about": "end", "mark": "end"}).encode()
        waiting = thread.submit(page.ask, "POST", "/ask/trouble/wait", body)
        wait_until((home / "began end").exists)
        (home / "began end").unlink()
        process.terminate()
        answers = [full, waiting.result()]
    return [(each.status, json.loads(each.content)["error"]) for each in answers]  # type: ignore[attr-defined]


SIGNALS = {
    "its terminal": hung_up,
    "Ctrl-\\": quit_at_the_keyboard,
    "kill -9": killed,
    "Ctrl-C at once": interrupted,
    "kill": terminated,
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """What became of those that were ended, all of them at the same time."""
    home = tmp_path_factory.mktemp("ended")
    with ThreadPoolExecutor(len(SIGNALS)) as threads:
        return dict(zip(SIGNALS, threads.map(lambda how: ended_by(how, home / how), SIGNALS), strict=True))


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")


@needs_proc
@pytest.mark.parametrize("how", SIGNALS)
def test_however_it_ends_no_process_and_no_file_is_left(ended: dict[str, Ended], how: str) -> None:
    assert ended[how].processes == []
    assert ended[how].files == []


@needs_proc
@pytest.mark.parametrize(
    ("how", "code"), [("its terminal", 0), ("Ctrl-\\", 0), ("kill", 0), ("Ctrl-C at once", 130), ("kill -9", -9)]
)
def test_how_it_ended_is_what_a_shell_expects(ended: dict[str, Ended], how: str, code: int) -> None:
    assert ended[how].code == code
    if how != "kill -9":  # which may meet a process that is just being made
        announced = ["open it in a browser on this machine; Ctrl-C ends it"] if how == "Ctrl-C at once" else []
        assert ended[how].said.splitlines() == announced


@needs_proc
def test_a_file_for_which_there_is_no_room_is_refused_and_who_waits_at_the_end_is_told(ended: dict[str, Ended]) -> None:
    assert ended["kill"].answers == [
        (507, "This machine cannot keep the file: File too large."),
        (503, "The page has ended."),
    ]
