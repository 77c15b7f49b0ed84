"""Files as Arrow tables. Whatever is in a file, what comes of it is a table or an error that names the file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from regard.database.arrow_buffers import expanded_size
from regard.database.column_names import check_columns, check_count, closest
from regard.database.expanded_size import column_size
from regard.database.parquet import read_parquet
from regard.database.text_bytes import COMPRESSED, check_size
from regard.errors import MissingDependency, TableError

CSV = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
PARQUET = {".parquet", ".pq"}
ARROW = {".arrow", ".feather", ".ipc"}

ADVICE = {
    "Empty CSV": "Name the columns in its first line.",
    "CSV parse error": "Give each row as many cells as the header, with quotes around one that has a delimiter in it.",
}
"""What to do, by what pyarrow says."""
OTHER_ADVICE = "Check that it is whole, and of the kind that its name says."

Read = TypeVar("Read")


def read_file(path: Path, wanted: list[str]) -> tuple[Any, dict[str, list[str]]]:
    """The wanted columns of a file as an Arrow table, and what has to be said about each."""

    def read(kind: str) -> tuple[Any, dict[str, list[str]]]:
        if kind in CSV:
            from regard.database.delimited import read_csv

            return read_csv(path, wanted, CSV[kind])
        return (read_parquet if kind in PARQUET else _read_arrow)(path, wanted), {}

    return _whatever_is_in_it(path, read)


def names_in(path: Path, most: int) -> list[str]:
    """What the columns of a file are called; an error where there are more than so many."""

    def read(kind: str) -> list[str]:
        if kind in CSV:
            from regard.database.delimited import csv_names

            return csv_names(path, CSV[kind], most)
        if kind in PARQUET:
            names: list[str] = importlib.import_module("pyarrow.parquet").read_schema(path).names
        else:
            check_size(path, expanded_size(path))
            names = importlib.import_module("pyarrow.feather").read_table(path, memory_map=False).column_names
        check_count(path, len(names), most)
        return names

    return _whatever_is_in_it(path, read)


def _whatever_is_in_it(path: Path, read: Callable[[str], Read]) -> Read:
    """What is read of a file, by the kind that its name says, or an error that names the file."""
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
        return read(kind)
    except (arrow.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        said = str(error) or type(error).__name__
        advice = next((advice for mark, advice in ADVICE.items() if mark in said), OTHER_ADVICE)
        raise TableError(f"{path.name} must be a {kind} table: it could not be read ({said}). {advice}") from error


def _read_arrow(path: Path, wanted: list[str]) -> Any:
    feather = importlib.import_module("pyarrow.feather")
    check_size(path, expanded_size(path))
    # Not mapped into memory: a database is a snapshot, and what is done to the file later is not done to it.
    table = feather.read_table(path, memory_map=False)
    check_columns(path, wanted, table.column_names)
    table = table.select(wanted)
    # An offset that points beyond its buffer would kill the process.
    table.validate(full=True)
    check_size(path, sum(column_size(chunk) for column in table.columns for chunk in column.chunks))
    return table


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
