"""Answers and databases as text: in a terminal, in colour, in a notebook. One report, three ways to draw it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.database.layout import fitted, padded, wrapped
from regard.printable import on_one_line
from regard.view.drawing import BAR_COLOUR, NOTICE_COLOUR, bar, percent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from regard.database.answer import Answer, Answers, Labels

WIDTH = 80
BAR = 16

GROUPED = 10_000
"""From here on numbers are written in groups of three digits, and with them all that stand beside them."""

SPREAD = "± is the standard deviation of the rows' values, by weight"

PLAIN = 1e18
"""Up to here numbers are written in digits, without an exponent."""

ANY = object()
"""Stands for a part that a query leaves out."""


@dataclass(frozen=True)
class Report:
    """A headline, a table whose lines may end in a bar, and notes below it.

    Its texts come from tables and queries: what would steer a terminal is taken out here, for every way to draw it.
    """

    headline: str
    header: list[str]
    lines: list[list[str]]
    bars: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)
    warning: str = ""
    whole: list[int] = field(default_factory=list)  # columns that are wrapped, never cut

    def __post_init__(self) -> None:
        for name in ("headline", "warning"):
            object.__setattr__(self, name, on_one_line(getattr(self, name)))
        for name in ("header", "notes"):
            object.__setattr__(self, name, list(map(on_one_line, getattr(self, name))))
        object.__setattr__(self, "lines", [list(map(on_one_line, line)) for line in self.lines])


def answer_report(answer: Answer) -> Report:
    """An answer: the value, the rows behind it with a bar for each weight, and how they were weighed."""
    labels = answer.labels
    header = [labels.index, *labels.keys, *labels.values, "weight"]
    weights = [row.weight for row in answer.rows]
    shares = list(map(_weight_writer(answer), weights))
    # Rows that are listed and like all the others: ten times "<0.01%" says nothing.
    alike = len(set(shares)) == 1 and abs(weights[0]) < 1e-3 and len(weights) < answer.n_rows
    rows, shares = ([], []) if alike else (answer.rows, shares)
    columns = [
        list(map(label, [row.index for row in rows])),
        *_texts([row.key for row in rows], labels.keys, labels.ids),
        *_texts([row.value for row in rows], labels.values),
        shares,
    ]
    heaviest = max(map(abs, weights), default=0.0) or 1.0
    bars = [row.weight / heaviest for row in rows]
    headline = _headline(answer)
    return Report(
        headline, header, _lines(columns), bars, _notes(answer, headline, alike), _numeric(columns), answer.message
    )


def _lines(columns: Sequence[Sequence[str]]) -> list[list[str]]:
    return list(map(list, zip(*columns, strict=True)))


def _numeric(columns: Sequence[Sequence[str]]) -> list[bool]:
    return [all(map(_looks_numeric, column)) for column in columns]


def _notes(answer: Answer, headline: str, alike: bool) -> list[str]:
    """What has to be said below an answer; `alike`: its rows weigh the same, and are not listed."""
    if says_nothing(answer):
        return list(answer.notes)
    notes = []
    if alike:
        notes.append(f"no row stands out: each weighs {_weight_writer(answer)(answer.rows[0].weight)} or less")
    elif answer.found and abs(answer.rest) > 5e-4:
        notes.append(f"the other rows weigh {_weight_writer(answer)(answer.rest)}")
    if " ± " in headline:
        notes.append(SPREAD)
    counted = f"{answer.n_rows:,} row" + ("s" if answer.n_rows != 1 else "")
    if answer.n_left_out:
        counted += f", {answer.n_left_out:,} left out (missing key or value)"
    if answer.found:
        counted += f" · {_about(answer.effective_rows)} in effect"
    return [*notes, f"{counted} · {answer.similarity}", *answer.notes]


def _weight_writer(answer: Answer) -> Callable[[float], str]:
    """How an answer's weights are written: in percent, where they sum to 1."""
    total = answer.rest + sum([row.weight for row in answer.rows])
    return percent if abs(total - 1) < 1e-3 else entry_text


