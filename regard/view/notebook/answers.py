"""What an interactive picture asks of views, and what it is answered: parts of maps as numbers, the rest in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import OptionError, RegardError
from regard.view.colours import legend
from regard.view.drawing import largest_of, percent, ratio, three_digits
from regard.view.levels import Levels, Pooled
from regard.view.one_entry import levels_of

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView
    from regard.weights import Kind

MOST_READ = 1 << 28  # weights that are all read for a map; of more, a part
MOST_AT_ONCE = 1 << 26  # weights in the rows of such a part
FEWEST = 8  # rows of it, nevertheless
MOST_CELLS = 512  # on a side of what is sent: a mebibyte at most
LISTED = 12  # keys of a row
KEPT_MAPS = 4  # of one head each, up to 16 MiB, over all pictures

Answer = tuple[dict[str, Any], list[bytes]]


class Answers:
    """Reads what a picture asks for.

    Args:
        layers: A name and a view for each.
    """

    def __init__(self, layers: Sequence[tuple[str, WeightsView]]) -> None:
        self._layers = list(layers)

    def described(self) -> list[dict[str, Any]]:
        """What there is to choose from: of each layer its name, its axes before queries and keys, and their numbers."""
        return [
            {
                "name": name,
                "axes": [{"label": label, "size": size} for label, size in _axes(view)],
                "queries": view.shape[-2],
                "keys": view.shape[-1],
                "shares": view.kind != "linear",  # linear weights are no shares of anything
            }
            for name, view in self._layers
        ]

    def tensors(self) -> list[Tensor]:
        """What is kept in memory for the picture."""
        return [tensor for _, view in self._layers for tensor in view._problem.form.tensors()]

    def let_go(self) -> None:
        """Forget the views: others need the memory."""
        self._layers.clear()
        _levels.cache_clear()

    def answer(self, asked: Any) -> Answer:
        """A part of a map or a row, with its numbers apart; or what is wrong, in words."""
        try:
            return self._answer(asked if isinstance(asked, dict) else {})
        except RegardError as error:
            return {"error": str(error)}, []
        except KeyboardInterrupt:
            return {"error": "The reading was interrupted. Choose again to read it."}, []
        except Exception as error:  # of a score of the user's own, say: a picture tells it where it is looked at
            return {"error": f"The weights cannot be read: {type(error).__name__}: {error}"}, []

    def _answer(self, asked: dict[str, Any]) -> Answer:
        if not self._layers:
            raise OptionError("Newer pictures needed the memory of this one. Run its cell again to ask it.")
        view = self._layers[_place("layer", asked.get("layer"), len(self._layers))][1]
        view._versions.check()
        entry = asked.get("entry")
        sizes = view.shape[:-2]
        if not isinstance(entry, list) or len(entry) != len(sizes):
            raise OptionError(f"`entry` must have a place on each of {len(sizes)} axes: got {entry!r}.")
        place = tuple(_place("entry", each, size) for each, size in zip(entry, sizes, strict=True))
        levels = _levels(view, place)
        if asked.get("asks") == "map":
            return _map(levels, asked)
        if asked.get("asks") == "row":
            return _row(levels, _place("query", asked.get("query"), levels.n_queries))
        raise OptionError(f"A picture must ask for a map or a row: got {asked.get('asks')!r}.")


@lru_cache(maxsize=KEPT_MAPS)
def _levels(view: WeightsView, entry: tuple[int, ...]) -> Levels:
    return levels_of(view, entry, MOST_READ)


def _axes(view: WeightsView) -> list[tuple[str, int]]:
    """Names and sizes of the axes of a view's batch: heads are the last, as in every picture."""
    *batch, heads = view.shape[:-2] or (None,)
    if heads is None:
        return []
    numbered = [f"Batch entry, axis {axis}" for axis in range(len(batch))] if len(batch) > 1 else ["Batch entry"]
    return [*zip(numbered, batch, strict=False), ("Head", heads)]


