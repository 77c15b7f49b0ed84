"""Descent from many starts at once: BFGS, a few candidates of a few numbers each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST = 2.0
"""How far a step goes at most in each coordinate."""

ENOUGH = 1e-4
"""The share of the predicted decrease that a step must bring."""

SHORTEST = 2.0**-12
"""By what factor a step is shortened at most before the candidate counts as arrived."""

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From points `(n, dim)` to values `(n,)` and gradients `(n, dim)`."""


@dataclass(frozen=True)
class Points:
    """Candidates on their way down.

    Args:
        places: where they are, `(n, dim)`.
        free: which coordinates may move, `(n, dim)`.
        values, gradients: of the objective there.
        inverses: what is known of the curvature: the inverse of the Hessian, `(n, dim, dim)`.
        lengths: what part of a whole step is tried next; 0 where a candidate has arrived.
    """

    places: Tensor
    free: Tensor
    values: Tensor
    gradients: Tensor
    inverses: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Tensor) -> Points:
        return Points(*(each[index] for each in vars(self).values()))

    def best(self, count: int) -> Points:
        """The lowest ones, lowest first."""
        return self[self.values.argsort(stable=True)[:count]]


def begun(objective: Objective, places: Tensor) -> Points:
    """Candidates at their start. A coordinate that is −inf stays there."""
    free = torch.isfinite(places)
    values, gradients = objective(places)
    gradients = torch.where(free, gradients, 0)
    # Nothing is known of the curvature yet: the first step is half a unit in the steepest coordinate.
    first = 0.5 / gradients.abs().amax(-1).clamp(min=1e-30)
    inverses = first.view(-1, 1, 1) * torch.eye(places.shape[-1], dtype=places.dtype)
    return Points(places, free, values, gradients, inverses, torch.ones_like(values))


def descended(
    objective: Objective, points: Points, low: Tensor, high: Tensor, steps: int, tolerance: float = 1e-6
) -> Points:
    """The candidates after at most so many evaluations of the objective, within bounds.

    A candidate has arrived where a step promises less than `tolerance` of its value.
    """
    for _ in range(steps):
        moving = points.lengths.nonzero().flatten()
        if not len(moving):
            break
        moved = _step(objective, points[moving], low, high, tolerance)
        points = Points(
            *(
                whole.index_copy(0, moving, part)
                for whole, part in zip(vars(points).values(), vars(moved).values(), strict=True)
            )
        )
    return points


def _step(objective: Objective, points: Points, low: Tensor, high: Tensor, tolerance: float) -> Points:
    """One step of each candidate, or a shorter try next time."""
    places, gradients = points.places, points.gradients
    blocked = ((places <= low) & (gradients > 0)) | ((places >= high) & (gradients < 0)) | ~points.free
    slopes = torch.where(blocked, 0, gradients)
    direction = torch.where(blocked, 0, -(points.inverses @ slopes.unsqueeze(-1)).squeeze(-1))
    uphill = (direction * slopes).sum(-1, keepdim=True) > 0
    direction = torch.where(uphill, -slopes / slopes.abs().amax(-1, keepdim=True).clamp(min=1e-300), direction)
    direction = direction * (LONGEST / direction.abs().amax(-1, keepdim=True).clamp(min=LONGEST))
    tried = torch.minimum(torch.maximum(places + points.lengths.unsqueeze(-1) * direction, low), high)
    tried = torch.where(points.free, tried, places)
    moves = torch.where(points.free, tried - places, 0)
    promise = (moves * slopes).sum(-1)
    values, found = objective(tried)
    found = torch.where(points.free, found, 0)
    good = (values <= points.values + ENOUGH * promise) & torch.isfinite(values)
    turned = found - gradients
    inverses = _updated(points.inverses, moves, turned)
    arrived = -promise <= tolerance * points.values.abs() * points.lengths
    lengths = torch.where(good, torch.ones_like(values), points.lengths / 4)
    lengths = torch.where((arrived & good) | (promise >= 0) | (lengths < SHORTEST), 0, lengths)
    each = good.unsqueeze(-1)
    return Points(
        torch.where(each, tried, places),
        points.free,
        torch.where(good, values, points.values),
        torch.where(each, found, gradients),
        torch.where(each.unsqueeze(-1), inverses, points.inverses),
        lengths,
    )


def _updated(inverses: Tensor, moves: Tensor, turned: Tensor) -> Tensor:
    """The BFGS update, where the curvature along the move is positive."""
    curvature = (moves * turned).sum(-1)
    usable = curvature > 1e-10 * moves.norm(dim=-1) * turned.norm(dim=-1)
    rho = torch.where(usable, 1 / torch.where(usable, curvature, 1), 0).view(-1, 1, 1)
    column, row = moves.unsqueeze(-1), turned.unsqueeze(-2)
    left = torch.eye(moves.shape[-1], dtype=moves.dtype) - rho * column @ row
    return torch.where(usable.view(-1, 1, 1), left @ inverses @ left.mT + rho * column @ column.mT, inverses)
