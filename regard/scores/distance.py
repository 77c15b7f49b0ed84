"""Squared distances that do not cancel: what Gaussian and the compact kernels share."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.scores.form import ChannelForm, DotForm, Form

# ‖q‖² + ‖k‖², in squared bandwidths, up to which the folded form's rounding (eps times that) does no harm.
FOLD_LIMIT = 64.0


def half_squared_distance(queries: Tensor, keys: Tensor) -> Form:
    """−‖q − k‖² / 2 as a dot form where that cannot cancel, else as a sum of squared differences.

    −‖q − k‖² / 2 = q·k − ‖q‖²/2 − ‖k‖²/2, which is the dot product of [q, −‖q‖²/2, 1] and [k, 1, −‖k‖²/2]. It loses
    eps · (‖q‖² + ‖k‖²): harmless while that is small, wrong by whole units when points far from the origin lie close
    together.
    """
    if fold_is_safe(queries, keys):
        return DotForm(_with_norms(queries, norm_first=True), _with_norms(keys, norm_first=False))
    return ChannelForm(queries, keys, "square", scale=-0.5, width=max(queries.shape[-1], 1))


def fold_is_safe(queries: Tensor, keys: Tensor) -> bool:
    """Whether the dot form of the squared distance keeps its digits for these points."""
    if queries.dtype not in (torch.float32, torch.float64) or queries.numel() == 0 or keys.numel() == 0:
        return False
    with torch.no_grad():
        largest = queries.square().sum(-1).amax() + keys.square().sum(-1).amax()
    return bool(largest <= FOLD_LIMIT)


def _with_norms(points: Tensor, *, norm_first: bool) -> Tensor:
    norm = points.square().sum(-1, keepdim=True) * -0.5
    one = torch.ones_like(norm)
    return torch.cat([points, norm, one] if norm_first else [points, one, norm], dim=-1)
