"""The bytes of a file that holds text: decompressed, in UTF-8, and no more of them than the file lets one expect."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import TableError

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".xz")

CHUNK = 1 << 22
USUAL = 100
"""How many times its size a file may grow to. Tables of text shrink to a tenth or a thirtieth."""

SMALL_TEXT, SMALL_NUMBERS = 1 << 24, 1 << 26
"""What any file may grow to, in bytes of text, or of numbers in memory: a few million cells."""


def contents(path: Path) -> Any:
    """A `pyarrow.Buffer` of a compressed or UTF-16 file in plain UTF-8; None where the file itself is that."""
    arrow = importlib.import_module("pyarrow")
    if path.suffix.lower() in COMPRESSED:
        whole = _decompressed(path, arrow)
    else:
        with path.open("rb") as file:
            if _encoding(file.read(1 << 12)) is None:
                return None
        whole = path.read_bytes()
    encoding = _encoding(whole[: 1 << 12])
    if encoding is None:
        return arrow.py_buffer(whole)
    try:
        return arrow.py_buffer(whole.decode(encoding).encode())
    except UnicodeError as error:
        raise TableError(
            f"{path.name} must be UTF-8 or {encoding.upper()}: it begins like the latter, and is not ({error}). "
            f"Save it again in UTF-8."
        ) from None


def _decompressed(path: Path, arrow: Any) -> bytes:
    most = allowed(path, SMALL_TEXT)
    parts, size = [], 0
    try:
        with _opened(path, arrow) as stream:
            while chunk := stream.read(CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > most:
                    raise too_large(path, most, f"more than {size >> 20:,} MiB", "Decompress it, and pass that file.")
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise TableError(f"{path.name} must be a whole {path.suffix} file: it could not be read ({error}).") from error
    return b"".join(parts)


def _opened(path: Path, arrow: Any) -> Any:
    """The decompressed bytes as a stream. Python's own modules notice where a file ends too soon."""
    kind = path.suffix.lower()
    if kind == ".gz":
        return gzip.open(path)
    if kind == ".bz2":
        return bz2.open(path)
    return lzma.open(path) if kind == ".xz" else arrow.input_stream(str(path))


def _encoding(start: bytes) -> str | None:
    """UTF-16 or UTF-32, as a mark or the bytes of the first letters say; None for anything else."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Without a mark: the letters of a header are ASCII, and so every other byte is 0.
    high, low = start[0:16:2], start[1:16:2]
    if len(start) > 3 and not any(high) and all(low):
        return "utf-16-be"
    return "utf-16-le" if len(start) > 3 and not any(low) and all(high) else None


def allowed(path: Path, small: int) -> int:
    """How many bytes a file may take in memory: what is usual for its size, or is small; no more than there is."""
    usual = max(small, USUAL * path.stat().st_size)
    free = available_memory()
    return usual if free is None else min(usual, free)


def check_size(path: Path, size: int) -> None:
    """Raise if what a file holds takes more bytes in memory than it may."""
    most = allowed(path, SMALL_NUMBERS)
    if size > most:
        raise too_large(
            path, most, f"{size >> 20:,} MiB", "Read it with pyarrow, and pass the table; or save it as .csv."
        )


def available_memory() -> int | None:
    """How many bytes of memory are to be had; None where nothing says so."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def too_large(path: Path, most: int, grown: str, advice: str) -> TableError:
    """The error for a file that would take far more memory than its size lets one expect."""
    size = path.stat().st_size
    shown = f"{size / 2**20:,.1f} MiB" if size >= 1 << 20 else f"{size / 2**10:,.1f} KiB"
    return TableError(
        f"{path.name} must hold no more than {most >> 20:,} MiB, which is usual for a file of {shown}: it "
        f"holds {grown}. {advice}"
    )


def chunks_of(path: Path, content: Any) -> Iterator[bytes]:
    """The bytes of a text file, or of its contents, a few megabytes at a time."""
    arrow = importlib.import_module("pyarrow")
    with path.open("rb") if content is None else arrow.BufferReader(content) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk
