"""Softmax: α = exp(a) / Σ exp(a)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.learned import as_text, keep, keep_positive
from regard.modes import is_hidden
from regard.weights.onepass import OnePass, shift
from regard.weights.rule import Statistics, Weights, masked


def softmax(scores: Tensor, allowed: Tensor | None = None, *, sink: Tensor | None = None) -> Tensor:
    """exp(a) / Σ exp(a) over the allowed keys, row by row; zeros in a row that allows none.

    Args:
        scores: `(..., n_queries, n_keys)`.
        allowed: Boolean, broadcast to the scores.
        sink: The logit of one more key, of value zero: its weight is left out of the result.

    Example:
        >>> import torch
        >>> from regard.weights import softmax
        >>> softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    scores = masked(scores, allowed)
    if scores.shape[-1] == 0:
        return scores
    peak = scores.detach().amax(-1, keepdim=True)
    if sink is not None:
        peak = torch.maximum(peak, sink.detach())
    # A score of +inf makes all of its row NaN, as inf − inf is.
    peak = torch.where(peak == torch.inf, torch.nan, peak)
    numerators = shift(scores, peak)
    total = numerators.sum(-1, keepdim=True)
    if sink is not None:
        total = total + shift(sink, peak)
    # Where the total is NaN so is every numerator but those of keys that are not allowed, and 0 / NaN would be NaN.
    return numerators / torch.where((total == 0) | total.isnan(), 1, total)


class Softmax(OnePass):
    """α = exp(a / temperature) / Σ exp(a / temperature): non-negative weights that sum to 1, the most common setting.

    Args:
        temperature: A positive number, or an `nn.Parameter` to learn it.
        sink: The logit of one more key whose value is zero, so that a query may attend to nothing: a number, or an
            `nn.Parameter` (one, or one for each entry of the last batch axis) to learn it.

    Example:
        >>> import torch
        >>> from regard import Softmax
        >>> Softmax()(torch.tensor([[0.0, 0.0]]))
        tensor([[0.5000, 0.5000]])
        >>> Softmax(sink=0.0)(torch.tensor([[0.0, 0.0]]))
        tensor([[0.3333, 0.3333]])
    """

    normalized = True
    shifted = True
    temperature: float | Tensor
    sink: float | Tensor | None

    def __init__(self, temperature: float | nn.Parameter = 1.0, sink: float | Tensor | None = None) -> None:
        super().__init__()
        keep_positive(self, "temperature", temperature)
        if sink is not None and _is_nan(sink):
            raise OptionError(f"`sink` of Softmax must be a logit: got {sink}. Leave it out for none.")
        keep(self, "sink", sink)

    @property
    def kind(self) -> str:  # type: ignore[override]
        # With a sink the weights sum to less than 1: the rest went to the key of value zero.
        return "convex" if self.sink is None else "conic"

    @property
    def factor(self) -> float | Tensor:
        return 1 / self.temperature

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.sink.shape) if isinstance(self.sink, Tensor) else ()

    def define(self, scores: Tensor) -> Tensor:
        return softmax(scores, sink=self._sink(scores))

    def numerators(self, scores: Tensor, peak: Tensor | None) -> Tensor:
        return shift(scores, peak)

    def finish(self, peak: Tensor, total: Tensor) -> Statistics:
        sink = self._sink(total)
        if sink is None:
            return super().finish(peak, total)
        # The sink joins at the end, once, so that parts can be merged before.
        new_peak = torch.maximum(peak, sink)
        return super().finish(new_peak, total * shift(peak, new_peak) + shift(sink, new_peak))

    def arguments(self) -> tuple[object, ...]:
        return 1.0, self.sink

    def learned(self) -> tuple[Tensor, ...]:
        return (self.sink,) if isinstance(self.sink, Tensor) and self.sink.requires_grad else ()

    learned_gradients = Weights.learned_gradients

    def tangents(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> tuple[Tensor, ...]:
        return (-weights * self.sink_weight(statistics),)

    def sink_weight(self, statistics: Statistics) -> Tensor:
        """The weight of the sink in each row, `(..., n_queries, 1)`."""
        peak, total = statistics
        sink = self._sink(peak)
        assert sink is not None
        return shift(sink, peak) / total

    def log_normalizer(self, statistics: Statistics) -> Tensor:
        peak, total = statistics
        return torch.where(total == torch.inf, -torch.inf, peak + total.log()).squeeze(-1)

    def _sink(self, like: Tensor) -> Tensor | None:
        """The sink as `([heads,] 1, 1)`, in the dtype of the scores."""
        if self.sink is None:
            return None
        sink = torch.as_tensor(self.sink, dtype=like.dtype, device=like.device)
        return sink.reshape(*sink.shape, 1, 1)

    def extra_repr(self) -> str:
        plain = not isinstance(self.temperature, Tensor) and self.temperature == 1.0
        parts = [] if plain else [f"temperature={as_text(self.temperature)}"]
        return ", ".join(parts if self.sink is None else [*parts, f"sink={as_text(self.sink)}"])


def _is_nan(sink: float | Tensor) -> bool:
    if not isinstance(sink, Tensor):
        return math.isnan(sink)
    return not is_hidden(sink) and bool(sink.isnan().any())
