"""`regard see`: what each word of a sentence looks at, in a real model."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import log, out
from regard.cli.saving import extension_of, save_figure, save_json, save_text, saving
from regard.cli.standard_input import standard_text
from regard.errors import MissingKey, OptionError
from regard.plots.reading import shown

if TYPE_CHECKING:
    from torch import Tensor

    from regard.text import Look

EXAMPLES = """\
[bold]Examples[/bold]
  regard see "When he saw his owner, the dog was happy, so he wagged his tail"
  regard see "the dog was happy" --query happy
  regard see "the dog was happy" --layer 3 --head telling
  regard see "the dog was happy" -o weights.html
  echo "the dog was happy" | regard see

[bold]What is averaged[/bold]
  All layers and heads alike, unless one is named; none is left out. A word of
  several pieces is their sum as a key, and their mean as a query.

[bold]The most telling head[/bold]
  Its Σ α(q, k) · ln(α(q, k) / b(q, k)) is the largest, over words that are
  not the same or neighbours; b is the mean weight of that key or that of
  that distance, whichever is larger. So it looks at words for what they are:
  not at one word always, nor by places. Hidden keys count for nothing.
"""

FORMATS = ("png", "svg", "pdf", "html", "json", "npz")


def see(
    text: Annotated[
        list[str] | None, typer.Argument(help="The text; from standard input if left out.", show_default=False)
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Which layer, from 0; the average if left out.")] = None,
    head: Annotated[
        str | None,
        typer.Option(help="Which head, from 0, or [bold]telling[/bold]; the average if left out.", show_default=False),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Rank what this word looks at.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Save to a file: {', '.join(FORMATS)}.", show_default=False),
    ] = None,
    specials: Annotated[
        bool, typer.Option("--specials", help="Show \\[CLS], \\[SEP] and punctuation too; nothing is scaled.")
    ] = False,
) -> None:
    """See what each word of a sentence looks at, in a real model (MiniLM)."""
    number = _head_number(head)
    if output is not None:
        extension_of(output, FORMATS)
    sentence = " ".join(text) if text and text != ["-"] else _standard_input()
    if not sentence.strip():
        raise OptionError("There is no word to look at: the text is empty. Write a sentence.")
    with log.status("loading the model"):
        from regard.text import SentenceEncoder

        look = SentenceEncoder.load().look(sentence)
    seen = choose(look, layer, number, query, specials)
    if output is None:
        _print(seen)
    else:
        with saving(output):
            _save(seen, look, sentence, output)


@dataclass(frozen=True)
class Seen:
    """Weights among the words that are shown, and what has to be said about them."""

    words: list[str]
    weights: Tensor  # (n_words, n_words), each row scaled to what it had before hidden keys were taken out
    hidden: list[str]  # what is not shown: what the model added, and "punctuation" where there is any
    hidden_share: Tensor  # (n_words,): of each row's weight, that on hidden keys
    places: list[int]  # among the words of `weights`, where the query is
    source: str  # which layers and heads

    @property
    def note(self) -> str:
        """What is hidden, and how much of the weight that is."""
        if not self.hidden:
            return "nothing is hidden and nothing is scaled"
        share = self.hidden_share[self.places] if self.places else self.hidden_share
        of = f"the weight of “{shown(self.words[self.places[0]])}”" if self.places else "the weight"
        *others, last = self.hidden
        return (
            f"{', '.join(others)} and {last} are hidden: they take {float(share.mean()):.0%} of {of}, and the rest is "
            f"scaled up to 1. Show all with --specials"
        )

    def row(self, place: int) -> list[float]:
        found: list[float] = self.weights[place].tolist()
        return found


def choose(look: Look, layer: int | None, head: int | str | None, query: str | None, specials: bool) -> Seen:
    """The weights to show: of a layer and head or averaged, without what is hidden, each row scaled to sum to 1."""
    kept = [place for place, word in enumerate(look.words) if specials or not _is_hidden(look, place, word)]
    if not kept:
        raise OptionError("There is no word to look at: the text has only punctuation. Use --specials to see it.")
    words = [look.words[place] for place in kept]
    places = [] if query is None else _find(query, words, look.words)
    if head == "telling":
        layer, head = most_telling(look.all_weights()[:, :, kept][..., kept], layer)
        source = f"layer {layer}, head {head}, the most telling"
    else:
        source = f"{_counted(layer, look.n_layers, 'layer')}, {_counted(head, look.n_heads, 'head')}"
    assert not isinstance(head, str)
    weights = look.weights(layer, head)[kept]
    if specials:
        return Seen(words, weights, [], weights.new_zeros(len(words)), places, source)
    weights = weights[:, kept]
    total = weights.sum(-1, keepdim=True)
    hidden = [word for word, special in zip(look.words, look.pieces.special, strict=True) if special]
    if len(hidden) + len(kept) < len(look.words):
        hidden.append("punctuation")
    share = (1 - total[:, 0]).clamp_min(0)  # a sum of floats may be above 1
    return Seen(words, weights / total.clamp_min(1e-30), hidden, share, places, source)


def most_telling(weights: Tensor, layer: int | None = None) -> tuple[int, int]:
    """The layer and head whose look depends most on both words, and least on places.

    That is where Σ α(q, k) · ln(α(q, k) / b(q, k)) is largest. b(q, k) is what one would expect without knowing both:
    the mean weight of that key, or of that distance, whichever is larger. Only words more than one apart count. So a
    head that looks at the word before, or at one word always, tells nothing.

    Args:
        weights: `(layers, heads, n_words, n_words)`, among the words shown and not scaled.
        layer: Which layer; any if left out.

    Example:
        >>> import torch
        >>> before, mirrored = torch.eye(6).roll(-1, 1), torch.eye(6).flip(0)
        >>> most_telling(torch.stack([before, mirrored, torch.full((6, 6), 1 / 6)])[None])
        (0, 1)
    """
    import torch

    if layer is not None and not -len(weights) <= layer < len(weights):
        raise OptionError(f"`layer` must be from 0 to {len(weights) - 1}: got {layer}.")
    size = weights.shape[-1]
    distance = torch.arange(size)[:, None] - torch.arange(size) + size - 1  # from 0, for places in a list
    totals = weights.new_zeros(*weights.shape[:2], 2 * size - 1)
    totals.index_add_(-1, distance.flatten(), weights.flatten(-2))
    by_distance = (totals / torch.bincount(distance.flatten()))[..., distance]
    expected = torch.maximum(by_distance, weights.mean(-2, keepdim=True))
    told = torch.special.xlogy(weights, weights / expected.clamp_min(1e-30))
    sums = (told * ((distance - size + 1).abs() > 1)).sum((-2, -1))
    chosen = range(len(weights)) if layer is None else [layer % len(weights)]
    best = max(((each, head) for each in chosen for head in range(weights.shape[1])), key=lambda pair: sums[pair])
    return best


def _is_hidden(look: Look, place: int, word: str) -> bool:
    return look.pieces.special[place] or all(unicodedata.category(letter)[0] == "P" for letter in word)


def _find(query: str, words: list[str], everything: list[str]) -> list[int]:
    """Where a word is among those shown; it may be there more than once, and then each has a number too, as in he₂."""
    wanted = query.strip().casefold()
    for names in (words, told_apart(words)):
        places = [place for place, name in enumerate(names) if name.casefold() == wanted]
        if places:
            return places
    if wanted in (word.casefold() for word in everything):
        raise MissingKey(f"--query must be a word that is shown: {query!r} is hidden. Add --specials.")
    import difflib

    near = difflib.get_close_matches(wanted, [word.casefold() for word in words], n=1)
    advice = f"Did you mean {near[0]!r}?" if near else f"Its words are: {' '.join(map(shown, dict.fromkeys(words)))}."
    raise MissingKey(f"--query must be a word of the text: got {query!r}. {advice}")


def _head_number(head: str | None) -> int | str | None:
    if head is None or head == "telling":
        return head
    try:
        return int(head)
    except ValueError:
        raise typer.BadParameter(f"--head must be a number from 0, or telling: got {head!r}.") from None


def _counted(place: int | str | None, count: int, name: str) -> str:
    return f"average of {count} {name}s" if place is None else f"{name} {int(place) % count}"


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise typer.BadParameter('there is no text: write a sentence in quotes, as in regard see "the dog was happy".')
    return " ".join(standard_text().split())


def _print(seen: Seen) -> None:
    from regard.plots import draw_matrix, draw_ranked

    width = min(out.width, 80)
    if seen.places:
        names = told_apart(seen.words)
        for place in seen.places:
            out.print(f"what “{shown(names[place])}” looks at", style="bold", markup=False)
            out.print(draw_ranked(seen.row(place), names, width=width), soft_wrap=True)
    else:
        colour = out.color_system is not None and not out.no_color
        out.print(draw_matrix(seen.weights, seen.words, seen.words, width=width, colour=colour), soft_wrap=True)
    for line in (seen.source, seen.note):
        out.print(line, style="dim", markup=False, width=width)


def told_apart(words: Sequence[str]) -> list[str]:
    """The words, with a small number after those that are there more than once.

    Example:
        >>> told_apart(["he", "saw", "he"])
        ['he₁', 'saw', 'he₂']
    """
    small = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
    so_far: dict[str, int] = {}
    names = []
    for word in words:
        so_far[word] = so_far.get(word, 0) + 1
        names.append(word + str(so_far[word]).translate(small) if words.count(word) > 1 else word)
    return names


def _save(seen: Seen, look: Look, sentence: str, output: Path) -> None:
    from regard.plots import Picture, matrix, page, ranked

    names = told_apart(seen.words)
    kind = extension_of(output, FORMATS)
    first = seen.places[0] if seen.places else None
    if kind == "json":
        save_json(_described(seen, sentence), output)
    elif kind == "npz":
        _save_arrays(seen, look, output)
    elif kind == "html":
        picture = Picture(seen.weights, names, names, seen.source, seen.note, first)
        save_text(page(picture, sentence), output)
    elif first is not None:
        notes = [seen.source, seen.note]
        if len(seen.places) > 1:
            notes.append(f"the first of {len(seen.places)}: --query {names[seen.places[1]]} shows the next")
        save_figure(ranked(seen.row(first), names, names[first], note="; ".join(notes)), output)
    else:
        save_figure(matrix(seen.weights, names, title=seen.source, note=seen.note), output)


def _described(seen: Seen, sentence: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "text": sentence,
        "source": seen.source,
        "axes": "rows are queries, columns are keys",
        "words": seen.words,
        "hidden": seen.hidden,
        "hidden_share": seen.hidden_share.tolist(),
        "weights": seen.weights.tolist(),
    }
    if seen.places:
        described["queries"] = [
            {
                "word": seen.words[place],
                "place": place,
                "looks_at": sorted(
                    (
                        {"word": word, "weight": weight}
                        for word, weight in zip(seen.words, seen.row(place), strict=True)
                    ),
                    key=lambda pair: -float(pair["weight"]),
                ),
            }
            for place in seen.places
        ]
    return described


def _save_arrays(seen: Seen, look: Look, output: Path) -> None:
    import numpy as np

    with output.open("wb") as file:  # NumPy would add .npz to a name that ends in .NPZ
        # Text as fixed-width arrays: np.load reads them without pickle.
        np.savez_compressed(
            file,
            words=np.array(seen.words),
            weights=seen.weights.numpy(),
            hidden_share=seen.hidden_share.numpy(),
            all_words=np.array(look.words),
            all_weights=look.all_weights().numpy(),
        )
