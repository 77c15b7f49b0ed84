"""Stop 3: the same rows under conic, convex, one-hot and uniform weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.text import Text

from regard import Conic, Epanechnikov, OneHot, Proportional, Uniform, weigh
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import GPAS, SALARIES
from regard.view.drawing import BAR_COLOUR, bar

QUERY, RADIUS = 3.5, 0.55
COLUMN, BETWEEN = 18, 1


def measure() -> Numbers:
    q, k = torch.tensor([[QUERY]], dtype=torch.float64), torch.tensor(GPAS, dtype=torch.float64)[:, None]
    v = torch.tensor(SALARIES, dtype=torch.float64)[:, None]
    score = Epanechnikov(RADIUS)
    rules = []
    for rule in (Conic(), Proportional(), OneHot(), Uniform()):
        view = weigh(q, k, v, score=score, weights=rule)
        weights = view.dense()[0].tolist()
        rules.append(
            {
                "rule": type(rule).__name__,
                "kind": view.kind,
                "weights": weights,
                "sum": sum(weights),
                "output": view.output.item(),
            }
        )
    return {"query": QUERY, "radius": RADIUS, "keys": GPAS, "rules": rules}


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = []
    # As many rules side by side as there is room for, the others below.
    room = max((width - 6 + BETWEEN) // COLUMN, 1)
    for start in range(0, len(numbers["rules"]), room):
        lines += [*([""] if start else []), *_side_by_side(numbers["keys"], numbers["rules"][start : start + room])]
    return lines


def _side_by_side(keys: Sequence[float], rules: Sequence[Numbers]) -> list[Text | str]:
    lines: list[Text | str] = [
        Text("GPA   " + "".join(f"{rule['kind']:<{COLUMN}}" for rule in rules).rstrip(), style="bold"),
        Text("      " + "".join(f"{rule['rule'] + '()':<{COLUMN}}" for rule in rules).rstrip(), style="dim"),
    ]
    for position, key in enumerate(keys):
        line = Text(f"{key:.1f}   ")
        for rule in rules:
            weight = rule["weights"][position]
            line.append(f"{weight:.2f} ", "" if weight else "dim").append(f"{bar(weight, 12):<13}", BAR_COLOUR)
        line.rstrip()
        lines.append(line)
    lines.append(Text("Σ α   " + "".join(f"{rule['sum']:<{COLUMN}.2f}" for rule in rules).rstrip(), style="bold"))
    lines.append(Text("Σ αv  " + "".join(f"{rule['output']:<{COLUMN},.0f}" for rule in rules).rstrip(), style="bold"))
    return lines


STOP = Stop(
    name="rules",
    title="The same rows, four kinds of weights",
    text="""
        α ≥ 0 is conic: the output lies in the cone of the values. With Σα = 1 it is convex: an average. One 1
        among 0s is a database query. All α = 1/m is average pooling. Here a(q, k) = max(0, 1 − u²) with
        u = |q − k| / {radius}, for q = {query}.
    """,
    code="view = weigh(q, k, v, score=score, weights=rule)",
    measure=measure,
    picture=picture,
)
