"""Stop 2: the salary that a GPA of 3.5 suggests, and the rows behind it."""

from __future__ import annotations

from rich.text import Text

from regard import Database
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import GPAS, SALARIES
from regard.view.drawing import BAR_COLOUR, bar, percent


def measure() -> Numbers:
    engineers = Database({"gpa": GPAS}, {"salary": SALARIES})
    answer = engineers.attend(3.5)
    weight = {row.key: row.weight for row in answer.rows}
    return {
        "query": answer.query,
        "value": answer.value,
        "std": answer.std,
        "similarity": answer.similarity,
        "keys": GPAS,
        "values": SALARIES,
        "weights": [weight.get(key, 0.0) for key in GPAS],
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = [Text(" GPA   salary  weight", style="dim")]
    largest = max(numbers["weights"])
    for key, value, weight in zip(numbers["keys"], numbers["values"], numbers["weights"], strict=True):
        line = Text(f" {key:.1f}  {value:>7,}  {percent(weight):>6}  ")
        lines.append(line.append(bar(weight / largest, min(width - 23, 40)), BAR_COLOUR))
    answer = f"{numbers['query']} → {numbers['value']:,.0f} ± {numbers['std']:,.0f}"
    lines.append(Text.assemble("\n", (answer, "bold"), (f"\n{numbers['similarity']}", "dim")))
    return lines


STOP = Stop(
    name="salary",
    title="What salary does a GPA of 3.5 suggest?",
    text="""
        Let similarity(q, kᵢ) fade with distance instead. GPAs of 3.4 to 3.6 weigh most, 3.0 and 4.0 a little, and
        the answer is the weighted average of the salaries, with the rows behind it. (The rows are invented.)
    """,
    code='engineers = Database({"gpa": GPAS}, {"salary": SALARIES})\nanswer = engineers.attend(3.5)',
    measure=measure,
    picture=picture,
)
