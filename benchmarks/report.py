"""What a run found, on a terminal and in `benchmarks/results/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import results

NAME = "attention"


def print_table(found: Mapping[str, Mapping[str, Any]], console: Console, *, judged: bool = True) -> None:
    """Every demand with what was got, and everything that failed.

    Args:
        found: Results by name, each with its demands, or with its error.
        console: Where to.
        judged: Whether to say what was reached; a quick run has other sizes than those that demands are about.
    """
    table = Table(title="What must be reached, and what was", title_justify="left")
    for column in ("work", "size", "what", "must reach", "got"):
        table.add_column(column, justify="right" if column in ("must reach", "got") else "left")
    for name, row in found.items():
        first = True
        for demand in row.get("demands", ()):
            style = "" if not judged else "green" if demand["reached"] else "red"
            mark = "" if not judged else " ✓" if demand["reached"] else " ✗"
            label = (row.get("work", name), row.get("size", "")) if first else ("", "")
            got = Text(f"{demand['shown']}{mark}", style)
            table.add_row(*label, demand["what"], demand["asked"], got)
            first = False
        if "error" in row:
            table.add_row(row.get("work", name), row.get("size", ""), Text(f"failed: {row['error']}", "red"), "", "")
        table.add_section()
    console.print(table)
    if judged:
        demands = [demand for row in found.values() for demand in row.get("demands", ())]
        reached = sum(demand["reached"] for demand in demands)
        console.print(
            f"{reached} of {len(demands)} reached, {sum('error' in row for row in found.values())} rows failed"
        )


def keep(found: Mapping[str, Mapping[str, Any]], name: str = NAME) -> None:
    """Write results; rows that were not measured this time stay, if they come from the same machine and versions."""
    known = results.read(name)
    rows = known.get("rows", {}) if known.get("machine") == results.machine() else {}
    results.write(name, {"rows": {**rows, **found}})
