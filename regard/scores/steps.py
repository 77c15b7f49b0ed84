"""Steps: the elementwise functions that may follow a pairwise form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.scores.form import Step
from regard.scores.parts import per_key, per_pair, per_query, shared
from regard.tensors import broadcast_shapes


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
        # tanh would turn "not allowed" (−inf) into an ordinary −cap.
        return torch.where(scores == -torch.inf, scores, self.cap * torch.tanh(scores / self.cap))


@dataclass(frozen=True)
class AddPairs(Step):
    """a + b, with one b for each pair."""

    bias: Tensor = per_pair()  # (..., n_queries or 1, n_keys or 1)

    def __call__(self, scores: Tensor) -> Tensor:
        return scores + self.bias


@dataclass(frozen=True)
class AddDistance(Step):
    """a − slope · |position of the query − position of the key|."""

    query_positions: Tensor = per_query()  # (..., n_queries, 1) integers
    key_positions: Tensor = per_key()  # (n_keys, 1) integers
    slope: Tensor = shared()  # (..., 1, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        distance = (self.query_positions - self.key_positions.mT).abs()
        return scores - self.slope * distance.to(scores.dtype)


@dataclass(frozen=True)
class AddRelative(Step):
    """a + table[clamp(position of the key − position of the query)]."""

    query_positions: Tensor = per_query()  # (..., n_queries, 1) integers
    key_positions: Tensor = per_key()  # (n_keys, 1) integers
    table: Tensor = shared()  # (..., 1, 2 · reach + 1)

    def __call__(self, scores: Tensor) -> Tensor:
        reach = self.table.shape[-1] // 2
        index = (self.key_positions.mT - self.query_positions).clamp(-reach, reach) + reach
        batch_shape = broadcast_shapes(index.shape[:-2], self.table.shape[:-2])
        index = index.expand(*batch_shape, *index.shape[-2:])
        table = self.table.expand(*batch_shape, *self.table.shape[-2:])
        # Gather from one row of the table: flatten the pairs of a tile into that row's last axis.
        return scores + table.gather(-1, index.flatten(-2).unsqueeze(-2)).reshape(index.shape)


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
        return (1 - scores / self.radius.square()).clamp(min=0)


@dataclass(frozen=True)
class Tent(Step):
    """max(0, 1 − √a / radius), for a squared distance a."""

    radius: Tensor = shared()  # (..., 1, 1)

    def __call__(self, scores: Tensor) -> Tensor:
        # √a has no slope at 0; the gradient at q = k is 0 by definition, so the root never sees a zero.
        apart = ~(scores <= 0)  # NaN among them, so that it shows
        distance = torch.where(apart, scores, 1).sqrt() * apart
        return (1 - distance / self.radius).clamp(min=0)
