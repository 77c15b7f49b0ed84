"""How kernels come to be compiled: by another process, while plain torch answers.

The first call that needs kernels which are not on disk starts one process, of low priority, that compiles them, those
that are needed first, and then all others. It belongs to nobody: callers may end before it, and of all processes on a
machine one compiles at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

from regard.engines.cpu.kernels import table_rows
from regard.engines.cpu.passes import weight_readings
from regard.engines.cpu.runtime import jit, kernel_cache
from regard.engines.kernels import terminal

PRIORITY = 5  # of the process that compiles: a quarter of a core, where others want all of it
MOST_STARTS = 2  # of a process that compiles: one that ended too early is started once more

_SOURCES = (weight_readings, table_rows)  # which import every module with kernels

_CHILD = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from regard.engines.cpu.runtime.background_compilation import compile_in_background
compile_in_background(sys.argv[2:])
"""

_SAID = (
    "regard compiles its kernels in the background, once for this machine, which takes a minute or two. Until they are "
    "there, plain torch computes the same, slower. `regard warm-up` compiles them ahead."
)
_SAID_HERE = (
    "regard compiles kernels now, which takes some seconds in every process: no folder can be written to keep them. "
    "Set NUMBA_CACHE_DIR to one that can."
)


class _State:
    """What this process knows of the one that compiles."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ready = set[frozenset[str]]()  # groups of kernels that are known to be there
        self.starts = 0
        self.runs = False
        self.said = False


_state = _State()


def _forget() -> None:
    """In a forked child: the threads that wait are not there."""
    global _state
    before, _state = _state, _State()
    _state.ready, _state.starts, _state.said = before.ready, before.starts, before.said


os.register_at_fork(after_in_child=_forget)


def kernels() -> dict[str, jit.Kernel]:
    """Every kernel, by name."""
    return jit.KERNELS


def missing_kernels() -> list[str]:
    """Those that are not compiled yet, the longest work first, about."""
    found = [each for each in kernels().values() if not each.fetch()]
    return [each.name for each in sorted(found, key=lambda each: (-len(each.signature), each.name))]


def are_ready(names: frozenset[str]) -> bool:
    """Whether these kernels are compiled; if not, they will be."""
    if names in _state.ready:
        return True
    found = kernels()
    lacking = [name for name in sorted(names) if not found[name].fetch()]
    if lacking and not request(lacking):
        return False
    _state.ready.add(names)
    return True


def request(names: Collection[str]) -> bool:
    """Have kernels compiled by another process; whether they are there already, because there can be none."""
    with _state.lock:
        if kernel_cache.writable() is None or not sys.executable:
            _say(_SAID_HERE)
            for name in names:
                kernels()[name].prepare()
            return True
        if not _state.runs and _state.starts < MOST_STARTS and not _others_compile():
            _say(_SAID)
            _start(names)
    return False


def why_not_ready(names: Collection[str]) -> str:
    """What becomes of kernels that are not compiled."""
    there = sum(kernels()[name].fetch() for name in names)
    if _state.runs or _state.starts < MOST_STARTS or _others_compile():
        return f"kernels are being compiled: {there} of {len(names)} are there"
    return f"kernels could not be compiled: {there} of {len(names)} are there, and `regard warm-up` says why"


def _say(text: str) -> None:
    """Tell who sits at a terminal, once."""
    if not _state.said:
        terminal.say(text)
    _state.said = True


def _start(names: Collection[str]) -> None:
    folder = kernel_cache.writable()
    assert folder is not None
    _state.starts += 1
    apart = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
    with suppress(OSError, RuntimeError):  # no process or thread can be started
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(sys.path), *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NUMBA_CACHE_DIR": str(folder.parent)},
            start_new_session=True,  # Ctrl-C is not for it
            creationflags=apart,
        )
        _state.runs = True
        # Who ends is to be waited for; at the end of this process, nobody waits.
        threading.Thread(target=_wait, args=(process, _state), name="regard_compiling", daemon=True).start()


def _wait(process: subprocess.Popen[bytes], state: _State) -> None:
    process.wait()
    state.runs = False


def compile_in_background(first: Sequence[str]) -> None:
    """Compile what is not on disk, these kernels first; the process that `request` starts does nothing else."""
    if not Path(os.environ["NUMBA_CACHE_DIR"]).exists():  # a temporary one: who asked has ended already
        return
    _step_back()
    with only_one() as alone:
        if not alone:
            return
        for name in dict.fromkeys((*first, *missing_kernels())):
            kernels()[name].prepare()
            folder = kernel_cache.writable()
            if folder is None or not folder.exists():  # a temporary one, whose owner has ended
                return


def _step_back() -> None:
    """Let others go first: not so far that a caller who keeps every core busy waits for kernels for hours."""
    if hasattr(os, "nice"):
        os.nice(PRIORITY)
    with suppress(OSError):  # Linux weighs sessions first, and this process has one to itself
        Path("/proc/self/autogroup").write_text(str(PRIORITY))


def compile_all(processes: int) -> Iterator[str]:
    """Compile what is not on disk, in so many processes; yields each name when it is there."""
    names = missing_kernels()
    if not names:
        return
    with ProcessPoolExecutor(min(processes, len(names)), mp_context=get_context("spawn")) as pool, only_one():
        for future in as_completed([pool.submit(_compile, name) for name in names]):
            yield future.result()


def _compile(name: str) -> str:
    kernels()[name].prepare()
    return name


@contextmanager
def only_one() -> Iterator[bool]:
    """Be the one process that compiles, as long as this lasts; False where another is."""
    folder = kernel_cache.writable()
    if folder is None:
        yield True
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "ab") as file:
        yield _lock(file.fileno())


def _lock(file: int) -> bool:
    """Lock a file until it is closed, or its process ends; whether nobody else holds it."""
    try:
        if os.name == "nt":  # pragma: no cover
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _others_compile() -> bool:
    folder = kernel_cache.writable()
    if folder is None or not Path(folder, "lock").exists():
        return False
    with only_one() as alone:
        return not alone
