"""Processes that compute: no request holds up the server, and each can be ended, by time or with its reader."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic

from regard.web.bench import Job, Reply, said, work
from regard.web.settings import Settings

STARTING = 120.0  # seconds until a worker has imported what it needs
REMEMBERED = 256  # subjects whose worker is known
LONG = 1.0  # seconds after which what a worker has in memory is not worth waiting for it


class Worker:
    """One process, started when it is needed, and again after it was ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard_worker")
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
        limits = self._settings.limits
        self.load += 1
        try:
            async with self._turn:
                await self._started()
                self._since = monotonic()
                reply = asyncio.wrap_future(self._submitted(job))
                try:
                    return await asyncio.wait_for(asyncio.shield(reply), limits.seconds)
                except TimeoutError:
                    await self._end(reply)
                    return said(
                        504, f"That takes longer than {limits.seconds:g} seconds, and was ended. Ask for less of it."
                    )
                except asyncio.CancelledError:
                    # The reader has left. What is nearly done may end: killing it would lose what the worker has read.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(reply), limits.grace)
                    if not reply.done():
                        await self._end(reply)
                    raise
                except (EOFError, OSError):
                    await self._end(reply)
                    return said(500, "What computed this ended. It was started again: ask once more.")
                finally:
                    self._since = None
        finally:
            self.load -= 1

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _started(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        if self._pipe is not None:
            self._pipe.close()
        context = multiprocessing.get_context("spawn")
        own, theirs = context.Pipe()
        threads = max((os.cpu_count() or 1) // self._settings.workers, 1)
        process = context.Process(target=work, args=(theirs, self._settings, threads), daemon=True)
        await asyncio.to_thread(process.start)
        theirs.close()
        self._process, self._pipe = process, own
        await asyncio.wait_for(asyncio.wrap_future(self._thread.submit(own.recv)), STARTING)

    def _submitted(self, job: Job) -> Future[Reply]:
        pipe = self._pipe
        assert pipe is not None

        def exchange() -> Reply:
            pipe.send(job)
            reply: Reply = pipe.recv()
            return reply

        return self._thread.submit(exchange)

    async def _end(self, reply: asyncio.Future[Reply]) -> None:
        """End the process, and with it what it was computing."""
        process = self._process
        assert process is not None
        process.kill()
        await asyncio.to_thread(process.join)
        with suppress(EOFError, OSError):
            await reply  # the pipe has ended, too


class Workers:
    """Several workers: questions about the same go to the same one, unless that is busy and another is not."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.limits.waiting
        self._workers = [Worker(settings) for _ in range(settings.workers)]
        self._of: OrderedDict[str, Worker] = OrderedDict()

    async def start(self) -> None:
        """Start the processes; a mistake in that is told by the first job."""
        starting = await asyncio.gather(*(each.start() for each in self._workers), return_exceptions=True)
        for error in starting:
            if isinstance(error, Exception):
                print(f"a worker did not start: {error!r}", file=sys.stderr)

    async def run(self, job: Job) -> Reply:
        """The reply to a job."""
        worker = self._chosen(job.asked.subject())
        if worker.load >= self._most:
            return said(503, "Too much is asked at the same time. Ask again in a moment.")
        return await worker.run(job)

    def close(self) -> None:
        """End every process."""
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
