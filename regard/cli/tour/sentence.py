"""Stop 6: the sentence as an attention matrix."""

from __future__ import annotations

from rich.text import Text

from regard import weigh
from regard.cli.drawing import half_blocks, half_blocks_legend
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import SENTENCE, sentence_vectors, words
from regard.database.render import bar

DIM, QUERY, RANKED = 64, "happy", 6


def measure() -> Numbers:
    x, names = sentence_vectors(DIM), words()
    view = weigh(x, x, x)
    position = names.index(QUERY)
    weights, indices = view.top(RANKED)
    ranked = [
        {"word": names[index], "position": index + 1, "weight": weight}
        for weight, index in zip(weights[position].tolist(), indices[position].tolist(), strict=True)
    ]
    return {
        "sentence": SENTENCE,
        "words": names,
        "dim": DIM,
        "matrix": view.dense().tolist(),
        "query": QUERY,
        "ranked": ranked,
    }


def picture(numbers: Numbers) -> list[Text | str]:
    largest = max(max(row) for row in numbers["matrix"])
    lines: list[Text | str] = [
        half_blocks(numbers["matrix"], numbers["words"], numbers["words"]),
        Text.assemble("\n", half_blocks_legend(largest)),
        Text.assemble("\nThe row of ", (numbers["query"], "bold"), ", heaviest first:"),
    ]
    for entry in numbers["ranked"]:
        line = Text(f"{entry['word']:>8} {entry['weight']:.3f} ")
        lines.append(line.append(bar(entry["weight"] / numbers["ranked"][0]["weight"], 40), "gold1"))
    return lines


STOP = Stop(
    name="sentence",
    title="A sentence attends to itself (hashed letters, untrained)",
    text="""
        “{sentence}”. Each word takes its turn as the query (a row), every word is a key (a column), and each row
        sums to 1. The vectors are hashes of letters in {dim} dimensions: here similar means spelt alike.
    """,
    code="view = weigh(x, x, x)",
    measure=measure,
    picture=picture,
)
