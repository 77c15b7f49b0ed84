"""`regard explore`: a local page on which attention can be touched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import log, out
from regard.errors import MissingDependency

EXAMPLES = """\
[bold]Examples[/bold]
  regard explore
  regard explore grades.csv diamonds.parquet
  regard explore --model ./gpt2
  regard explore --no-browser --port 8310 --idle 30

[bold]Who can reach it[/bold]
  This machine alone, unless --host says otherwise, and only with the token
  in the address that is printed. Behind a proxy, or under another name:
  --allow-host NAME[:PORT]. Files are opened only if they are named here or
  dropped on the page; what is dropped is removed when the page ends.
"""


def explore(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(help="Tables to begin with: .csv, .tsv, .parquet, .feather or .arrow.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="The folder of a model of transformers; MiniLM if left out.", show_default=False),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; the first that is free from 8310 on, if left out.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="A name that browsers may call this page by. Repeatable.", show_default=False
        ),
    ] = None,
    idle: Annotated[
        float | None, typer.Option(min=0.01, help="End after so many minutes without a request.", show_default=False)
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Play with attention on a local page: its formula, your tables, your sentences, your model."""
    _check_files(tables or [], model)
    try:
        from regard.web.server import serve
        from regard.web.settings import Settings
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise MissingDependency(
            f"The page needs {name}. Install it with: pip install 'regard[web,tables,text]'"
        ) from None
    settings = Settings(tuple(tables or ()), model, tuple(allow_host or ()))
    serve(settings, host, port, idle=idle, browse=browser, announce=_announce)


def _check_files(tables: list[Path], model: Path | None) -> None:
    """A path that is wrong is said here, and not when a reader comes to it."""
    for table in tables:
        if not table.is_file():
            raise typer.BadParameter(f"a table must be a file: there is none at {table}.", param_hint="TABLES")
    if model is not None and not model.is_dir():
        raise typer.BadParameter(f"--model must be a folder: there is none at {model}.")


def _announce(address: str, is_opened: bool) -> None:
    out.print(address, markup=False, soft_wrap=True)
    how = "opened in your browser" if is_opened else "open it in a browser on this machine"
    log.print(f"{how}; Ctrl-C ends it", style="dim", markup=False)
