"""What is kept of the texts that were read: queries and keys, within a budget, and the weights that come of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from regard.analysis import rollout
from regard.errors import OptionError
from regard.text.look import Look
from regard.text.pieces import by_words
from regard.text.seen import Seen, choose_maps
from regard.web.rooms.sentence_heads import LongHead

LONG = 1 << 20  # pairs of pieces above which weights among words are no longer all computed
KEPT_HEADS = 4  # of a long text: each keeps a map of up to 16 MiB
KEPT_MAPS = 16  # of any other: each has at most so many weights as there are pairs
KEPT_BYTES = 1 << 29  # of all texts: recordings, and what came of them


class RolledOut(Look):
    """How much of each word reaches each through all layers, residual connections included: attention rollout."""

    def rows(self, words: Sequence[int], layer: int | None = None, head: int | None = None) -> Tensor:
        """Rows of it for some words; layers and heads are all in it."""
        word_of = self.pieces.word_of
        wanted = set(words)
        places = [place for place, word in enumerate(word_of) if word in wanted]
        reached = rollout(self.views, places)[0]
        order = {word: row for row, word in enumerate(sorted(wanted))}
        found = by_words(reached, [order[word_of[place]] for place in places], word_of)
        return found[[order[word] for word in words]]


@dataclass(frozen=True)
class Chosen:
    """Which weights of a text are meant: of a layer and head, of their mean, or rolled out through all of them."""

    pieces: bool
    specials: bool
    layer: int | None
    head: int | None
    rolled_out: bool


class Reading:
    """A text that a model has read: what its heads attend to, computed when it is asked for."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._maps: OrderedDict[Chosen, Seen] = OrderedDict()
        self._heads: OrderedDict[tuple[int, int, bool], LongHead] = OrderedDict()

    @property
    def is_square(self) -> bool:
        """Whether what attends is what is attended to."""
        return self.look.key_pieces is None

    @cached_property
    def is_long(self) -> bool:
        """Whether its weights are too many to compute all of them, of all heads."""
        return len(self.look.pieces) * len(self.look.keys.word_of) > LONG

    @property
    def bytes(self) -> int:
        """What it takes: its queries and keys, and the heads and maps that are kept of it."""
        maps, heads = self._maps.values(), self._heads.values()
        return self._recorded + sum(each.bytes for each in maps) + sum(each.bytes for each in heads)

    @cached_property
    def _recorded(self) -> int:
        tensors = {id(each): each for view in self.look.views for each in view._problem.form.tensors()}
        return sum(each.nbytes for each in tensors.values())

    def seen(self, chosen: Chosen) -> Seen:
        """The weights among words of a text that is not long, with what has to be said about them."""
        if chosen not in self._maps:
            self._maps[chosen] = self._see(chosen)
        self._maps.move_to_end(chosen)
        while len(self._maps) > KEPT_MAPS:
            self._maps.popitem(last=False)
        return self._maps[chosen]

    def head(self, layer: int | None, head: int | None, specials: bool) -> LongHead:
        """One head of a long text."""
        if layer is None or head is None:
            raise OptionError("A text this long is shown head by head: name a layer and a head.")
        for name, place, count in (("layer", layer, self.look.n_layers), ("head", head, self.look.n_heads)):
            if place >= count:
                raise OptionError(f"`{name}` must be from 0 to {count - 1}: got {place}.")
        key = (layer, head, specials)
        if key not in self._heads:
            hidden = [] if specials else self.added
            self._heads[key] = LongHead(self.look.views[layer], head, hidden)
        self._heads.move_to_end(key)
        while len(self._heads) > KEPT_HEADS:
            self._heads.popitem(last=False)
        return self._heads[key]

    @property
    def added(self) -> list[int]:
        """The keys that the model added, by their place among the pieces."""
        keys = self.look.keys
        return [place for place, word in enumerate(keys.word_of) if keys.special[word]]

    @property
    def added_words(self) -> list[str]:
        """Their names, each once."""
        keys = self.look.keys
        return list(dict.fromkeys(keys.words[keys.word_of[place]] for place in self.added))

    def _see(self, chosen: Chosen) -> Seen:
        look = self.look
        if chosen.rolled_out:
            if not self.is_square:
                raise OptionError("Rollout must have a text that attends to itself: choose another part of the model.")
            look = RolledOut(look.pieces, look.views, look.key_pieces, look.is_causal)
        look = look.by_pieces() if chosen.pieces else look
        seen = choose_maps(look, chosen.layer, chosen.head, specials=chosen.specials)
        return replace(seen, source=f"rollout through {look.n_layers} layers") if chosen.rolled_out else seen


class Readings:
    """The texts that were read last, within a budget of bytes: who asks again does not run the model again."""

    def __init__(self, budget: int = KEPT_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[tuple[str | None, ...], Reading] = OrderedDict()

    def get(self, key: tuple[str | None, ...], read: Callable[[], Look]) -> Reading:
        """What was kept under a key; read now, if nothing was."""
        if key not in self._kept:
            self._kept[key] = Reading(read())
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(each.bytes for each in self._kept.values()) > self._budget:
            self._kept.popitem(last=False)
        return self._kept[key]
