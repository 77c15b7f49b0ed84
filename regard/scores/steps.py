"""Steps: the elementwise functions that may follow a pairwise form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from regard.modes import is_hidden
from regard.scores.form import Step
from regard.scores.form_part import per_key, per_pair, per_query, shared
from regard.tensors import Span, broadcast_shapes


@dataclass(frozen=True)
class Scale(Step):
    """a · factor, with a learned or per-head factor."""

    factor: Tensor = shared()  # (..., 1, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        return scores * self.factor


@dataclass(frozen=True)
class Gate(Step):
    """σ(g_q + g_k) · a."""

    query_term: Tensor = per_query()  # (..., n_queries, 1)
    key_term: Tensor = per_key()  # (..., n_keys, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(self.query_term + self.key_term.mT) * scores


@dataclass(frozen=True)
class Cap(Step):
    """cap · tanh(a / cap)."""

    cap: float = 1.0

    def __call__(self, scores: Tensor) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)


@dataclass(frozen=True)
class AddPairs(Step):
    """a + b, with one b for each pair; −inf for a pair that is not allowed."""

    adds = True
    bias: Tensor = per_pair()  # (..., n_queries or 1, n_keys or 1)
    excludes: bool = True  # whether −inf may be in it

    def __call__(self, scores: Tensor) -> Tensor:
        return scores + self.bias

    def excluded(self) -> Tensor | None:
        return self.bias == -torch.inf if self.excludes else None

    def settled(self, dtype: torch.dtype) -> Self:
        return replace(self, excludes=_may_exclude(self.bias, dtype)) if self.excludes else self


@dataclass(frozen=True)
class AddDistance(Step):
    """a − slope · |position of the query − position of the key|."""

    adds = True
    query_positions: Tensor = per_query()  # (..., n_queries, 1) integers
    key_positions: Tensor = per_key()  # (n_keys, 1) integers
    slope: Tensor = shared()  # (..., 1, 1)
    offset: int | None = None  # query i stands at key i + offset, where that is known

    def narrow(self, rows: Span, columns: Span) -> Self:
        return replace(super().narrow(rows, columns), offset=None)  # of some rows and columns it would be another

    def __call__(self, scores: Tensor) -> Tensor:
        distance = (self.query_positions - self.key_positions.mT).abs()
        return scores - self.slope * distance.to(scores.dtype)


@dataclass(frozen=True)
class AddRelative(Step):
    """a + table[clamp(position of the key − position of the query)]."""

    adds = True
    query_positions: Tensor = per_query()  # (..., n_queries, 1) integers
    key_positions: Tensor = per_key()  # (n_keys, 1) integers
    table: Tensor = shared()  # (..., 1, 2 · reach + 1)
    excludes: bool = True  # whether −inf may be in it: a distance that is not allowed

    def __call__(self, scores: Tensor) -> Tensor:
        return scores + self._looked_up(self.table)

    def excluded(self) -> Tensor | None:
        return self._looked_up(self.table.detach() == -torch.inf) if self.excludes else None

    def settled(self, dtype: torch.dtype) -> Self:
        return replace(self, excludes=_may_exclude(self.table, dtype)) if self.excludes else self

    def _looked_up(self, table: Tensor) -> Tensor:
        """What a table says of each pair."""
        reach = table.shape[-1] // 2
        index = (self.key_positions.mT - self.query_positions).clamp(-reach, reach) + reach
        batch_shape = broadcast_shapes(index.shape[:-2], table.shape[:-2])
        index = index.expand(*batch_shape, *index.shape[-2:])
        table = table.expand(*batch_shape, *table.shape[-2:])
        # Gather from one row of the table: flatten the pairs of a tile into that row's last axis.
        return table.gather(-1, index.flatten(-2).unsqueeze(-2)).reshape(index.shape)


@dataclass(frozen=True)
class Indicator(Step):
    """1 where a ≤ limit, else 0."""

    limit: float = 0.0

    def __call__(self, scores: Tensor) -> Tensor:
        # Up to rounding: 3.5 and 3.4 are 0.10000000000000009 apart, which people call 0.1.
        rounding = 32 * torch.finfo(scores.dtype).eps
        inside = (scores <= self.limit * (1 + rounding)).to(scores.dtype)
        return torch.where(scores.isnan(), scores, inside)  # NaN is not far away: it must reach those who see it


@dataclass(frozen=True)
class Parabola(Step):
    """max(0, 1 − a / radius²), for a squared distance a."""

    radius: Tensor = shared()  # (..., 1, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        square = self.radius.square()
        beyond = scores >= square.detach()  # where no gradient is: of a distance that overflowed it would be NaN
        return torch.where(beyond, 0, 1 - torch.where(beyond, 0, scores) / square)


@dataclass(frozen=True)
class Tent(Step):
    """max(0, 1 − √a / radius), for a squared distance a."""

    radius: Tensor = shared()  # (..., 1, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        # √a has no slope at 0; the gradient at q = k is 0 by definition, so the root never sees a zero.
        beyond = scores >= self.radius.detach().square()
        apart = ~(beyond | (scores <= 0))  # NaN among them, so that it shows
        distance = torch.where(apart, scores, 1).sqrt() * apart
        return torch.where(beyond, 0, 1 - distance / self.radius)


def _may_exclude(bias: Tensor, dtype: torch.dtype) -> bool:
    """Whether −inf is among the numbers of a bias in that dtype, where one can look."""
    if is_hidden(bias) or bias.is_cuda:  # a GPU would have to be waited for
        return True
    # One pass without a temporary. NaN hides what else there is.
    return bias.numel() > 0 and not bool(bias.detach().amin().to(dtype) > -torch.inf)
