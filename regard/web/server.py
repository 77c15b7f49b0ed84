"""The server: where it listens, who opens the page, and when it ends."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from regard.errors import OptionError
from regard.web.application import Page
from regard.web.connection import patient
from regard.web.settings import Settings

PORT = 8310
TRIED = 20  # ports, where the usual one is taken
CHECKED = 1.0  # seconds between looks at whether the page is idle
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._[]:")  # signs of a host
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # what says that a browser would be seen
ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)
]


def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    idle: float | None = None,
    browse: bool = True,
    announce: Callable[[str, bool], None],
) -> None:
    """Serve the page until Ctrl-C, its own Stop, long silence, or the end of its terminal.

    Args:
        settings: What is shown, and what one request may take.
        host: Where to listen: this machine's own address, unless others shall reach it.
        port: Which port; if left out, the first that is free from 8310 on.
        idle: After how many minutes without a request to end; never if left out.
        browse: Whether to open a browser.
        announce: Is told the address, and whether a browser opens it, once the page answers.
    """
    for name in settings.hosts:
        _check_name(name)
    listening = _listening(host, port)
    at, port = listening.getsockname()[:2]
    is_everywhere = ipaddress.ip_address(at.partition("%")[0]).is_unspecified
    servers: list[uvicorn.Server] = []

    def stop() -> None:
        servers[0].should_exit = True

    page = Page(settings, _hosts(None if is_everywhere else host, port, settings.hosts), f"regard_{port}", stop)
    config = uvicorn.Config(
        page.guarded,
        loop="asyncio",
        http=patient(settings.limits.arrival),
        ws="none",
        lifespan="on",
        log_level="error",  # who sends what is no HTTP does not fill the terminal
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=1 << 16,
        limit_concurrency=1024,
    )
    servers.append(_Server(config, page, None if idle is None else 60 * idle))
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'localhost' if is_everywhere else shown}:{port}/?token="

    def tell() -> None:
        # The words of a command are no secret on this machine: what a browser is called with opens the page once.
        announce(f"{address}{page.token}", browse and _opened(f"{address}{page.guarded.ticket()}"))

    servers[0].ready = tell  # type: ignore[attr-defined]
    servers[0].run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that says when it answers, and ends when nobody has asked for long."""

    def __init__(self, config: uvicorn.Config, page: Page, idle: float | None) -> None:
        super().__init__(config)
        self._page, self._idle = page, idle
        self._is_interrupted = False
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            return
        threading.Thread(target=self.ready, name="regard_browser", daemon=True).start()
        if self._idle is not None:
            self._watch = asyncio.create_task(self._ends_when_idle(self._idle))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._page.end_work()  # nobody waits for who asked last
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Let signals end the page, and the process as if it had come to its end: all that it made is removed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.getsignal(each) for each in ENDING}
        kept = {each: given for each, given in before.items() if given is not signal.SIG_IGN}  # as nohup has it
        for each in kept:
            signal.signal(each, self.handle_exit)
        try:
            yield
        finally:
            for each, given in kept.items():
                signal.signal(each, given)
        if self._is_interrupted:
            raise KeyboardInterrupt

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._is_interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def _ends_when_idle(self, seconds: float) -> None:
        while self._page.guarded.silence() < seconds:
            await asyncio.sleep(CHECKED)
        self.should_exit = True


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket that listens: at that port, or where none is named at the first that is free."""
    if not host:
        raise OptionError("--host must be an address of this machine: got none.")  # to a socket that is every address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in range(PORT, PORT + TRIED) if port is None else [port]:
        # The protocol is named, since asyncio sets TCP_NODELAY on no other socket: without that the body of an answer
        # waits until its headers are acknowledged, which takes a reader's system 40 ms.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":  # elsewhere it would share a port with who has it
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, tried))
            found.listen(256)
        except (OSError, TypeError) as error:
            found.close()
            if isinstance(error, TypeError):  # of letters that are in no name
                raise OptionError(f"--host must be an address of this machine: got {host}.") from None
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise OptionError(_why(host, tried, error)) from None
        found.set_inheritable(False)
        return found
    raise OptionError(
        f"A port from {PORT} to {PORT + TRIED - 1} must be free: all are taken. Name another with --port."
    )


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port must be free: {port} is taken. Name another, or leave it out."
    if error.errno == errno.EACCES:
        return f"--port must be one that you may listen at: {port} is not. Name one above 1023."
    return f"--host must be an address of this machine: got {host} ({error.strerror or error})."


def _check_name(name: str) -> None:
    """Refuse what no browser would ever call the page by, or none alone."""
    host = name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() else name
    if not host or not set(host) <= NAME or (":" in host and not host.startswith("[")):
        raise OptionError(f"--allow-host must be a name, with a port or without: got {name!r}. Like page.example:8443.")


def _hosts(host: str | None, port: int, named: tuple[str, ...]) -> frozenset[str]:
    """The names with ports that a browser may call the page by; 80 and 443 are left out of addresses."""
    ours = {"127.0.0.1", "localhost", "[::1]"}
    if host is not None:
        ours.add(f"[{host}]" if ":" in host else host)
    found = {f"{each}:{port}" for each in ours} | ({*ours} if port in (80, 443) else set())
    for name in named:
        # A proxy has a port of its own, which only who names it knows.
        found |= {name} if name.rpartition(":")[2].isdecimal() else {name, f"{name}:{port}"}
    return frozenset(each.lower() for each in found)


def _opened(address: str) -> bool:
    """Whether a browser opens the page. A machine may have none, or none that a person sees."""
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, SCREENS)):
        return False  # a browser of the terminal would take it away
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError) as error:
        print(f"no browser could be opened: {error}", file=sys.stderr)
        return False
