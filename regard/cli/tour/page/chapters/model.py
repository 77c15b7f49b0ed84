"""The sentence in a trained model: all its layers and heads, one at a time."""

from __future__ import annotations

from html import escape

import torch

from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import SENTENCE, seeded
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import matrix
from regard.text import SentenceEncoder
from regard.text.seen import choose_maps

DIGITS = 4  # of a weight on the page
MUCH = 0.3  # of a row's weight, on one place


def measure() -> Numbers:
    with seeded(10):
        encoder = SentenceEncoder.load()
    look = encoder.look(SENTENCE)
    maps = [
        [choose_maps(look, layer, head, None, specials=False) for head in range(look.n_heads)]
        for layer in range(look.n_layers)
    ]
    weights = torch.stack([torch.stack([each.weights for each in layer]) for layer in maps])
    telling = choose_maps(look, None, "telling", None, specials=False).source
    layer, head = (int(word.rstrip(",")) for word in telling.split() if word.rstrip(",").isdigit())
    # How many heads look much at the word before, after, or itself: the mean of a diagonal.
    places = {"before": -1, "after": 1, "itself": 0}
    much = {name: int((weights.diagonal(place, -2, -1).mean(-1) > MUCH).sum()) for name, place in places.items()}
    return {"weights": weights.round(decimals=DIGITS).tolist(), "layer": layer, "head": head, **much}


def fill(stops: Stops, own: Numbers) -> dict[str, str]:
    told = stops["model"]
    names = told["words"]
    return {
        "picture": matrix(
            told["matrix"],
            names,
            names,
            "What each word attends to in the chosen layer and head.",
            selected=names.index(told["query"]),
            name="model-map",
        ),
        "query": escape(told["query"]),
        "ranked": ", ".join(f"{escape(each['word'])} {each['weight']:.0%}" for each in told["ranked"]),
        "n_layers": str(told["n_layers"]),
        "n_heads": str(told["n_heads"]),
        "n_maps": str(told["n_layers"] * told["n_heads"]),
        "hidden": f"{told['hidden_share_of_all']:.0%}",
        "layer": str(own["layer"]),
        "head": str(own["head"]),
        "much": f"{MUCH:.0%}",
        **{name: str(own[name]) for name in ("before", "after", "itself")},
    }


def live(stops: Stops, own: Numbers) -> dict[str, object]:
    told = stops["model"]
    return {
        "words": told["words"],
        "mean": [[round(weight, DIGITS) for weight in row] for row in told["matrix"]],
        "heads": own["weights"],
        "query": told["words"].index(told["query"]),
        "layer": own["layer"],
        "head": own["head"],
    }


CHAPTER = Chapter("model", "A trained model", ("model",), measure, fill, live)
