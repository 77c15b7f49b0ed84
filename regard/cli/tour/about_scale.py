"""Stop 5: why 1/√d."""

from __future__ import annotations

import torch
from rich.text import Text
from torch import Tensor

from regard import Bias, Dot, ScaledDot, attend
from regard.cli.tour.character_pictures import spark
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded
from regard.view.drawing import BAR_COLOUR

DIMS, N_KEYS, N_QUERIES = (4, 64, 1024), 12, 99


def measure() -> Numbers:
    rows = []
    # Values that are the identity: the output is the row of weights itself.
    identity = torch.eye(N_KEYS, dtype=torch.float64)
    for dim in DIMS:
        with seeded(5):
            q = torch.randn(N_QUERIES, dim, dtype=torch.float64)
            k = torch.randn(N_KEYS, dim, dtype=torch.float64)
        typical = None
        for score in (Dot(), ScaledDot()):
            # Zeros that are added to the scores: the gradient with respect to them is that of softmax itself.
            shift = torch.zeros(N_QUERIES, N_KEYS, dtype=torch.float64, requires_grad=True)
            α = attend(q, k, identity, score=score + Bias(shift))
            norms = gradient_norms(α, shift)
            # Some queries always find a near tie, and some a landslide: show the one in the middle, for both scores.
            typical = norms.argsort()[N_QUERIES // 2] if typical is None else typical
            rows.append(
                {
                    "dim": dim,
                    "score": type(score).__name__,
                    "weights": α[typical].tolist(),
                    "largest": α[typical].max().item(),
                    "gradient_norm": norms[typical].item(),
                }
            )
    return {"n_keys": N_KEYS, "n_queries": N_QUERIES, "rows": rows}


def gradient_norms(weights: Tensor, scores: Tensor) -> Tensor:
    """‖∂α/∂a‖ of each query, `(n_queries,)`."""
    # The weights of a query depend on no other query, so the gradient of a sum has every query's own gradient in it.
    columns = weights.sum(dim=0).unbind()
    gradients = [torch.autograd.grad(column, scores, retain_graph=True)[0] for column in columns]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(gradients), dim=(0, 2))
    return norms


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    wide = width >= 60
    header, more = f"   d  score     softmax over {numbers['n_keys']} keys", "largest α    ‖∂α/∂a‖"
    lines: list[Text | str] = [Text(f"{header}   {more}" if wide else f"{header}\n{'':<14}{more}", style="dim")]
    for row in numbers["rows"]:
        formula = "qᵀk" if row["score"] == "Dot" else "qᵀk / √d"
        line = Text(f"{row['dim']:>4}  {formula:<10}")
        line.append(f"{spark(row['weights'], largest=1.0):<23}" if wide else spark(row["weights"], 1.0), BAR_COLOUR)
        figures = Text(f"{row['largest']:9.4f}  ").append(f"{row['gradient_norm']:>10.1e}", "bold")
        # In a narrow terminal they stand in a line of their own.
        lines += [line + figures] if wide else [line, Text(" " * 14) + figures]
    return lines


STOP = Stop(
    name="scale",
    title="Why 1/√d",
    text="""
        Coordinates of variance 1 give qᵀk a variance of d. Unscaled, one score dominates as d grows: the row of
        softmax becomes one-hot, and its gradient ∂α/∂a, which never vanishes on paper, all but vanishes, and with it
        what q and k could learn. Divided by √d, it stays. Shown: the median of {n_queries} queries.
    """,
    code="α = attend(q, k, identity, score=score + Bias(shift))",
    measure=measure,
    picture=picture,
)
