"""A pool of threads for compiled kernels and small matrix products, each of which uses one core.

Threads are ours and plain, so that they survive what compiled ones do not: after a fork the child starts its own, and
concurrent calls share them. Waking them costs about 0.1 ms, so that small work stays with the caller.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import torch

from regard.engines.torch_internals import on_one_core, openmp_threads, rest_openmp, use_one_core

Result = TypeVar("Result")

# How long a call that failed waits for its threads. Between tiles they look up sooner; a compiler does not.
PATIENCE_SECONDS = 0.5

# Work that is shared out is at least so long, and each task of it.
LEAST_SECONDS, LEAST_TASK_SECONDS = 4e-3, 1.5e-4

# Elements of scratch that a thread keeps of each kind for its next call: 32 MiB. In more work, page faults do not show.
KEPT_ELEMENTS = 1 << 23

_pool: tuple[int, ThreadPoolExecutor | None] = (0, None)  # how many threads it has: as many as any call has wanted
_lock = threading.Lock()
_inside = threading.local()
_may_rest = True


def count() -> int:
    """How many threads share a call: as many as torch would use here; 1 inside a worker."""
    return 1 if _is_worker() else getattr(_inside, "threads", None) or torch.get_num_threads()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Around calls of `run` with small operations of torch between them, which take one core inside.

    On several, each would wake torch's own threads, which takes longer than the operation, and leave them spinning on
    the cores that the next call is about to use.
    """
    if count() == 1 or hasattr(_inside, "threads"):
        yield
        return
    _inside.threads = count()
    try:
        with openmp_threads(1):
            yield
    finally:
        _inside.__dict__.pop("threads", None)  # a child that was forked inside has none


@contextmanager
def disturbed() -> Iterator[None]:
    """Inside of `undisturbed`: torch has all cores again, for work that is large."""
    threads = _inside.__dict__.pop("threads", None)
    if threads is None:
        yield
        return
    try:
        with openmp_threads(threads):
            yield
    finally:
        _inside.threads = threads


def _is_worker() -> bool:
    return getattr(_inside, "worker", False)


def run(tasks: Sequence[Callable[[], Result]], seconds: float | None = None) -> list[Result]:
    """What every task returns, in order. An exception in one is raised here, once the others have stopped.

    One that does not stop is left to end by itself: all that it touches is its own or the failed call's.

    Args:
        tasks: What to do.
        seconds: About how long compiled code will work on all of them, on one core. Where that is short, for all of
            them or for each, this thread does them: others would take longer to wake, or wait for the interpreter.
    """
    call, threads = _Call(tasks), min(count(), len(tasks))
    short = seconds is not None and (seconds < LEAST_SECONDS or seconds < LEAST_TASK_SECONDS * len(tasks))
    pool = _pool_of(count()) if threads > 1 and not short else None
    if pool is None:
        with on_one_core():
            call.work()
        return call.results
    if _may_rest:
        rest_openmp()
    futures: list[Future[None]] = []
    try:
        while pool is not None and not futures:
            with suppress(RuntimeError):  # no more can be started, or the interpreter ends: do with what there is
                for _ in range(threads):
                    futures.append(pool.submit(call.work))
            # A larger pool may have taken the place of this one just now.
            pool = _pool[1] if pool is not _pool[1] else None
        if not futures:
            with on_one_core():
                call.work()
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        # After an error, or Ctrl-C in this thread, what has not begun never will, and what has ends with its tile.
        call.stop.set()
        errors = _end(futures)
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # an error holds this frame: the frame should not hold the error
    return call.results


def _end(futures: list[Future[None]]) -> list[BaseException]:
    """Wait for what has begun, forget it, and return its errors."""
    for future in futures:
        future.cancel()
    wait(futures, PATIENCE_SECONDS)
    errors = [future.exception() for future in futures if future.done() and not future.cancelled()]
    futures.clear()
    return [error for error in errors if error is not None and not isinstance(error, Stopped)]


