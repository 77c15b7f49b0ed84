"""The table of what runs where, made by asking the engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from regard.engines import ENGINES
from regard.errors import ScoreError
from regard.testing.cases import MASKS, RULES, SCORES, Case

PAGE = Path("docs/scores-and-rules.md")  # within the repository
START = "<!-- support tables: python -m regard.testing.support_table -->"
END = "<!-- end of support tables -->"


def support_tables() -> str:
    """Two tables in Markdown: which engines take each score under each rule, and under each mask."""
    legend = ", ".join(f"{engine.letter} = `{name}`" for name, engine in ENGINES.items())
    return "\n".join(
        [
            f"Engines that take a score (rows) under a rule (columns), without a mask: {legend}; "
            "– raises `ScoreError`.",
            "",
            *_table("score", SCORES, RULES, lambda score, rule: _takers(Case(score, rule, "no mask"))),
            "",
            "Engines that take a mask, for a scaled dot product and for an additive score under softmax:",
            "",
            *_table(
                "mask",
                MASKS,
                ("ScaledDot", "Additive"),
                lambda mask, score: _takers(Case(score, "Softmax", mask)),
            ),
        ]
    )


def _takers(case: Case) -> str:
    try:
        problem = case.make(case.dtype)
    except ScoreError:
        return "–"
    return "".join(engine.letter for engine in ENGINES.values() if not engine.refusals(problem))


def _table(corner: str, rows: Iterable[str], columns: Iterable[str], cell: Callable[[str, str], str]) -> list[str]:
    columns = list(columns)
    lines = [f"| {corner} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [f"| {row} | {' | '.join(cell(row, column) for column in columns)} |" for row in rows]
    return lines


def main() -> None:
    """Write the tables into their page, between its markers."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """The text with the tables of today between its markers."""
    head, start, rest = text.partition(START)
    _, end, tail = rest.partition(END)
    return f"{head}{start}\n\n{support_tables()}\n\n{end}{tail}"


if __name__ == "__main__":
    main()
