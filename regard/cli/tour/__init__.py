"""`regard tour`: the documents, walked through in the terminal, with every number computed live.

A file a stop. Each stop measures first (with regard's public functions) and then draws only what it measured, so the
picture and `--json` cannot differ.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from regard.cli.console import print_json

EXAMPLES = """\
[bold]Examples[/bold]
  regard tour
  regard tour --plain | less
  regard tour --json > numbers.json
"""


def tour(
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, without the pictures.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No colour, for pipes and files (as NO_COLOR does).")] = False,
) -> None:
    """Walk through attention, with every number computed live."""
    # The stops import torch, which takes seconds: not before the command runs.
    from regard.cli.tour.guide import NARROWEST, WIDTH, farewell, show, welcome
    from regard.cli.tour.stops import STOPS

    if as_json:
        print_json({stop.name: stop.measure() for stop in STOPS})
        return
    page = Console(highlight=False, emoji=False, color_system=None if plain else "auto")
    page.width = width = min(max(page.width, NARROWEST), WIDTH)
    page.print(welcome(width))
    for number, stop in enumerate(STOPS, start=1):
        page.print(show(number, stop, width))
    page.print(farewell(width))
