"""Claims about files as text: compressed, in other encodings, and none larger than it lets one expect."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import Database
from regard.errors import TableError

arrow = pytest.importorskip("pyarrow")

TEXT = "name,size\nJosé,1\nMüller,2\n法律,3\n"


def zstd(data: bytes) -> bytes:
    return bytes(arrow.compress(data, codec="zstd", asbytes=True))


def lz4(data: bytes) -> bytes:
    sink = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


CODECS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
    ".lz4": lz4,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_unicode_is_read(tmp_path: Path, encoding: str, suffix: str) -> None:
    path = tmp_path / f"table.csv{suffix}"
    data = TEXT.encode(encoding)
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert list(Database.from_table(path, key="name", value="size")) == [("José", 1), ("Müller", 2), ("法律", 3)]


def test_a_utf_16_file_that_is_cut_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(TEXT.encode("utf-16")[:-1])
    with pytest.raises(TableError, match="table.csv must be UTF-8 or UTF-16: it begins like the latter"):
        Database.from_table(path, key="name", value="size")


@pytest.mark.parametrize("suffix", CODECS)
def test_every_compression_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table.csv{suffix}"
    path.write_bytes(CODECS[suffix](TEXT.encode()))
    assert Database.from_table(path, key="name", value="size")["法律"] == 3


@pytest.mark.parametrize("suffix", CODECS)
def test_a_compressed_file_that_is_cut_is_an_error_that_names_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table.csv{suffix}"
    whole = CODECS[suffix]("".join(f"{row},{row * row % 977}\n" for row in range(5000)).encode())
    for size in (len(whole) - 1, len(whole) // 2, 3):
        path.write_bytes(whole[:size])
        with pytest.raises(TableError, match="table.csv"):
            Database.from_table(path, key="0", value="1")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_small_file_does_not_take_gigabytes_without_a_word(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table.csv{suffix}"
    path.write_bytes(CODECS[suffix](b"a,b\n" + b"1,1\n" * (5 << 20)))
    assert path.stat().st_size < 400_000
    with pytest.raises(TableError) as error:
        Database.from_table(path, key="a", value="b")
    assert str(error.value).startswith(f"{path.name} must hold no more than 16 MiB, which is usual for a file of ")
    assert str(error.value).endswith(" MiB. Decompress it, and pass that file.")
