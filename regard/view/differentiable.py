"""Readings with gradients, for losses: strips of the definition that the backward pass computes again."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.reference import define_weights
from regard.engines.strips import map_strips
from regard.problem import AttentionProblem
from regard.tensors import without_autocast


def track(problem: AttentionProblem, *, entropy: bool, received: bool) -> tuple[Tensor | None, Tensor | None]:
    """(entropy of each query, total weight of each key), None for what is not asked for."""

    def summarise(problem: AttentionProblem, rows: range) -> tuple[Tensor | None, Tensor | None]:
        alpha = define_weights(problem, rows)
        # A weight of zero adds nothing and has no slope; ln 0 in the derivative would turn it into NaN.
        surprise = -torch.where(alpha == 0, 1, alpha).log() if entropy else None
        return None if surprise is None else (alpha * surprise).sum(-1), alpha.sum(-2) if received else None

    grid = problem.grid
    like = problem.values.new_zeros((), dtype=problem.compute_dtype)
    entropies: list[Tensor] = []
    total = like.expand(*grid.batch_shape, grid.n_keys)
    with without_autocast(grid.device.type):
        for row_entropies, strip_total in map_strips(problem, summarise):
            if row_entropies is not None:
                entropies.append(row_entropies)
            if strip_total is not None:
                total = total + strip_total
    entropy_of_rows = torch.cat(entropies, -1) if entropies else like.expand(*grid.batch_shape, 0)
    return entropy_of_rows if entropy else None, total if received else None
