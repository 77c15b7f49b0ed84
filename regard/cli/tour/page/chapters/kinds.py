"""Kinds of weights, and where their outputs can lie: in the hull of the values, or in their cone."""

from __future__ import annotations

import math
from xml.etree.ElementTree import Element

import torch

from regard import Conic, Epanechnikov, Proportional, Uniform, weigh
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import seeded
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import arrow, line, matrix, node, svg, write

VALUES = [[1.0, 3.2], [1.6, 1.2], [3.4, 0.9], [4.2, 2.3], [2.6, 3.6]]
N_QUERIES = 160


def measure() -> Numbers:
    with seeded(3):
        q, k = 1.6 * torch.rand(N_QUERIES, 2) - 0.3, torch.rand(len(VALUES), 2)
    v, score = torch.tensor(VALUES), Epanechnikov(0.5)
    seen = {}
    for name, rule in (("convex", Proportional()), ("conic", Conic())):
        view = weigh(q, k, v, score=score, weights=rule)
        some = view.dense().sum(-1) > 0  # a query that is near no key has no weights
        seen[name] = view.output[some].tolist()
    mean = weigh(q[:1], k, v, score=score, weights=Uniform()).output[0].tolist()
    return {"values": VALUES, **seen, "mean": mean}


def fill(stops: Stops, own: Numbers) -> dict[str, str]:
    rules = stops["rules"]["rules"]
    keys = [f"{key:.1f}" for key in stops["rules"]["keys"]]
    rows = "".join(
        f"<tr><th scope='row'>{rule['kind']}</th><td>{rule['sum']:.2f}</td><td>{rule['output']:,.0f}</td></tr>"
        for rule in rules
    )
    return {
        "weights": matrix(
            [rule["weights"] for rule in rules],
            [rule["kind"] for rule in rules],
            keys,
            "The weights of nine GPAs under four rules: conic, convex, one-hot and uniform.",
        ),
        "sums": rows,
        "radius": f"{stops['rules']['radius']}",
        "hull": in_the_plane(own, "convex"),
        "cone": in_the_plane(own, "conic"),
        "n_convex": str(len(own["convex"])),
    }


def in_the_plane(own: Numbers, kind: str) -> str:
    """Five values as points, the region of all outputs of one kind, and measured outputs in it."""
    unit, left, bottom, height = 62.0 if kind == "convex" else 36.0, 30.0, 254.0, 276.0

    def at(point: tuple[float, float] | list[float]) -> tuple[float, float]:
        return left + unit * point[0], bottom - unit * point[1]

    parts = arrow(left, bottom, 396, bottom, "faint") + arrow(left, bottom, left, 6, "faint")
    parts.append(write(left - 6, bottom + 14, "0", "quiet small", "end"))
    if kind == "convex":
        corners = [at(each) for each in hull(own["values"])]
    else:
        ends = [min(own["values"], key=slope), max(own["values"], key=slope)]
        corners = [at([0.0, 0.0]), *(at(_long(each, 40.0)) for each in ends)]
    parts.append(_region(corners))
    if kind == "conic":
        parts += [line(*corners[0], *corner, "edge") for corner in corners[1:]]
    shown = [at(each) for each in own[kind]]
    parts += [node("circle", cx=x, cy=y, r=2.2, class_="dot") for x, y in shown if 0 < x < 400 and 0 < y < height]
    for place, value in enumerate(own["values"], start=1):
        x, y = at(value)
        if kind == "conic":
            parts.append(line(*at([0.0, 0.0]), x, y, "ray"))
        parts.append(node("circle", cx=x, cy=y, r=5, class_="value-dot"))
        parts.append(write(x + 8, y - 6, f"v{'₀₁₂₃₄₅'[place]}", "ink strong"))
    if kind == "convex":
        x, y = at(own["mean"])
        parts += [node("circle", cx=x, cy=y, r=5, class_="mean"), write(x, y + 20, "mean", "ink halo", "middle")]
    told = {
        "convex": "Outputs of convex weights lie inside the convex hull of the values.",
        "conic": "Outputs of nonnegative weights lie inside the cone that the values span from 0.",
    }
    body = node("g", "", *parts, clip_path=f"url(#frame-{kind})")
    frame = node("clipPath", "", node("rect", x=0, y=0, width=400, height=height), id=f"frame-{kind}")
    return svg(height, [frame, body], told[kind])


def hull(points: list[list[float]]) -> list[list[float]]:
    """The corners of the convex hull, in order around their mean; every point given here is one."""
    middle = [sum(each[axis] for each in points) / len(points) for axis in (0, 1)]
    return sorted(points, key=lambda each: math.atan2(each[1] - middle[1], each[0] - middle[0]))


def slope(point: list[float]) -> float:
    return point[1] / point[0]


def _long(point: list[float], length: float) -> list[float]:
    by = length / math.hypot(*point)
    return [by * each for each in point]


def _region(corners: list[tuple[float, float]]) -> Element:
    return node("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_="region")


CHAPTER = Chapter("kinds", "Four kinds of weights", ("rules",), measure, fill)
