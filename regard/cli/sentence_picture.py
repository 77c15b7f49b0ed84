"""What a picture of a sentence shows: whose weights, among which words, and what has to be said about them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from regard.cli.wording import SMALL, listed, told_apart
from regard.errors import MissingKey, OptionError
from regard.plots.bounded import short_name

if TYPE_CHECKING:
    from torch import Tensor

    from regard.text import Look

MOST_UNKNOWN = 8  # that are named


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
        asked = [f"“{short_name(self.names[place])}”" for place in self.places]
        of = f"the weight of {listed(asked)}" if asked else "the weight"
        return (
            f"{listed(self.hidden)} are hidden: they take {float(share.mean()):.0%} of {of}, and the rest is scaled "
            f"up to 1"
        )

    @property
    def unknown_note(self) -> str:
        """What the model did not read, though it is shown; empty if it read everything."""
        if not self.unknown:
            return ""
        if len(self.unknown) == 1:
            return f"{short_name(self.unknown[0])} is unknown to the model, which reads [UNK] in its place"
        names = [short_name(each) for each in self.unknown[:MOST_UNKNOWN]]
        if len(self.unknown) > MOST_UNKNOWN:
            names.append(f"{len(self.unknown) - MOST_UNKNOWN} more")
        return f"{listed(names)} are unknown to the model, which reads them as one and the same, [UNK]"

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


def choose_maps(
    look: Look, layer: int | None, head: int | str | None, query: str | Sequence[str] | None, specials: bool
) -> Seen:
    """The weights to show: of a layer and head or averaged, without what is hidden, each row scaled to sum to 1."""
    _check_place("--layer", layer, look.n_layers)
    _check_place("--head", head, look.n_heads)
    kept = [place for place, word in enumerate(look.words) if specials or not _is_hidden(look, place, word)]
    if not kept:
        raise OptionError("There are no words: the text has only punctuation or symbols. Use --specials to see it.")
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
    """The layer and head whose weights depend most on both words, and least on places.

    That is where Σ α(q, k) · ln(α(q, k) / b(q, k)) is largest. b(q, k) is what one would expect without knowing both:
    the mean weight of that key, or of that distance, whichever is larger. Only words more than one apart count. So a
    head that attends to the word before, or to one word always, tells nothing.

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
    advice = (
        f"Did you mean {near[0]!r}?" if near else f"Its words are: {' '.join(map(short_name, dict.fromkeys(words)))}."
    )
    raise MissingKey(f"--query must be a word of the text: got {query!r}. {advice}")


def _folded(word: str) -> str:
    """A word as it is compared: capitals do not count, nor which of two signs an apostrophe is."""
    return word.strip().casefold().replace("’", "'")


def _counted(place: int | str | None, count: int, name: str) -> str:
    return f"average of {count} {name}s" if place is None else f"{name} {int(place) % count}"
