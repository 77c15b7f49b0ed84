"""Stop 8: multi-head attention, in heads with scopes of their own."""

from __future__ import annotations

from textwrap import wrap

import torch
from rich.text import Text
from torch import Tensor

from regard import Causal, Mask, Window, nn
from regard.cli.tour.character_pictures import spark
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded, sentence_vectors, words
from regard.view.drawing import BAR_COLOUR

QUERY = "happy"
SCOPES: dict[str, Mask | None] = {
    "its neighbours": Window(before=1, after=1),
    "four words around": Window(before=4, after=4),
    "what came before": Causal(),
    "the sentence": None,
}


def measure() -> Numbers:
    X, names, scopes = sentence_vectors(), words(), list(SCOPES.values())
    d = X.shape[1]
    with seeded(8), torch.no_grad():
        layer = nn.MultiHeadAttention(d, len(scopes), mask=scopes)
        output, _ = layer(X, X, X, need_weights=False)
        weights = layer.weigh(X, X, X).dense()[0]
        difference = (output - by_hand(layer, X)).abs().max().item()
    row = names.index(QUERY)
    return {
        "words": names,
        "query": QUERY,
        "dim": d,
        "W_Q": list(layer.W_Q.shape),
        "heads": [{"scope": scope, "weights": α[row].tolist()} for scope, α in zip(SCOPES, weights, strict=True)],
        "largest_difference_from_formula": difference,
    }


def by_hand(layer: nn.MultiHeadAttention, X: Tensor) -> Tensor:
    """The heads' S⁽ⁱ⁾ side by side, times W_O, written out."""
    places = torch.arange(len(X))
    ahead = places - places[:, None]
    scopes = [ahead.abs() <= 1, ahead.abs() <= 4, ahead <= 0, torch.ones_like(ahead, dtype=torch.bool)]
    S = []
    for W_Q, W_K, W_V, scope in zip(layer.W_Q, layer.W_K, layer.W_V, scopes, strict=True):
        scores = (X @ W_Q) @ (X @ W_K).T / layer.head_dim**0.5
        S.append(torch.softmax(scores.where(scope, -torch.inf), dim=-1) @ (X @ W_V))
    return torch.cat(S, dim=-1) @ layer.W_O


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    query = numbers["query"]
    largest = max(max(head["weights"]) for head in numbers["heads"])
    lines: list[Text | str] = [Text(f"{'head sees':<24}row of {query}", style="dim")]
    for place, head in enumerate(numbers["heads"], start=1):
        name = Text.assemble((f"{place}  ", "bold"), f"{head['scope']:<21}")
        # In a narrow terminal the row stands in a line of its own.
        row = Text(spark(head["weights"], largest), BAR_COLOUR)
        lines += [name + row] if width >= 60 else [name, Text("   ") + row]
    shape = " × ".join(str(size) for size in numbers["W_Q"][1:])
    difference = numbers["largest_difference_from_formula"]
    told = f"Each W_Q⁽ⁱ⁾ is {shape}. The output differs from the formula written out by at most {difference:.0e}."
    return [*lines, "", *wrap(told, width)]


STOP = Stop(
    name="multi_head",
    title="Multi-head attention",
    text="""
        Heads are self-attentions in parallel, each with W_Q⁽ⁱ⁾, W_K⁽ⁱ⁾ and W_V⁽ⁱ⁾ of its own (random here), and if one
        likes with a scope of its own. Their S⁽ⁱ⁾ stand side by side and are multiplied by W_O.
    """,
    code=("layer = nn.MultiHeadAttention(d, len(scopes), mask=scopes)\noutput, _ = layer(X, X, X, need_weights=False)"),
    measure=measure,
    picture=picture,
)
