"""What attention costs, and additive attention at a size that the plain formula cannot hold."""

from __future__ import annotations

from html import escape

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import power
from regard.planner import readable_bytes


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["large"]
    return {
        "n_queries": f"{told['n_queries']:,}",
        "n_keys": f"{told['n_keys']:,}",
        "hidden": str(told["hidden_dim"]),
        "eager": readable_bytes(told["eager_bytes"]),
        "planned": readable_bytes(told["plan_bytes"]),
        "engine": escape(told["engine"]),
        "n_computed": f"{told['n_computed']:,}",
        "n_checked": str(told["n_checked"]),
        "seconds": f"{told['seconds']:.1f}",
        "difference": power(told["largest_difference_from_formula"]),
    }


CHAPTER = Chapter("size", "Attention that would not fit", ("large",), fill=fill)
