"""Stop 4: the six scores of the article, side by side on the same q and k."""

from __future__ import annotations

import torch
from rich.text import Text

from regard import Additive, Dot, Gated, Multiplicative, Raw, ScaledDot, Selected, weigh
from regard.cli.tour.character_pictures import spark
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded
from regard.view.drawing import BAR_COLOUR

DIM, N_KEYS, SELECTED = 4, 6, [0, 2, 5]


def measure() -> Numbers:
    with seeded(2), torch.no_grad():
        q, k, v = torch.randn(1, DIM), torch.randn(N_KEYS, DIM), torch.randn(N_KEYS, DIM)
        only = Selected(torch.tensor([SELECTED]))
        six = [
            ("dot", "qᵀk", Dot(), None),
            ("scaled dot", "qᵀk / √d", ScaledDot(), None),
            ("additive", "vᵀtanh(W₁q+W₂k+b)", Additive(DIM, DIM, hidden_dim=8), None),
            ("multiplicative", "qᵀWk", Multiplicative(DIM, DIM), None),
            ("gated", "σ(W_g[q;k])·qᵀk", Gated(DIM, DIM), None),
            ("sparse", f"qᵀkᵢ, i ∈ {{{','.join(str(i + 1) for i in SELECTED)}}}", Dot(), only),
        ]
        scores = []
        for name, formula, score, mask in six:
            a = weigh(q, k, v, score=score, mask=mask, weights=Raw()).dense()[0]
            α = weigh(q, k, v, score=score, mask=mask).dense()[0]
            seen = range(N_KEYS) if mask is None else SELECTED
            row = [a[i].item() if i in seen else None for i in range(N_KEYS)]
            scores.append({"name": name, "formula": formula, "scores": row, "weights": α.tolist()})
    return {"dim": DIM, "selected": SELECTED, "scores": scores}


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    keys = "".join(f"{f'k{index + 1}':>6}" for index in range(N_KEYS))
    largest = max(max(score["weights"]) for score in numbers["scores"])
    wide = width >= 33 + 6 * N_KEYS + 2 + N_KEYS
    lines: list[Text | str] = [Text(f"{'':<33}{keys}  α" if wide else keys, style="dim")]
    for score in numbers["scores"]:
        name = Text.assemble((f"{score['name']:<15}", "bold"), (f"{score['formula']:<18}", "dim"))
        values = Text()
        for value in score["scores"]:
            values.append("     –" if value is None else f"{value:6.2f}", "dim" if value is None else "")
        α = Text(spark(score["weights"], largest), BAR_COLOUR)
        # In a narrow terminal the scores stand in a line of their own.
        lines += [name + values + Text("  ") + α] if wide else [Text("\n") + name, values, Text("  α   ") + α]
    return lines


STOP = Stop(
    name="scores",
    title="Six ways to compare q and k",
    text="""
        softmax takes any a(q, k). Sparse attention's Σᵢ qᵀkᵢ over selected positions means that only those are
        scored (–: not computed, weight 0), not that scores are summed. One q, six keys, d = {dim}; W, W_g, v and b
        are untrained.
    """,
    code="α = weigh(q, k, v, score=score, mask=mask).dense()[0]",
    measure=measure,
    picture=picture,
)
