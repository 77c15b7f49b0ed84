"""The room of a table: a query, the rows behind its answer, the curve of all queries, and the error of each width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from regard import Answer, Database, Equal, Gaussian, Score
from regard.database.answer import jsonable
from regard.database.columns import CategoryColumn, Column, Quantity
from regard.database.database import pairs_of
from regard.database.precision import WORTHWHILE
from regard.database.render import answer_report, entry_text
from regard.errors import OptionError
from regard.printable import on_one_line, short_name
from regard.web.asked import AboutTable, Asked
from regard.web.rooms.table_asked import (
    AboutBest,
    AboutColumns,
    AboutCurve,
    AboutErrors,
    AboutLines,
    AboutPoints,
    AboutQuery,
    AboutWidths,
)
from regard.web.rooms.table_columns import (
    described,
    entry_of,
    frequent,
    is_line,
    number_in,
    numbers_of,
    suggested,
    telling_most,
    written,
)
from regard.web.rooms.table_kept import Kept, Tables
from regard.web.rooms.table_points import SHARES, points
from regard.web.rooms.table_python import lines
from regard.web.settings import Settings

MOST_NOTES = 12
LONGEST_CELL = 2000  # letters of one that is saved
EXACT = 1 << 53  # beyond it a page rounds integers
# What the library advises who writes Python, for who has controls.
ADVICE = {
    "To reach it, pass a wider `score`.": "Choose a wider bandwidth.",
    "Pass a wider `score`, or other `weights`.": "Choose wider bandwidths.",
}


class TableRoom:
    """Reads tables, and asks the library about them."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {
        "open": AboutTable,
        "another": AboutColumns,
        "best": AboutBest,
        "answer": AboutQuery,
        "curve": AboutCurve,
        "points": AboutPoints,
        "errors": AboutErrors,
        "python": AboutLines,
    }

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables = Tables()

    def open(self, asked: AboutTable, file: Path) -> Any:
        """What a table has: its columns, and some to begin with."""
        whole = self._tables.get(asked.table, file).whole
        notes = [*whole.unread, *(note for notes in whole.said.values() for note in notes)]
        return {
            "rows": len(whole),
            "columns": [described(column) for column in whole.columns],
            "suggested": suggested(whole),
            "notes": [short_name(note, 400) for note in notes[:MOST_NOTES]],
        }

    def another(self, asked: AboutColumns, file: Path) -> Any:
        """The free column that says most of what the keys leave open."""
        kept = self._tables.get(asked.table, file)
        kept.database(asked.keys, asked.value)
        return {"key": telling_most(kept.whole, asked.keys, asked.value)}

    def best(self, asked: AboutBest, file: Path) -> Any:
        """The widths that predict hidden rows best."""
        kept = self._tables.get(asked.table, file)
        hidden = kept.hidden(asked.keys, asked.value, asked.known)
        best = dict(zip(asked.known, hidden.best, strict=True))
        return {"widths": [best.get(place) for place in range(len(asked.keys))], "method": hidden.method}

    def answer(self, asked: AboutQuery, file: Path) -> Any:
        """The output of a query, with the rows behind it."""
        kept = self._tables.get(asked.table, file)
        database = kept.database(asked.keys, asked.value)
        query = _query(asked, database)
        (answer,) = database.attend([query], score=_score(asked, database), top=asked.top)
        pairs = pairs_of(database)
        keys, value = pairs.keys, pairs.values[0]
        rows = [row.index for row in answer.rows]
        return {
            "found": answer.found,
            "query": [written(column, query[column.name]) if column.name in query else None for column in keys],
            "at": [number_in(column, query.get(column.name)) for column in keys],
            "output": _output(value, answer),
            "rows": rows,
            "across": _lying(_along(asked, database), rows),
            "heights": _lying(value, rows),
            "weights": [row.weight for row in answer.rows],
            "rest": answer.rest,
            "effective": answer.effective_rows,
            "n": answer.n_rows,
            "left_out": answer.n_left_out,
            "report": _told(answer, asked, kept),
        }

    def curve(self, asked: AboutCurve, file: Path) -> Any:
        """The outputs of queries along one key; the others stay as they are."""
        kept = self._tables.get(asked.table, file)
        database = kept.database(asked.keys, asked.value)
        along = _along(asked, database)
        query, score = _query(asked, database), _score(asked, database)
        queries = [{**query, along.name: entry_of(along, at)} for at in asked.at]
        if len(database) >= WORTHWHILE:  # one by one, only rows that are near enough are weighed
            answers = [database.attend([each], score=score, top=1)[0] for each in queries]
        else:
            answers = list(database.attend(queries, score=score, top=1))
        value = pairs_of(database).values[0]
        outputs = [_output(value, answer) for answer in answers]
        shares = _shares(value, answers) if isinstance(value, CategoryColumn) else None
        return {
            "at": asked.at,
            "values": [each["number"] for each in outputs],
            "spreads": [each["spread"] for each in outputs],
            "shares": shares,
        }

    def points(self, asked: AboutPoints, file: Path) -> Any:
        """The rows as points, or counted in cells where they are many."""
        database = self._tables.get(asked.table, file).database(asked.keys, asked.value)
        along = _along(asked, database)
        rows = pairs_of(database).complete_in([asked.along])
        value = pairs_of(database).values[0]
        found = points(along, value, rows)
        if found["lanes"] is not None:
            assert isinstance(value, CategoryColumn)
            found["lanes"] = [short_name(entry_text(value.categories[code])) for code in found["lanes"]]
        return found

    def errors(self, asked: AboutErrors, file: Path) -> Any:
        """The error of leave-one-out by each of some widths of one key."""
        kept = self._tables.get(asked.table, file)
        if asked.along not in asked.known:
            raise OptionError("The key whose width changes must be one that counts.")
        hidden = kept.hidden(asked.keys, asked.value, asked.known)
        place = asked.known.index(asked.along)
        best = hidden.best if any(asked.width(each) is None for each in asked.known) else []
        held = [asked.width(key) if asked.width(key) is not None else best[at] for at, key in enumerate(asked.known)]
        widths = [[*held[:place], tried, *held[place + 1 :]] for tried in asked.tried]
        columns = pairs_of(kept.database(asked.keys, asked.value)).keys
        for each in widths:
            _check(each, [columns[key] for key in asked.known])
        return {
            "tried": asked.tried,
            "errors": hidden.errors(widths),
            "baseline": kept.baseline(asked.keys, asked.value, asked.known),
            "measure": hidden.measure,
            "hidden": hidden.n_hidden,
        }

    def python(self, asked: AboutLines, file: Path) -> Any:
        """The lines of Python that compute an answer."""
        kept = self._tables.get(asked.table, file)
        database = kept.database(asked.keys, asked.value)
        label = None if asked.label is None else kept.column(asked.label)
        pairs = pairs_of(database)
        _check([asked.width(place) for place in asked.known], [pairs.keys[place] for place in asked.known])
        return {"python": lines(asked, pairs.keys, pairs.values[0], label, _query(asked, database))}


