"""Stop 7: self-attention with W_Q, W_K and W_V, and the shape at each step."""

from __future__ import annotations

from textwrap import wrap

import torch
from rich.text import Text

from regard import nn
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded, sentence_vectors


def measure() -> Numbers:
    X = sentence_vectors()
    d, d_Q, d_V = X.shape[1], 8, 5
    with seeded(7), torch.no_grad():
        layer = nn.SelfAttention(d, key_dim=d_Q, value_dim=d_V)
        S = layer(X)
        α = layer.weigh(X)
        Q, K, V = X @ layer.W_Q, X @ layer.W_K, X @ layer.W_V
        by_hand = torch.softmax(Q @ K.T / d_Q**0.5, dim=-1) @ V
    steps = [
        ("X", "one row for each word", "n × d", X),
        ("W_Q, W_K", "learned; random here", "d × d_Q", layer.W_Q),
        ("W_V", "learned; random here", "d × d_V", layer.W_V),
        ("Q, K", "XW_Q, XW_K", "n × d_Q", Q),
        ("V", "XW_V", "n × d_V", V),
        ("α", "softmax(QKᵀ / √d_Q)", "n × n", α),
        ("S", "αV", "n × d_V", S),
    ]
    return {
        "steps": [
            {"name": n, "what": what, "letters": size, "shape": list(each.shape)} for n, what, size, each in steps
        ],
        "largest_difference_from_formula": (S - by_hand).abs().max().item(),
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = []
    for step in numbers["steps"]:
        shape = " × ".join(str(size) for size in step["shape"])
        name, what = Text(f"{step['name']:<10}", "bold"), Text(f"{step['what']:<26}")
        size = Text.assemble((f"{step['letters']:<10}", "dim"), shape)
        # In a narrow terminal the sizes stand in a line of their own.
        lines += [name + what + size] if width >= 60 else [name + what, Text(" " * 10) + size]
    difference = numbers["largest_difference_from_formula"]
    lines += ["", *wrap(f"S differs from the formula written out in torch by at most {difference:.0e}.", width)]
    return lines


STOP = Stop(
    name="self_attention",
    title="Self-attention, step by step",
    text="""
        S = softmax(QKᵀ / √d_Q) V with Q = XW_Q, K = XW_K, V = XW_V and d_Q = d_K. softmax runs along each row,
        whose results (not its scores) sum to 1. S is n × d_V: the values decide the width of the output.
    """,
    code="layer = nn.SelfAttention(d, key_dim=d_Q, value_dim=d_V)\nS = layer(X)",
    measure=measure,
    picture=picture,
)
