"""Answers and databases to look at: in a terminal, in colour, in a notebook. One report, three ways to draw it."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.database.answer import Answer, Answers, Labels

WIDTH = 80
BAR = 16
CELL = 28


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
    lines = [
        [shown(row.index), *_cells(row.key, labels.keys), *_cells(row.value, labels.values), percent(row.weight)]
        for row in answer.rows
    ]
    numeric = [all(_looks_numeric(line[column]) for line in lines) for column in range(len(header))]
    heaviest = max((abs(row.weight) for row in answer.rows), default=0.0) or 1.0
    notes = [f"the other rows weigh {percent(answer.rest)}"] if answer.found and answer.rest > 5e-4 else []
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
    lines, bars = [], []
    for answer in answers:
        best = answer.rows[0] if answer.rows and answer.found else None
        label = f"{first.index} {shown(best.index)}" if best else ""
        lines.append([*_cells(answer.query, first.keys), _result(answer), label, percent(best.weight) if best else ""])
        bars.append(best.weight if best else 0.0)
    notes = list(
        dict.fromkeys(
            [answer.similarity for answer in answers] + [answer.message for answer in answers if answer.message]
        )
    )
    return Report(f"{len(answers):,} answers: {', '.join(first.values)}", header, lines, bars, notes)


def pairs_report(title: str, labels: Labels, pairs: Sequence[tuple[Any, Any, Any]], n_more: int) -> Report:
    """The first pairs of a database: `(index, key, value)` each."""
    header = [labels.index, *labels.keys, *labels.values]
    lines = [[shown(index), *_cells(key, labels.keys), *_cells(value, labels.values)] for index, key, value in pairs]
    numeric = [all(_looks_numeric(line[column]) for line in lines) for column in range(len(header))]
    notes = [f"… and {n_more:,} more"] if n_more else []
    return Report(title, header, lines, notes=notes, numeric=numeric)


def as_text(report: Report, width: int = WIDTH) -> str:
    """A report in plain characters, at most `width` columns wide."""
    out = [*_wrapped(report.headline, width)]
    if report.warning:
        out += _wrapped(report.warning, width)
    if report.lines:
        room = width - (BAR + 2 if report.bars else 0)
        cells = _fitted([report.header, *report.lines], room)
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        for place, line in enumerate(cells):
            numeric = report.numeric or [False] * len(line)
            parts = [
                cell.rjust(size) if right else cell.ljust(size)
                for cell, size, right in zip(line, widths, numeric, strict=True)
            ]
            picture = f"  {bar(report.bars[place - 1], BAR)}" if report.bars and place else ""
            out.append(("  ".join(parts) + picture).rstrip())
    for note in report.notes:
        out += _wrapped(note, width)
    return "\n".join(out)


def as_rich(report: Report) -> RenderableType:
    """A report for a rich console."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    if report.warning:
        parts.append(Text(report.warning, style="yellow"))
    if report.lines:
        cells = _fitted([report.header, *report.lines], WIDTH - (BAR + 2 if report.bars else 0))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for place, name in enumerate(cells[0]):
            right = bool(report.numeric) and report.numeric[place]
            table.add_column(Text(name), justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
        if report.bars:
            table.add_column("", no_wrap=True)
        for place, line in enumerate(cells[1:]):
            drawn = [Text(bar(report.bars[place], BAR), style="cyan")] if report.bars else []
            table.add_row(*map(Text, line), *drawn)
        parts.append(table)
    parts += [Text(note, style="dim") for note in report.notes]
    return Group(*parts)


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


def bar(fraction: float, width: int) -> str:
    """A bar, to an eighth of a character; never invisible, unless the fraction is 0 or less.

    Example:
        >>> bar(0.5, 5)
        '██▌'
    """
    if fraction <= 0:
        return ""
    whole, rest = divmod(max(round(min(fraction, 1.0) * width * 8), 1), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


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


def _headline(answer: Answer) -> str:
    if answer.query is None:
        return f"every row → {_result(answer)}"
    names = answer.labels.keys
    known = {names[0]: answer.query} if len(names) == 1 else answer.query
    query = ", ".join(f"{name} = {shown(entry)}" for name, entry in known.items())
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


def _cells(entry: Any, names: Sequence[str]) -> list[str]:
    """An entry for each of several columns; a query may leave some out."""
    if len(names) == 1:
        return [shown(entry)]
    if isinstance(entry, dict):
        return [shown(entry[name]) if name in entry else "any" for name in names]
    return [shown(each) for each in entry]


def _looks_numeric(cell: str) -> bool:
    return (
        cell.strip("<>%–").replace(",", "").replace(".", "").replace("-", "").replace("e+", "").isdigit() or cell == "–"
    )


def _fitted(lines: list[list[str]], room: int) -> list[list[str]]:
    """Cells shortened until every line fits: the widest column gives way first."""
    widths = [min(max(len(line[column]) for line in lines), CELL) for column in range(len(lines[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > room and max(widths) > 6:
        widths[widths.index(max(widths))] -= 1
    return [
        [cell if len(cell) <= size else cell[: size - 1] + "…" for cell, size in zip(line, widths, strict=True)]
        for line in lines
    ]


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
