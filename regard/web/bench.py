"""What a worker does: a process that takes jobs from a pipe, one after another, and answers in JSON."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from regard.web.asked import Asked
from regard.web.settings import Settings

GONE = "That table is not here any more. Drop the file on the page again."
OF_TERMINAL = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGHUP") if hasattr(signal, name)]
OUT_OF_MEMORY = "can't allocate memory"  # torch's own error is a RuntimeError


@dataclass(frozen=True)
class Job:
    """A question for a room, and the file that it is about."""

    room: str
    operation: str
    asked: Asked
    file: Path | None = None


@dataclass(frozen=True)
class Reply:
    """An answer as JSON, or why there is none, with a status of HTTP."""

    status: int
    body: bytes


def work(pipe: Connection, settings: Settings, threads: int, folders: tuple[Path, ...]) -> None:
    """Answer jobs until the pipe closes. It runs in a process of its own, which may be killed at any time.

    Each job is answered by two messages: that it has begun; and the reply, with whether this process goes on.
    """
    for each in OF_TERMINAL:
        signal.signal(each, signal.SIG_IGN)  # they are for the server, which ends this process
    watch = threading.Thread(target=_end_with_server, args=(folders,), name="regard_watch", daemon=True)
    watch.start()
    import torch

    from regard.web.rooms import ROOMS

    torch.set_num_threads(threads)
    rooms = {name: room(settings) for name, room in ROOMS.items()}  # type: ignore[call-arg]
    _bound_memory(settings.limits.memory)
    try:
        pipe.send(None)  # ready
        _answer_all(pipe, rooms)
    except (EOFError, ConnectionError):  # the server has ended
        watch.join()  # what it could not remove is removed before this process ends, too


def _answer_all(pipe: Connection, rooms: dict[str, Any]) -> None:
    while True:
        job = pipe.recv()
        pipe.send(None)  # begun
        reply, goes_on = _answered(rooms, job)
        pipe.send((reply, goes_on))
        if not goes_on:
            os._exit(1)  # memory ran out somewhere: what is left is no state to go on from


def _end_with_server(folders: tuple[Path, ...]) -> None:
    """Where the server was killed it could not remove what was dropped on the page: who outlives it does."""
    server = parent_process()
    assert server is not None
    wait([server.sentinel])
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _answered(rooms: dict[str, Any], job: Job) -> tuple[Reply, bool]:
    """The reply to a job, and whether the worker may go on."""
    from pydantic_core import to_json

    from regard.errors import RegardError

    try:
        operation = getattr(rooms[job.room], job.operation)
        found = operation(job.asked) if job.file is None else operation(job.asked, job.file)
        return Reply(200, to_json(found, inf_nan_mode="null")), True
    except RegardError as error:
        return said(422, str(error)), True
    except Exception as error:
        if job.file is not None and not job.file.exists():
            return said(404, GONE), True  # while the job waited
        if isinstance(error, MemoryError) or OUT_OF_MEMORY in str(error):
            return said(422, "That needs more memory than one request may take. Ask for less of it."), False
        traceback.print_exc(file=sys.stderr)
        return said(500, f"This is a defect of regard: {type(error).__name__}. The terminal has its details."), True


def said(status: int, message: str) -> Reply:
    """A refusal in words."""
    from pydantic_core import to_json

    from regard.printable import on_one_line

    return Reply(status, to_json({"error": on_one_line(message)[:2000]}))


def _bound_memory(most: int) -> None:
    """Let this process take so many bytes more than it has; where the system has no such limit, there is none."""
    try:
        import resource

        status = Path("/proc/self/status").read_text(encoding="utf-8")
        (has,) = re.findall(r"VmData:\s+(\d+) kB", status)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(has) * 1024 + most, hard))
    except (ImportError, OSError, ValueError):
        return
