"""CSV files, and their like with other delimiters, as Arrow tables.

What is missing: an empty cell in any column, and in a column of numbers, dates or yes/no also NA, NaN, null and the
other words that pyarrow knows. In a column of text those words are text: NA may be Namibia.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.errors import TableError

DELIMITERS = ",;\t|"

_SAMPLE = 1 << 16  # Bytes that the delimiter and the decimal point are judged by.
_LARGEST_BLOCK = (1 << 31) - 1  # pyarrow takes no larger one.


def read_csv(path: Path, wanted: list[str], usual: str, check: Callable[[list[str], list[str]], None]) -> Any:
    """The wanted columns of a CSV file.

    Args:
        path: the file, which may be compressed.
        wanted: the names of the columns.
        usual: what stands between the cells, unless the first records say otherwise.
        check: raises unless the wanted columns are among those of the file.
    """
    arrow, arrow_csv = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    sample = _start_of(path, arrow)
    delimiter = find_delimiter(sample, usual)
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with arrow_csv.open_csv(path, parse_options=parse) as reader:
        names = reader.schema.names
    check(wanted, names)
    for name in wanted:
        if names.count(name) > 1:
            raise TableError(
                f"A key or a value must be one column: {path.name} has {names.count(name)} called {name!r}. "
                f"Rename them."
            )
    point = "," if delimiter != "," and _has_decimal_commas(sample, delimiter, wanted) else "."

    def read(columns: list[str], types: dict[str, Any]) -> Any:
        convert = arrow_csv.ConvertOptions(include_columns=columns, column_types=types, decimal_point=point)
        try:
            return arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)
        except arrow.ArrowInvalid:
            # A record that is longer than a block: let the whole file be one.
            whole = arrow_csv.ReadOptions(block_size=min(max(_length(path, arrow), 1), _LARGEST_BLOCK))
            return arrow_csv.read_csv(path, read_options=whole, parse_options=parse, convert_options=convert)

    table = read(wanted, {})
    # Where nothing else is written, pyarrow takes NA to be missing. It may be text: so read it as text.
    silent = [name for name in wanted if arrow.types.is_null(table.column(name).type)]
    spoken = read(silent, dict.fromkeys(silent, arrow.string())) if silent and len(table) else table
    for place, name in enumerate(wanted):
        column = (spoken if name in silent else table).column(name)
        if arrow.types.is_binary(column.type):
            raise TableError(f"{path.name} must be UTF-8: the column {name!r} is not. Save it again in that encoding.")
        if arrow.types.is_string(column.type):
            column = _empty_is_missing(column)
            if column.null_count < len(column) or name not in silent:
                table = table.set_column(place, name, column)
    return table


def find_delimiter(sample: str, usual: str) -> str:
    """What stands between the cells: the delimiter that gives the first records the same number of cells, and most.

    Delimiters within quotes do not count.

    Example:
        >>> find_delimiter('"name, full, long";"gpa"\\n', ",")
        ';'
    """

    def judged(delimiter: str) -> tuple[bool, int]:
        lengths = [len(record) for record in _records(sample, delimiter) if record]
        return len(set(lengths)) == 1 and lengths[0] > 1, lengths[0] if lengths else 0

    best: str = max([usual, *DELIMITERS], key=judged)
    return best


def _records(sample: str, delimiter: str, most: int = 100) -> list[list[str]]:
    """The first records of a sample, without the last, which may be cut, unless it is the only one."""
    try:
        records = list(islice(csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter), most))
    except csv.Error:
        return []
    return records[:-1] if len(records) > 1 and not sample.endswith(("\n", "\r")) else records


def _has_decimal_commas(sample: str, delimiter: str, wanted: Sequence[str]) -> bool:
    """Whether the numbers in the wanted columns are written as 3,5.

    70,000 alone does not say whether it is seventy: numbers that all look like thousands stay text.
    """
    header, *records = _records(sample, delimiter) or [[]]
    places = [header.index(name) for name in wanted if name in header]
    cells = [record[place].strip() for record in records for place in places if place < len(record)]
    if any(re.fullmatch(r"[+-]?\d*\.\d+", cell) for cell in cells):
        return False
    numbers = [cell for cell in cells if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell)]
    return any(not re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", number) for number in numbers)


def _start_of(path: Path, arrow: Any) -> str:
    with arrow.input_stream(str(path)) as stream:
        start: bytes = stream.read(_SAMPLE)
    return start.decode("utf-8-sig", errors="replace")


def _length(path: Path, arrow: Any) -> int:
    """How many bytes of text a file has, which may be compressed."""
    total = 0
    with arrow.input_stream(str(path)) as stream:
        while chunk := stream.read(1 << 20):
            total += len(chunk)
    return total


def _empty_is_missing(column: Any) -> Any:
    compute = importlib.import_module("pyarrow.compute")
    return compute.if_else(compute.equal(column, ""), None, column)
