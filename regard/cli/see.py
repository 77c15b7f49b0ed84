"""`regard see`: what each word of a sentence looks at, in a real model."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

[bold]What is hidden[/bold]
  What the model adds (\\[CLS], \\[SEP]), punctuation, and symbols such as $,
  where they are words of their own. Emoji are shown.

[bold]The most telling head[/bold]
  Its Σ α(q, k) · ln(α(q, k) / b(q, k)) is the largest, over words that are
  not the same or neighbours; b is the mean weight of that key or that of
  that distance, whichever is larger. So it looks at words for what they are:
  not at one word always, nor by places. Hidden keys count for nothing.
"""

SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MOST_UNKNOWN = 8  # that are named
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
        list[str] | None,
        typer.Option(
            "--query",
            "-q",
            help="Rank what this word looks at; several if given more than once. Of a word that is there twice, "
            "the second is [bold]word2[/bold].",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Save to a file: {', '.join(FORMATS)}.", show_default=False),
    ] = None,
    specials: Annotated[
        bool, typer.Option("--specials", help="Show \\[CLS], \\[SEP], punctuation and symbols too; nothing is scaled.")
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
    hidden: list[str]  # what is not shown: what the model added, "punctuation" where there is any, and each symbol
    hidden_share: Tensor  # (n_words,): of each row's weight, that on hidden keys
    places: list[int]  # among the words of `weights`, where the query is
    source: str  # which layers and heads
    unknown: list[str]  # what is shown and the model cannot tell apart: it reads [UNK] for each

    @property
    def names(self) -> list[str]:
        """The words, told apart where one is there more than once."""
        return told_apart(self.words)

    @property
    def hidden_note(self) -> str:
        """What is hidden, and how much of the weight that is."""
        if not self.hidden:
            return "nothing is hidden and nothing is scaled"
        share = self.hidden_share[self.places] if self.places else self.hidden_share
        asked = [f"“{shown(self.names[place])}”" for place in self.places]
        of = f"the weight of {_listed(asked)}" if asked else "the weight"
        return (
            f"{_listed(self.hidden)} are hidden: they take {float(share.mean()):.0%} of {of}, and the rest is scaled "
            f"up to 1"
        )

    @property
    def unknown_note(self) -> str:
        """What the model did not read, though it is shown; empty if it read everything."""
        if not self.unknown:
            return ""
        if len(self.unknown) == 1:
            return f"{shown(self.unknown[0])} is unknown to the model, which reads [UNK] in its place"
        names = [shown(each) for each in self.unknown[:MOST_UNKNOWN]]
        if len(self.unknown) > MOST_UNKNOWN:
            names.append(f"{len(self.unknown) - MOST_UNKNOWN} more")
        return f"{_listed(names)} are unknown to the model, which reads them as one and the same, [UNK]"

    @property
    def notes(self) -> list[str]:
        """What a picture has to say: what is hidden, and what is unknown."""
        return [note for note in (self.hidden_note, self.unknown_note) if note]

    def of_first(self) -> Seen:
        """The same for the first of its queries alone."""
        return replace(self, places=self.places[:1])

    def row(self, place: int) -> list[float]:
        found: list[float] = self.weights[place].tolist()
        return found


def choose(
    look: Look, layer: int | None, head: int | str | None, query: str | Sequence[str] | None, specials: bool
) -> Seen:
    """The weights to show: of a layer and head or averaged, without what is hidden, each row scaled to sum to 1."""
    _check_place("--layer", layer, look.n_layers)
    _check_place("--head", head, look.n_heads)
    kept = [place for place, word in enumerate(look.words) if specials or not _is_hidden(look, place, word)]
    if not kept:
        raise OptionError(
            "There is no word to look at: the text has only punctuation or symbols. Use --specials to see it."
        )
    words = [look.words[place] for place in kept]
    unknown = list(dict.fromkeys(look.pieces.unknown[place] for place in kept if look.pieces.unknown[place]))
    queries = [query] if isinstance(query, str) else query or ()
    places = list(dict.fromkeys(place for each in queries for place in _find(each, words, look.words)))
    if head == "telling":
        layer, head = most_telling(look.all_weights()[:, :, kept][..., kept], layer)
        source = f"layer {layer}, head {head}, the most telling"
    else:
        source = f"{_counted(layer, look.n_layers, 'layer')}, {_counted(head, look.n_heads, 'head')}"
    assert not isinstance(head, str)
    weights = look.weights(layer, head)[kept]
    if specials:
        return Seen(words, weights, [], weights.new_zeros(len(words)), places, source, unknown)
    weights = weights[:, kept]
    total = weights.sum(-1, keepdim=True)
    share = (1 - total[:, 0]).clamp_min(0)  # a sum of floats may be above 1
    return Seen(words, weights / total.clamp_min(1e-30), _hidden(look), share, places, source, unknown)


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
        raise OptionError(f"`layer` must be from 0 to {len(weights) - 1}: got {layer}. Layers count from 0.")
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
    return look.pieces.special[place] or _is_punctuation(word) or _is_symbol(word)


def _is_punctuation(word: str) -> bool:
    return all(unicodedata.category(letter)[0] == "P" for letter in word)


def _is_symbol(word: str) -> bool:
    """Whether a word is made of signs such as $, < and +; not of pictures, which Unicode calls symbols too."""
    return all(unicodedata.category(letter) in ("Sc", "Sk", "Sm") for letter in word)


def _hidden(look: Look) -> list[str]:
    """What is not shown, each once: what the model added, punctuation under that name, and symbols themselves."""
    added = [word for word, special in zip(look.words, look.pieces.special, strict=True) if special]
    others = [word for word, special in zip(look.words, look.pieces.special, strict=True) if not special]
    punctuation = ["punctuation"] if any(map(_is_punctuation, others)) else []
    return [*added, *punctuation, *dict.fromkeys(filter(_is_symbol, others))]


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _check_place(option: str, place: int | str | None, count: int) -> None:
    if isinstance(place, int) and not -count <= place < count:
        raise OptionError(
            f"{option} must be from 0 to {count - 1}, or from -{count} to -1 counted from the end: got {place}."
        )


def _find(query: str, words: list[str], everything: list[str]) -> list[int]:
    """Where a word is among those shown; it may be there more than once, and then each has a number too, as in he₂.

    The number may be typed as an ordinary one, he2, if the text has no such word.
    """
    wanted = _folded(query)
    word = wanted.rstrip("0123456789")
    numbered = word + wanted[len(word) :].translate(SMALL)
    for names, name in ((words, wanted), (told_apart(words), wanted), (told_apart(words), numbered)):
        places = [place for place, each in enumerate(names) if _folded(each) == name]
        if places:
            return places
    if wanted in map(_folded, everything):
        raise MissingKey(f"--query must be a word that is shown: {query!r} is hidden. Add --specials.")
    import difflib

    near = difflib.get_close_matches(wanted, list(map(_folded, words)), n=1)
    advice = f"Did you mean {near[0]!r}?" if near else f"Its words are: {' '.join(map(shown, dict.fromkeys(words)))}."
    raise MissingKey(f"--query must be a word of the text: got {query!r}. {advice}")


def _folded(word: str) -> str:
    """A word as it is compared: capitals do not count, nor which of two signs an apostrophe is."""
    return word.strip().casefold().replace("’", "'")


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
        for place in seen.places:
            out.print(f"what “{shown(seen.names[place])}” looks at", style="bold", markup=False)
            out.print(draw_ranked(seen.row(place), seen.names, width=width), soft_wrap=True)
    else:
        colour = out.color_system is not None and not out.no_color
        more = "not every word has its place here: -o weights.html shows them all"
        picture = draw_matrix(seen.weights, seen.words, seen.words, width=out.width, colour=colour, more=more)
        out.print(picture, soft_wrap=True)
    hidden = f"{seen.hidden_note}. Show all with --specials" if seen.hidden else seen.hidden_note
    for line in (seen.source, hidden):
        out.print(line, style="dim", markup=False, width=width)
    if seen.unknown:
        out.print(seen.unknown_note, markup=False, width=width)


def told_apart(words: Sequence[str]) -> list[str]:
    """The words, with a small number after those that are there more than once.

    Example:
        >>> told_apart(["he", "saw", "he"])
        ['he₁', 'saw', 'he₂']
    """
    so_far: dict[str, int] = {}
    names = []
    for word in words:
        so_far[word] = so_far.get(word, 0) + 1
        names.append(word + str(so_far[word]).translate(SMALL) if words.count(word) > 1 else word)
    return names


def _save(seen: Seen, look: Look, sentence: str, output: Path) -> None:
    from regard.plots import Picture, matrix, page, ranked

    names = seen.names
    kind = extension_of(output, FORMATS)
    first = seen.places[0] if seen.places else None
    if kind == "json":
        save_json(_described(seen, sentence), output)
    elif kind == "npz":
        _save_arrays(seen, look, output)
    elif kind == "html":
        picture = Picture(seen.weights, names, names, seen.source, "; ".join(seen.notes), first)
        save_text(page(picture, sentence), output)
    elif first is not None:
        notes = [seen.source, *seen.of_first().notes]
        if len(seen.places) > 1:
            notes.append(f"the first of {len(seen.places)}: --query {names[seen.places[1]]} shows the next")
        save_figure(ranked(seen.row(first), names, names[first], note="; ".join(notes)), output)
    else:
        save_figure(matrix(seen.weights, names, title=seen.source, note="; ".join(seen.notes)), output)


def _described(seen: Seen, sentence: str) -> dict[str, Any]:
    names = seen.names
    described: dict[str, Any] = {
        "text": sentence,
        "source": seen.source,
        "axes": "rows are queries, columns are keys",
        "words": seen.words,
        "names": names,
        "unknown": seen.unknown,
        "notes": seen.notes,
        "hidden": seen.hidden,
        "hidden_share": seen.hidden_share.tolist(),
        "weights": seen.weights.tolist(),
    }
    if seen.places:
        described["queries"] = [
            {
                "word": seen.words[place],
                "name": names[place],
                "place": place,
                "looks_at": sorted(
                    (
                        {"word": seen.words[key], "name": names[key], "place": key, "weight": weight}
                        for key, weight in enumerate(seen.row(place))
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
