"""Processes that compute: no request holds up the server, and each can be ended, by time or with its reader."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import TypeVar

from regard.web.bench import OF_TERMINAL, Job, Reply, said, work
from regard.web.settings import Settings

STARTING = 120.0  # seconds until a worker has imported what it needs
ATTEMPTS = 3  # to hand a job to a worker, which may have ended while it rested
REMEMBERED = 256  # subjects whose worker is known
ENDED = said(503, "The page has ended.")
LONG = 1.0  # seconds after which what a worker has in memory is not worth waiting for it

Found = TypeVar("Found")


class Worker:
    """One process, started when it is needed, and again after it was ended."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._starting: asyncio.Task[Connection] | None = None
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard_worker")
        self._is_closed = False
        self.load = 0  # requests that wait or are answered
        self._since: float | None = None

    @property
    def busy_for(self) -> float:
        """How many seconds the present job has taken; 0 where there is none."""
        return 0.0 if self._since is None else monotonic() - self._since

    async def start(self) -> None:
        """Start the process ahead of the first job."""
        async with self._turn:
            await self._started()

    async def run(self, job: Job) -> Reply:
        """The reply to a job, after those that were there before it."""
        self.load += 1
        try:
            async with self._turn:
                for _ in range(ATTEMPTS):
                    if self._is_closed:
                        return ENDED
                    try:
                        pipe = await self._started()
                    except (EOFError, OSError) as error:
                        if self._is_closed:
                            return ENDED
                        print(f"a worker did not start: {error!r}", file=sys.stderr)
                        await self._end()
                        return said(500, "What computes could not be started. The terminal has its details.")
                    reply = await self._reply(job, pipe)
                    if reply is not None:
                        return reply
                return said(500, "What computes ends again and again. The terminal has its details.")
        finally:
            self.load -= 1

    def close(self) -> None:
        """End the process, and answer that to who waits for it."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
            self._process.join()
        elif self._starting is not None and not self._starting.done():
            _end_forks()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _started(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        if self._starting is None:
            self._starting = asyncio.create_task(self._launched())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())  # also if nobody waits
        # Who asked may leave meanwhile: the process starts all the same, and is there for the next.
        try:
            return await asyncio.shield(self._starting)
        finally:
            if self._starting is not None and self._starting.done():
                self._starting = None

    async def _launched(self) -> Connection:
        await self._end()
        context = _context()
        own, theirs = context.Pipe()
        threads = max((os.cpu_count() or 1) // self._settings.workers, 1)
        folders = (self._folder, Path(util.get_temp_dir()))  # the latter is of multiprocessing's own sockets
        process = context.Process(  # type: ignore[attr-defined]
            target=work, args=(theirs, self._settings, threads, folders), daemon=True
        )
        await asyncio.to_thread(_start, process)
        theirs.close()
        self._process = process
        if self._is_closed:  # meanwhile
            await self._end()
            raise EOFError
        await asyncio.wait_for(self._in_thread(own.recv), STARTING)
        self._pipe = own
        return own

    async def _reply(self, job: Job, pipe: Connection) -> Reply | None:
        """The reply to a job; None where the process had ended before it began with it."""
        limits = self._settings.limits
        has_begun = False

        def exchange() -> tuple[Reply, bool]:
            nonlocal has_begun
            pipe.send(job)
            pipe.recv()
            has_begun = True
            found: tuple[Reply, bool] = pipe.recv()
            return found

        self._since = monotonic()
        exchanged = self._in_thread(exchange)
        try:
            reply, goes_on = await asyncio.wait_for(asyncio.shield(exchanged), limits.seconds)
            if not goes_on:
                await self._end()
            return reply
        except TimeoutError:
            await self._end(exchanged)
            return said(504, f"That takes longer than {limits.seconds:g} seconds, and was ended. Ask for less of it.")
        except asyncio.CancelledError:
            # The reader has left. What is nearly done may end: killing it would lose what the worker has read.
            with suppress(TimeoutError, EOFError, OSError):
                await asyncio.wait_for(asyncio.shield(exchanged), limits.grace)
            if not exchanged.done() or exchanged.exception() is not None or not exchanged.result()[1]:
                await self._end(exchanged)
            raise
        except (EOFError, OSError):
            await self._end()
            if self._is_closed:
                return ENDED
            return said(500, "What computed this ended. It was started again: ask once more.") if has_begun else None
        finally:
            self._since = None

    def _in_thread(self, function: Callable[[], Found]) -> asyncio.Future[Found]:
        return asyncio.wrap_future(self._thread.submit(function))

    async def _end(self, exchanged: asyncio.Future[tuple[Reply, bool]] | None = None) -> None:
        """End the process, and with it what it was computing."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.join)
        if exchanged is not None:
            with suppress(EOFError, OSError):
                await exchanged  # the pipe has ended, too
        if pipe is not None:
            pipe.close()


class Workers:
    """Several workers: questions about the same go to the same one, unless that is busy and another is not."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._most = settings.limits.waiting
        self._workers = [Worker(settings, folder) for _ in range(settings.workers)]
        self._of: OrderedDict[str, Worker] = OrderedDict()
        self._is_closed = False

    async def start(self) -> None:
        """Start the processes; a mistake in that is told by the first job."""
        starting = await asyncio.gather(*(each.start() for each in self._workers), return_exceptions=True)
        for error in starting:
            if isinstance(error, Exception) and not self._is_closed:
                print(f"a worker did not start: {error!r}", file=sys.stderr)

    async def run(self, job: Job) -> Reply:
        """The reply to a job."""
        worker = self._chosen(job.asked.subject())
        if worker.load >= self._most:
            return said(503, "Too much is asked at the same time. Ask again in a moment.")
        return await worker.run(job)

    def close(self) -> None:
        """End every process."""
        self._is_closed = True
        for each in self._workers:
            each.close()

    def _chosen(self, subject: str) -> Worker:
        idlest = min(self._workers, key=lambda each: each.load)
        known = self._of.get(subject) if subject else None
        if known is None or (known.busy_for > LONG and idlest.load == 0):
            known = idlest
        if subject:
            self._of[subject] = known
            self._of.move_to_end(subject)
            while len(self._of) > REMEMBERED:
                self._of.popitem(last=False)
        return known


def _context() -> BaseContext:
    """How processes are started. On Linux they are forks of one that has imported torch: a new one is there at once."""
    # Elsewhere libraries do not survive forks; before 3.11.1 other users could speak to the process that forks.
    if sys.platform != "linux" or sys.version_info < (3, 11, 1):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.web.bench", "regard.web.rooms"])
    return context


def _start(process: BaseProcess) -> None:
    """Start a process that no key of the terminal ends, from its first moment on: the server ends it."""
    if sys.platform == "win32":
        process.start()
        return
    resource_tracker.ensure_running()  # else it is started on the way, and lets signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINAL)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_forks() -> None:
    """End the process that forks where it is still importing: who waits for a fork would wait for that."""
    number = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if number is not None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
