"""CSV files, and their like with other delimiters, as Arrow tables."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.csv as arrow_csv

from regard.database.cells import understand
from regard.database.column_names import check_columns, check_count
from regard.database.csv_conventions import DELIMITERS, SIGNS, TEXT_MARKS, WRITING
from regard.database.number_and_date_parsing import Style
from regard.database.text_bytes import chunks_of, contents
from regard.errors import TableError

_SAMPLE = 1 << 16  # Bytes that the delimiter and the decimal point are judged by.
_DIGITS = r"(?P<digits>(?:\d{1,3}(?:\.\d{3})+|\d*)(?P<decimals>,\d+)?)(?:[eE][+-]?\d+)?"
_WITH_COMMA = re.compile(rf"[(+-]? ?[{SIGNS}]? ?{_DIGITS} ?[%{SIGNS}]?\)?")
_LARGEST_BLOCK = (1 << 31) - 1  # pyarrow takes no larger one.
_LONGEST_CELL = 1 << 26  # Bytes that a cell in quotes may have: beyond this, its quote is taken for a slip.
_MOST_NOTES = 3


def read_csv(path: Path, wanted: list[str], usual: str) -> tuple[Any, dict[str, list[str]]]:
    """The wanted columns of a CSV file, and what has to be said about each; about the file itself, under "".

    Args:
        path: the file, which may be compressed.
        wanted: the names of the columns.
        usual: what stands between the cells, unless the first records say otherwise.
    """
    content = contents(path)
    sample = _sample(path, content)
    delimiter = find_delimiter(sample, usual)
    n_columns = len(next(iter(_records(sample, delimiter)), []))
    notes = {"": check_quotes(chunks_of(path, content), delimiter, n_columns, path.name)}
    file = _File(path, content, delimiter)
    names = file.names()
    # A name is found without the spaces around it, unless it is there as it is asked for.
    bare = [name if name in wanted or name.strip() in names else name.strip() for name in names]
    check_columns(path, wanted, bare)
    written = {name: names[bare.index(name)] for name in wanted}
    style = Style(delimiter, "," if delimiter != "," and _has_decimal_commas(sample, delimiter) else ".")
    raw = file.read(list(written.values()), TEXT_MARKS)
    arrays, fields = [], []
    for name, as_written in written.items():
        cells = understand(name, file.text(raw, as_written), style, partial(_with_marks, file, as_written))
        arrays.append(cells.array)
        fields.append(arrow.field(name, cells.array.type, metadata={WRITING: cells.writing}))
        notes[name] = cells.notes
    return arrow.table(arrays, schema=arrow.schema(fields)), notes


def csv_names(path: Path, usual: str, most: int) -> list[str]:
    """What the columns of a CSV file are called, without the spaces around names; an error where there are too many."""
    content = contents(path)
    delimiter = find_delimiter(_sample(path, content), usual)
    # Counted before anything is made of them: a million columns take most of a minute.
    header, end, _ = next(chunks_of(path, content), b"").lstrip(b"\r\n").partition(b"\n")
    if header.count(delimiter.encode()) > most:
        check_count(path, 1 + header.count(delimiter.encode()), most, at_least=not end)
    names = [name.strip() for name in _File(path, content, delimiter).names()]
    check_count(path, len(names), most)
    return names


def _sample(path: Path, content: Any) -> str:
    """What the delimiter and the decimal point are judged by."""
    start = next(chunks_of(path, content), b"")[:_SAMPLE]
    return start.decode("utf-8-sig", errors="replace") + "\n" * (len(start) < _SAMPLE)  # the last record is whole


def _with_marks(file: _File, name: str) -> Any:
    return file.text(file.read([name], ()), name)


@dataclass(frozen=True)
class _File:
    """A CSV file, or the contents of one, for pyarrow to read."""

    path: Path
    content: Any  # a buffer; None where the file itself is to be read
    delimiter: str

    def names(self) -> list[str]:
        """What the columns are called."""

        def header(**options: Any) -> Any:
            with arrow_csv.open_csv(self._source(), parse_options=self._parsing(), **options) as reader:
                return reader.schema.names

        try:
            found: list[str] = self._whatever_the_block(header)
        except UnicodeDecodeError:
            raise self._not_utf_8("its header") from None
        return found

    def read(self, columns: list[str], marks: Sequence[str]) -> Any:
        """Columns as bytes, null where one of the marks stands without quotes."""
        convert = arrow_csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, arrow.binary()),
            null_values=list(marks),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

        def table(**options: Any) -> Any:
            return arrow_csv.read_csv(self._source(), parse_options=self._parsing(), convert_options=convert, **options)

        return self._whatever_the_block(table)

    def text(self, table: Any, name: str) -> Any:
        """A column as text."""
        try:
            return table.column(name).cast(arrow.string())
        except arrow.ArrowInvalid:
            raise self._not_utf_8(f"the column {name!r}") from None

    def _not_utf_8(self, what: str) -> TableError:
        return TableError(
            f"{self.path.name} must be UTF-8: {what} is not. Save it again in that encoding: as CSV UTF-8 in a "
            f"spreadsheet, or with iconv -f cp1252 -t utf-8."
        )

    def _whatever_the_block(self, read: Callable[..., Any]) -> Any:
        """What is read; where a record is longer than a block, with the whole file as one."""
        try:
            return read()
        except arrow.ArrowInvalid as error:
            size = self.path.stat().st_size if self.content is None else self.content.size
            if "block" in str(error):
                return read(read_options=arrow_csv.ReadOptions(block_size=min(max(size, 1), _LARGEST_BLOCK)))
            if "Expected" in str(error):
                # One thread counts the rows, and says which of them has too many cells or too few.
                return read(read_options=arrow_csv.ReadOptions(use_threads=False))
            raise

    def _source(self) -> Any:
        return str(self.path) if self.content is None else arrow.BufferReader(self.content)

    def _parsing(self) -> Any:
        return arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)


def find_delimiter(sample: str, usual: str) -> str:
    """What stands between the cells: the delimiter that gives the first records the same number of cells, and most.

    Delimiters within quotes do not count.

    Example:
        >>> find_delimiter('"name, full, long";"gpa"\\n', ",")
        ';'
    """

    def judged(delimiter: str) -> tuple[bool, int]:
        lengths = list(map(len, _records(sample, delimiter)))
        return len(set(lengths)) == 1 and lengths[0] > 1, lengths[0] if lengths else 0

    best: str = max(dict.fromkeys([usual, *DELIMITERS]), key=judged)
    return best


def _records(sample: str, delimiter: str, most: int | None = 100) -> list[list[str]]:
    """The first records of a sample but blank ones, without the last, which may be cut, unless it is the only one."""
    try:
        records = list(islice(filter(None, csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)), most))
    except csv.Error:
        return []
    return records[:-1] if len(records) > 1 and not sample.endswith(("\n", "\r")) else records


def _has_decimal_commas(sample: str, delimiter: str) -> bool:
    """Whether numbers are written as 3,5 in any column that is mostly numbers.

    70,000 alone does not say whether it is seventy.
    """
    for column in zip_longest(*_records(sample, delimiter, None)[1:], fillvalue=""):
        cells = [cell.strip() for cell in column if cell.strip()]
        numbers = [number for number in map(_WITH_COMMA.fullmatch, cells) if number]
        if 2 * len(numbers) > len(cells) and any(
            number["decimals"] and not re.fullmatch(r"[1-9]\d{0,2},\d{3}", number["digits"]) for number in numbers
        ):
            return True
    return False


def check_quotes(chunks: Iterable[bytes], delimiter: str, n_columns: int, name: str) -> list[str]:
    """Raise where a quote is never closed, or closes within a cell of another line; notes on cells that hold rows.

    A quote that is not closed would swallow the rows below it.

    Args:
        chunks: the bytes of the file, in order.
        delimiter: what stands between its cells.
        n_columns: how many columns it has.
        name: what the file is called.
    """
    apart = re.escape(delimiter.encode())
    # A quote that opens a cell, all up to the one that closes it, and what follows up to the end of the cell. Quotes
    # within a cell that has no quote before it are text: 5" is five inches.
    cell = re.compile(rb'"(?<![^%b\r\n]")((?:[^"]++|"")*+)("?)([^%b\r\n]*+)' % (apart, apart))
    rest, line, notes = b"", 1, []
    for chunk, is_last in _with_last(chunks):
        if b'"' not in chunk and b'"' not in rest and rest:
            line += rest.count(b"\n") + chunk.count(b"\n", 0, len(chunk) - 1)
            rest = chunk[-1:] or rest
            continue
        text = rest + chunk
        # What the next bytes go on with: whether a quote opens a cell is told by what stands before it.
        kept = max(len(text.rstrip(b'"')) - 1, 0)
        for found in cell.finditer(text):
            at = line + text.count(b"\n", 0, found.start()) if found.end() == len(text) or b"\n" in found[1] else 0
            if found.end() == len(text) and not is_last and len(text) - found.start() < _LONGEST_CELL:
                kept = max(found.start() - 1, 0)
                break
            inside, closed, after = found.groups()
            if not closed:
                raise TableError(
                    f"{name}, line {at}: a quote must be closed: the one that opens a cell there never is. Close it, "
                    f'or write "" for a quote in a text.'
                )
            breaks = inside.count(b"\n")
            if breaks and after.strip():
                raise TableError(
                    f"{name}, line {at}: a quote must be closed where its cell ends: the one that opens a cell there "
                    f'is closed on line {at + breaks}, within another cell. Close it, or write "" for a quote in a '
                    f"text."
                )
            if breaks and n_columns > 1 and inside.count(delimiter.encode()) == breaks * (n_columns - 1):
                notes.append(
                    f"{name}, line {at}: a cell in quotes goes on for {breaks + 1} lines and holds what looks like "
                    f"rows; if its quote is a slip, take it out"
                )
        line += text.count(b"\n", 0, kept)
        rest = text[kept:]
    return notes[:_MOST_NOTES]


def _with_last(chunks: Iterable[bytes]) -> Iterable[tuple[bytes, bool]]:
    """Each chunk, and whether it is the last. A mark of the encoding at the very beginning is left out."""
    held, first = b"", True
    for chunk in chunks:
        if held:
            yield held, False
        held = chunk
        if first:
            held, first = chunk.removeprefix(BOM_UTF8), False
    yield held, True
