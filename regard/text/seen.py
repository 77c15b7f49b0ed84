"""What a picture of a sentence shows: whose weights, among which words, and what has to be said about them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from regard.errors import MissingKey, OptionError
from regard.printable import short_name
from regard.wording import SMALL, listed, told_apart

if TYPE_CHECKING:
    from torch import Tensor

    from regard.text import Look, Pieces

MOST_UNKNOWN = 8  # that are named
FEW_WEIGHTS = 1 << 20
MOST_WEIGHTS = 1 << 26  # among the words of one picture: 8,192 × 8,192


class NothingShown(OptionError):
    """All that a text has is set aside."""


class Layered(Protocol):
    """Weights of layers by number; a tensor is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, layer: int) -> Tensor: ...


@dataclass(frozen=True)
class Seen:
    """Weights among the words that are shown, and what has to be said about them."""

    look: Look
    rows: list[int]  # which words are shown as queries
    columns: list[int]  # and which as keys
    layer: int | None
    head: int | None
    hidden: list[str]  # what is not shown: what the model added, "punctuation" where there is any, and each symbol
    places: list[int]  # among the words shown, where the query is
    source: str  # which layers and heads

    @property
    def words(self) -> list[str]:
        """The words shown as queries."""
        return [self.look.words[place] for place in self.rows]

    @property
    def key_words(self) -> list[str]:
        """The words shown as keys."""
        return [self.look.keys.words[place] for place in self.columns]

    @property
    def names(self) -> list[str]:
        """The queries, told apart where one is there more than once."""
        return told_apart(self.words)

    @property
    def key_names(self) -> list[str]:
        """The keys, likewise."""
        return told_apart(self.key_words)

    @property
    def is_square(self) -> bool:
        """Whether what attends is what is attended to."""
        return self.look.key_pieces is None

    @property
    def weights(self) -> Tensor:
        """`(n_queries, n_keys)`, each row scaled to what it had before hidden keys were taken out."""
        return self._whole[0]

    @property
    def bytes(self) -> int:
        """What is kept of them, once they were computed."""
        return sum(each.nbytes for each in self.__dict__.get("_whole", ()))

    @property
    def hidden_share(self) -> Tensor:
        """`(n_queries,)`: of each row's weight, that on hidden keys."""
        return self._whole[1]

    @property
    def unknown(self) -> list[str]:
        """What is shown and the model cannot tell apart: it reads one and the same piece for each."""
        shown = [(self.look.pieces, self.rows), (self.look.keys, self.columns)]
        return list(dict.fromkeys(text.unknown[at] for text, places in shown for at in places if text.unknown[at]))

    @property
    def hidden_note(self) -> str:
        """What is hidden, and how much of the weight that is."""
        if not self.hidden:
            return "nothing is hidden and nothing is scaled"
        share = self._of(self.places)[1] if self.places else self.hidden_share
        asked = [f"“{short_name(self.names[place])}”" for place in self.places]
        of = f"the weight of {listed(asked)}" if asked else "the weight"
        are, they, take = ("are", "they", "take") if len(self.hidden) > 1 else ("is", "it", "takes")
        return (
            f"{listed(list(map(short_name, self.hidden)))} {are} hidden: {they} {take} {float(share.mean()):.0%} of "
            f"{of}, and the rest is scaled up to 1"
        )

    @property
    def unknown_note(self) -> str:
        """What the model did not read, though it is shown; empty if it read everything."""
        if not self.unknown:
            return ""
        piece = self.look.keys.unknown_piece
        if len(self.unknown) == 1:
            return f"{short_name(self.unknown[0])} is unknown to the model, which reads {piece} in its place"
        names = [short_name(each) for each in self.unknown[:MOST_UNKNOWN]]
        if len(self.unknown) > MOST_UNKNOWN:
            names.append(f"{len(self.unknown) - MOST_UNKNOWN} more")
        return f"{listed(names)} are unknown to the model, which reads them as one and the same, {piece}"

    @property
    def axes_note(self) -> str:
        """What rows and columns are, where that is not one and the same text."""
        return "" if self.is_square else "rows are what is written, each at the step that writes it; columns are read"

    @property
    def notes(self) -> list[str]:
        """What a picture has to say: what its axes are, what is hidden, and what is unknown."""
        return [note for note in (self.axes_note, self.hidden_note, self.unknown_note) if note]

    def of_first(self) -> Seen:
        """The same for the first of its queries alone."""
        return replace(self, places=self.places[:1])

    def row(self, place: int) -> list[float]:
        """The weights of one query."""
        found: list[float] = self._of([place])[0][0].tolist()
        return found

    def of_heads(self, layer: int) -> Tensor:
        """Those of every head of one layer, `(heads, n_queries, n_keys)`, scaled likewise."""
        weights = self.look.of_heads(layer, self.rows)[..., self.columns]
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30) if self.hidden else weights

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor]:
        if len(self.rows) * len(self.columns) > MOST_WEIGHTS:
            raise OptionError(
                f"A picture must have at most {MOST_WEIGHTS:,} weights: got {len(self.rows):,} × {len(self.columns):,} "
                f"words. Pass query= to see what one of them attends to, or a shorter text."
            )
        return self._of(range(len(self.rows)))

    def _of(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Weights, and shares of hidden keys, of some queries."""
        # Where the whole is there or cheap, a row is one of it: to the last digit the same, whichever is asked first.
        few = len(self.rows) * len(self.columns) <= min(FEW_WEIGHTS, MOST_WEIGHTS)
        if len(places) < len(self.rows) and (few or "_whole" in self.__dict__):
            return self._whole[0][list(places)], self._whole[1][list(places)]
        weights = self.look.rows([self.rows[place] for place in places], self.layer, self.head)
        if not self.hidden:
            return weights[:, self.columns], weights.new_zeros(len(places))
        weights = weights[:, self.columns]
        total = weights.sum(-1, keepdim=True)
        share = (1 - total[:, 0]).clamp_min(0)  # a sum of floats may be above 1
        return weights / total.clamp_min(1e-30), share


def choose_maps(
    look: Look,
    layer: int | None = None,
    head: int | str | None = None,
    query: str | Sequence[str] | None = None,
    specials: bool = False,
) -> Seen:
    """The weights to show: of a layer and head or averaged, without what is hidden, each row scaled to sum to 1.

    Args:
        look: What a model attends to.
        layer: Which layer; their average if left out.
        head: Which head, or "telling"; their average if left out.
        query: Words whose rows are wanted.
        specials: Whether to show what the model adds, punctuation and symbols, too; nothing is scaled then.
    """
    _check_place("layer", layer, look.n_layers)
    _check_place("head", head, look.n_heads)
    rows, columns = (
        [place for place, word in enumerate(text.words) if specials or not _is_hidden(text, place, word)]
        for text in (look.pieces, look.keys)
    )
    if not rows or not columns:
        raise NothingShown(
            "There are no words: the text has only punctuation or symbols. Pass specials=True to see it."
        )
    words = [look.words[place] for place in rows]
    queries = [query] if isinstance(query, str) else query or ()
    places = list(dict.fromkeys(place for each in queries for place in _find(each, words, look.words)))
    if head == "telling":
        shown = _Shown(look, rows, columns)
        layer, head = most_telling(shown, layer, causal=look.is_causal, square=look.key_pieces is None)
        source = f"layer {layer}, head {head}, the most telling"
    else:
        source = f"{_counted(layer, look.n_layers, 'layer')}, {_counted(head, look.n_heads, 'head')}"
    assert not isinstance(head, str)
    return Seen(look, rows, columns, layer, head, [] if specials else hidden_words(look.keys), places, source)


@dataclass(frozen=True)
class _Shown:
    """The weights among shown words, a layer at a time: `shown[layer]` is `(heads, n_queries, n_keys)`."""

    look: Look
    rows: list[int]
    columns: list[int]

    def __len__(self) -> int:
        return self.look.n_layers

    def __getitem__(self, layer: int) -> Tensor:
        if self.look.n_heads * len(self.rows) * len(self.columns) > MOST_WEIGHTS:
            raise OptionError(
                f"`head` 'telling' must have at most {MOST_WEIGHTS:,} weights in a layer: got {self.look.n_heads} "
                f"heads of {len(self.rows):,} × {len(self.columns):,} words. Name a head, or take a shorter text."
            )
        return self.look.of_heads(layer, self.rows)[..., self.columns]


def most_telling(
    weights: Layered, layer: int | None = None, *, causal: bool = False, square: bool = True
) -> tuple[int, int]:
    """The layer and head whose weights depend most on both words, and least on places.

    That is where Σ α(q, k) · ln(α(q, k) / b(q, k)) is largest. b(q, k) is what one would expect without knowing both:
    the mean weight of that key, or of that distance, whichever is larger; means are over the pairs that the model
    allows. Only words more than one apart count. So a head that attends to the word before, or to one word always,
    tells nothing. Between two texts there are no distances: b is the mean of the key, and every pair counts.

    Args:
        weights: `(layers, heads, n_words, n_words)`, or a layer of it by its number; among the words shown and not
            scaled.
        layer: Which layer; any if left out.
        causal: Whether a word attends to none that follows it.
        square: Whether queries and keys are words of one text.

    Example:
        >>> import torch
        >>> before, mirrored = torch.eye(6).roll(-1, 1), torch.eye(6).flip(0)
        >>> most_telling(torch.stack([before, mirrored, torch.full((6, 6), 1 / 6)])[None])
        (0, 1)
    """
    if layer is not None and not -len(weights) <= layer < len(weights):
        raise OptionError(f"`layer` must be from 0 to {len(weights) - 1}: got {layer}. Layers count from 0.")
    chosen = range(len(weights)) if layer is None else [layer % len(weights)]
    told = {
        (each, head): float(found)
        for each in chosen
        for head, found in enumerate(_told_by_heads(weights[each], causal, square))
    }
    return max(told, key=lambda pair: told[pair])


def _told_by_heads(weights: Tensor, causal: bool, square: bool) -> Tensor:
    """What each head of a layer tells, `(heads,)`."""
    import torch

    n_queries, size = weights.shape[-2:]
    allowed = torch.ones(n_queries, size)
    allowed = allowed.tril() if causal else allowed
    expected = weights.sum(-2, keepdim=True) / allowed.sum(-2, keepdim=True).clamp_min(1)
    counted = allowed
    if square:
        distance = torch.arange(size)[:, None] - torch.arange(size) + size - 1  # from 0, for places in a list
        totals = weights.new_zeros(len(weights), 2 * size - 1)
        totals.index_add_(-1, distance.flatten(), weights.flatten(-2))
        by_distance = (totals / torch.bincount(distance.flatten()))[..., distance]
        expected = torch.maximum(by_distance, expected)
        counted = (distance - size + 1).abs() > 1
    told = torch.special.xlogy(weights, weights / expected.clamp_min(1e-30))
    sums: Tensor = (told * counted).sum((-2, -1))
    return sums


def _is_hidden(text: Pieces, place: int, word: str) -> bool:
    return text.special[place] or _is_punctuation(word) or _is_symbol(word)


def _is_punctuation(word: str) -> bool:
    return all(unicodedata.category(letter)[0] == "P" for letter in word)


def _is_symbol(word: str) -> bool:
    """Whether a word is made of signs such as $, < and +; not of pictures, which Unicode calls symbols too."""
    return all(unicodedata.category(letter) in ("Sc", "Sk", "Sm") for letter in word)


def hidden_words(text: Pieces) -> list[str]:
    """What is not shown, each once: what the model added, punctuation under that name, and symbols themselves."""
    added = [word for word, special in zip(text.words, text.special, strict=True) if special]
    others = [word for word, special in zip(text.words, text.special, strict=True) if not special]
    punctuation = ["punctuation"] if any(map(_is_punctuation, others)) else []
    return [*dict.fromkeys(added), *punctuation, *dict.fromkeys(filter(_is_symbol, others))]


def _check_place(name: str, place: int | str | None, count: int) -> None:
    if isinstance(place, int) and not -count <= place < count:
        raise OptionError(
            f"`{name}` must be from 0 to {count - 1}, or from -{count} to -1 counted from the end: got {place}."
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
        raise MissingKey(f"`query` must be a word that is shown: {query!r} is hidden. Pass specials=True.")
    import difflib

    near = difflib.get_close_matches(wanted, list(map(_folded, words)), n=1)
    advice = (
        f"Did you mean {near[0]!r}?" if near else f"Its words are: {' '.join(map(short_name, dict.fromkeys(words)))}."
    )
    raise MissingKey(f"`query` must be a word of the text: got {query!r}. {advice}")


def _folded(word: str) -> str:
    """A word as it is compared: capitals do not count, nor which of two signs an apostrophe is."""
    return word.strip().casefold().replace("’", "'")


def _counted(place: int | str | None, count: int, name: str) -> str:
    return f"average of {count} {name}s" if place is None else f"{name} {int(place) % count}"