def _about(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 or abs(count - round(count)) < 0.005 else f"{count:.2g}"


def answers_report(answers: Answers) -> Report:
    """Many answers, a line each."""
    if not len(answers):
        return Report("no queries, no answers", [], [])
    first = answers[0].labels
    header = [*first.keys, "→", "heaviest row", "weight"]
    best = [answer.rows[0] if answer.rows and answer.found else None for answer in answers]
    results = [_result(answer) for answer in answers]
    columns = [
        *_texts([answer.query for answer in answers], first.keys, first.ids),
        results,
        [f"{first.index} {label(row.index)}" if row else "" for row in best],
        [_weight_writer(answer)(row.weight) if row else "" for answer, row in zip(answers, best, strict=True)],
    ]
    bars = [row.weight if row else 0.0 for row in best]
    said = [
        *(answer.similarity for answer in answers),
        *(answer.message for answer in answers),
        *([SPREAD] if any(" ± " in result for result in results) else []),
        *answers[0].notes,
    ]
    notes = [note for note in dict.fromkeys(said) if note]
    whole = [len(first.keys)]  # The answers themselves are never cut.
    counted = "1 answer" if len(answers) == 1 else f"{len(answers):,} answers"
    return Report(f"{counted}: {', '.join(first.values)}", header, _lines(columns), bars, notes, whole=whole)


def pairs_report(
    title: str, labels: Labels, pairs: Sequence[tuple[Any, Any, Any]], n_more: int, notes: Sequence[str] = ()
) -> Report:
    """The first pairs of a database: `(index, key, value)` each."""
    header = [labels.index, *labels.keys, *labels.values]
    columns = [
        [label(index) for index, _, _ in pairs],
        *_texts([key for _, key, _ in pairs], labels.keys, labels.ids),
        *_texts([value for _, _, value in pairs], labels.values),
    ]
    more = [f"… and {n_more:,} more"] if n_more else []
    return Report(title, header, _lines(columns), notes=[*more, *notes], numeric=_numeric(columns))


def as_text(report: Report, width: int = WIDTH) -> str:
    """A report in plain characters, at most `width` columns wide unless its numbers need more."""
    texts = [report.headline, *([report.warning] if report.warning else [])]
    out = [line for text in texts for line in wrapped(text, width)]
    out += [(line + picture).rstrip() for line, picture in _table(report, width)]
    return "\n".join(out + [line for note in report.notes for line in wrapped(note, width)])


def _table(report: Report, width: int) -> list[tuple[str, str]]:
    """The lines of the table, the header first, each with its bar."""
    if not report.lines:
        return []
    columns = list(zip(report.header, *report.lines, strict=True))
    cells, length = fitted(columns, width, BAR if report.bars else 0, report.whole)
    lines: list[tuple[str, ...]] = []
    bars: list[str] = []
    for place, row in enumerate(zip(*cells, strict=True)):
        parts = list(zip_longest(*row, fillvalue=""))  # the lines of its cells
        lines += parts
        bars += [f"  {bar(report.bars[place - 1], length)}" if length and place else "", *[""] * (len(parts) - 1)]
    numeric = report.numeric or [False] * len(columns)
    texts = [padded(column, right=right) for column, right in zip(zip(*lines, strict=True), numeric, strict=True)]
    return list(zip(map("  ".join, zip(*texts, strict=True)), bars, strict=True))


def as_rich(report: Report) -> RenderableType:
    """A report for a rich console, as wide as the console is."""
    return _ForConsole(report)


@dataclass(frozen=True)
class _ForConsole:
    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        lines = [Text(self.report.headline, style="bold")]
        if self.report.warning:
            lines.append(Text(self.report.warning, style=NOTICE_COLOUR))
        for place, (line, picture) in enumerate(_table(self.report, options.max_width)):
            text = Text(line, style="" if place else "dim")
            text.append(picture, style=BAR_COLOUR)
            text.rstrip()
            lines.append(text)
        lines += [Text(note, style="dim") for note in self.report.notes]
        yield Text("\n").join(lines)


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
                style = f"width:{length:.1f}%;height:.8em;background:{BAR_COLOUR}"
                cells += f'<td style="width:10em"><div style="{style}"></div></td>'
            out.append(f"<tr>{cells}</tr>")
        out.append("</tbody></table>")
    out += [f"<p><small>{escape(note)}</small></p>" for note in report.notes]
    return "".join(out) + "</div>"


def label(entry: Any) -> str:
    """What a row is called: its number in bare digits, however many it has.

    Example:
        >>> label(2442), label(10314), label("Ann")
        ('2442', '10314', 'Ann')
    """
    return str(entry) if isinstance(entry, int) and not isinstance(entry, bool) else entry_text(entry)


def entry_text(entry: Any, *, grouped: bool = False, longest: int = 4) -> str:
    """An entry for people to read.

    Args:
        entry: anything.
        grouped: whether 1234 is 1,234, because larger numbers stand beside it. A year alone is 2019.
        longest: how many numbers of a vector are shown.

    Example:
        >>> entry_text(71234.56), entry_text(2019), entry_text(12500), entry_text("law")
        ('71,234.6', '2019', '12,500', 'law')
    """
    if isinstance(entry, bool) or entry is None:
        return {True: "yes", False: "no", None: "–"}[entry]
    if isinstance(entry, int):
        return f"{entry:,}" if grouped or abs(entry) >= GROUPED else str(entry)
    if isinstance(entry, float):
        comma = "," if grouped or abs(entry) >= GROUPED else ""
        if entry.is_integer() and abs(entry) < GROUPED:
            return f"{entry:{comma}.1f}"
        if 1e5 <= abs(entry) < PLAIN:
            return f"{entry:,.0f}"
        return f"{entry:{comma}.{6 if abs(entry) >= GROUPED else 5}g}"
    if isinstance(entry, datetime):
        return entry.isoformat(sep=" ", timespec="seconds")
    if isinstance(entry, timedelta):
        days = entry / timedelta(days=1)
        return f"{days:.3g} days" if abs(days) >= 1 or days == 0 else f"{days * 24:.3g} hours"
    if isinstance(entry, Tensor):
        entry = entry.tolist()
    if isinstance(entry, list | tuple):
        body = ", ".join(map(entry_text, entry[:longest])) + (", …" if len(entry) > longest else "")
        return f"({body})"
    return " ".join(str(entry).split())


def apart(entries: Sequence[Any]) -> list[str]:
    """Entries for people to read, with enough digits that different ones look different, all grouped or none.

    Example:
        >>> apart([1e6 + 0.001, 1e6 + 0.002]), apart([1.0, 2.5]), apart([2442, 10314])
        (['1,000,000.001', '1,000,000.002'], ['1.0', '2.5'], ['2,442', '10,314'])
    """
    grouped = any(map(_is_large, entries))
    texts = [entry_text(entry, grouped=grouped) for entry in entries]
    if all(isinstance(entry, float) for entry in entries):
        for digits in range(6, 18):
            if len(set(texts)) >= len(set(entries)):
                break
            texts = [f"{entry:,.{digits}g}" for entry in entries]
    elif all(isinstance(entry, datetime) for entry in entries) and len(set(texts)) < len(set(entries)):
        texts = [entry.isoformat(sep=" ") for entry in entries]
    return texts


def says_nothing(answer: Answer) -> bool:
    """Whether an answer stands for a query that was missing."""
    return answer.query is None and not answer.found and not answer.similarity


def _is_large(entry: Any) -> bool:
    return isinstance(entry, int | float) and GROUPED <= abs(entry) < math.inf


def _headline(answer: Answer) -> str:
    if says_nothing(answer):
        return f"{', '.join(answer.labels.keys)} {_result(answer)}"
    if answer.query is None:
        return f"every row → {_result(answer)}"
    names = answer.labels.keys
    known = {names[0]: answer.query} if len(names) == 1 else answer.query
    # As many digits as in the table below, whose rows may be very near.
    columns = _texts([answer.query, *(row.key for row in answer.rows)], names, answer.labels.ids)
    texts = {name: column[0] for name, column in zip(names, columns, strict=True)}
    query = ", ".join(f"{name} = {texts[name]}" for name in known)
    return f"{query} → {_result(answer, longest=None)}"


def _result(answer: Answer, longest: int | None = 4) -> str:
    """What an answer says, in a line; `longest`: how many numbers of a vector, all of them if None."""
    if not answer.found:
        return "missing" if says_nothing(answer) else "no similar rows"
    names = answer.labels.values
    if len(answer.rows) == 1 and not answer.rest:
        # One row says nothing about how far rows are apart.
        answer = replace(answer, std=None)
    if len(names) == 1:
        return _one_result(answer.value, answer.std, answer.probabilities, longest)
    std, probabilities = answer.std or {}, answer.probabilities or {}
    return "; ".join(
        f"{name} {_one_result(answer.value[name], std.get(name), probabilities.get(name), longest)}" for name in names
    )


def _one_result(value: Any, std: Any, probabilities: Any, longest: int | None) -> str:
    if probabilities:
        likely = [f"{entry_text(category)} {percent(share)}" for category, share in list(probabilities.items())[:3]]
        return ", ".join(likely) + (f", … ({len(probabilities)} in all)" if len(probabilities) > 3 else "")
    if isinstance(value, float) and isinstance(std, float) and 0 < std < PLAIN and abs(value) < PLAIN:
        # Digits that the spread drowns are left out.
        decimals = max(0, 1 - math.floor(math.log10(std)))
        return f"{value:,.{decimals}f} ± {std:,.{decimals}f}"
    count = len(value) if longest is None and isinstance(value, list | tuple | Tensor) else longest or 4
    return entry_text(value, longest=count) + (f" ± {entry_text(std, longest=count)}" if std is not None else "")


def _texts(entries: Sequence[Any], names: Sequence[str], ids: Collection[str] = ()) -> list[list[str]]:
    """Entries, each with a part for each of several columns, as columns of text; a query may leave parts out."""
    if len(names) == 1:
        return [_texts_of(entries, is_id=names[0] in ids)]
    rows = [
        entry
        if isinstance(entry, dict)
        else dict.fromkeys(names)
        if entry is None
        else dict(zip(names, entry, strict=True))
        for entry in entries
    ]
    return [_texts_of([row.get(name, ANY) for row in rows], is_id=name in ids) for name in names]


def _texts_of(entries: Sequence[Any], *, is_id: bool) -> list[str]:
    present = [entry for entry in entries if entry is not ANY and entry is not None]
    known = iter(map(label, present) if is_id else apart(present))
    return ["any" if entry is ANY else entry_text(None) if entry is None else next(known) for entry in entries]


def _looks_numeric(cell: str) -> bool:
    return (
        cell.strip("<>%–").replace(",", "").replace(".", "").replace("-", "").replace("e+", "").isdigit() or cell == "–"
    )
