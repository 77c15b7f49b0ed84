"""OneHot: 1 at the best key, 0 elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.weights.rule import Fold, Statistics, Weights, masked


def one_hot(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """1 at the best allowed key of each row, the lowest index among equals; zeros in a row that allows none.

    Example:
        >>> import torch
        >>> from regard.weights import one_hot
        >>> one_hot(torch.tensor([[1.0, 3.0, 3.0]]))
        tensor([[0., 1., 0.]])
    """
    scores = masked(scores, allowed)
    if scores.shape[-1] == 0:
        return scores
    columns = torch.arange(scores.shape[-1], device=scores.device)
    _, index = _Best().lift(scores.detach(), columns)
    return _weights(scores.detach(), columns == index)


class OneHot(Weights):
    """α = 1 at the best key and 0 elsewhere: a traditional database query. No gradient flows to scores.

    Ties go to the lowest index: among scores that are equal, and among allowed keys that are equal and have the same
    bias, though rounding may have put their scores apart (while torch traces, the scores alone decide). Scores of
    different keys that are equal on paper may be rounded apart, as a scale or a temperature does. Where a key that is
    seen has a score of NaN, nobody knows the best: the weight of the first such key is NaN.

    Example:
        >>> import torch
        >>> from regard import OneHot
        >>> OneHot()(torch.tensor([[0.1, 0.7, 0.2]]))
        tensor([[0., 1., 0.]])
    """

    kind = "one-hot"

    @property
    def choices(self) -> tuple[int, ...]:
        return (1,)

    def define(self, scores: Tensor) -> Tensor:
        return one_hot(scores)

    def solve(self, fold: Fold) -> Statistics:
        return (fold(_Best())[1],)

    def layout(self) -> tuple[tuple[int, torch.dtype | None], ...]:
        return ((1, torch.int64),)

    def weights(self, scores: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        return _weights(scores, columns == statistics[0])

    def slope(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> None:
        return None


def _weights(scores: Tensor, chosen: Tensor) -> Tensor:
    """1 where a key was chosen; NaN if nobody can say that it is the best, since its score is NaN."""
    return torch.where(chosen & scores.isnan(), torch.nan, chosen.to(scores.dtype))


class _Best:
    """(best score, its column) of each row; (−inf, −1) where nothing is allowed."""

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        best, place = scores.max(-1, keepdim=True)  # the first of equals
        index = columns.expand(scores.shape).gather(-1, place)
        return best, torch.where(best == -torch.inf, -1, index)

    def merge(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        # Equal scores keep the left one, whose column is lower. A NaN counts as better, as max() does.
        better = (right[0] > left[0]) | (right[0].isnan() & ~left[0].isnan())
        return torch.where(better, right[0], left[0]), torch.where(better, right[1], left[1])
