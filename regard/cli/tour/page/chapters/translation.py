"""A Transformer, trained while the page is made, translates."""

from __future__ import annotations

from html import escape

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import matrix
from regard.wording import told_apart


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["transformer"]
    return {
        "picture": matrix(
            told["matrix"],
            told_apart(told["written"]),
            told_apart(told["source"]),
            "What each word that is written attends to among the words read.",
            room=80,
            most=46,
        ),
        "source": escape(told["sentence"]),
        "written": escape(" ".join(told["written"])),
        "n_learned": f"{told['n_learned']:,}",
        "steps": str(told["steps"]),
        "seconds": f"{told['seconds']:.1f}",
        "n_unseen": str(told["n_unseen"]),
        "n_right": str(told["n_right"]),
    }


CHAPTER = Chapter("translation", "A Transformer translates", ("transformer",), fill=fill)
