"""What every token of a text attends to, read as weights among the words that people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.text.pieces import Pieces
from regard.view.html import picture_of_recording
from regard.view.notebook import bundle
from regard.view.weights_view import WeightsView

STRIP = 1 << 22  # weights among tokens that are computed at once


@dataclass(frozen=True)
class Look:
    """What every token of a text attends to, in every layer and head.

    Weights among words are computed from the views when they are asked for, a strip of rows at a time: the weights on
    the pieces of a word are summed, and those of its pieces averaged.

    Args:
        pieces: The text whose tokens are the queries.
        views: One a layer, `(1, heads, n_queries, n_keys)`.
        key_pieces: The text whose tokens are the keys, where that is another, as in cross-attention.
        is_causal: Whether a token attends to none that follows it.
    """

    pieces: Pieces
    views: list[WeightsView]
    key_pieces: Pieces | None = None
    is_causal: bool = False

    @property
    def n_layers(self) -> int:
        return len(self.views)

    @property
    def n_heads(self) -> int:
        return int(self.views[0].shape[1])

    @property
    def keys(self) -> Pieces:
        """The text that is attended to."""
        return self.pieces if self.key_pieces is None else self.key_pieces

    @property
    def words(self) -> list[str]:
        return self.pieces.words

    def by_pieces(self) -> Look:
        """The same with each token of the model as a word of its own."""
        keys = None if self.key_pieces is None else self.key_pieces.apart()
        return replace(self, pieces=self.pieces.apart(), key_pieces=keys)

    def weights(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """Weights among words, `(n_words, n_words)`; averaged over layers or heads that are not named.

        Rows are queries, columns are keys.
        """
        return self.rows(range(len(self.words)), layer, head)

    def rows(self, words: Sequence[int], layer: int | None = None, head: int | None = None) -> Tensor:
        """The rows of `weights` for some words, `(len(words), n_words)`."""
        chosen = self.views[_chosen(layer, self.n_layers, "layer")]
        total = torch.zeros(len(words), len(self.keys.words))
        for view in chosen:
            heads = _chosen(head, int(view.shape[1]), "head")
            total += _among_words(view, heads, words, self.pieces, self.keys).mean(0)
        return total / len(chosen)

    def of_heads(self, layer: int, words: Sequence[int] | None = None) -> Tensor:
        """Weights among words of every head of one layer, `(heads, n_words, n_words)`; of some query words."""
        (view,) = self.views[_chosen(layer, self.n_layers, "layer")]
        words = range(len(self.words)) if words is None else words
        return _among_words(view, slice(None), words, self.pieces, self.keys)

    def all_weights(self) -> Tensor:
        """Weights among words of every layer and head, `(layers, heads, n_words, n_words)`."""
        return torch.stack([self.of_heads(layer) for layer in range(self.n_layers)])

    def __repr__(self) -> str:
        # The views' own would draw themselves, a page for each layer.
        return (
            f"<Look at {beginning(self.pieces.text)!r}: {len(self.words)} words, {self.n_layers} layers × "
            f"{self.n_heads} heads. weights(layer, head) reads them>"
        )

    def _repr_html_(self) -> str:
        """In a notebook: a small map of each head of each layer, among the tokens of the model."""
        calls = [(f"layer {layer}", layer, view) for layer, view in enumerate(self.views)]
        return picture_of_recording(calls, self._title)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], Any] | None:
        """In a notebook with anywidget: the interactive picture, with tokens as names."""
        apart = self.by_pieces()
        layers = [(str(layer), view) for layer, view in enumerate(self.views)]
        return bundle(self, self._title, layers, (apart.pieces.words, apart.keys.words))

    @property
    def _title(self) -> str:
        return f"Attention of “{beginning(self.pieces.text)}”"


def beginning(text: str) -> str:
    """A text as an error names it."""
    return text if len(text) <= 40 else text[:40] + "…"


@torch.no_grad()
def _among_words(view: WeightsView, heads: slice, words: Sequence[int], queries: Pieces, keys: Pieces) -> Tensor:
    """`(heads, len(words), n_key_words)`: summed over the keys of a word, averaged over its queries."""
    row_of = {word: row for row, word in enumerate(words)}
    wanted = [(place, row_of[word]) for place, word in enumerate(queries.word_of) if word in row_of]
    columns = torch.tensor(keys.word_of)
    n_heads = len(range(*heads.indices(int(view.shape[1]))))
    found = torch.zeros(n_heads, len(words), len(keys.words))
    counts = torch.zeros(len(words))
    for some in _strips(wanted, int(view.shape[1]) * int(view.shape[-1])):
        rows = torch.tensor([row for _, row in some])
        weights = view.rows([place for place, _ in some])[0, heads].float().cpu()
        summed = weights.new_zeros(*weights.shape[:2], len(keys.words)).index_add_(-1, columns, weights)
        found.index_add_(-2, rows, summed)
        counts.index_add_(0, rows, torch.ones(len(some)))
    return found / counts.clamp_min(1)[:, None]


def _strips(places: list[tuple[int, int]], for_each: int) -> Iterator[list[tuple[int, int]]]:
    height = max(STRIP // max(for_each, 1), 1)
    for start in range(0, len(places), height):
        yield places[start : start + height]


def _chosen(place: int | None, count: int, name: str) -> slice:
    if place is None:
        return slice(None)
    if not -count <= place < count:
        raise OptionError(f"`{name}` must be from 0 to {count - 1}: got {place}.")
    return slice(place % count, place % count + 1)
