"""`regard ask`: a query to a table, answered by the average of similar rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from rich.markup import escape

from regard.cli.console import log, out, print_json, write
from regard.cli.names_of_choices import RULES, SCORES, named_rule, named_score
from regard.cli.option_errors import in_options
from regard.cli.standard_input import Line, standard_input
from regard.errors import RegardError

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


NEGATIVE = re.compile(r"-\.?\d")


def ask(
    table: Annotated[Path, typer.Argument(help="A .csv, .tsv, .parquet, .feather or .arrow file.", show_default=False)],
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            help="Queries: keys to ask for, or [bold]-[/bold] to read one per line from standard input.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="The key column. Repeat it for several.", show_default=False)
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", "-v", help="The value column. Repeat it for several.", show_default=False),
    ] = None,
    index: Annotated[str | None, typer.Option(help="The column with the labels of rows.")] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            help=f"The score: NAME[:NUMBER], or COLUMN=NAME[:NUMBER] for one column. Names: {', '.join(SCORES)}.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help=f"The rule from scores to weights: NAME[:NUMBER]. Names: {', '.join(RULES)}.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many rows to show with each answer (10 for one query).")
    ] = None,
    average: Annotated[bool, typer.Option("--average", help="Average over all rows; takes no query.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Exact lookup: rows whose key is equal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Query a table: the average of similar rows, with the rows behind the answer."""
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
    similarity = named_score(score) if score else None
    rule = None if weights is None else named_rule(weights)
    with log.status(escape(f"reading {table.name}")):
        from regard.database import Answers, Database
        from regard.database.database import pairs_of
        from regard.database.queries import says_nothing
        from regard.database.text_queries import delimiters_of

        database = Database.from_table(table, key=key, value=value, index=index)
    delimiters = delimiters_of(pairs_of(database).keys)
    lines = [
        line
        for each in asked
        for line in (standard_input(database.key_names, delimiters) if each == "-" else [Line(0, each)])
    ]
    parsed = [_at(line, database.parse, line.text) for line in lines]
    if exact:
        found = [
            [] if says_nothing(query) else _at(line, database.lookup_all, query)
            for line, query in zip(lines, parsed, strict=True)
        ]
        _print_found(database, parsed, found, table if as_json else None)
        return
    with log.status("asking"):
        if average:
            answers = Answers([database.average(top=top or 10)])
        else:
            answers = database.attend(parsed, score=similarity, weights=rule, top=top or 10)
    answers = Answers([replace(each, message=in_options(each.message)) if each.message else each for each in answers])
    if as_json:
        print_json(
            {"table": str(table), "key": key, "value": value, "answers": [answer.as_dict() for answer in answers]}
        )
    elif len(answers) == 1 or (top and answers):
        for place, answer in enumerate(answers):
            out.print(*([""] if place else []), answer, sep="\n")
    else:
        out.print(answers)


class AskCommand(typer.core.TyperCommand):
    """The command, to which -3 is a number and not an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {name for option in self.params for name in option.opts if not getattr(option, "is_flag", True)}
        return super().parse_args(ctx, _numbers_last(args, takes_value))


def _numbers_last(arguments: Sequence[str], takes_value: Collection[str]) -> list[str]:
    """The arguments with what are no options after two dashes, if there are negative numbers among them.

    Example:
        >>> _numbers_last(["t.csv", "-3", "--key", "gpa", "3"], {"--key"})
        ['--key', 'gpa', '--', 't.csv', '-3', '3']
    """
    options: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            others += rest
        elif argument == "-" or not argument.startswith("-") or NEGATIVE.match(argument):
            others.append(argument)
        else:
            options.append(argument)
            if argument in takes_value:
                options += [value for value in [next(rest, None)] if value is not None]
    return [*options, "--", *others] if any(map(NEGATIVE.match, others)) else list(arguments)


def _at(line: Line, read: Callable[[Any], Any], query: Any) -> Any:
    """What is read of a query; a mistake in it says which line it is on."""
    try:
        return read(query)
    except RegardError as error:
        raise type(error)(f"{line.place}{error}") from error


def _print_found(
    database: Database, queries: Sequence[Any], found: Sequence[Sequence[Any]], json_of: Path | None
) -> None:
    """Print the value of each key, and how many other pairs have the same key; as JSON with the table's name in it.

    A query that says nothing has no values: its line stays empty.
    """
    from regard.database.answer import jsonable

    if json_of:
        answers = [
            {"query": jsonable(query), "value": jsonable(next(iter(values), None)), "values": jsonable(values)}
            for query, values in zip(queries, found, strict=True)
        ]
        question = {"table": str(json_of), "key": database.key_names, "value": database.value_names}
        print_json({**question, "notes": list(database.notes), "answers": answers})
        return
    for values in found:
        first = next(iter(values), None)
        cells = first.values() if isinstance(first, dict) and len(database.value_names) > 1 else [first]
        # A line for a query, a tab between cells: what stands in a cell besides is as it was written.
        texts = ("" if cell is None else " ".join(re.split(r"\t|\r\n?|\n", str(cell))) for cell in cells)
        write("\t".join(texts) + "\n")
        if len(values) > 1:
            log.print(f"{len(values):,} pairs have that key: this is the first.", style="dim")
    for note in database.notes:
        log.print(note, style="dim", markup=False, soft_wrap=True)