def _query(asked: AboutQuery, database: Database) -> dict[str, Any]:
    """The query by names, as the library takes it."""
    keys = pairs_of(database).keys
    return {keys[place].name: entry_of(keys[place], asked.query[place]) for place in asked.known}


def _score(asked: AboutWidths, database: Database) -> dict[str, Score] | None:
    """A score for each key that was given a width; None where the table chooses them all."""
    keys = pairs_of(database).keys
    widths, columns = [asked.width(place) for place in asked.known], [keys[place] for place in asked.known]
    _check(widths, columns)
    scores: dict[str, Score] = {}
    for width, column in zip(widths, columns, strict=True):
        if width is not None:
            scores[column.name] = Gaussian(width) if isinstance(column, Quantity) else -math.log(width) * Equal()
    return scores or None


def _check(widths: Sequence[float | None], columns: Sequence[Column]) -> None:
    """Raise unless the widths of keys are some that they can have."""
    for width, column in zip(widths, columns, strict=True):
        if width is not None and width > 1 and not isinstance(column, Quantity):
            raise OptionError(f"What a row weighs that differs in a category must be at most 1: got {width:g}.")


def _lying(column: Column, rows: list[int]) -> list[float | None]:
    """Where rows lie on a column's line, or the places of their categories."""
    if isinstance(column, CategoryColumn):
        codes: list[float | None] = column.codes[rows].tolist()
        return codes
    return numbers_of(column)[rows].tolist() if is_line(column) else [None] * len(rows)


