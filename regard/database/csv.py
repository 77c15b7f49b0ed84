"""CSV files as Arrow tables."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import TableError

DELIMITERS = ",;\t|"


def read_csv(path: Path, wanted: list[str], delimiter: str, check: Callable[[list[str], list[str]], None]) -> Any:
    """The wanted columns of a CSV file.

    Args:
        path: the file, which may be compressed.
        wanted: the names of the columns.
        delimiter: what stands between the cells, unless the first line has more of another.
        check: raises unless the wanted columns are among those of the file.
    """
    arrow, csv = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    parse = csv.ParseOptions(delimiter=_delimiter(path, delimiter), newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as reader:
        check(wanted, reader.schema.names)
    # Empty text counts as missing, as an empty number does.
    convert = csv.ConvertOptions(include_columns=wanted, strings_can_be_null=True, quoted_strings_can_be_null=True)
    try:
        table = csv.read_csv(path, parse_options=parse, convert_options=convert)
    except arrow.ArrowInvalid:
        # A column's type is judged by the first block: integers there and 3.5 later. Judge by the whole file instead.
        whole = csv.ReadOptions(block_size=min(max(path.stat().st_size * 20, 1 << 20), (1 << 31) - 1))
        table = csv.read_csv(path, read_options=whole, parse_options=parse, convert_options=convert)
    for name in wanted:
        if arrow.types.is_binary(table.column(name).type):
            raise TableError(f"{path.name} must be UTF-8: the column {name!r} is not. Save it again in that encoding.")
    return table


def _delimiter(path: Path, usual: str) -> str:
    """What stands between the cells of the first line: the usual delimiter, unless another is more frequent."""
    with importlib.import_module("pyarrow").input_stream(str(path)) as stream:
        start: bytes = stream.read(1 << 16)
    first = start.split(b"\n")[0].decode("utf-8", errors="replace")
    most: str = max([usual, *DELIMITERS], key=first.count)
    return most
