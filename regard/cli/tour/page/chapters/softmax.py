"""Softmax: what it makes of scores, how it amplifies, and where its gradient ends in floats."""

from __future__ import annotations

import torch

from regard import Bias, Dot, Proportional, Softmax, attend, weigh
from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import bars

SCORES, NAMES = [4.0, 3.0, 2.0, 1.0], ["a₁ = 4", "a₂ = 3", "a₃ = 2", "a₄ = 1"]
FAR = 110.0  # between two scores, in float32


def measure() -> Numbers:
    nothing, ones = torch.zeros(1, 1), torch.ones(len(SCORES), 1)
    score = Dot() + Bias(torch.tensor([SCORES]))
    rows = {
        type(rule).__name__: weigh(nothing, torch.zeros(len(SCORES), 1), ones, score=score, weights=rule).dense()[0]
        for rule in (Proportional(), Softmax())
    }
    gap = torch.tensor([[FAR, 0.0]], requires_grad=True)
    output = attend(nothing, torch.zeros(2, 1), torch.tensor([[1.0], [0.0]]), score=Dot() + Bias(gap))
    (gradient,) = torch.autograd.grad(output.sum(), gap)
    return {
        "shares": rows["Proportional"].tolist(),
        "softmax": rows["Softmax"].tolist(),
        "gap": FAR,
        "gradient": gradient.abs().max().item(),
    }


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    return {
        "shares": bars(NAMES, own["shares"], "Scores divided by their sum.", largest=0.65),
        "amplified": bars(NAMES, own["softmax"], "The same scores under softmax.", largest=0.65),
        "share": f"{own['shares'][0]:.0%}",
        "most": f"{own['softmax'][0]:.0%}",
        "least_share": f"{own['shares'][-1]:.0%}",
        "least": f"{own['softmax'][-1]:.0%}",
        "ratio": f"{own['softmax'][0] / own['softmax'][1]:.3f}",
        "gap": f"{own['gap']:.0f}",
        "gradient": f"{own['gradient']:g}",
        "total": f"{sum(own['softmax']):g}",
        "scores_total": f"{sum(SCORES):g}",
    }


def live(_: Stops, own: Numbers) -> dict[str, object]:
    return {"scores": SCORES, "names": NAMES}


CHAPTER = Chapter("softmax", "Softmax", (), measure, fill, live)
