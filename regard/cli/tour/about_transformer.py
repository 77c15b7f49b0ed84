"""Stop 10: a Transformer, trained while you wait, translates; each generated word attends to other source words."""

from __future__ import annotations

import time
from itertools import product
from textwrap import wrap

import torch
from rich.text import Text
from torch import Tensor

from regard import nn
from regard.cli.tour.character_pictures import cells, columns_that_fit, scale
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import one_thread, seeded

# English to Spanish: a noun with its article, an adjective in both genders.
ANIMALS = {"dog": ("el", "perro"), "cat": ("el", "gato"), "cow": ("la", "vaca"), "hen": ("la", "gallina")}
THINGS = {
    "book": ("el", "libro"),
    "car": ("el", "coche"),
    "tree": ("el", "árbol"),
    "house": ("la", "casa"),
    "table": ("la", "mesa"),
    "door": ("la", "puerta"),
}
ADJECTIVES = {
    "happy": {"el": "feliz", "la": "feliz"},
    "black": {"el": "negro", "la": "negra"},
    "white": {"el": "blanco", "la": "blanca"},
    "small": {"el": "pequeño", "la": "pequeña"},
    "old": {"el": "viejo", "la": "vieja"},
}
VERBS = {"sees": "ve", "finds": "encuentra", "wants": "quiere", "has": "tiene"}

SENTENCE = "the happy dog sees the white house"
DIM, STEPS, BATCH, N_UNSEEN = 32, 200, 32, 200


def sentences() -> dict[str, str]:
    """Every sentence of the small grammar, with its translation."""
    of_things = [each for each in ADJECTIVES if each != "happy"]
    found = {}
    for animal, first, verb, second, thing in product(ANIMALS, ADJECTIVES, VERBS, of_things, THINGS):
        translated = f"{noun(animal, first)} {VERBS[verb]} {noun(thing, second)}"
        found[f"the {first} {animal} {verb} the {second} {thing}"] = translated
    return found


def noun(name: str, adjective: str) -> str:
    """A noun in Spanish: its article before it, and its adjective after it."""
    article, spanish = (ANIMALS | THINGS)[name]
    return f"{article} {spanish} {ADJECTIVES[adjective][article]}"


def measure() -> Numbers:
    pairs = sentences()
    english = sorted({word for each in pairs for word in each.split()})
    spanish = ["<start>", "<stop>", *sorted({word for each in pairs.values() for word in each.split()})]
    sizes = len(english), len(spanish)
    source = torch.tensor([[english.index(word) for word in each.split()] for each in pairs])
    target = torch.tensor([[0, *map(spanish.index, each.split()), 1] for each in pairs.values()])
    with seeded(9), one_thread():
        # The sentence that is shown is one that the model does not read while it learns.
        shown, order = list(pairs).index(SENTENCE), torch.randperm(len(pairs))
        order = torch.cat([torch.tensor([shown]), order[order != shown]])
        learned, unseen = order[N_UNSEEN:], source[order[:N_UNSEEN]]
        model = nn.Seq2SeqTransformer(*sizes, DIM, heads=1, layers=1, dropout=0)
        started = time.perf_counter()
        train(model, source[learned], target[learned])
        seconds = time.perf_counter() - started
        written = nn.generate(model, unseen, start=0, stop=1, attention=True)
    expected = target[order[:N_UNSEEN], 1:-1].tolist()
    attention = written[0].attention
    assert attention is not None
    return {
        "sentence": SENTENCE,
        "expected": pairs[SENTENCE],
        "source": SENTENCE.split(),
        "written": [spanish[token] for token in written[0].tokens],
        "matrix": attention[0, 0].tolist(),
        "n_sentences": len(pairs),
        "n_learned": len(learned),
        "n_unseen": len(unseen),
        "n_right": sum(each.tokens == right for each, right in zip(written, expected, strict=True)),
        "steps": STEPS,
        "seconds": seconds,
    }


def train(model: nn.Seq2SeqTransformer, source: Tensor, target: Tensor) -> None:
    """Teach a model to write `target` about `source`, each token after those before it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        some = torch.randint(len(source), (BATCH,))
        scores = model(source[some], target[some, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[some, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def picture(numbers: Numbers, width: int, colour: bool = True) -> list[Text | str]:
    largest = max(max(row) for row in numbers["matrix"])
    lines: list[Text | str] = []
    room = columns_that_fit(numbers["written"], width)
    for start in range(0, len(numbers["source"]), room):
        part = [row[start : start + room] for row in numbers["matrix"]]
        lines += [cells(part, numbers["written"], numbers["source"][start : start + room], largest, colour), ""]
    return [*lines, scale(largest, width, colour), "", *wrap(_told(numbers), width)]


def _told(numbers: Numbers) -> str:
    return (
        f"{numbers['steps']} steps took {numbers['seconds']:.1f} s. Of {numbers['n_unseen']} sentences that it had "
        f"never read, this one among them, it translates {numbers['n_right']} without a mistake."
    )


STOP = Stop(
    name="transformer",
    title="A Transformer translates",
    text="""
        An encoder reads, a decoder writes, and each generated word attends to other source words. Spanish puts the
        adjective after its noun, and el or la depends on the noun: nobody told the model, which has learned it just now
        from {n_learned:,} sentences of a toy grammar. “{sentence}”:
    """,
    code=(
        "model = nn.Seq2SeqTransformer(*sizes, DIM, heads=1, layers=1, dropout=0)\n"
        "written = nn.generate(model, unseen, start=0, stop=1, attention=True)"
    ),
    measure=measure,
    picture=picture,
    has_matrix=True,
)
