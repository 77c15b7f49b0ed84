"""Who may ask, and how much: hosts, origins, the token, and what a browser may do with an answer.

A page on this machine is in reach of every other page in the same browser. So a request must name a host that is ours
(a name that was made to lead here, DNS rebinding, is none), come from no other origin, and show a token that only who
read the terminal knows.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from hmac import compare_digest
from time import monotonic
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.web.settings import Limits

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
HEAD = 1 << 16  # bytes of headers and address
TICKET = 60.0  # seconds in which a browser that was called must have come
TOKEN = "token"
TOKEN_HEADER = "x-regard-token"

STRANGER = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>regard explore</title><h1>This page has a key</h1>'
    "<p>Open it at the address that <code>regard explore</code> prints in the terminal, with all that follows “?”.</p>"
)

TAKEN = (
    "The key that the browser was called with was shown once more, and refused. If the page has not opened, somebody "
    "else on this machine has it: end it with Ctrl-C, and start it with --no-browser."
)


class TooMuch(Exception):
    """A body that is larger, or slower, than it may be. It has a status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """Lets requests through that may be answered.

    Args:
        app: What answers.
        token: The secret that the address in the terminal has.
        hosts: Names with ports that a browser may call this page by: `localhost:8000`.
        cookie: What the cookie is called; cookies do not tell ports apart, so that its name must.
        limits: What may be asked.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], cookie: str, limits: Limits) -> None:
        self._app, self._token, self._hosts, self._cookie, self._limits = app, token, hosts, cookie, limits
        self._ticket, self._ticket_ends = "", 0.0
        self._under_way = 0
        self._last = monotonic()

    def ticket(self) -> str:
        """What opens the page as the token does, but once, and soon: for where others may read it."""
        self._ticket, self._ticket_ends = secrets.token_urlsafe(24), monotonic() + TICKET
        return self._ticket

    def silence(self) -> float:
        """For how many seconds nothing has been asked, or computed for who asked."""
        return 0.0 if self._under_way else monotonic() - self._last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # there are none here
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers[name] = text
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._under_way -= 1
            self._last = monotonic()

    def _refusal(self, scope: Scope) -> Response | None:
        """What to answer in place of the page; None where the request may be answered."""
        headers = Headers(scope=scope)
        if scope["http_version"] not in ("1.0", "1.1"):
            return _refused(505, "This is not HTTP/1.1.", {"Connection": "close"})
        head = sum(len(name) + len(text) for name, text in headers.raw)
        if head + len(scope["raw_path"]) + len(scope["query_string"]) > HEAD:
            return _refused(431, f"What comes before a question's body may have {HEAD:,} bytes.")
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may believe the one and we the other: where this request ends would be for its sender to choose.
            return _refused(400, "A body has a length or comes in chunks, not both.", {"Connection": "close"})
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _refused(
                421, "This page is not served under that name. Start it with --allow-host NAME for another."
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin):
            return _refused(403, "Another page asked for this.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _refused(403, "Another page asked for this.")
        is_known = self._knows_token(headers)
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [text for name, text in pairs if name == TOKEN]
        # Who is known already is led on, too: an address that is copied from the browser has no token.
        if scope["method"] == "GET" and given and (self._opens(given[0]) or is_known):
            return self._welcome(scope, [pair for pair in pairs if pair[0] != TOKEN])
        if is_known:
            return None
        if "text/html" in headers.get("accept", ""):
            return HTMLResponse(STRANGER, status_code=401)
        return _refused(401, "The token is missing or wrong. Open the address that the terminal shows.")

    def _is_ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() in self._hosts

    def _knows_token(self, headers: Headers) -> bool:
        given = headers.get(TOKEN_HEADER, "")
        if not given:
            # Others on this machine share our cookies, whatever is in theirs: Python's own parser gives up at that.
            given = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return compare_digest(given.encode(), self._token.encode())

    def _opens(self, given: str) -> bool:
        """Whether a key from an address is the token, or the ticket, which then is none any more."""
        if monotonic() < self._ticket_ends and compare_digest(given.encode(), self._ticket.encode()):
            self._ticket_ends = 0.0
            return True
        if not self._ticket_ends and self._ticket and compare_digest(given.encode(), self._ticket.encode()):
            print(TAKEN, file=sys.stderr)
        return compare_digest(given.encode(), self._token.encode())

    def _welcome(self, scope: Scope, pairs: list[tuple[str, str]]) -> Response:
        """The token moves from the address, which histories keep, to a cookie, which no script reads.

        The answer leads to where the reader is, so that it holds behind a proxy's path, too.
        """
        place = f"./{scope['path'].rpartition('/')[2]}"  # and nowhere else, whatever stands before a colon
        response = RedirectResponse(f"{place}?{urlencode(pairs)}" if pairs else place, status_code=303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response


def _refused(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


async def body_of(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The body of a question, of a size and within a time that are bounded."""
    size = Headers(scope=scope).get("content-length", "0")
    if not size.isdecimal() or int(size) > limits.question:
        raise TooMuch(413, f"A question may have {limits.question:,} bytes.")
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(limits.arrival):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise TooMuch(400, "The question ended before it was whole.")
                parts.append(message.get("body", b""))
                total += len(parts[-1])
                if total > limits.question:
                    raise TooMuch(413, f"A question may have {limits.question:,} bytes.")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise TooMuch(408, f"A question must arrive within {limits.arrival:g} seconds.") from None
