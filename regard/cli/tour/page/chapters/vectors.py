"""Words as vectors: neighbours and an analogy in GloVe's, measured."""

from __future__ import annotations

from html import escape

from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import word_vectors
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import bars

WORDS = ("dog", "happy")


def measure() -> Numbers:
    known = word_vectors()
    near = {word: [(each.word, each.similarity) for each in known.neighbours(word, k=5)] for word in WORDS}
    found = known.analogy(plus=["king", "woman"], minus=["man"], k=1)[0].word
    return {"n_words": len(known), "dim": known.dim, "near": near, "analogy": found}


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    figures = {
        f"near_{word}": bars(
            [name for name, _ in near],
            [cosine for _, cosine in near],
            f"The words nearest to {word}.",
            largest=1.0,
            tell="{:.2f}".format,
        )
        for word, near in own["near"].items()
    }
    return {
        **figures,
        "n_words": f"{own['n_words']:,}",
        "dim": str(own["dim"]),
        "analogy": escape(own["analogy"]),
    }


CHAPTER = Chapter("vectors", "Words become vectors", (), measure, fill)
