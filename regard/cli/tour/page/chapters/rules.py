"""Other rules: what sparsemax, entmax, top-k and one-hot make of the same scores."""

from __future__ import annotations

import torch

from regard import Bias, Dot, Entmax, OneHot, Softmax, Sparsemax, TopK, weigh
from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import matrix

SCORES = [2.0, 1.6, 1.2, 0.4, -0.5, -1.5]
RULES = {
    "softmax": Softmax(),
    "entmax 1.5": Entmax(1.5),
    "sparsemax": Sparsemax(),
    "top 2": TopK(2),
    "one-hot": OneHot(),
}


def measure() -> Numbers:
    q, k = torch.zeros(1, 1), torch.zeros(len(SCORES), 1)
    score = Dot() + Bias(torch.tensor([SCORES]))
    return {name: weigh(q, k, k, score=score, weights=rule).dense()[0].tolist() for name, rule in RULES.items()}


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    zeros = {name: sum(weight == 0 for weight in row) for name, row in own.items()}
    return {
        "picture": matrix(
            list(own.values()),
            list(own),
            [f"{score:g}".replace("-", "−") for score in SCORES],
            "The weights of six scores under five rules.",
            room=80,
            most=50,
        ),
        "sparsemax_zeros": str(zeros["sparsemax"]),
        "entmax_zeros": str(zeros["entmax 1.5"]),
        "n": str(len(SCORES)),
    }


CHAPTER = Chapter("rules", "Instead of softmax", (), measure, fill)
