"""The room of a sentence: what each of its words attends to, in a real model."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.analysis import mean_distances, mean_entropies
from regard.errors import OptionError
from regard.printable import short_name
from regard.text.look import Look
from regard.text.seen import NothingShown, Seen, hidden_words, most_telling
from regard.view.drawing import three_digits
from regard.view.levels import Pooled, pool
from regard.web.asked import Asked
from regard.web.rooms.sentence_reading import Chosen, Reading, Readings
from regard.web.settings import Settings
from regard.wording import listed

MINILM = "MiniLM"
MOST_LETTERS = 400_000
TOLD = 1 << 16  # pairs of words up to which the most telling head is looked for
SMALL = 24  # cells on a side of a head's map among all the others
LONGEST_NAME = 40  # letters of a word
MOST_ASIDE = 6  # names of what is set aside
MOST_CELLS = 1024  # on a side of a map
MOST_RECORDED = 1 << 30  # bytes of the queries and keys of one text


class AboutModel(Asked):
    """A question about the model, whatever it reads."""


class AboutText(Asked):
    """A question about a text, and how its words are told apart."""

    text: str = Field(max_length=MOST_LETTERS)
    part: Literal["encoder", "decoder", "cross"] | None = None
    target: str | None = Field(None, max_length=MOST_LETTERS)
    pieces: bool = False
    specials: bool = False

    @property
    def chosen(self) -> Chosen:
        """Which weights are meant: the mean of all."""
        return Chosen(self.pieces, self.specials, None, None, False)

    def subject(self) -> str:
        return f"sentence {sha256(self.text.encode()).hexdigest()}"


class AboutHead(AboutText):
    """A question about one head; about the mean of all that are not named, or about rollout through all of them."""

    layer: Annotated[int, Field(ge=0)] | None = None
    head: Annotated[int, Field(ge=0)] | None = None
    rollout: bool = False

    @property
    def chosen(self) -> Chosen:
        """Which weights are meant."""
        if self.rollout:
            return Chosen(self.pieces, self.specials, None, None, True)
        return Chosen(self.pieces, self.specials, self.layer, self.head, False)


Span = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]
Side = Annotated[int, Field(ge=1, le=MOST_CELLS)]


class AboutMap(AboutHead):
    """What part of a head's map is looked at, and how many cells there is room for; all of it, if left out."""

    rows: Span | None = None
    columns: Span | None = None
    size: tuple[Side, Side] = (256, 256)


class AboutRow(AboutHead):
    """What one word attends to: its place, and how many of the heaviest are wanted."""

    place: Annotated[int, Field(ge=0)]
    most: Annotated[int, Field(ge=1, le=1000)] = 40


class AboutHeads(AboutText):
    """Small maps of the heads: of one layer, or all."""

    layer: Annotated[int, Field(ge=0)] | None = None


class MiniLM:
    """The sentence encoder of the library."""

    name = MINILM
    parts: tuple[str, ...] = ("encoder",)

    def __init__(self) -> None:
        from regard.text import SentenceEncoder

        self._encoder = SentenceEncoder.load()
        self.max_length: int | None = self._encoder.max_length

    def look(self, asked: AboutText) -> Look:
        """What every token attends to."""
        if asked.part not in (None, "encoder") or asked.target is not None:
            raise OptionError("MiniLM only reads: it has no other part, and writes nothing.")
        return self._encoder.look(asked.text)


class FromFolder:
    """A model of transformers."""

    def __init__(self, settings: Settings) -> None:
        from regard.integrations.transformers import TextModel

        assert settings.model is not None
        self._model = TextModel.load(settings.model)
        self.name = self._model.name
        self.parts: tuple[str, ...] = self._model.parts
        self.max_length = self._model.max_length

    def look(self, asked: AboutText) -> Look:
        """What every token attends to."""
        part = self._model.choose_part(asked.part, asked.target)
        return self._model.look(asked.text, part, target=asked.target, budget=MOST_RECORDED)


