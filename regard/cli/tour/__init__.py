"""`regard tour`: the documents, walked through in the terminal, with every number computed live.

A file a stop. Each stop measures first (with regard's public functions) and then draws only what it measured, so the
picture, the page and `--json` cannot differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from regard.cli.console import has_colour, print_json
from regard.cli.saving import extension_of, save_text, saving

EXAMPLES = """\
[bold]Examples[/bold]
  regard tour
  regard tour -o attention.html
  regard tour --plain --no-page | less
  regard tour --json > numbers.json
"""

PAGE = Path("tour.html")


def tour(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Where the page goes; {PAGE} if left out.", show_default=False),
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Write no page.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON, without the pictures; a page only with -o.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No colour, for pipes and files (as NO_COLOR does).")] = False,
) -> None:
    """Walk through attention, with every number computed live, and save it as an offline HTML page."""
    if output is not None:
        extension_of(output, ("html",))
        if no_page:
            raise typer.BadParameter(f"--no-page and --output must not stand together: got both, with {output}.")
    # The stops import torch, which takes seconds: not before the command runs.
    from regard.cli.tour.guide import NARROWEST, WIDTH, farewell, measured, show, welcome
    from regard.cli.tour.stops import STOPS

    numbers = []
    if as_json:
        numbers = [measured(stop) for stop in STOPS]
        print_json({stop.name: each for stop, each in zip(STOPS, numbers, strict=True)})
    else:
        console = Console(highlight=False, emoji=False, color_system=None if plain else "auto")
        console.width = width = min(max(console.width, NARROWEST), WIDTH)
        colour = has_colour(console)
        console.print(welcome(width))
        for place, stop in enumerate(STOPS, start=1):
            numbers.append(measured(stop))
            console.print(show(place, stop, numbers[-1], width, colour))
        console.print(farewell(width))
    if output is None and not (no_page or as_json):
        output = PAGE
    if output is not None:
        # The page has text, figures and numbers of its own besides the stops'.
        from regard.cli.tour.page import tour_page

        with saving(output) as file:
            save_text(tour_page({stop.name: each for stop, each in zip(STOPS, numbers, strict=True)}), file)