class _Call(Generic[Result]):
    """Tasks, of which each thread takes the next until there is none."""

    def __init__(self, tasks: Sequence[Callable[[], Result]]) -> None:
        self.tasks = tasks
        self.results: list[Any] = [None] * len(tasks)
        self.places = itertools.count()  # asking for the next one is atomic
        self.inference = torch.is_inference_mode_enabled()
        # A call inside a worker ends with the one around it.
        around = _inside.__dict__.get("call") if _is_worker() else None
        self.stop: threading.Event = threading.Event() if around is None else around.stop

    def work(self) -> None:
        around, depth = _inside.__dict__.get("call"), _inside.__dict__.get("depth", 0)
        _inside.call, _inside.depth = self, depth + 1
        try:
            with torch.inference_mode(self.inference), torch.no_grad():  # both belong to a thread
                while (place := next(self.places)) < len(self.tasks):
                    check_stopped()
                    self.results[place] = self.tasks[place]()
        finally:
            _inside.call, _inside.depth = around, depth


def scratch(name: str, n_rows: int, width: int) -> Any:
    """A matrix of float32 to write on, kept by this thread: fresh memory would cost a fault for each page of it."""
    size = n_rows * width
    if size > KEPT_ELEMENTS:
        return _aligned(size).reshape(n_rows, width)
    # A call inside a task, as from a user's mask, has its own.
    kept, key = _inside.__dict__.setdefault("scratch", {}), (name, getattr(_inside, "depth", 0))
    if key not in kept or kept[key].size < size:
        kept[key] = _aligned(size)
    return kept[key][:size].reshape(n_rows, width)


def _aligned(size: int) -> Any:
    """Fresh memory as torch aligns it: a BLAS may sum in another order where memory starts elsewhere."""
    return torch.empty(size, dtype=torch.float32, device="cpu").numpy()


class Stopped(Exception):
    """The call that this thread worked for has ended."""


def check_stopped() -> None:
    """Raise if the call that this thread works for has ended: tasks ask between tiles."""
    call = getattr(_inside, "call", None)
    if call is not None and call.stop.is_set():
        raise Stopped


def _pool_of(threads: int) -> ThreadPoolExecutor | None:
    """The pool, of so many threads at least; None where no thread can be started, as when the interpreter ends.

    A call that wants fewer leaves some of them asleep, so that callers with different settings share it.
    """
    if _pool[0] < threads:
        # In a thread of its own: Ctrl-C here must not leave threads half begun.
        starting = threading.Thread(target=_start, args=(threads,), name="regard_start")
        with suppress(RuntimeError):
            starting.start()
            starting.join()
    return _pool[1]


def _start(threads: int) -> None:
    """Start threads that use one core each, and leave as it was how many others use; fewer, begun before, end."""
    global _pool
    with _lock:
        before = _pool[1]
        if _pool[0] >= threads:
            return
        # This thread is new, so that this is what others use that are yet to begin.
        wanted = torch.get_num_threads()
        begun, end = threading.Semaphore(0), threading.Event()
        changed = False

        def begin() -> None:
            nonlocal changed
            _inside.worker = True
            if not use_one_core():
                changed = True
                torch.set_num_threads(1)
            begun.release()
            end.wait()  # so that each task has a thread of its own

        pool, begins = ThreadPoolExecutor(threads, thread_name_prefix="regard"), 0
        with suppress(RuntimeError):
            for _ in range(threads):
                pool.submit(begin)
                begins += 1
        for _ in range(begins):
            begun.acquire()
        if changed:
            torch.set_num_threads(wanted)
        end.set()
        if begins:
            _pool = (threads, pool)
            if before is not None:
                before.shutdown(wait=False)  # what it was given to do, it does


def _forget() -> None:
    """In a forked child: the threads are not there, torch's neither, and those must not be waited for."""
    global _lock, _may_rest, _pool
    _may_rest = False
    _pool = (0, None)
    _lock = threading.Lock()
    _inside.__dict__.clear()


os.register_at_fork(after_in_child=_forget)
