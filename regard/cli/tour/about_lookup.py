"""Stop 1: a lookup is attention whose weights are a one-hot row."""

from __future__ import annotations

from rich.text import Text

from regard import Database, OneHot
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import MAJORS
from regard.view.drawing import BAR_COLOUR, bar


def measure() -> Numbers:
    students = Database.from_dict(MAJORS)
    major = students.lookup("John Doe")
    answer = students.attend("John Doe", weights=OneHot())
    # An answer lists the pairs that mattered: the others weigh nothing.
    weight = {row.key: row.weight for row in answer.rows}
    return {
        "query": answer.query,
        "answer": major,
        "keys": list(MAJORS),
        "values": list(MAJORS.values()),
        "weights": [weight.get(key, 0.0) for key in MAJORS],
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = []
    for key, value, weight in zip(numbers["keys"], numbers["values"], numbers["weights"], strict=True):
        style = "bold" if weight else "dim"
        lines.append(
            Text.assemble((f"{key:<11}{weight:.0f} ", style), (f"{bar(weight, 8):<10}", BAR_COLOUR), (value, style))
        )
    lines.append(Text.assemble("\n", (f"{numbers['query']} → {numbers['answer']}", "bold")))
    return lines


STOP = Stop(
    name="lookup",
    title="A lookup is attention",
    text="""
        Attention(q, D) = Σᵢ similarity(q, kᵢ) vᵢ. Where similarity is 1 for the key that equals the query and 0
        for all others, the row of weights is one-hot, and attention is what a database does.
    """,
    code='students = Database.from_dict(MAJORS)\nmajor = students.lookup("John Doe")',
    measure=measure,
    picture=picture,
)
