"""A score's matrix written out pair by pair, to hold the library's against."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

PairScore = Callable[[Sequence[float], Sequence[float], tuple[int, ...]], float]


@pytest.fixture(scope="session")
def by_pairs() -> Callable[[PairScore, Tensor, Tensor], Tensor]:
    """`by_pairs(function, queries, keys)`: `function(q, k, batch index)` for lists of floats, pair by pair."""
    return _by_pairs


@pytest.fixture(scope="session")
def draw() -> Callable[..., Tensor]:
    """`draw(*shape, seed=0)`: standard normal numbers in float64."""
    return _draw


def _by_pairs(function: PairScore, queries: Tensor, keys: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    queries = queries.detach().double().expand(*batch, *queries.shape[-2:])
    keys = keys.detach().double().expand(*batch, *keys.shape[-2:])
    result = torch.empty(*batch, queries.shape[-2], keys.shape[-2], dtype=torch.float64)
    for index in itertools.product(*map(range, batch)):
        for i, q in enumerate(queries[index].tolist()):
            for j, k in enumerate(keys[index].tolist()):
                result[(*index, i, j)] = function(q, k, index)
    return result


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
