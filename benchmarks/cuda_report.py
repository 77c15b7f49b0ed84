"""What the documents show of GPUs, from `benchmarks/results/cuda.json`: python -m benchmarks.cuda_report.

It writes the table of docs/performance.md and draws docs/speed-gpu.svg, with the rows that the results have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.cuda import ROWS, Row
from benchmarks.cuda_contests import OURS, READING

NAME = "cuda"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- times on a GPU, by python -m benchmarks.cuda_report -->\n", "<!-- end of times on a GPU -->"

LARGE, LONG, SMALL, CHANNELS = "(4, 16, 4096, 128)", "(1, 16, 16384, 64)", "(2, 8, 2048, 64)", "(16, 2048, 64)"
LABELS = {  # work and size; a row that is not here goes by its name
    "dot": ("dot softmax", LARGE),
    "causal": ("causal", LARGE),
    "gated": ("gated", LARGE),
    "soft-capped": ("soft-capped", LARGE),
    "ALiBi": ("ALiBi", LARGE),
    "causal and gated": ("causal and gated", LARGE),
    "window": ("window of 256", LONG),
    "selected": ("64 selected keys", LONG),
    "Gaussian": ("Gaussian", SMALL),
    "sigmoid": ("sigmoid", SMALL),
    "conic": ("conic", SMALL),
    "decoding": ("decoding, 32 heads on 8", "131,072 keys of 128"),
    "decoding, soft-capped": ("decoding, soft-capped", "131,072 keys of 128"),
    "one query": ("one query, Gaussian, float32", "4,000,000 keys of 128"),
    "additive": ("additive, hidden 64, float32", CHANNELS),
    "additive in bfloat16": ("additive in bfloat16", CHANNELS),
    "Laplacian": ("Laplacian, float32", CHANNELS),
    "sparsemax": ("sparsemax", SMALL),
    "entmax": ("entmax 1.5", SMALL),
    "top-k": ("top-k 32", SMALL),
}


def table() -> str:
    """Every row in Markdown: milliseconds of both, forward and forward + backward, and how many times faster we are.

    A peer that computes the same and is faster than the one that was asked about is named last.
    """
    rows = results.read(NAME)["rows"]
    lines = ["| work | regard, ms | peer, ms | times faster | asked | a faster peer, ms |", "|---|---|---|---|---|---|"]
    lines += [_line(row, rows[row.name]) for row in ROWS if "forward" in rows.get(row.name, {})]
    return "\n".join(lines)


def _line(row: Row, found: Mapping[str, Any]) -> str:
    seconds = [found[each]["seconds"] for each in ("forward", "training") if each in found]
    ours, theirs = ([f"{1e3 * each[name]:.3g}" for each in seconds] for name in (OURS, row.peer))
    faster = [f"{each[row.peer] / each[OURS]:.2f}" for each in seconds]
    asked = [f"{1 / most:.2f}" for most in row.at_most if most is not None]
    rivals = {name: each for name, each in seconds[0].items() if not name.startswith(OURS) and name != READING}
    best = min(rivals, key=rivals.__getitem__, default=row.peer)
    others = []
    if row.peer in rivals and best != row.peer:
        times = [f"{1e3 * each[best]:.3g}" for each in seconds]
        others = [f"{best} {times[0]}", *times[1:]]
    shown = ("; ".join(each) for each in (ours, [f"{row.peer} {theirs[0]}", *theirs[1:]], faster, asked, others))
    return f"| {row.name} | {' | '.join(shown)} |"


def with_table(text: str) -> str:
    """The text with the table between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{table()}\n{END}{tail}"


def rows_to_draw(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows as `figures.draw_speed` takes them: a label, the times, and who computes the same as we do."""
    rows = {}
    for name, row in found.items():
        seconds = {each: row[each]["seconds"] for each in ("forward", "training") if each in row}
        if seconds:  # neither one that failed nor a figure of its own, as memory
            work, size = LABELS.get(name, (name, ""))
            same = [each for each in seconds["forward"] if each != READING]
            rows[name] = {"work": work, "size": size, "same": same, "figures": seconds}
    return rows


def write_table() -> None:
    """Write the table into its page, if there are results."""
    if results.read(NAME):
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Write and draw."""
    from benchmarks import figures  # which needs matplotlib, and this module

    write_table()
    for path in figures.draw_gpu():
        print(path)


if __name__ == "__main__":
    main()
