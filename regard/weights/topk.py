"""TopK: the k best keys, then another rule over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import OptionError
from regard.modes import is_hidden
from regard.weights.rule import Fold, Kind, Statistics, Weights, masked, over_one_tile
from regard.weights.softmax import Softmax

if TYPE_CHECKING:
    from regard.scores.score import Score


def top_k(scores: Tensor, k: int, allowed: Tensor | None = None) -> Tensor:
    """Which keys are the k best of each row: boolean, the lowest indices among equals; all allowed ones, if fewer.

    Example:
        >>> import torch
        >>> from regard.weights import top_k
        >>> top_k(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 2)
        tensor([[False,  True,  True, False]])
    """
    scores = masked(scores.detach(), allowed)
    columns = torch.arange(scores.shape[-1], device=scores.device)
    _, index = _BestK(k).lift(scores, columns)
    return member(index, columns, scores)


class TopK(Weights):
    """The k best keys (all, if fewer are allowed), then the inner rule over them.

    Ties go to the lowest index, as `OneHot` says. The choice of keys sends no gradient to scores; the inner rule does.

    Args:
        k: How many keys a query may attend to, at least 1.
        then: The rule over them.

    Example:
        >>> import torch
        >>> from regard import TopK
        >>> TopK(2)(torch.tensor([[1.0, 1.0, 0.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    def __init__(self, k: int, then: Weights | None = None) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise OptionError(f"`k` of TopK must be an integer of at least 1: got {k!r}. It is a number of keys.")
        self.k = k
        if then is not None and not isinstance(then, Weights):
            raise OptionError(f"`then` of TopK must be a regard Weights: got {then!r}. Pass one such as Softmax().")
        self.then = Softmax() if then is None else then

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return "convex" if self.then.kind == "uniform" else self.then.kind

    @property
    def centre(self) -> str:  # type: ignore[override]
        return self.then.centre

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.then.batch_shape

    @property
    def choices(self) -> tuple[int, ...]:
        return (self.k, *self.then.choices)

    @property
    def streams(self) -> bool:
        return self.then.streams

    @property
    def factor(self) -> float | Tensor:
        return self.then.factor

    def within(self, n_keys: int) -> Weights:
        return self if self.k <= n_keys else TopK(max(n_keys, 1), self.then)

    def at_rest(self) -> Weights:
        then = self.then.at_rest()
        return self if then is self.then or type(self) is not TopK else TopK(self.k, then)

    def define(self, scores: Tensor) -> Tensor:
        if scores.shape[-1] == 0:
            return scores
        return self.then.define(masked(scores, top_k(scores, self.k)))

    def solve(self, fold: Fold) -> Statistics:
        scores, index = fold(_BestK(self.k))
        return (index, *self.then.solve(over_one_tile(scores, index)))

    def weights(self, scores: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        index, *inner = statistics
        return self.then.weights(self._chosen(scores, index, columns), tuple(inner), columns)

    def slope(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> Tensor | None:
        index, *inner = statistics
        return self.then.slope(self._chosen(scores, index, columns), weights, tuple(inner), columns)

    def arguments(self) -> tuple[object, ...]:
        return self.k, self.then

    def layout(self) -> tuple[tuple[int, torch.dtype | None], ...]:
        return (self.k, torch.int64), *self.then.layout()

    def learned(self) -> tuple[Tensor, ...]:
        return self.then.learned()

    def tangents(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> tuple[Tensor, ...]:
        index, *inner = statistics
        return self.then.tangents(self._chosen(scores, index, columns), weights, tuple(inner), columns)

    def learned_gradients(
        self,
        scores: Tensor,
        weights: Tensor,
        statistics: Statistics,
        columns: Tensor,
        to_weights: Tensor,
        delta: Tensor,
    ) -> tuple[Tensor, ...]:
        index, *inner = statistics
        chosen = self._chosen(scores, index, columns)
        return self.then.learned_gradients(chosen, weights, tuple(inner), columns, to_weights, delta)

    def log_normalizer(self, statistics: Statistics) -> Tensor | None:
        return self.then.log_normalizer(statistics[1:])

    def check_score(self, score: Score) -> None:
        self.then.check_score(score)

    def _chosen(self, scores: Tensor, index: Tensor, columns: Tensor) -> Tensor:
        return torch.where(member(index, columns, scores), scores, -torch.inf)

    def extra_repr(self) -> str:
        return f"k={self.k}"


def member(index: Tensor, columns: Tensor, scores: Tensor) -> Tensor:
    """Whether each column of a tile is among its row's indices.

    Args:
        index: `(..., n_queries, k)`, −1 where a row has fewer.
        columns: `(n_columns,)`, consecutive.
        scores: The tile, `(..., n_queries, n_columns)`.
    """
    width = columns.shape[-1]
    place = index - columns[..., :1]
    place = torch.where(
        (index >= 0) & (place >= 0) & (place < width), place, width
    )  # the last column is a bin for the rest
    place = place.expand(*scores.shape[:-1], index.shape[-1])
    found = torch.zeros(*scores.shape[:-1], width + 1, dtype=torch.bool, device=scores.device)
    return found.scatter(-1, place, True)[..., :width]


class _BestK:
    """(the k best scores, their columns) of each row, best first; (−inf, −1) in empty places."""

    def __init__(self, k: int) -> None:
        self.k = k

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        return self._best(scores, columns.expand(scores.shape))

    def merge(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self._best(torch.cat([left[0], right[0]], -1), torch.cat([left[1], right[1]], -1))

    def _best(self, scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        best, places = best_k(scores, self.k)
        index = torch.where(best == -torch.inf, -1, columns.gather(-1, places))
        # Every row block has k places, so that the statistics of row blocks fit together.
        empty = (0, self.k - best.shape[-1])
        return pad(best, empty, value=-torch.inf), pad(index, empty, value=-1)


def best_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, largest first, and where they are; the first of equals comes first.

    NaN counts as +inf, since sorts order NaN by its sign bit on some devices. Where fewer than k are above −inf, the
    places of the rest mean nothing.
    """
    if k < scores.shape[-1]:
        best, places = scores.topk(k, dim=-1)
        # topk() may take any of the keys that tie for the last place. Only then is a stable sort of everything needed.
        last = best[..., -1:]
        ties = ((scores == last).sum(-1) != (best == last).sum(-1)) & (last.squeeze(-1) > -torch.inf)
        if not is_hidden(scores) and not bool((ties | best[..., 0].isnan()).any()):
            places = places.sort(dim=-1).values
            scores, within = scores.gather(-1, places).sort(dim=-1, descending=True, stable=True)
            return scores, places.gather(-1, within)
    ranked = torch.where(scores.isnan(), torch.inf, scores)
    places = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return scores.gather(-1, places), places
