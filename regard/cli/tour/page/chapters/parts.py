"""What a Transformer is made of, each part measured by itself."""

from __future__ import annotations

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import arrow, box, line, matrix, power, svg, write


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["parts"]
    return {
        "diagram": diagram(),
        "itself": matrix(
            told["itself"],
            told["written"],
            told["written"],
            "The decoder's self-attention under a causal mask.",
            most=56,
        ),
        "read": matrix(told["read"], told["written"], told["words"], "The decoder's cross-attention."),
        "without": power(told["shuffled_without_positions"]),
        "with": f"{told['shuffled_with_positions']:.1f}",
        "by_attention": str(told["changed_by_attention"]),
        "by_feed_forward": str(told["changed_by_feed_forward"]),
        "n": str(told["n_words"]),
        "difference": power(told["largest_difference_from_formula"]),
        "later": f"{told['weight_of_later_words']:g}",
    }


def diagram() -> str:
    """The encoder beside the decoder, from below."""
    left, right, wide = 8.0, 214.0, 178.0
    middle = left + wide / 2
    across = right + wide / 2
    parts = []

    def block(x: float, y: float, text: str, class_: str) -> None:
        ink = {"key": "on-key", "query": "on-query", "answer": "on-answer", "value": "on-value"}.get(class_, "ink")
        parts.append(box(x, y, wide, 34, class_, rx=6))
        parts.append(write(x + wide / 2, y + 22, text, ink, "middle"))

    for x, heights in ((middle, (326, 256, 186)), (across, (326, 256, 186, 116, 46))):
        for y in heights:
            parts.extend(arrow(x, y - 2, x, y - 33))
    block(left, 326, "words + positions", "idle")
    block(left, 256, "self-attention", "key")
    block(left, 186, "feed-forward", "value")
    parts += [write(middle, 142, "y, as keys and values", "ink", "middle")]
    block(right, 326, "written words + positions", "idle")
    block(right, 256, "causal self-attention", "key")
    block(right, 186, "cross-attention", "query")
    block(right, 116, "feed-forward", "value")
    block(right, 46, "linear, softmax", "idle")
    parts += [write(across, 12, "the next word", "ink", "middle")]
    parts += [line(left + wide - 22, 138, left + wide + 12, 138), line(left + wide + 12, 138, left + wide + 12, 203)]
    parts += arrow(left + wide + 12, 203, right - 3, 203)
    parts += [write(middle, 378, "encoder", "quiet", "middle"), write(across, 378, "decoder", "quiet", "middle")]
    return svg(
        386, parts, "An encoder layer beside a decoder layer, whose cross-attention takes keys and values from it."
    )


CHAPTER = Chapter("parts", "What a Transformer is made of", ("parts",), fill=fill)
