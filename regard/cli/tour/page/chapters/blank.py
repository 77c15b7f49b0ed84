"""The blank of the documents, filled by attention over real vectors: of words, and of phrases that a model has read."""

from __future__ import annotations

from html import escape

import torch
from torch import Tensor

from regard import Cosine, Softmax, weigh
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import seeded, word_vectors
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import bars
from regard.text import SentenceEncoder

CONTEXT = ["saw", "owner", "dog", "wagged", "tail"]
WITHOUT = "When he saw his owner, the dog wagged his tail"
PHRASE = "a {} dog"
GLOVE = ["happy", "angry", "old", "expensive", "political"]
MANY = ["happy", "glad", "proud", "excited", "sad", "afraid", "angry", "hungry", "tired", "old", "wooden", "political"]
TEMPERATURE = 0.05


def measure() -> Numbers:
    known = word_vectors()
    mean = known.vectors.mean(dim=0)
    around = (known[CONTEXT] - mean).mean(dim=0, keepdim=True)
    with seeded(10):
        encoder = SentenceEncoder.load()
    with torch.no_grad():
        read = encoder.embed([WITHOUT])
        phrases = encoder.embed([PHRASE.format(word) for word in MANY])
    return {"glove": filled(around, known[GLOVE] - mean, GLOVE), "model": filled(read, phrases, MANY)}


def filled(query: Tensor, keys: Tensor, words: list[str]) -> list[tuple[str, float]]:
    """Each word with its weight, heaviest first."""
    row = weigh(query, keys, keys, score=Cosine(), weights=Softmax(TEMPERATURE)).dense()[0].tolist()
    return sorted(zip(words, row, strict=True), key=lambda pair: -pair[1])


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    slots = {
        "context": ", ".join(CONTEXT),
        "without": escape(WITHOUT),
        "temperature": f"{TEMPERATURE:g}",
        "n_glove": str(len(GLOVE)),
        "n_model": str(len(MANY)),
    }
    for name in ("glove", "model"):
        words, weights = zip(*own[name], strict=True)
        slots[name] = bars(words, weights, f"Words for the blank, weighed by {name}.")
        slots[f"{name}_first"], slots[f"{name}_second"] = words[:2]
        slots[f"{name}_last"] = words[-1]
    sad = [word for word, _ in own["model"]].index("sad") + 1
    slots["sad_place"] = str(sad)
    return slots


CHAPTER = Chapter("blank", "The blank", (), measure, fill)
