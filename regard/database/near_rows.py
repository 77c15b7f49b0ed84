"""One query to many rows: the weights of the rows that are near enough to have any, by the definition, in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.database.precision import Factors
from regard.view.readings import Top

FARTHEST = 46.0
"""How far below the best score a score may be: beyond, a million rows together weigh less than 1e-13."""


def near_rows(query: Tensor, keys: Tensor, factors: Factors) -> tuple[Tensor, Tensor] | None:
    """The rows with a weight under Softmax, in order, and the weights; None where scores are no finite numbers.

    Args:
        query: `(dim,)`.
        keys: `(n_rows, dim)`.
        factors: the score, as a sum over coordinates.
    """
    scores = torch.zeros(len(keys), dtype=torch.float64)
    for place in factors.distances.nonzero().flatten().tolist():
        scores.addcmul_(apart := keys[:, place] - query[place], apart, value=-float(factors.distances[place]) / 2)
    for place in factors.matches.nonzero().flatten().tolist():
        scores.sub_((keys[:, place] != query[place]).double(), alpha=float(factors.matches[place]))
    best = float(scores.max())
    if not math.isfinite(best):
        return None
    # Exponentials of what is far are as slow as they are small.
    rows = (scores >= best - FARTHEST).nonzero().flatten()
    return rows, scores[rows].softmax(0)


def heaviest(rows: Tensor, weights: Tensor, count: int, n_rows: int) -> Top:
    """The heaviest of all rows, the first ones where weights are the same, for one query: `(1, count)`.

    Args:
        rows, weights: those with a weight.
        count: how many are listed; those without a weight have the row −1.
        n_rows: how many there are.
    """
    count = min(count, n_rows)
    if len(weights) > count:  # sorting a million to list ten would take most of the time
        least = weights.topk(count).values[-1]
        kept = (weights >= least).nonzero().flatten()
        rows, weights = rows[kept], weights[kept]
    order = weights.sort(descending=True, stable=True).indices[:count]
    missing = count - len(order)
    return Top(
        torch.nn.functional.pad(weights[order], (0, missing)).unsqueeze(0),
        torch.nn.functional.pad(rows[order], (0, missing), value=-1).unsqueeze(0),
    )
