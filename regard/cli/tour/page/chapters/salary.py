"""A similarity that fades: the salary that a GPA suggests, with the query and the bandwidth as sliders."""

from __future__ import annotations

import math
from html import escape

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.view.drawing import percent


def bandwidth(told: Numbers) -> float:
    """σ of the Gaussian that weighed the rows, from two of its weights: ln α/α′ = (u′² − u²) / 2σ²."""
    weight = dict(zip(told["keys"], told["weights"], strict=True))
    return 0.1 / math.sqrt(2 * math.log(weight[3.5] / weight[3.4]))


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["salary"]
    weight = dict(zip(told["keys"], told["weights"], strict=True))
    return {
        "answer": f"{told['value']:,.0f}",
        "spread": f"{told['std']:,.0f}",
        "bandwidth": f"{bandwidth(told):.3f}",
        "near": f"{sum(weight[key] for key in (3.4, 3.5, 3.6)):.0%}",
        "low": escape(percent(weight[3.0])),
        "high": escape(percent(weight[4.0])),
    }


def live(stops: Stops, _: Numbers) -> dict[str, object]:
    told = stops["salary"]
    return {"keys": told["keys"], "values": told["values"], "query": 3.5, "bandwidth": bandwidth(told)}


CHAPTER = Chapter("salary", "Similar instead of equal", ("salary",), fill=fill, live=live)
