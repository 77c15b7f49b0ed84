"""The cover: one query, four keys, their weights and values, and the sum, with the numbers."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import torch

from regard import Gaussian, Softmax, weigh
from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import arrow, box, line, svg, write
from regard.view.drawing import percent

QUERY, KEYS, VALUES, BANDWIDTH = 3.5, [3.0, 3.4, 3.6, 4.0], [59_000, 67_000, 71_000, 84_000], 0.2


def measure() -> Numbers:
    q, k = torch.tensor([[QUERY]], dtype=torch.float64), torch.tensor(KEYS, dtype=torch.float64)[:, None]
    v = torch.tensor(VALUES, dtype=torch.float64)[:, None]
    score = Gaussian(BANDWIDTH)
    view = weigh(q, k, v, score=score, weights=Softmax())
    return {"scores": score(q, k)[0].tolist(), "weights": view.dense()[0].tolist(), "output": view.output.item()}


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    return {"diagram": diagram(own), "output": f"{own['output']:,.0f}"}


def diagram(own: Numbers) -> str:
    """q is compared with each key; softmax makes weights of the scores; the weights gather the values."""
    heads = [(22, "query"), (102, "keys"), (160, "scores"), (224, "weights"), (290, "values"), (372, "sum")]
    signs = [(22, "q"), (102, "kᵢ"), (160, "a(q, kᵢ)"), (224, "α(q, kᵢ)"), (290, "vᵢ"), (372, "Σ αᵢvᵢ")]
    parts = [write(x, 14, head, "ink strong", "middle") for x, head in heads]
    parts += [write(x, 30, sign, "quiet formula", "middle") for x, sign in signs]
    top, step = 52.0, 44.0
    middle = top + 1.5 * step + 13
    parts.append(box(1, middle - 15, 42, 30, "query", rx=6))
    parts.append(write(22, middle + 4, f"{QUERY}", "on-query strong", "middle"))
    largest = max(own["weights"])
    for place, (key, value) in enumerate(zip(KEYS, VALUES, strict=True)):
        y = top + place * step
        weight = own["weights"][place]
        parts += arrow(46, middle, 80, y + 13, "line")
        parts.append(box(82, y, 40, 26, "key", rx=6))
        parts.append(write(102, y + 17, f"{key:.1f}", "on-key", "middle"))
        parts.append(write(160, y + 17, f"{own['scores'][place]:.2f}".replace("-", "−"), "ink number", "middle"))
        parts.append(box(196, y + 3, 56 * weight / largest, 10, "bar", rx=2))
        parts.append(write(196, y + 25, percent(weight), "ink number small"))
        parts.append(box(264, y, 52, 26, "value", rx=6))
        parts.append(write(290, y + 17, f"{value:,}", "on-value", "middle"))
        parts.append(_thread(317, y + 13, 346, middle, weight / largest))
    parts.append(box(346, middle - 15, 54, 30, "answer", rx=6))
    parts.append(write(373, middle + 4, f"{own['output']:,.0f}", "on-answer strong", "middle"))
    parts.append(line(132, top + 4 * step - 4, 186, top + 4 * step - 4, "line"))
    parts.append(write(159, top + 4 * step + 12, "compare", "quiet small", "middle"))
    parts.append(line(196, top + 4 * step - 4, 252, top + 4 * step - 4, "line"))
    parts.append(write(224, top + 4 * step + 12, "softmax", "quiet small", "middle"))
    parts.append(line(264, top + 4 * step - 4, 400, top + 4 * step - 4, "line"))
    parts.append(write(332, top + 4 * step + 12, "gather", "quiet small", "middle"))
    told = "A query is compared with four keys; softmax turns the scores into weights; the weights gather the values."
    return svg(top + 4 * step + 18, parts, told)


def _thread(x: float, y: float, to_x: float, to_y: float, share: float) -> Element:
    return line(x, y, to_x, to_y, "thread", stroke_width=0.6 + 5 * share)


CHAPTER = Chapter("cover", "Attention", measure=measure, fill=fill)
