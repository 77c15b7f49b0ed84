"""Multi-head attention: heads whose scopes are a word, a sentence, a paragraph, the text."""

from __future__ import annotations

import torch

from regard import Mask, SameDocument, Window, nn
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import seeded, word_vectors
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import WIDE, arrow, box, matrix, power, svg, write
from regard.wording import told_apart

# Two paragraphs of two sentences each.
TEXT = [["The dog saw his owner", "He wagged his tail"], ["The house was old", "Its door was black"]]
QUERY = "tail"


def measure() -> Numbers:
    known = word_vectors()
    sentences = [sentence for paragraph in TEXT for sentence in paragraph]
    names = [word for sentence in sentences for word in sentence.split()]
    X = known[[name.lower() for name in names]] - known.vectors.mean(dim=0)
    in_sentence = [place for place, sentence in enumerate(sentences) for _ in sentence.split()]
    in_paragraph = [place for place, paragraph in enumerate(TEXT) for each in paragraph for _ in each.split()]
    scopes: dict[str, Mask | None] = {
        "words beside": Window(before=1, after=1),
        "sentence": SameDocument(in_sentence),
        "paragraph": SameDocument(in_paragraph),
        "whole text": None,
    }
    with seeded(8), torch.no_grad():
        layer = nn.MultiHeadAttention(X.shape[1], len(scopes), mask=list(scopes.values()))
        α = layer.weigh(X, X, X).dense()[0, :, names.index(QUERY)]
        output, _ = layer(X, X, X, need_weights=False)
    return {
        "names": told_apart(names),
        "scopes": list(scopes),
        "weights": α.tolist(),
        "d": X.shape[1],
        "d_head": layer.head_dim,
        "shape": list(output.shape),
    }


def fill(stops: Stops, own: Numbers) -> dict[str, str]:
    seen = [sum(weight > 0 for weight in row) for row in own["weights"]]
    return {
        "picture": matrix(
            own["weights"], own["scopes"], own["names"], "The row of tail in four heads of different scope.", room=82
        ),
        "diagram": diagram(len(own["scopes"])),
        "seen": ", ".join(str(count) for count in seen[:-1]) + f" and {seen[-1]}",
        "text": " ¶ ".join(". ".join(paragraph) + "." for paragraph in TEXT),
        "n_heads": str(len(own["scopes"])),
        "d": str(own["d"]),
        "d_head": str(own["d_head"]),
        "n": str(own["shape"][0]),
        "difference": power(stops["multi_head"]["largest_difference_from_formula"]),
    }


def diagram(n_heads: int) -> str:
    """X goes to every head; their outputs stand side by side and are multiplied by W_O."""
    step, parts = 46.0, []
    middle = 8 + step * n_heads / 2 - 5
    parts += [box(0, middle - 22, 44, 44, "idle", rx=6), write(22, middle + 5, "X", "ink strong", "middle")]
    for place in range(n_heads):
        y = 8 + place * step
        parts += arrow(48, middle, 88, y + 18)
        parts += [box(92, y, 104, 36, "key", rx=6), write(144, y + 22, f"head {place + 1}", "on-key", "middle")]
        parts += arrow(200, y + 18, 226, y + 18)
        parts += [
            box(230, y + 1, 42, step - 6, "value"),
            write(251, y + 23, f"S{'⁽' + '¹²³⁴⁵'[place] + '⁾'}", "on-value", "middle"),
        ]
    parts += arrow(278, middle, 302, middle)
    parts += [box(306, middle - 18, 36, 36, "idle", rx=6), write(324, middle + 5, "W", "ink strong", "middle")]
    parts += [write(333, middle + 10, "O", "ink tiny", "middle")]
    parts += arrow(346, middle, WIDE - 42, middle)
    parts += [box(WIDE - 38, middle - 22, 38, 44, "answer", rx=6)]
    parts += [write(WIDE - 19, middle + 5, "n × d", "on-answer small", "middle")]
    parts.append(write(251, 8 + n_heads * step + 10, "side by side", "quiet small", "middle"))
    return svg(
        8 + n_heads * step + 16,
        parts,
        "X goes to four heads in parallel; their outputs side by side are multiplied by W O.",
    )


CHAPTER = Chapter("heads", "Multi-head attention", ("multi_head",), measure, fill)
