"""Draws docs/terminal.svg, the picture of docs/tables.md, from what the command prints: `python docs/pictures.py`."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
ASK = ["ask", "examples/graduates.csv", "--key", "gpa", "--value", "salary", "--index", "student", "3.5"]


def run(*arguments: str) -> str:
    """What `regard` prints."""
    command = [sys.executable, "-m", "regard", *arguments]
    colour = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(
        command, cwd=HERE.parent, env=colour, check=True, capture_output=True, text=True
    ).stdout.rstrip()


def stop(tour: str, number: int) -> str:
    """One stop of the tour, without its lines of code."""
    lines = tour.splitlines()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    first, last = (
        next(i for i, line in enumerate(plain) if line.startswith(start)) for start in (f"{number}  ", "   The row of")
    )
    return "\n".join(lines[first:last]).rstrip()


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=80, file=io.StringIO(), color_system="truecolor")
    for prompt, output in ((" ".join(ASK), run(*ASK)), ("tour", stop(run("tour", "--no-page"), 6))):
        console.print(Text("$ ", "bold green") + Text(f"regard {prompt}", "bold"))
        console.print(Text.from_ansi(output))
        console.print()
    svg = console.export_svg(title="regard")
    # The template would fetch a font from elsewhere; any monospaced one will do.
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "DejaVu Sans Mono, Menlo, Consolas"
    )
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)  # or viewers drop the spaces that indent a line
    (HERE / "terminal.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
