"""Self-attention with its shapes, and one entry of QKᵀ worked in numbers."""

from __future__ import annotations

from html import escape

import torch

from regard import nn
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import seeded, sentence_vectors, words
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import arrow, box, power, svg, write
from regard.view.drawing import percent

D_Q, D_V = 4, 5
WIDER = 4.0  # than a new layer's matrices are: of numbers that two decimals can tell
QUERY, KEY = "happy", "dog"


def measure() -> Numbers:
    X = sentence_vectors()
    with seeded(21), torch.no_grad():
        layer = nn.SelfAttention(X.shape[1], key_dim=D_Q, value_dim=D_V)
        layer.W_Q.mul_(WIDER)
        layer.W_K.mul_(WIDER)
        Q, K, V = layer.project(X)
        α = layer.weigh(X).dense()
        S = layer(X)
    row, column = words().index(QUERY), words().index(KEY)
    return {
        "q": Q[row].tolist(),
        "k": K[column].tolist(),
        "entry": float(Q[row] @ K[column]),
        "scaled": float(Q[row] @ K[column]) / D_Q**0.5,
        "weight": α[row, column].item(),
        "shapes": {"n": X.shape[0], "d": X.shape[1], "d_Q": Q.shape[1], "d_V": V.shape[1], "S": list(S.shape)},
    }


def fill(stops: Stops, own: Numbers) -> dict[str, str]:
    shapes = own["shapes"]
    return {
        "entry_picture": worked(own),
        "shapes_picture": sizes(own),
        "difference": power(stops["self_attention"]["largest_difference_from_formula"]),
        "products": " + ".join(f"{_told(q)} · {_bracketed(k)}" for q, k in zip(own["q"], own["k"], strict=True)),
        "entry": _told(own["entry"]),
        "scaled": _told(own["scaled"]),
        "weight": escape(percent(own["weight"])),
        "n": str(shapes["n"]),
        "d": str(shapes["d"]),
        "d_Q": str(shapes["d_Q"]),
        "d_V": str(shapes["d_V"]),
    }


def _told(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def _bracketed(number: float) -> str:
    return f"({_told(number)})" if number < 0 else _told(number)


def worked(own: Numbers) -> str:
    """A row of Q times a column of Kᵀ: four products, their sum, its share of the row."""
    parts = []
    for down, (name, numbers, class_, ink) in enumerate(
        [
            (f"Q, row “{QUERY}”", own["q"], "query", "on-query"),
            (f"K, row “{KEY}”", own["k"], "key", "on-key"),
            ("products", [q * k for q, k in zip(own["q"], own["k"], strict=True)], "idle", "ink"),
        ]
    ):
        y = 10.0 + down * 44
        parts.append(write(118, y + 19, name, "ink", "end"))
        for across, number in enumerate(numbers):
            x = 128.0 + across * 68
            parts.append(box(x, y, 62, 28, class_, rx=6))
            parts.append(write(x + 31, y + 19, _told(number), f"{ink} number", "middle"))
            if down < 2:
                sign = "×" if down == 0 else "="
                parts.append(write(x + 31, y + 40, sign, "quiet", "middle"))
            elif across:
                parts.append(write(x - 3, y + 19, "+", "quiet", "middle"))
    y = 160.0
    steps = [
        ("sum", _told(own["entry"]), "entry of QKᵀ"),
        ("÷ √4", _told(own["scaled"]), "score"),
        ("softmax", percent(own["weight"]), "weight α"),
    ]
    for place, (sign, number, name) in enumerate(steps):
        x = 34.0 + place * 134
        parts += arrow(x - 34, y + 18, x + 14, y + 18)
        parts.append(write(x - 10, y + 10, sign, "quiet small", "middle"))
        parts.append(box(x + 18, y, 76, 36, "answer" if place == 2 else "idle", rx=6))
        parts.append(write(x + 56, y + 23, number, "on-answer strong" if place == 2 else "ink strong", "middle"))
        parts.append(write(x + 56, y + 52, name, "quiet small", "middle"))
    return svg(220, parts, f"One entry of Q K transposed: {_told(own['entry'])}, from four products.")


def sizes(own: Numbers) -> str:
    """The matrices as rectangles: n rows for each word, and as many columns as the letters say."""
    n, d, d_q, d_v = (own["shapes"][letter] for letter in ("n", "d", "d_Q", "d_V"))
    tall = 76.0
    parts = []

    def matrix(x: float, y: float, width: float, height: float, name: str, size: str, class_: str) -> None:
        ink = {"query": "on-query", "key": "on-key", "value": "on-value", "answer": "on-answer"}.get(class_, "ink")
        parts.append(box(x, y, width, height, class_, rx=4))
        parts.append(write(x + width / 2, y + height / 2 + 5, name, f"{ink} strong", "middle"))
        parts.append(write(x + width / 2, y + height + 15, size, "quiet small", "middle"))

    matrix(0, 102, 92, tall, "X", f"{n} × {d}", "idle")
    for down, (name, width, class_) in enumerate([("Q", 36, "query"), ("K", 36, "key"), ("V", 44, "value")]):
        y = 4.0 + down * 104
        parts.extend(arrow(96, 140, 158, y + tall / 2))
        parts.append(write(126, (140 + y + tall / 2) / 2 + 4, f"W_{name}", "quiet small halo", "middle"))
        matrix(162, y, width, tall, name, f"{n} × {d_q if down < 2 else d_v}", class_)
    parts += arrow(202, 42, 246, 78) + arrow(202, 146, 246, 96)
    matrix(250, 50, tall, tall, "α", f"{n} × {n}", "idle")
    parts.append(write(288, 38, "softmax(QKᵀ/√d)", "quiet small", "middle"))
    parts += arrow(330, 92, 348, 180) + arrow(210, 250, 344, 216)
    matrix(350, 184, 44, tall, "S", f"{n} × {d_v}", "answer")
    for part in parts:  # the letters of a matrix stand below its W, as in the formula
        if part.text and part.text.startswith("W_"):
            below = write(0, 0, part.text[2:], "")
            below.tag, below.attrib, part.text = "tspan", {"dy": "3", "font-size": "8"}, "W"
            part.append(below)
    return svg(306, parts, "X becomes Q, K and V; Q and K become the n by n weights; these gather V into S, n by d_V.")


CHAPTER = Chapter("self-attention", "Self-attention, step by step", ("self_attention",), measure, fill)
