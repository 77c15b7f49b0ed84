"""Files as Arrow tables. Whatever is in a file, what comes of it is a table or an error that names the file."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.database.contents import COMPRESSED, SMALL_NUMBERS, allowed, too_large
from regard.database.delimited import check_columns, read_csv
from regard.database.ipc import expanded_size
from regard.database.spelling import closest
from regard.errors import MissingDependency, TableError

CSV = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
PARQUET = {".parquet", ".pq"}
ARROW = {".arrow", ".feather", ".ipc"}

READ_IT = "Read it with pyarrow, and pass the table; or save it as .csv."


def read_file(path: Path, wanted: list[str]) -> tuple[Any, dict[str, list[str]]]:
    """The wanted columns of a file as an Arrow table, and what has to be said about each."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix not in COMPRESSED), "")
    if kind not in {*CSV, *PARQUET, *ARROW}:
        raise TableError(
            f"A table's file must end in .csv, .tsv, .parquet, .feather or .arrow: got {path.name!r}. "
            f"Convert it, or pass a frame."
        )
    try:
        if not path.is_file():
            raise TableError(f"A table must be a file that exists: got {str(path)!r}.{_nearest_file(path)}")
        path.stat()
    except OSError as error:
        raise TableError(
            f"A table must be a file that exists: {path.name[:40]!r} is none ({error.strerror})."
        ) from None
    arrow = needs_pyarrow(f"reading {path.name}")
    try:
        if kind in CSV:
            return read_csv(path, wanted, CSV[kind])
        return (_read_parquet if kind in PARQUET else _read_arrow)(path, wanted), {}
    except (arrow.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        said = str(error) or type(error).__name__
        raise TableError(f"{path.name} must be a {kind} table: it could not be read ({said}).") from error


def _read_parquet(path: Path, wanted: list[str]) -> Any:
    parquet = importlib.import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        check_columns(path, wanted, file.schema_arrow.names)
        # A value that is repeated takes next to nothing in the file, and its full size in memory.
        size = file.metadata.num_rows * sum(_width(file.schema_arrow.field(name).type) for name in wanted)
        _check_size(path, size)
        return _validated(file.read(columns=wanted), wanted)


def _read_arrow(path: Path, wanted: list[str]) -> Any:
    feather = importlib.import_module("pyarrow.feather")
    _check_size(path, expanded_size(path))
    # Not mapped into memory: a database is a snapshot, and what is done to the file later is not done to it.
    table = feather.read_table(path, memory_map=False)
    check_columns(path, wanted, table.column_names)
    return _validated(table, wanted)


def _validated(table: Any, wanted: list[str]) -> Any:
    """The wanted columns, once it is sure that no offset in them points beyond its buffer: the process would die."""
    table = table.select(wanted)
    table.validate(full=True)
    return table


def _width(kind: Any) -> int:
    """How many bytes an entry takes at least; an offset and a length where that varies."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 8


def _check_size(path: Path, size: int) -> None:
    most = allowed(path, SMALL_NUMBERS)
    if size > most:
        raise too_large(path, most, f"{size >> 20:,} MiB", READ_IT)


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" There is no folder {str(path.parent)!r}."
    # By the stem alone: that both end in .csv makes no two names alike.
    known = {
        each.name: each.stem
        for each in path.parent.iterdir()
        if each.suffix.lower() in {*CSV, *PARQUET, *ARROW, *COMPRESSED}
    }
    near = closest(path.stem, known.values())
    names = [name for name, stem in known.items() if stem in near]
    return f" Did you mean {names[0]!r}?" if names else " Check the path."


def needs_pyarrow(purpose: str) -> ModuleType:
    """The module pyarrow, or an error that says how to get it."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingDependency(
            f"{purpose[0].upper()}{purpose[1:]} needs pyarrow, which is not installed. "
            f'Install it with pip install "regard[tables]", or pass keys and values in memory.'
        ) from error
