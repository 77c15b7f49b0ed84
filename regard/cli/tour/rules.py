"""Stop 3: the same rows under conic, convex, one-hot and uniform weights."""

from __future__ import annotations

import torch
from rich.text import Text

from regard import Conic, Epanechnikov, OneHot, Proportional, Uniform, weigh
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import GPAS, SALARIES
from regard.database.render import bar

QUERY, RADIUS = 3.5, 0.55


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


def picture(numbers: Numbers) -> list[Text | str]:
    rules = numbers["rules"]
    lines: list[Text | str] = [
        Text("GPA   " + "".join(f"{rule['kind']:<18}" for rule in rules), style="bold"),
        Text("      " + "".join(f"{rule['rule'] + '()':<18}" for rule in rules), style="dim"),
    ]
    for position, key in enumerate(numbers["keys"]):
        line = Text(f"{key:.1f}   ")
        for rule in rules:
            weight = rule["weights"][position]
            line.append(f"{weight:.2f} ", "" if weight else "dim").append(f"{bar(weight, 12):<13}", "gold1")
        line.rstrip()
        lines.append(line)
    lines.append(Text("Σ α   " + "".join(f"{rule['sum']:<18.2f}" for rule in rules).rstrip(), style="bold"))
    lines.append(Text("Σ αv  " + "".join(f"{rule['output']:<18,.0f}" for rule in rules).rstrip(), style="bold"))
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
