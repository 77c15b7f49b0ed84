"""`regard tour`: the documents, walked through in the terminal, with every number computed live."""

from __future__ import annotations

EXAMPLES = """\
[bold]Examples[/bold]
  regard tour
  regard tour --plain | less
  regard tour --json > numbers.json
"""


def tour() -> None:
    """Walk through attention, with every number computed live."""
