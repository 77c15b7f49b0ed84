"""The weights of every head of every layer as pictures of a bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import OptionError, ShapeError
from regard.plots.bounded import as_tensor, every_picture, pooling_notes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class EveryHead:
    """The weights of each layer of one sequence, `(heads, n_queries, n_keys)`, and the layers' numbers."""

    layers: list[Any]
    numbers: list[int]

    @property
    def counts(self) -> list[int]:
        """How many heads each layer has."""
        return [int(layer.shape[-3]) for layer in self.layers]

    @property
    def sizes(self) -> set[tuple[int, int]]:
        """How many queries and keys there are; the layers of an encoder-decoder may differ."""
        return {(int(layer.shape[-2]), int(layer.shape[-1])) for layer in self.layers}

    def pictures(self, height: int, width: int) -> tuple[list[list[Tensor]], list[str]]:
        """A picture of at most that size for each head of each layer, and what has to be said of them."""
        found: list[list[Tensor]] = []
        notes: list[str] = []
        for layer in self.layers:
            pictures, (*_, n_queries, n_keys) = every_picture(layer, height, width)
            found.append(list(pictures.flatten(0, -3)))
            notes += [
                each for each in pooling_notes((n_queries, n_keys), tuple(pictures.shape[-2:])) if each not in notes
            ]
        return found, notes


def every_head(weights: Any) -> EveryHead:
    """The weights of every head.

    Args:
        weights: A tensor `(layers, heads, n_queries, n_keys)`, or a list with the weights of each layer
            `(heads, n_queries, n_keys)`: tensors or what `weigh` gives; or what `nn.record` kept of one sequence, whose
            layers were called once each.
    """
    from regard.nn.recording import Recording
    from regard.view.weights_view import WeightsView

    numbers = getattr(weights, "numbers", None)  # a recording may be of some layers
    views = "recording.views()" if isinstance(weights, Recording) else "views"
    if isinstance(weights, Recording):
        several = [name for name in weights.layers if len(weights.views(name)) > 1]
        if several:
            raise OptionError(
                f"A recording must have one call of each layer to be drawn: {several[0]} was called "
                f"{len(weights.views(several[0]))} times, as each step of `generate` does. Pass those of one: "
                f"[recording.views(layer)[step] for layer in recording.layers]."
            )
        weights = [weights[layer] for layer in weights.layers]
    elif isinstance(weights, WeightsView):
        weights = [weights]
    elif not isinstance(weights, list | tuple):
        tensor = as_tensor(weights)
        if tensor.ndim != 4:
            raise ShapeError(
                f"`weights` must be (layers, heads, n_queries, n_keys): got {tuple(tensor.shape)}. "
                f"Add an axis of 1 for what is missing."
            )
        weights = list(tensor)
    if not weights:
        raise ShapeError("`weights` must have at least one layer: got none.")
    layers = [layer if hasattr(layer, "shape") else as_tensor(layer) for layer in weights]
    for layer in layers:
        shape = tuple(layer.shape)
        batch, count = shape[:-3], shape[-3] if len(shape) >= 3 else 0
        if not count or any(size != 1 for size in batch):
            first = (
                f"view.dense()[0] for view in {views}"
                if isinstance(layer, WeightsView)
                else "each[0] for each in weights"
            )
            raise ShapeError(
                f"Each layer's weights must be (heads, n_queries, n_keys): got {shape}. Pass those of one sequence: "
                f"[{first}], or record one alone."
            )
    return EveryHead(layers, list(range(len(layers)) if numbers is None else numbers))
