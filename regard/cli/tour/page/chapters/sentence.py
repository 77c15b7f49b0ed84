"""The sentence as an attention matrix, and the row of any of its words."""

from __future__ import annotations

from html import escape

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import matrix


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["sentence"]
    place = told["words"].index(told["query"])
    row = told["matrix"][place]
    order = sorted(range(len(row)), key=lambda each: -row[each])
    return {
        "sentence": escape(told["sentence"]),
        "n": str(len(told["words"])),
        "dim": str(told["dim"]),
        "first_weight": f"{row[order[0]]:.0%}",
        "others": ", ".join(f"{escape(told['words'][each])} {row[each]:.1%}" for each in order[1:4]),
        "picture": matrix(
            told["matrix"],
            told["words"],
            told["words"],
            "Each of the fourteen words as a query, all of them as keys.",
            selected=place,
            name="sentence-map",
        ),
    }


def live(stops: Stops, _: Numbers) -> dict[str, object]:
    told = stops["sentence"]
    return {"words": told["words"], "matrix": told["matrix"], "query": told["words"].index(told["query"])}


CHAPTER = Chapter("sentence", "A sentence attends to itself", ("sentence",), fill=fill, live=live)