def _along(asked: AboutQuery | AboutPoints, database: Database) -> Column:
    if asked.along >= len(asked.keys):
        raise OptionError(f"`along` must be from 0 to {len(asked.keys) - 1}: got {asked.along}.")
    return pairs_of(database).keys[asked.along]


def _output(value: Column, answer: Answer) -> dict[str, Any]:
    """An output in numbers: where it lies on the value's line, how far rows spread; of categories the likeliest."""
    found: dict[str, Any] = {"number": None, "spread": None, "shares": None, "lanes": None}
    if not answer.found:
        return found
    if isinstance(value, CategoryColumn):
        likely = list((answer.probabilities or {}).items())[:SHARES]
        lanes = [each for (each,) in _shares(value, [answer])]
        return found | {"shares": [[short_name(entry_text(name)), share] for name, share in likely], "lanes": lanes}
    if is_line(value):
        spread = answer.std
        if spread is not None and not isinstance(spread, float):
            spread = spread.total_seconds() / (3600 if value.unit == "hours" else 86400)  # type: ignore[attr-defined]
        return found | {"number": number_in(value, answer.value), "spread": spread}
    return found


def _shares(value: CategoryColumn, answers: Sequence[Answer]) -> list[list[float | None]]:
    """The probability of each of the most frequent categories along the curve."""
    names = [value.categories[code] for code in frequent(value, SHARES)]
    likely = [(answer.probabilities or {}) if answer.found else None for answer in answers]
    return [[None if each is None else each.get(name, 0.0) for each in likely] for name in names]


def _parts(key: Any, asked: AboutColumns) -> Sequence[Any]:
    return key if len(asked.keys) > 1 else (key,)


def _cut(entry: Any) -> Any:
    """A cell as it is, unless it is longer than anybody reads; a text where a page would round it."""
    cell = _exact(jsonable(entry))
    return f"{cell[:LONGEST_CELL]}…" if isinstance(cell, str) and len(cell) > LONGEST_CELL else cell


def _exact(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_exact(each) for each in cell]
    if isinstance(cell, dict):
        return {name: _exact(each) for name, each in cell.items()}
    return str(cell) if isinstance(cell, int) and abs(cell) > EXACT else cell


def _advised(warning: str) -> str:
    for of_python, of_page in ADVICE.items():
        warning = warning.replace(of_python, of_page)
    return warning


def _told(answer: Answer, asked: AboutQuery, kept: Kept) -> dict[str, Any]:
    """The answer as the library tells it, with so many of its rows."""
    rows = answer.rows
    if asked.label is not None:
        column = kept.column(asked.label)
        rows = [row._replace(index=column.entries[row.index]) for row in rows[: asked.told]]
        answer = replace(answer, labels=replace(answer.labels, index=column.name))
    rest = answer.rest + sum(row.weight for row in answer.rows[asked.told :])
    shown = rows[: asked.told]
    report = answer_report(replace(answer, rows=shown, rest=rest))
    return {
        "headline": short_name(report.headline, 300),
        "warning": _advised(report.warning),
        "header": [short_name(each, 60) for each in report.header],
        "lines": [[short_name(cell, 60) for cell in line] for line in report.lines],
        "numeric": report.numeric,
        "raw": [[_cut(each) for each in (row.index, *_parts(row.key, asked), row.value)] for row in shown],
        "notes": [on_one_line(note)[:400] for note in report.notes],
    }
