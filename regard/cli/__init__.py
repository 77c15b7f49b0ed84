"""The command `regard`: a file a command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import typer.core

from regard import __version__
from regard.cli import ask, doctor, explore, pronounce, see, tour, warm_up
from regard.cli.console import ends_with_its_reader, print_error, usable_width
from regard.cli.option_errors import in_options
from regard.errors import RegardError
from regard.printable import on_one_line
from regard.progress import bars_are_drawn

CLICK_EXCEPTION: type[Exception] = typer.BadParameter.mro()[2]  # Of click, or of the copy in newer versions of typer.

EXAMPLES = """\
[bold]Examples[/bold]
  regard tour                                          attention, live
  regard ask grades.csv --key gpa --value salary 3.5   the average of similar rows
  regard see "The dog was happy, so it wagged its tail"   what each word attends to
  regard explore grades.csv                            all of it, to touch, in a browser
  regard doctor --json                                 for a bug report

[bold]Exit codes[/bold]
  0 done · 1 a mistake in the data · 2 a mistake in the usage
  130 interrupted · 141 the reader of the output has left
"""


class RegardGroup(typer.core.TyperGroup):
    """The commands of `regard`, in which a user's mistake is one line on stderr and never a traceback."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with ends_with_its_reader(), _said_printably():  # --help and --version are shown here.
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            with ends_with_its_reader(), _said_printably(), bars_are_drawn():
                return super().invoke(ctx)
        except RegardError as error:
            print_error(in_options(str(error)))
            raise typer.Exit(1) from error


@contextmanager
def _said_printably() -> Iterator[None]:
    """Let a mistake in the usage, which typer prints by itself, quote nothing that would steer a terminal."""
    try:
        yield
    except CLICK_EXCEPTION as error:
        error.message = on_one_line(error.message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="regard",
    cls=RegardGroup,
    help="Attention(q, D) = Σ α(q, k) v: inspect it, and query your own tables by it.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options that stand before a command."""


app.command("tour", epilog=tour.EXAMPLES)(tour.tour)
app.command("ask", cls=ask.AskCommand, epilog=ask.EXAMPLES)(ask.ask)
app.command("see", epilog=see.EXAMPLES)(see.see)
app.command("explore", epilog=explore.EXAMPLES)(explore.explore)
app.command("pronounce", epilog=pronounce.EXAMPLES)(pronounce.pronounce)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("warm-up", epilog=warm_up.EXAMPLES)(warm_up.warm_up)


def main() -> None:
    """Run the command line."""
    # torch reads this when it is imported. Its threads spin where they wait for each other, and on a machine that is
    # busy with other work they then wait for the spinning: additive attention took 20 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # NumPy is optional here; torch warns of its absence.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    if usable_width() is not None:
        del os.environ["COLUMNS"]  # It is 0, or no number: --help would print nothing.
    if sys.stdin is None:
        # Closed by whoever ran us: then there is nothing to read, and no other file may take its place.
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        print_error("standard output could not be written (it is closed).")
        raise SystemExit(1)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no letter for α or █ shows a question mark in its place: no reason to die.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="regard")
