"""Machine code on disk: a file for each kernel, with a digest, so that what is damaged is made again and never run.

Files lie in the folder that `NUMBA_CACHE_DIR` names, beside this file, or in the user's cache, whichever can be written
first; a folder before it that can only be read is read, as in an image where `regard warm-up` ran. Where none can be
written, a temporary folder serves this process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

_DIGEST_BYTES = 32


def read(name: str) -> bytes | None:
    """What was kept under a name; None if nothing was, or it is damaged."""
    for folder in folders():
        try:
            found = _path(folder, name).read_bytes()
        except OSError:
            continue
        digest, content = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
        if content and hashlib.sha256(content).digest() == digest:
            return content
    return None


def write(name: str, content: bytes) -> None:
    """Keep something under a name, if there is a disk that lets us. Readers find all of it or nothing."""
    folder = writable()
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(exist_ok=True)  # not what it lies in: a temporary folder may be gone, and stays so
        handle, path = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(path, _path(folder, name))
        except OSError:
            os.unlink(path)
            raise


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.code"


@cache
def folders() -> tuple[Path, ...]:
    """Where to look: every place up to the first that can be written."""
    found = []
    for place in (*_places(), None):
        writable = place is None or _can_write(place)
        folder = _temporary() if place is None else place
        if folder is not None:
            found.append(folder / f"regard-{fingerprint()}")
        if writable:
            break
    return tuple(found)


def writable() -> Path | None:
    """The folder in which machine code is kept; None where no disk lets us."""
    last = folders()[-1] if folders() else None
    return last if last is not None and _can_write(last.parent) else None


def _places() -> list[Path]:
    asked = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(asked)] if asked else []
    places.append(Path(__file__).parent / "__pycache__")
    with suppress(RuntimeError):  # a user without a home
        kept = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
        places.append((Path(kept) if kept else Path.home() / ".cache") / "regard")
    return places


@cache
def _can_write(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return True


def _temporary() -> Path | None:
    """A folder of this process alone, gone with it."""
    try:
        place = Path(tempfile.mkdtemp(prefix="regard-"))
    except OSError:
        return None
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(place, ignore_errors=True) if os.getpid() == owner else None)
    return place


@cache
def fingerprint() -> str:
    """Twelve digits that change with all that machine code depends on: sources, compiler, processor."""
    import llvmlite
    import numba
    import numpy
    from numba.core.registry import cpu_target

    compiler = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, numpy.__version__)
    processor = cpu_target.target_context.codegen().magic_tuple()
    return hashlib.sha256(_sources() + repr((compiler, processor)).encode()).hexdigest()[:12]


def _sources() -> bytes:
    """A digest of every source from which machine code is made."""
    engines = Path(__file__).parents[2]
    shared = [engines / "cpu/runtime/jit.py", engines / "cpu/runtime/signatures.py", engines / "kernels/codes.py"]
    found = hashlib.sha256()
    for path in [*sorted((engines / "cpu/kernels").glob("*.py")), *shared]:
        found.update(path.read_bytes())
    return found.digest()
