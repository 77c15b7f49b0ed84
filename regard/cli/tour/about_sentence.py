"""Stop 6: the sentence as an attention matrix."""

from __future__ import annotations

from rich.text import Text

from regard import weigh
from regard.cli.tour.character_pictures import cells, columns_that_fit, scale
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import SENTENCE, sentence_vectors, words
from regard.view.drawing import BAR_COLOUR, bar, percent
from regard.wording import told_apart

QUERY, RANKED = "happy", 6


def measure() -> Numbers:
    x, names = sentence_vectors(), told_apart(words())
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
        "dim": x.shape[1],
        "matrix": view.dense().tolist(),
        "query": QUERY,
        "ranked": ranked,
    }


def picture(numbers: Numbers, width: int, colour: bool = True) -> list[Text | str]:
    largest = max(max(row) for row in numbers["matrix"])
    words = numbers["words"]
    lines: list[Text | str] = []
    # As many columns side by side as there is room for, the others below.
    room = columns_that_fit(words, width)
    for start in range(0, len(words), room):
        part = [row[start : start + room] for row in numbers["matrix"]]
        lines += [cells(part, words, words[start : start + room], largest, colour), ""]
    lines += [
        scale(largest, width, colour),
        Text.assemble("\nThe row of ", (numbers["query"], "bold"), ", heaviest first:"),
    ]
    for entry in numbers["ranked"]:
        line = Text(f"{entry['word']:>8} {percent(entry['weight']):>6} ")
        lines.append(
            line.append(bar(entry["weight"] / numbers["ranked"][0]["weight"], min(width - 16, 40)), BAR_COLOUR)
        )
    return lines


STOP = Stop(
    name="sentence",
    title="A sentence attends to itself",
    text="""
        “{sentence}”. Each word takes its turn as the query (a row), every word is a key (a column), and each row
        sums to 1. The vectors are GloVe's, {dim} numbers a word, less the mean of all words: here similar means
        found in like company. Of this sentence they know nothing.
    """,
    code="view = weigh(x, x, x)",
    measure=measure,
    picture=picture,
    has_matrix=True,
)
