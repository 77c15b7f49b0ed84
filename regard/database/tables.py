"""Tables as columns: a path, a pandas or polars frame, an Arrow table, or a dict of columns.

Files and frames go through pyarrow, which is imported here and only when a table is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.database.column_names import check_names
from regard.database.columns import Column
from regard.database.csv_conventions import WRITING
from regard.database.files import needs_pyarrow, read_file
from regard.database.pairs import Pairs
from regard.database.python_columns import column_from
from regard.database.python_values import Entries
from regard.errors import ShapeError, TableError

Name = str | int
"""What a column is called. A number stands for the text that it is written as."""

Names = Name | Iterable[Name]


def read_table(source: Any, key: Names, value: Names, index: Name | None = None) -> Pairs:
    """The key columns, value columns and row labels of a table.

    Args:
        source: a path (.csv, .tsv, .parquet, .feather, .arrow), a pandas or polars frame, an Arrow table, or a dict of
            columns.
        key, value: a column's name, or several.
        index: the column whose entries name the rows. A pandas frame names them by its own index unless told otherwise.
    """
    keys, values = listed(key, "key"), listed(value, "value")
    named = [] if index is None else [str(index)]
    wanted = list(dict.fromkeys([*keys, *values, *named]))
    said: dict[str, list[str]] = {}
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None:
        source, said = read_file(path, wanted)
    try:
        columns, labels, label_name = _columns_of(source, wanted)
    except TableError as error:
        if path is None:
            raise
        raise TableError(f"{path.name}: {error}") from error
    for name in named:
        labels, label_name = columns[name].entries, name
    notes = [note for name in dict.fromkeys(["", *keys, *values]) for note in said.get(name, [])]
    key_columns, value_columns = (tuple(columns[name] for name in side) for side in (keys, values))
    return Pairs(key_columns, value_columns, labels, label_name, tuple(notes))


def listed(names: Names, role: str) -> list[str]:
    """One name or several, as a list."""
    chosen = [str(names)] if isinstance(names, str | int) else [str(name) for name in names]
    if not chosen:
        raise TableError(f'`{role}` must name at least one column: got none. Pass {role}="column".')
    if len(set(chosen)) < len(chosen):
        raise TableError(f"`{role}` must name each column once: got {chosen}. Leave out what is repeated.")
    return chosen


def _columns_of(source: Any, wanted: list[str]) -> tuple[dict[str, Column], Entries | None, str]:
    """The wanted columns by name, and the table's own row labels with their name."""
    if isinstance(source, Mapping):
        by_name = {str(name): entries for name, entries in source.items()}
        check_names(wanted, list(by_name))
        columns = {name: column_from(name, by_name[name]) for name in wanted}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ShapeError(
                f"The columns of a table must have the same number of rows: got {lengths}. Pass one entry for each row."
            )
        return columns, None, "row"
    package = type(source).__module__.partition(".")[0]
    if package == "pandas" and hasattr(type(source), "columns"):
        return _pandas_columns(source, wanted)
    if package == "polars" and hasattr(source, "collect_schema"):
        check_names(wanted, source.collect_schema().names())
        needs_pyarrow("reading a polars frame")
        # By selectors: select("^a.*$") would take every column that begins with a.
        chosen = source.select(importlib.import_module("polars.selectors").by_name(*wanted))
        table = (chosen.collect() if hasattr(chosen, "collect") else chosen).to_arrow()
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        table = needs_pyarrow("reading an Arrow table").table(source)
        check_names(wanted, table.column_names)
    else:
        raise TableError(
            f"A table must be a path, a pandas or polars frame, an Arrow table or a dict of columns: "
            f"got {type(source).__name__}. For keys and values in memory, use Database(keys, values)."
        )
    return {name: column_in(table, name) for name in wanted}, None, "row"


def column_in(table: Any, name: str) -> Column:
    from regard.database.arrow_columns import arrow_column

    column = arrow_column(name, table.column(name))
    column.writing = ((table.schema.field(name).metadata or {}).get(WRITING) or b"").decode(errors="replace")
    return column


def _pandas_columns(frame: Any, wanted: list[str]) -> tuple[dict[str, Column], Entries | None, str]:
    from regard.database.arrow_columns import arrow_column

    arrow = needs_pyarrow("reading a pandas frame")
    by_name = {str(name): name for name in frame.columns}
    levels = {str(name): name for name in frame.index.names if name is not None}
    check_names(wanted, [*by_name, *levels])
    columns: dict[str, Column] = {}
    for name in wanted:
        series = frame[by_name[name]] if name in by_name else frame.index.get_level_values(levels[name])
        if getattr(series, "ndim", 1) != 1:
            raise TableError(
                f"A key or a value must be one column: the frame has several called {name!r}. Rename them."
            )
        if str(series.dtype).startswith("period["):
            columns[name] = column_from(name, series)
            continue
        try:
            # A copy: Arrow would go on looking at the frame's own memory.
            columns[name] = arrow_column(name, arrow.chunked_array([arrow.Array.from_pandas(series.copy())]))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
            # A column of objects that Arrow has no type for.
            columns[name] = column_from(name, list(series))
    return columns, frame.index, " / ".join(levels) or "row"