def _map(levels: Levels, asked: dict[str, Any]) -> Answer:
    widest = _widest(levels)
    rows = _span("rows", asked.get("rows"), levels.n_queries, widest[0])
    columns = _span("columns", asked.get("columns"), levels.n_keys, widest[1])
    size = asked.get("size")
    if not isinstance(size, list) or len(size) != 2 or not all(_is_number(each) and each > 0 for each in size):
        raise OptionError(f"`size` must be two numbers above 0: got {size!r}.")
    part = levels.part(rows, columns, *(min(each, MOST_CELLS) for each in size))
    weights = part.weights.float().contiguous()
    finite = weights[weights.isfinite()]
    largest = largest_of([float(finite.max())] if finite.numel() else [])
    is_linear = levels.view.kind == "linear"
    told = {
        "rows": list(part.rows),
        "columns": list(part.columns),
        "size": list(weights.shape),
        "widest": list(widest),
        "largest": largest,
        "legend": [f"{weight:.3g}" if is_linear else three_digits(weight) for _, weight in legend(largest)],
        "caption": _caption(part, finite, widest, levels),
    }
    return told, [weights.numpy().astype("<f4", copy=False).tobytes()]


def _widest(levels: Levels) -> tuple[int, int]:
    """How many queries and keys may be seen at once."""
    if levels.reads_whole:
        return levels.n_queries, levels.n_keys
    side = max(MOST_AT_ONCE // (levels.n_keys * levels.entries), FEWEST)
    return min(levels.n_queries, side), min(levels.n_keys, side)


def _caption(part: Pooled, finite: Tensor, widest: tuple[int, int], levels: Levels) -> str:
    sentences = ["Rows are queries, columns are keys."]
    spans = [stop - start for start, stop in (part.rows, part.columns)]
    if spans == list(part.weights.shape):
        sentences.append("Each cell is one weight.")
    else:
        down, across = (ratio(round(span), cells) for span, cells in zip(spans, part.weights.shape, strict=True))
        sentences.append(
            f"A cell is about {down} × {across}: what one of its queries gives to its keys together, on average."
        )
    if not levels.reads_whole:
        sentences.append(f"At most {widest[0]:,} × {widest[1]:,} are seen at once: to read all would take long.")
    if bool((finite < 0).any()):
        sentences.append("Weights below 0 are drawn as 0.")
    if finite.numel() < part.weights.numel():
        sentences.append("Grey is no finite number.")
    return " ".join(sentences)


def _row(levels: Levels, query: int) -> Answer:
    """The heaviest keys of a query, and what the others have together."""
    row = levels.row(query).double()
    numbers = row.nan_to_num(-math.inf, -math.inf, -math.inf)  # what is no finite number comes last
    keys = numbers.topk(min(LISTED, len(row))).indices
    keys = keys[row[keys] != 0]
    weights = row[keys].tolist()
    tell = (lambda weight: f"{weight:.3g}") if levels.view.kind == "linear" else percent
    return {
        "query": query,
        "keys": keys.tolist(),
        "weights": [weight if math.isfinite(weight) else None for weight in weights],  # JSON has no NaN
        "told": [tell(weight) if math.isfinite(weight) else "?" for weight in weights],
        "caption": _about_row(row, keys, levels.view.kind, tell),
    }, []


def _about_row(row: Tensor, keys: Tensor, kind: Kind, tell: Callable[[float], str]) -> str:
    """What keys that are not listed have, and how spread the weights of a query are."""
    if not keys.numel():
        return "It attends to no key."
    others, count = row.index_fill(0, keys, 0.0), len(row) - len(keys)
    if not bool(row.isfinite().all()):
        return "" if bool(others.isfinite().all()) else f"Of {count:,} more, some are no finite number."
    rest = f"{count:,} more share {tell(float(others.sum()))}." if bool(others.any()) else ""
    if kind not in ("convex", "one-hot", "uniform"):
        return rest
    equal = math.exp(float(torch.special.entr(row).sum()))
    if equal < 1.05:
        return rest or "All of it is on one key."
    return f"{rest} As spread as {f'{equal:.2g}' if equal < 100 else f'{round(equal):,}'} keys of equal weight.".strip()


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _place(name: str, given: Any, size: int) -> int:
    if not _is_number(given) or not 0 <= given < size:
        raise OptionError(f"`{name}` must be from 0 to {size - 1}: got {given!r}.")
    return int(given)


def _span(name: str, given: Any, size: int, most: int) -> range:
    """What is asked for; its beginning, where that is more than may be seen at once."""
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(map(_is_number, given))
        or not 0 <= given[0] < given[1] <= size
    ):
        raise OptionError(f"`{name}` must be a first and a last place from 0 to {size}: got {given!r}.")
    return range(given[0], min(given[1], given[0] + most))
