"""Parquet files as Arrow tables, read in batches that take no more memory than the file may.

A value that is repeated takes next to nothing in a file. What numbers take is in its metadata; what text takes is known
once it is read. So text is read as the dictionary that it mostly is, in which a long one stands once; where it is
stored as what differs from the text before it, a few rows at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.database.column_names import check_columns
from regard.database.expanded_size import NUMBER, ROW, column_size
from regard.database.text_bytes import SMALL_NUMBERS, allowed, check_size

MOST_ROWS = 1 << 20


def read_parquet(path: Path, wanted: list[str]) -> Any:
    """The wanted columns of a file."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        check_columns(path, wanted, file.schema_arrow.names)
        _probe(path, file, wanted)
        leaves = list(_leaves(file, wanted))
        check_size(path, max(sum(leaf.size for leaf in leaves), ROW * file.metadata.num_rows * len(wanted)))
    texts = [leaf for leaf in leaves if leaf.is_text]
    # pyarrow makes no dictionary of differences, and none of lists in which only some of the text is one.
    whole = [leaf for leaf in texts if not leaf.has_differences]
    try:
        return _read(path, wanted, texts, whole)
    except arrow.ArrowNotImplementedError:
        return _read(path, wanted, texts, [leaf for leaf in whole if leaf.path in wanted])


def _probe(path: Path, file: Any, wanted: list[str]) -> None:
    """Raise where what the file says of a column is damaged: pyarrow's own look at it would end the process.

    It is asked for a row, and so for a page of each column: not where all columns together are large.
    """
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).total_byte_size <= allowed(path, SMALL_NUMBERS):
            next(file.iter_batches(1, row_groups=[group], columns=wanted), None)


def _read(path: Path, wanted: list[str], texts: list[_Leaf], as_dictionary: list[_Leaf]) -> Any:
    """The wanted columns, some of their text as a dictionary; then a batch has as many rows as the longest allow."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    longest = max((leaf.longest for leaf in texts if leaf not in as_dictionary), default=1)
    n_rows = max(min(allowed(path, SMALL_NUMBERS) // max(longest, 1), MOST_ROWS), 1)
    batches, size = [], 0
    with parquet.ParquetFile(path, read_dictionary=[leaf.path for leaf in as_dictionary]) as file:
        schema = file.schema_arrow.empty_table().select(wanted).schema
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(n_rows, row_groups=[group], columns=wanted):
                chosen = batch.select(wanted)
                chosen.validate(full=True)
                size += sum(map(column_size, chosen.columns))
                check_size(path, size)
                batches.append(chosen)
    return arrow.Table.from_batches(batches, schema)


class _Leaf:
    """One of the columns that a column is stored as: each field of a nested one is a column by itself."""

    def __init__(self, file: Any, place: int) -> None:
        column = file.schema.column(place)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        chunks = [group.column(place) for group in groups]
        width = max(column.length or 0, NUMBER)
        self.path: str = column.path
        self.is_text: bool = column.physical_type == "BYTE_ARRAY"
        self.has_differences = any("DELTA" in encoding for chunk in chunks for encoding in chunk.encodings)
        self.size: int = sum(max(chunk.total_uncompressed_size, width * chunk.num_values) for chunk in chunks)
        # What a row may take: as many texts as rows have on average, each as long as all that is stored.
        self.longest = max(
            (
                chunk.total_uncompressed_size * -(-chunk.num_values // max(group.num_rows, 1))
                for group, chunk in zip(groups, chunks, strict=True)
            ),
            default=1,
        )


def _leaves(file: Any, wanted: list[str]) -> Iterator[_Leaf]:
    for place in range(len(file.schema.names)):
        if any(f"{file.schema.column(place).path}.".startswith(f"{name}.") for name in wanted):
            yield _Leaf(file, place)
