"""`regard ask`: a question to a table, answered by the rows that are like it."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import log, out, print_json
from regard.errors import OptionError

if TYPE_CHECKING:
    from regard.database import Database

EXAMPLES = """\
[bold]Examples[/bold]
  regard ask grades.csv --key gpa --value salary 3.5
  regard ask grades.csv --key gpa --key major --value salary 3.5,physics
  regard ask grades.csv --key gpa --value major 3.5 --score boxcar:0.2
  regard ask grades.csv --key name --value major --exact "John Doe"
  regard ask grades.csv --key gpa --value salary --average --json
  cut -d, -f2 new.csv | regard ask grades.csv --key gpa --value salary -
"""

# The name on the command line -> the class, and whether its parameter may, must or cannot be given.
SCORES = {
    "gaussian": ("Gaussian", "must"),
    "laplacian": ("Laplacian", "must"),
    "boxcar": ("Boxcar", "must"),
    "epanechnikov": ("Epanechnikov", "must"),
    "triangular": ("Triangular", "must"),
    "equal": ("Equal", "cannot"),
    "dot": ("Dot", "cannot"),
    "scaled-dot": ("ScaledDot", "may"),
    "cosine": ("Cosine", "may"),
}
RULES = {
    "softmax": ("Softmax", "may"),
    "proportional": ("Proportional", "cannot"),
    "one-hot": ("OneHot", "cannot"),
    "uniform": ("Uniform", "cannot"),
    "sparsemax": ("Sparsemax", "cannot"),
    "entmax": ("Entmax", "may"),
    "top-k": ("TopK", "must"),
    "conic": ("Conic", "cannot"),
    "raw": ("Raw", "cannot"),
    "sigmoid": ("Sigmoid", "cannot"),
}


def ask(
    table: Annotated[Path, typer.Argument(help="A .csv, .tsv, .parquet, .feather or .arrow file.", show_default=False)],
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to ask: keys, or [bold]-[/bold] for one a line on standard input.", show_default=False
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="The key column. Repeat it for several.", show_default=False)
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", "-v", help="The value column. Repeat it for several.", show_default=False),
    ] = None,
    index: Annotated[str | None, typer.Option(help="The column that names the rows.")] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            help=f"How similar: NAME[:NUMBER], or COLUMN=NAME[:NUMBER] for one column. Names: {', '.join(SCORES)}.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help=f"How scores become weights: NAME[:NUMBER]. Names: {', '.join(RULES)}.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many rows to show with each answer (10 for one query).")
    ] = None,
    average: Annotated[bool, typer.Option("--average", help="Average over every row; no query.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Look the key up, exactly.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Ask a table: what do the rows like this one say?"""
    if not key or not value:
        raise typer.BadParameter(f"a table is asked by column: add {'--key' if not key else '--value'} COLUMN.")
    asked = list(queries or [])
    if average and (asked or exact or score or weights):
        raise typer.BadParameter(
            "--average takes every row alike: it goes without a query, --exact, --score and --weights."
        )
    if not average and not asked:
        raise typer.BadParameter(
            "there is nothing to ask: add a key, a - to read keys from standard input, or --average."
        )
    if exact and (score or weights):
        raise typer.BadParameter("--exact compares keys for equality: it goes without --score and --weights.")
    with log.status(f"reading {table.name}"):
        from regard.database import Answers, Database

        database = Database.from_table(table, key=key, value=value, index=index)
    lines = [line for each in asked for line in (_standard_input(database) if each == "-" else [each])]
    parsed = [database.parse(line) for line in lines]
    if exact:
        _look_up(database, parsed, as_json)
        return
    with log.status("asking"):
        if average:
            answers = Answers([database.average(top=top or 10)])
        else:
            options = {"score": _scores(score), "weights": _named(weights, RULES, "--weights"), "top": top or 10}
            answers = database.attend(parsed, **options)
    if as_json:
        print_json(
            {"table": str(table), "key": key, "value": value, "answers": [answer.as_dict() for answer in answers]}
        )
    elif len(answers) == 1 or top:
        for place, answer in enumerate(answers):
            out.print(*([""] if place else []), answer, sep="\n")
    else:
        out.print(answers)


def _standard_input(database: Database) -> list[str]:
    """The lines of standard input; a first line that names the key columns says their order."""
    lines = [line for line in (each.strip("\r\n") for each in sys.stdin) if line.strip()]
    names = database.key_names
    if not lines:
        raise OptionError("Standard input must have a query on each line: got nothing.")
    header = [cell.strip() for cell in next(csv.reader(lines[:1]))]
    if set(names) <= set(header):
        places = [header.index(name) for name in names]
        rows = list(csv.reader(lines[1:]))
        return [_joined([row[place] if place < len(row) else "" for place in places]) for row in rows]
    return lines


def _joined(cells: Sequence[str]) -> str:
    if len(cells) == 1:
        return cells[0]
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


def _look_up(database: Database, queries: Sequence[Any], as_json: bool) -> None:
    """Print the value of each key, and how many other pairs have the same key."""
    from regard.database.answer import jsonable

    found = [(query, database.lookup_all(query)) for query in queries]
    if as_json:
        answers = [
            {"query": jsonable(query), "value": jsonable(values[0]), "values": jsonable(values)}
            for query, values in found
        ]
        print_json({"key": database.key_names, "value": database.value_names, "answers": answers})
        return
    for _, values in found:
        cells = values[0].values() if len(database.value_names) > 1 else [values[0]]
        # As it is, for the next program: rich would turn the tab into spaces.
        typer.echo("\t".join("" if cell is None else str(cell) for cell in cells))
        if len(values) > 1:
            log.print(f"{len(values):,} pairs have that key: this is the first.", style="dim")


def _scores(texts: Sequence[str] | None) -> Any:
    """A score, or a dict of scores by column."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _named(texts[0], SCORES, "--score")
    scores = {}
    for text in texts:
        column, equals, name = text.rpartition("=")
        if not equals:
            raise OptionError(f"Several --score must each name their column, as COLUMN=NAME: got {text!r}.")
        scores[column] = _named(name, SCORES, "--score")
    return scores


def _named(text: str | None, known: dict[str, tuple[str, str]], option: str) -> Any:
    """The score or rule that `text` names: NAME or NAME:NUMBER."""
    if text is None:
        return None
    import regard

    name, _, parameter = text.strip().partition(":")
    plain = {spelling.replace("-", ""): spelling for spelling in known}
    spelling = plain.get(name.casefold().replace("-", "").replace("_", ""))
    if spelling is None:
        raise OptionError(f"{option} must be one of {', '.join(known)}: got {name!r}.{_nearest(name, known)}")
    class_name, takes = known[spelling]
    made = getattr(regard, class_name)
    if takes == "cannot" and parameter:
        raise OptionError(f"{option} {spelling} must stand without a number: got {text!r}.")
    if takes == "must" and not parameter:
        example = "5" if spelling == "top-k" else "0.5"
        raise OptionError(f"{option} {spelling} must have a number, as {spelling}:{example}: got {text!r}.")
    if not parameter:
        return made()
    try:
        number = int(parameter) if spelling == "top-k" else float(parameter)
    except ValueError:
        raise OptionError(f"{option} {spelling} must have a number after the colon: got {parameter!r}.") from None
    return made(number)


def _nearest(name: str, known: dict[str, tuple[str, str]]) -> str:
    import difflib

    near = difflib.get_close_matches(name.casefold(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
