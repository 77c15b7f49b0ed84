"""The page's routes: what is served, what is asked of the workers, and what is said when that fails."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from regard import __version__
from regard.errors import RegardError
from regard.printable import on_one_line
from regard.web import appearance
from regard.web.asked import AboutTable, mistake
from regard.web.bench import Job
from regard.web.guard import Guard, TooMuch, body_of
from regard.web.rooms import ROOMS
from regard.web.settings import Settings
from regard.web.shelf import Shelf
from regard.web.workers import Workers

STATIC = Path(__file__).parent / "static"


class Page:
    """The page as an ASGI application, behind its guard.

    Args:
        settings: What it is started with.
        hosts: Names with ports that a browser may call it by.
        stop: What ends the server, which the page may ask for.
    """

    def __init__(self, settings: Settings, hosts: frozenset[str], cookie: str, stop: Callable[[], None]) -> None:
        self.token = secrets.token_urlsafe(24)
        self._settings, self._stop = settings, stop
        self._workers: Workers
        self._shelf: Shelf
        routes = [
            Route("/", self._index),
            Route("/about", self._about),
            Route("/stop", self._end, methods=["POST"]),
            Route("/files", self._drop, methods=["PUT"]),
            Route("/ask/{room}/{operation}", self._ask, methods=["POST"]),
            Route("/static/theme.css", _generated(appearance.theme, "text/css")),
            Route("/static/scale.js", _generated(appearance.scale, "text/javascript")),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _said_by_http, Exception: _said_of_defect},
        )
        app.router.redirect_slashes = False  # an address is right or is none
        self.guarded = Guard(app, self.token, hosts, cookie, settings.limits)

    def end_work(self) -> None:
        """End what is computed: nobody will read it."""
        self._workers.close()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        with TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder:
            self._shelf = Shelf(self._settings.tables, Path(folder), self._settings.limits)
            self._workers = Workers(self._settings, Path(folder))
            starting = asyncio.ensure_future(self._workers.start())
            try:
                yield
            finally:
                starting.cancel()
                self._workers.close()

    async def _index(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def _about(self, request: Request) -> Response:
        """What the page has to know before anything is asked."""
        return JSONResponse(
            {
                "version": __version__,
                "model": None if self._settings.model is None else on_one_line(self._settings.model.name),
                "tables": [asdict(each) for each in self._shelf.listed()],
                "limits": asdict(self._settings.limits),
            }
        )

    async def _end(self, request: Request) -> Response:
        self._stop()
        return JSONResponse({})

    async def _drop(self, request: Request) -> Response:
        size = request.headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > self._settings.limits.file:
            return _refused(
                413, f"A table may have {self._settings.limits.file:,} bytes. Start regard explore with its path."
            )
        try:
            return JSONResponse(asdict(await self._shelf.keep(request.query_params.get("name", ""), request.receive)))
        except TooMuch as error:
            return _refused(error.status, str(error))
        except RegardError as error:
            return _refused(422, str(error))

    async def _ask(self, request: Request) -> Response:
        room, operation = request.path_params["room"], request.path_params["operation"]
        kinds = ROOMS[room].operations if room in ROOMS else {}
        if operation not in kinds:
            return _refused(404, "There is no such question.")
        try:
            body = await body_of(request.scope, request.receive, self._settings.limits)
            asked = kinds[operation].model_validate_json(body)
            file = self._shelf.file_of(asked.table) if isinstance(asked, AboutTable) else None
        except TooMuch as error:
            return _refused(error.status, str(error))
        except ValidationError as error:
            return _refused(400, mistake(error))
        except RegardError as error:
            return _refused(404, str(error))
        return await self._worked(Job(room, operation, asked, file), request)

    async def _worked(self, job: Job, request: Request) -> Response:
        """The workers' reply; where the reader leaves, the work ends."""
        work = asyncio.ensure_future(self._workers.run(job))
        left = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=499)  # nobody reads it
            reply = work.result()
            headers = {"Retry-After": "1"} if reply.status == 503 else None
            return Response(reply.body, reply.status, headers, media_type="application/json")
        finally:
            left.cancel()
            work.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _generated(text: Callable[[], str], kind: str) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        return Response(text(), media_type=kind, headers={"Cache-Control": "no-cache"})

    return respond


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)


async def _said_by_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "There is nothing at this address.", 405: "This address is asked in another way."}
    return _refused(error.status_code, said.get(error.status_code, "That was not understood."))


async def _said_of_defect(request: Request, error: Exception) -> Response:
    return _refused(500, "This is a defect of regard. The terminal has its details.")