class SentenceRoom:
    """Reads a text once, and answers from what was recorded."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {
        "model": AboutModel,
        "look": AboutText,
        "heads": AboutHeads,
        "map": AboutMap,
        "row": AboutRow,
    }

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._readings = Readings()

    @cached_property
    def _model(self) -> MiniLM | FromFolder:
        return MiniLM() if self._settings.model is None else FromFolder(self._settings)

    def model(self, asked: AboutModel) -> dict[str, Any]:
        """What reads: before it has read anything."""
        return {
            "model": short_name(self._model.name, 80),
            "parts": self._model.parts,
            "part": "cross" if "cross" in self._model.parts else self._model.parts[0],
            "max_length": self._model.max_length,
        }

    def look(self, asked: AboutText) -> Any:
        """What there is to see of a text."""
        reading = self._reading(asked)
        look = reading.look
        model = self.model(AboutModel())
        known = model | {
            "part": asked.part or model["part"],
            "n_layers": look.n_layers,
            "n_heads": look.n_heads,
            "n_pieces": [len(look.pieces), len(look.keys)],
            "is_causal": look.is_causal,
            "is_square": reading.is_square,
            "is_long": reading.is_long,
            "written": None if reading.is_square and not self._writes(asked) else look.pieces.text,
        }
        if reading.is_long:
            apart = look.by_pieces()
            names = [_names(text.words) for text in (apart.pieces, apart.keys)]
            return known | _named(names, reading.is_square) | {"telling": None, "aside": _aside(reading.added_words)}
        seen = _seen(reading, asked)
        names = [_names(seen.names), _names(seen.key_names)]
        aside = _aside(hidden_words(look.keys))
        return known | _named(names, reading.is_square) | {"telling": _telling(seen), "aside": aside}

    def heads(self, asked: AboutHeads) -> Any:
        """Small maps of the heads of a layer, or of all; with their entropies and distances, where all is computed."""
        reading = self._reading(asked)
        look = reading.look
        layers = range(look.n_layers) if asked.layer is None else [asked.layer]
        if asked.layer is not None and asked.layer >= look.n_layers:
            raise OptionError(f"`layer` must be from 0 to {look.n_layers - 1}: got {asked.layer}.")
        views = [look.views[layer] for layer in layers]
        found: dict[str, Any] = {"layers": list(layers), "entropies": None, "distances": None}
        if reading.is_long:
            maps = torch.stack([_sampled(reading, layer, asked.specials) for layer in layers])
        else:
            seen = _seen(reading, asked)
            maps = torch.stack([_small(seen, layer) for layer in layers])
            found["entropies"] = mean_entropies(views).tolist()
            found["distances"] = mean_distances(views).tolist() if reading.is_square else None
        return found | {"size": list(maps.shape[-2:]), "maps": _packed(maps), "largest": _largest(maps)}

    def map(self, asked: AboutMap) -> Any:
        """A part of a map, at the level of detail that there is room for."""
        reading, height, width = self._reading(asked), *asked.size
        if reading.is_long:
            head = reading.head(*_one_head(asked), asked.specials)
            rows, columns = _span(asked.rows, head.n_queries), _span(asked.columns, head.n_keys)
            source = f"layer {asked.layer}, head {asked.head}"
            note = _note_of_long(reading.added_words, head.hidden_share, asked.specials)
            return _drawn(head.part(rows, columns, height, width)) | {"source": source, "notes": [note]}
        seen = _seen(reading, asked)
        weights = seen.weights
        rows, columns = _span(asked.rows, weights.shape[0]), _span(asked.columns, weights.shape[1])
        return _drawn(pool(weights, rows, columns, height, width)) | {"source": seen.source, "notes": seen.notes}

    def row(self, asked: AboutRow) -> Any:
        """What one word attends to, heaviest first."""
        reading = self._reading(asked)
        if reading.is_long:
            head = reading.head(*_one_head(asked), asked.specials)
            _check_place(asked.place, head.n_queries)
            row = head.row(asked.place)
        else:
            weights = _seen(reading, asked).weights
            _check_place(asked.place, weights.shape[0])
            row = weights[asked.place]
        top = row.topk(min(asked.most, len(row)))
        return {
            "places": top.indices.tolist(),
            "weights": top.values.tolist(),
            "rest": max(float(row.sum() - top.values.sum()), 0.0),
            "entropy": float(torch.special.entr(row).sum()),
        }

    def _reading(self, asked: AboutText) -> Reading:
        if not asked.text.strip():
            raise OptionError("There are no words yet: write a sentence.")
        return self._readings.get((asked.text, asked.part, asked.target), lambda: self._model.look(asked))

    def _writes(self, asked: AboutText) -> bool:
        return "cross" in self._model.parts and asked.part != "encoder"


def _seen(reading: Reading, asked: AboutText) -> Seen:
    try:
        return reading.seen(asked.chosen)
    except NothingShown:
        who, what = "There are", ""
        if not reading.is_square and asked.target is None:
            who, what = "The model writes", "Type what is to be written, or tick"
        raise OptionError(
            f"{who} no words here, only punctuation or symbols. {what or 'Tick'} “Show what is set aside” to see them."
        ) from None


def _telling(seen: Seen) -> list[int] | None:
    """The layer and head whose weights depend most on both words; None where that would take long."""
    if len(seen.rows) * len(seen.columns) > TOLD:
        return None
    look = seen.look
    weights = [look.of_heads(layer, seen.rows)[..., seen.columns] for layer in range(look.n_layers)]
    return list(most_telling(torch.stack(weights), causal=look.is_causal, square=look.key_pieces is None))


def _small(seen: Seen, layer: int) -> Tensor:
    """The heads of a layer among the words that are shown, each cell its heaviest weight, `(heads, height, width)`."""
    weights = seen.of_heads(layer)
    sides = [min(side, SMALL) for side in weights.shape[-2:]]
    return torch.nn.functional.adaptive_max_pool2d(weights, sides)


def _sampled(reading: Reading, layer: int, specials: bool) -> Tensor:
    """Some evenly spaced queries of every head of a layer, with the heaviest weight of each run of keys."""
    view = reading.look.views[layer]
    n_queries, n_keys = view.shape[-2:]
    rows = [(2 * place + 1) * n_queries // (2 * SMALL) for place in range(SMALL)] if n_queries > SMALL else None
    weights = view.rows(slice(None) if rows is None else rows)[0].float()
    if not specials and reading.added:
        weights[..., reading.added] = 0
        weights /= weights.sum(-1, keepdim=True).clamp_min(1e-30)
    return torch.nn.functional.adaptive_max_pool2d(weights, (weights.shape[-2], min(n_keys, SMALL)))


def _named(names: list[list[str]], is_square: bool) -> dict[str, Any]:
    queries, keys = names
    return {"queries": queries, "keys": None if is_square and queries == keys else keys}


def _names(words: list[str]) -> list[str]:
    return [short_name(word, LONGEST_NAME) for word in words]


def _aside(hidden: list[str]) -> list[str]:
    names = [short_name(each, LONGEST_NAME) for each in hidden[:MOST_ASIDE]]
    return names if len(hidden) <= MOST_ASIDE else [*names, f"{len(hidden) - MOST_ASIDE} more"]


def _note_of_long(added: list[str], share: float, specials: bool) -> str:
    if specials or not added:
        return "nothing is hidden and nothing is scaled"
    are, they = ("are", "they take") if len(added) > 1 else ("is", "it takes")
    return (
        f"{listed([short_name(each) for each in added])} {are} set aside as keys: {they} {three_digits(share)} of the "
        f"weight of queries across the text, and the rest is scaled up to 1"
    )


def _one_head(asked: AboutHead) -> tuple[int | None, int | None]:
    if asked.rollout:
        raise OptionError("A text this long is shown head by head: rollout is for shorter ones.")
    return asked.layer, asked.head


def _span(given: tuple[int, int] | None, size: int) -> range:
    start, stop = given or (0, size)
    if not 0 <= start < stop <= size:
        raise OptionError(f"A part of a map must be from 0 to {size}: got {start} to {stop}.")
    return range(start, stop)


def _check_place(place: int, size: int) -> None:
    if place >= size:
        raise OptionError(f"`place` must be from 0 to {size - 1}: got {place}.")


def _drawn(part: Pooled) -> dict[str, Any]:
    return {
        "rows": part.rows,
        "columns": part.columns,
        "size": list(part.weights.shape),
        "weights": _packed(part.weights),
        "largest": _largest(part.weights),
    }


def _largest(weights: Tensor) -> float:
    return float(weights.nan_to_num(0.0, 0.0, 0.0).max())


def _packed(weights: Tensor) -> str:
    """Numbers as the page reads them fastest: float32, little-endian, base64."""
    return b64encode(weights.float().contiguous().numpy().astype("<f4").tobytes()).decode()
