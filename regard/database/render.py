"""Answers and databases to look at: in a terminal, in colour, in a notebook. One report, three ways to draw it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.database.layout import cell_width, fitted, padded, wrapped
from regard.drawing import bar

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from regard.database.answer import Answer, Answers, Labels

WIDTH = 80
BAR = 16

ANY = object()
"""Stands for a part that a query leaves out."""


@dataclass(frozen=True)
class Report:
    """A headline, a table whose lines may end in a bar, and notes below it."""

    headline: str
    header: list[str]
    lines: list[list[str]]
    bars: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)
    warning: str = ""


def answer_report(answer: Answer) -> Report:
    """An answer: the value, the rows that say so with a bar for each weight, and how they were weighed."""
    labels = answer.labels
    header = [labels.index, *labels.keys, *labels.values, "weight"]
    columns = [
        apart([row.index for row in answer.rows]),
        *_texts([row.key for row in answer.rows], labels.keys),
        *_texts([row.value for row in answer.rows], labels.values),
        [percent(row.weight) for row in answer.rows],
    ]
    lines = [list(line) for line in zip(*columns, strict=True)]
    numeric = [all(_looks_numeric(cell) for cell in column) for column in columns]
    heaviest = max((abs(row.weight) for row in answer.rows), default=0.0) or 1.0
    notes = [f"the other rows weigh {percent(answer.rest)}"] if answer.found and abs(answer.rest) > 5e-4 else []
    counted = f"{answer.n_rows:,} row" + ("s" if answer.n_rows != 1 else "")
    if answer.n_left_out:
        counted += f", {answer.n_left_out:,} left out (missing key or value)"
    notes.append(f"{counted} · {answer.similarity}")
    bars = [row.weight / heaviest for row in answer.rows]
    return Report(_headline(answer), header, lines, bars, notes, numeric, answer.message)


def answers_report(answers: Answers) -> Report:
    """Many answers, a line each."""
    if not len(answers):
        return Report("no queries, no answers", [], [])
    first = answers[0].labels
    header = [*first.keys, "→", "heaviest row", "weight"]
    best = [answer.rows[0] if answer.rows and answer.found else None for answer in answers]
    columns = [
        *_texts([answer.query for answer in answers], first.keys),
        [_result(answer) for answer in answers],
        [f"{first.index} {shown(row.index)}" if row else "" for row in best],
        [percent(row.weight) if row else "" for row in best],
    ]
    lines = [list(line) for line in zip(*columns, strict=True)]
    bars = [row.weight if row else 0.0 for row in best]
    notes = list(
        dict.fromkeys(
            [answer.similarity for answer in answers] + [answer.message for answer in answers if answer.message]
        )
    )
    return Report(f"{len(answers):,} answers: {', '.join(first.values)}", header, lines, bars, notes)


def pairs_report(title: str, labels: Labels, pairs: Sequence[tuple[Any, Any, Any]], n_more: int) -> Report:
    """The first pairs of a database: `(index, key, value)` each."""
    header = [labels.index, *labels.keys, *labels.values]
    columns = [
        apart([index for index, _, _ in pairs]),
        *_texts([key for _, key, _ in pairs], labels.keys),
        *_texts([value for _, _, value in pairs], labels.values),
    ]
    lines = [list(line) for line in zip(*columns, strict=True)]
    numeric = [all(_looks_numeric(cell) for cell in column) for column in columns]
    notes = [f"… and {n_more:,} more"] if n_more else []
    return Report(title, header, lines, notes=notes, numeric=numeric)


def as_text(report: Report, width: int = WIDTH) -> str:
    """A report in plain characters, at most `width` columns wide unless its numbers need more."""
    texts = [report.headline, *([report.warning] if report.warning else [])]
    out = [line for text in texts for line in wrapped(text, width)]
    out += [(line + picture).rstrip() for line, picture in _table(report, width)]
    return "\n".join(out + [line for note in report.notes for line in wrapped(note, width)])


def _table(report: Report, width: int) -> Iterator[tuple[str, str]]:
    """The lines of the table, the header first, each with its bar."""
    if not report.lines:
        return
    cells, length = fitted([report.header, *report.lines], width, BAR if report.bars else 0)
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    numeric = report.numeric or [False] * len(widths)
    for place, line in enumerate(cells):
        parts = [padded(cell, size, right=right) for cell, size, right in zip(line, widths, numeric, strict=True)]
        yield "  ".join(parts), f"  {bar(report.bars[place - 1], length)}" if length and place else ""


def as_rich(report: Report) -> RenderableType:
    """A report for a rich console, as wide as the console is."""
    return _ForConsole(report)


@dataclass(frozen=True)
class _ForConsole:
    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        yield Text(self.report.headline, style="bold")
        if self.report.warning:
            yield Text(self.report.warning, style="yellow")
        for place, (line, picture) in enumerate(_table(self.report, options.max_width)):
            text = Text(line, style="" if place else "dim", overflow="fold")
            text.append(picture, style="cyan")
            text.rstrip()
            yield text
        for note in self.report.notes:
            yield Text(note, style="dim")


def as_html(report: Report) -> str:
    """A report for a notebook."""
    escape = html.escape
    out = [f"<div><p><b>{escape(report.headline)}</b></p>"]
    if report.warning:
        out.append(f"<p>{escape(report.warning)}</p>")
    if report.lines:
        head = "".join(f"<th>{escape(name)}</th>" for name in report.header) + ("<th></th>" if report.bars else "")
        out.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for place, line in enumerate(report.lines):
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in line)
            if report.bars:
                length = 100 * min(max(report.bars[place], 0.0), 1.0)
                style = f"width:{length:.1f}%;height:.8em;background:#4c8bf5"
                cells += f'<td style="width:10em"><div style="{style}"></div></td>'
            out.append(f"<tr>{cells}</tr>")
        out.append("</tbody></table>")
    out += [f"<p><small>{escape(note)}</small></p>" for note in report.notes]
    return "".join(out) + "</div>"


def percent(weight: float) -> str:
    """A weight in percent, with enough digits not to look like 0.

    Example:
        >>> percent(0.25), percent(0.0004), percent(1e-7)
        ('25.0%', '0.04%', '<0.01%')
    """
    if weight != 0 and abs(weight) < 5e-5:
        return "<0.01%" if weight > 0 else ">-0.01%"
    return f"{weight:.1%}" if abs(weight) >= 5e-3 or weight == 0 else f"{weight:.2%}"


def shown(entry: Any) -> str:
    """An entry for people to read.

    Example:
        >>> shown(71234.56), shown(2019), shown(12500), shown("law")
        ('71,234.6', '2019', '12,500', 'law')
    """
    if isinstance(entry, bool) or entry is None:
        return {True: "yes", False: "no", None: "–"}[entry]
    if isinstance(entry, int):
        return f"{entry:,}" if abs(entry) >= 10_000 else str(entry)
    if isinstance(entry, float):
        if entry.is_integer() and abs(entry) < 1e4:
            return f"{entry:.1f}"
        if 1e5 <= abs(entry) < 1e15:
            return f"{entry:,.0f}"
        return f"{entry:,.6g}" if abs(entry) >= 1e4 else f"{entry:.5g}"
    if isinstance(entry, datetime):
        return entry.isoformat(sep=" ", timespec="seconds")
    if isinstance(entry, timedelta):
        days = entry / timedelta(days=1)
        return f"{days:.3g} days" if abs(days) >= 1 or days == 0 else f"{days * 24:.3g} hours"
    if isinstance(entry, Tensor):
        entry = entry.tolist()
    if isinstance(entry, list | tuple):
        body = ", ".join(map(shown, entry[:4])) + (", …" if len(entry) > 4 else "")
        return f"({body})"
    return " ".join(str(entry).split())


def apart(entries: Sequence[Any]) -> list[str]:
    """Entries for people to read, with enough digits that different ones look different.

    Example:
        >>> apart([1e6 + 0.001, 1e6 + 0.002]), apart([1.0, 2.5])
        (['1,000,000.001', '1,000,000.002'], ['1.0', '2.5'])
    """
    texts = [shown(entry) for entry in entries]
    if all(isinstance(entry, float) for entry in entries):
        for digits in range(6, 18):
            if len(set(texts)) >= len(set(entries)):
                break
            texts = [f"{entry:,.{digits}g}" for entry in entries]
    elif all(isinstance(entry, datetime) for entry in entries) and len(set(texts)) < len(set(entries)):
        texts = [entry.isoformat(sep=" ") for entry in entries]
    return texts


def _headline(answer: Answer) -> str:
    if answer.query is None:
        return f"every row → {_result(answer)}"
    names = answer.labels.keys
    known = {names[0]: answer.query} if len(names) == 1 else answer.query
    # As many digits as in the table below, whose rows may be very near.
    columns = _texts([answer.query, *(row.key for row in answer.rows)], names)
    texts = {name: column[0] for name, column in zip(names, columns, strict=True)}
    query = ", ".join(f"{name} = {texts[name]}" for name in known)
    return f"{query} → {_result(answer)}"


def _result(answer: Answer) -> str:
    if not answer.found:
        return "no similar rows"
    names = answer.labels.values
    if len(names) == 1:
        return _one_result(answer.value, answer.std, answer.probabilities)
    std, probabilities = answer.std or {}, answer.probabilities or {}
    return "; ".join(
        f"{name} {_one_result(answer.value[name], std.get(name), probabilities.get(name))}" for name in names
    )


def _one_result(value: Any, std: Any, probabilities: Any) -> str:
    if probabilities:
        likely = [f"{shown(category)} {percent(share)}" for category, share in list(probabilities.items())[:3]]
        return ", ".join(likely) + (f", … ({len(probabilities)} in all)" if len(probabilities) > 3 else "")
    if isinstance(value, float) and isinstance(std, float) and 0 < std < 1e15 and abs(value) < 1e15:
        # Digits that the spread drowns are left out.
        decimals = max(0, 1 - math.floor(math.log10(std)))
        return f"{value:,.{decimals}f} ± {std:,.{decimals}f}"
    return shown(value) + (f" ± {shown(std)}" if std is not None else "")


def _texts(entries: Sequence[Any], names: Sequence[str]) -> list[list[str]]:
    """Entries, each with a part for each of several columns, as columns of text; a query may leave parts out."""
    if len(names) == 1:
        return [apart(entries)]
    rows = [entry if isinstance(entry, dict) else dict(zip(names, entry, strict=True)) for entry in entries]
    return [_texts_of([row.get(name, ANY) for row in rows]) for name in names]


def _texts_of(entries: Sequence[Any]) -> list[str]:
    known = iter(apart([entry for entry in entries if entry is not ANY]))
    return ["any" if entry is ANY else next(known) for entry in entries]


def _looks_numeric(cell: str) -> bool:
    return (
        cell.strip("<>%–").replace(",", "").replace(".", "").replace("-", "").replace("e+", "").isdigit() or cell == "–"
    )
