"""Stop 9: what a Transformer is made of, each part measured by itself."""

from __future__ import annotations

from textwrap import wrap

import torch
from rich.text import Text
from torch import Tensor

from regard import Causal, nn
from regard.cli.tour.character_pictures import spark
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded, sentence_vectors, words
from regard.view.drawing import BAR_COLOUR
from regard.wording import told_apart

WRITTEN = ["the", "dog", "was", "happy"]  # what a decoder might have written so far
HEADS, COLUMN = 4, 17


def measure() -> Numbers:
    names, X = words(), sentence_vectors()
    written = X[[names.index(word) for word in WRITTEN]]
    n, d = X.shape
    with seeded(9), torch.no_grad():
        place = nn.SinusoidalPositions(d)
        encoder = nn.EncoderLayer(d, HEADS, 4 * d).eval()
        decoder = nn.DecoderLayer(d, HEADS, 4 * d).eval()
        order = torch.randperm(n)
        back = order.argsort()
        without = encoder(X[order])[back] - encoder(X)
        placed = encoder(place(X[order]))[back] - encoder(place(X))

        y = encoder(place(X))

        def S(x: Tensor) -> Tensor:
            output: Tensor = encoder.self_attn(x, x, x, need_weights=False)[0]
            return output

        FF = encoder.feed_forward
        h = norm(place(X) + S(place(X)))
        by_hand = norm(h + FF(h))
        other = h.clone()
        other[names.index("dog")] += 1.0
        changed = [int(((part(other) - part(h)).abs().amax(-1) > 1e-6).sum()) for part in (S, FF)]

        with nn.record(decoder) as recording:
            decoder(place(written), y, mask=Causal())
        itself, read = (recording[layer].dense()[0].mean(0) for layer in ("self_attn", "multihead_attn"))
    return {
        "words": told_apart(names),
        "written": WRITTEN,
        "n_words": n,
        "shuffled_without_positions": without.abs().max().item(),
        "shuffled_with_positions": placed.abs().max().item(),
        "changed_by_attention": changed[0],
        "changed_by_feed_forward": changed[1],
        "largest_difference_from_formula": (y - by_hand).abs().max().item(),
        "itself": itself.tolist(),
        "read": read.tolist(),
        "weight_of_later_words": itself.triu(1).sum().item(),
    }


def norm(x: Tensor) -> Tensor:
    """Each word with mean 0 and variance 1, as a `LayerNorm` that has learned nothing yet gives it."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def _told(numbers: Numbers) -> dict[str, str]:
    """What was measured of each part."""
    n = numbers["n_words"]
    return {
        "positions": f"Shuffle the words and put the outputs back: without positions they differ by "
        f"{numbers['shuffled_without_positions']:.0e}, with them by {numbers['shuffled_with_positions']:.1f}.",
        "self-attention": f"One word changes, and {numbers['changed_by_attention']} of {n} outputs do.",
        "feed-forward": f"One word changes, and {numbers['changed_by_feed_forward']} of {n} outputs does.",
        "x + …, norm": f"Written out, the encoder's y is the same to {numbers['largest_difference_from_formula']:.0e}.",
        "causal mask": f"All weight on later words: {numbers['weight_of_later_words']:g}.",
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    lines: list[Text | str] = []
    for name, text in _told(numbers).items():
        first, *more = wrap(text, width - COLUMN, break_on_hyphens=False)
        lines += [Text.assemble((f"{name:<{COLUMN}}", "bold"), first), *(" " * COLUMN + each for each in more)]
    largest = max(max(row) for row in numbers["read"])
    lines += ["", Text(f"{'written so far':<{COLUMN}}self  cross", style="dim")]
    for word, itself, read in zip(numbers["written"], numbers["itself"], numbers["read"], strict=True):
        row = Text.assemble(
            f"{word:<{COLUMN}}", (spark(itself, 1.0), BAR_COLOUR), "  ", (spark(read, largest), BAR_COLOUR)
        )
        lines.append(row)
    return lines


STOP = Stop(
    name="parts",
    title="What a Transformer is made of",
    text="""
        Attention sees no order, so waves of each position are added to the words. An encoder layer is
        h = norm(x + S(x)), y = norm(h + FF(h)): self-attention S mixes words, the feed-forward FF works on each alone;
        x + … keeps what was there, norm its size. A decoder layer attends twice: to what is written so far, under a
        causal mask, and by cross-attention to y, from which keys and values come. All is random here.
    """,
    code="y = encoder(place(X))\ndecoder(place(written), y, mask=Causal())",
    measure=measure,
    picture=picture,
)
