"""A pool of threads for compiled kernels and small matrix products, each of which uses one core.

Threads are ours and plain, so that they survive what compiled ones do not: after a fork the child starts its own, and
concurrent calls share them. Waking them costs about 0.1 ms, so that small work stays with the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
import torch

Result = TypeVar("Result")

_pools: dict[int, ThreadPoolExecutor] = {}  # by number of threads
_lock = threading.Lock()
_inside = threading.local()


def count() -> int:
    """How many threads share a call: as many as torch would use here; 1 inside a worker."""
    return 1 if getattr(_inside, "worker", False) else torch.get_num_threads()


def run(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """What every task returns, in order. An exception in one is raised here, once none of them runs any more."""
    threads = min(count(), len(tasks))
    if threads <= 1:
        with torch.no_grad():
            return [task() for task in tasks]
    pool = _pool(count())
    stop = threading.Event()
    futures: list[Future[Any]] = [pool.submit(_attempt, task, stop) for task in tasks]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        # An error, or Ctrl-C in the waiting thread: what has not begun never will, what has ends with its tile.
        stop.set()
        for future in futures:
            future.cancel()
        wait(futures)
    for future in futures:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Stopped):
            raise error
    return [future.result() for future in futures]


def _attempt(task: Callable[[], Result], stop: threading.Event) -> Result:
    _inside.stop = stop
    with torch.no_grad():  # gradient mode belongs to a thread
        return task()


def scratch(name: str, n_rows: int, width: int) -> Any:
    """A matrix of float32 to write on, kept by this thread: fresh memory would cost a fault for each page of it."""
    kept = _inside.__dict__.setdefault("scratch", {})
    if name not in kept or kept[name].size < n_rows * width:
        kept[name] = np.empty(n_rows * width, np.float32)
    return kept[name][: n_rows * width].reshape(n_rows, width)


class Stopped(Exception):
    """The call that this thread worked for has ended."""


def check_stopped() -> None:
    """Raise if the call that this thread works for has ended: tasks ask between tiles."""
    stop = getattr(_inside, "stop", None)
    if stop is not None and stop.is_set():
        raise Stopped


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            wanted = torch.get_num_threads()
            started = threading.Barrier(threads + 1)

            def begin() -> None:
                _inside.worker = True
                torch.set_num_threads(1)
                started.wait()

            pool = ThreadPoolExecutor(threads, thread_name_prefix="regard", initializer=begin)
            for _ in range(threads):
                pool.submit(int)  # each starts one thread
            started.wait()
            # It also sets what threads that are yet to begin will use.
            torch.set_num_threads(wanted)
            _pools[threads] = pool
        return _pools[threads]


def _forget() -> None:
    """In a forked child: the threads are not there."""
    global _lock
    _pools.clear()
    _lock = threading.Lock()
    _inside.__dict__.clear()


os.register_at_fork(after_in_child=_forget)
