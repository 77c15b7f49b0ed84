"""Stop 11: the sentence in a real pre-trained model."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import SENTENCE, seeded
from regard.text import SentenceEncoder
from regard.text.seen import choose_maps
from regard.view.drawing import BAR_COLOUR, bar, percent
from regard.wording import told_apart

QUERY, RANKED = "happy", 6
HIDDEN = "[CLS], [SEP] and punctuation"  # what `choose` leaves out


def measure() -> Numbers:
    with seeded(10):  # parameters are drawn before they are read
        encoder = SentenceEncoder.load()
    look = encoder.look(SENTENCE)
    seen = choose_maps(look, layer=None, head=None, query=QUERY, specials=False)
    names, (place,) = told_apart(seen.words), seen.places
    row = seen.row(place)
    order = sorted(range(len(names)), key=lambda index: -row[index])[:RANKED]
    return {
        "words": names,
        "query": QUERY,
        "n_layers": look.n_layers,
        "n_heads": look.n_heads,
        "hidden_share": float(seen.hidden_share[place]),
        "hidden_share_of_all": float(seen.hidden_share.mean()),
        "matrix": seen.weights.tolist(),
        "ranked": [{"word": names[index], "weight": row[index]} for index in order],
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = [Text.assemble("The row of ", (numbers["query"], "bold"), ", heaviest first:")]
    for entry in numbers["ranked"]:
        line = Text(f"{entry['word']:>8} {percent(entry['weight']):>6} ")
        lines.append(
            line.append(bar(entry["weight"] / numbers["ranked"][0]["weight"], min(width - 16, 40)), BAR_COLOUR)
        )
    told = (
        f"{HIDDEN} take {numbers['hidden_share']:.0%} of its weight; they are left out, and the rest is scaled up to 1."
    )
    return [*lines, "", *(Text(line, style="dim") for line in wrap(told, width))]


STOP = Stop(
    name="model",
    title="The sentence in a real model",
    text="""
        MiniLM's W_Q, W_K and W_V are not random: they were learned from text, and find what belongs together in this
        sentence. It is {n_layers} layers of {n_heads} heads on regard.nn; shown is the average of all.
    """,
    code="encoder = SentenceEncoder.load()\nlook = encoder.look(SENTENCE)",
    measure=measure,
    picture=picture,
)
