"""How a stop of the tour is told: a title, the formula, a picture, and the line of code that made it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.text import Text

from regard.cli.console import HEADING
from regard.errors import CheckpointError, MissingDependency

WIDTH = 80  # The widest page; the pictures have room for themselves down to NARROWEST.
NARROWEST = 40
INDENT = "   "

Numbers: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Stop:
    """One stop: `measure` computes its numbers with regard's public functions, `picture` draws them and nothing else.

    `text` may name numbers in braces, as in a format string; `code` is a line of `measure` itself; `picture` is told
    how many columns it may take and, if it `has_matrix`, whether there is colour. The page draws the same numbers in
    figures of its own.
    """

    name: str
    title: str
    text: str
    code: str
    measure: Callable[[], Numbers]
    picture: Callable[..., Sequence[Text | str]]
    has_matrix: bool = False


def measured(stop: Stop) -> Numbers:
    """The numbers of a stop; where what it needs is not installed, `skipped` says what to install."""
    try:
        return stop.measure()
    except (CheckpointError, MissingDependency) as error:
        return {"skipped": str(error)}


def welcome(width: int) -> Text:
    """What stands above the first stop."""
    formula, database = "Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ", "D = {(k₁, v₁), …, (kₘ, vₘ)}"
    between = " " * 8 if width >= 70 else f"\n{INDENT}"
    return Text.assemble(
        ("\nregard", HEADING),
        " computes one formula, for every way of choosing the weights:\n\n",
        (f"{INDENT}{formula}{between}{database}", "bold"),
    )


def show(number: int, stop: Stop, numbers: Numbers, width: int, colour: bool = True) -> Text:
    """A stop as it stands in the terminal, at most `width` columns wide, with colour or without."""
    head = f"{number}  {stop.title} "
    text = Text.assemble((f"\n{head}", HEADING), ("─" * (width - len(head)), "dim"), "\n")
    if "skipped" in numbers:
        return text.append(_wrapped(f"Skipped. {numbers['skipped']}", width), "dim")
    text.append(_wrapped(stop.text.format_map(numbers), width) + "\n\n")
    told = {"colour": colour} if stop.has_matrix else {}
    for line in stop.picture(numbers, width - len(INDENT), **told):
        text.append_text(_indented(line)).append("\n")
    for line in stop.code.splitlines():
        text.append(f"\n{INDENT}>>> ", "dim").append(line)
    return text


def farewell(width: int) -> Text:
    """What stands below the last stop."""
    between = " " if width >= 60 else f" \\\n{INDENT}  "
    return Text.assemble(
        "\nNow with your own rows and words; the first line opens all of it in a browser:\n\n",
        (f"{INDENT}regard explore\n", "bold"),
        (f"{INDENT}regard ask table.csv{between}--key gpa --value salary 3.5\n", "bold"),
        (f'{INDENT}regard see "the dog was happy"\n{INDENT}regard doctor\n', "bold"),
    )


def _wrapped(text: str, width: int) -> str:
    # A line may not break around an operator: a formula is read in one piece.
    glued = re.sub(r" ([=×/−]) ", "\u00a0\\1\u00a0", _in_one_line(text))
    lines = textwrap.fill(glued, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
    return lines.replace("\u00a0", " ")


def _in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip())


def _indented(line: Text | str) -> Text:
    rows = (line if isinstance(line, Text) else Text(line)).split("\n", allow_blank=True)
    for row in rows:
        ends = [span.style for span in row.spans if span.end == len(row)]
        if not any(getattr(style, "bgcolor", None) for style in ends):  # the blanks of a tinted cell stay
            row.rstrip()
    return Text("\n").join(Text(INDENT) + row if row else row for row in rows)
