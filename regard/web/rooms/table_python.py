"""The lines of Python that compute what the room of a table shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

from regard.database.columns import Column, Quantity
from regard.web.rooms.table_asked import AboutLines
from regard.web.settings import EXAMPLES


def lines(asked: AboutLines, keys: Sequence[Column], value: Column, label: Column | None, query: dict[str, Any]) -> str:
    """Lines that print the answer."""
    widths = {keys[place]: asked.width(place) for place in asked.known if asked.width(place) is not None}
    quantities = any(isinstance(column, Quantity) for column in widths)
    categories = any(not isinstance(column, Quantity) for column in widths)
    names = ["Database", *(["Equal"] if categories else []), *(["Gaussian"] if quantities else [])]
    modules = {type(each).__name__ for each in query.values() if isinstance(each, date | time | timedelta)}
    told = [
        *(["import math"] if categories else []),
        *([f"from datetime import {', '.join(sorted(modules))}"] if modules else []),
        *(["from importlib.resources import files"] if asked.table in EXAMPLES else []),
        *([""] if categories or modules or asked.table in EXAMPLES else []),
        f"from regard import {', '.join(names)}",
        "",
    ]
    path = _quoted(asked.name)
    if asked.table in EXAMPLES:
        path = f'str(files("regard.web") / "tables" / {_quoted(EXAMPLES[asked.table].name)})'
    key = [column.name for column in keys]
    index = "" if label is None else f", index={_quoted(label.name)}"
    given = _quoted(key[0]) if len(key) == 1 else f"[{', '.join(map(_quoted, key))}]"
    told += [f"table = Database.from_table({path}, key={given}, value={_quoted(value.name)}{index})"]
    scores = ", ".join(f"{_quoted(column.name)}: {_score(column, width)}" for column, width in widths.items())
    score = f", score={{{scores}}}" if scores else ""
    entries = {name: _literal(entry) for name, entry in query.items()}
    written = ", ".join(f"{_quoted(name)}: {entry}" for name, entry in entries.items())
    told += [
        f"answer = table.attend({f'{{{written}}}' if len(key) > 1 else next(iter(entries.values()))}{score})",
        "print(answer)",
    ]
    return "\n".join(told) + "\n"


def _score(column: Column, width: float | None) -> str:
    return f"Gaussian({width!r})" if isinstance(column, Quantity) else f"-math.log({width!r}) * Equal()"


def _literal(entry: Any) -> str:
    if isinstance(entry, datetime):
        return f"datetime.fromisoformat({entry.isoformat()!r})"
    if isinstance(entry, date | time):
        return f"{type(entry).__name__}.fromisoformat({entry.isoformat()!r})"
    if isinstance(entry, timedelta):
        return f"timedelta(days={entry.days}, seconds={entry.seconds}, microseconds={entry.microseconds})"
    return _quoted(entry) if isinstance(entry, str) else repr(entry)


def _quoted(text: str) -> str:
    """A text as Python has it, in ASCII."""
    plain = text.isascii() and text.isprintable() and not {'"', "\\"} & set(text)
    return f'"{text}"' if plain else ascii(text)
