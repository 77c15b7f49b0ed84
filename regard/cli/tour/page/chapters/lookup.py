"""Queries, keys and values: a lookup, its one-hot row, and the same table asked the other way round."""

from __future__ import annotations

from html import escape

from regard import Database
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import MAJORS
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import arrow, box, svg, write

QUERY = "John Doe"
SAME = {**MAJORS, "Ann Poe": "psychology"}  # a second student of the same major
MAJOR = "psychology"


def measure() -> Numbers:
    by_major = Database.from_dict(SAME).swap()
    answer = by_major.attend(MAJOR)
    return {"swapped": [{"name": row.value, "weight": row.weight} for row in answer.rows if row.weight]}


def fill(stops: Stops, own: Numbers) -> dict[str, str]:
    lookup = stops["lookup"]
    weights = [0.0] * len(SAME)
    for row in own["swapped"]:
        weights[list(SAME).index(row["name"])] = row["weight"]
    return {
        "query": escape(lookup["query"]),
        "answer": escape(lookup["answer"]),
        "one_hot": "(" + ", ".join(f"{weight:.0f}" for weight in lookup["weights"]) + ")",
        "table": table(lookup["query"], lookup["keys"], lookup["values"], lookup["weights"], ("name", "major")),
        "swapped": table(MAJOR, list(SAME.values()), list(SAME), weights, ("major", "name")),
        "found": " and ".join(f"{escape(row['name'])} ({row['weight']:.0%})" for row in own["swapped"]),
        "n_found": str(len(own["swapped"])),
    }


def table(query: str, keys: list[str], values: list[str], weights: list[float], heads: tuple[str, str]) -> str:
    """The query beside the keys, a weight for each, and the value that it lets through."""
    parts = [write(0, 14, "query", "quiet small")]
    parts += [write(x, 14, head, "quiet small") for x, head in ((124, f"key: {heads[0]}"), (294, f"value: {heads[1]}"))]
    parts.append(write(252, 14, "weight", "quiet small", "middle"))
    step, top = 32.0, 24.0
    middle = top + step * (len(keys) / 2) - 3
    parts += [box(0, middle - 14, 84, 28, "query", rx=6), write(42, middle + 4, query, "on-query", "middle")]
    for place, (key, value, weight) in enumerate(zip(keys, values, weights, strict=True)):
        y = top + place * step
        parts += arrow(86, middle, 120, y + 13, "line" if weight else "faint")
        parts += [box(122, y, 100, 26, "key" if weight else "idle", rx=6)]
        parts += [write(172, y + 17, key, "on-key" if weight else "quiet", "middle")]
        parts += [write(252, y + 17, f"{weight:g}", "ink strong" if weight else "quiet", "middle")]
        parts += [box(292, y, 108, 26, "value" if weight else "idle", rx=6)]
        parts += [write(346, y + 17, value, "on-value" if weight else "quiet", "middle")]
        if weight:
            parts += arrow(266, y + 13, 289, y + 13)
    told = ", ".join(f"{key} {weight:g}" for key, weight in zip(keys, weights, strict=True))
    return svg(top + step * len(keys), parts, f"The query {query} and the weight of each key: {told}.")


CHAPTER = Chapter("lookup", "Queries, keys and values", ("lookup",), measure, fill)
