"""Queries and keys that are not finite, found in a form: by then, projections are done."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.nonfinite.marks import axes_of
from regard.scores import Form
from regard.tensors import broken_vectors


def vectors_of(form: Form) -> list[Tensor]:
    """What a form has for each query or each key, where NaN and infinity come in."""
    return [tensor for tensor, side in _sides(form) if side is not None]


def without_broken(form: Form) -> tuple[Form, Tensor, Tensor]:
    """The form with zeros for queries and keys that are not finite, and which those are: `(..., n, 1)` each."""
    broken = [torch.zeros(1, 1, dtype=torch.bool, device=form.tensors()[0].device)] * 2
    for tensor, side in _sides(form):
        if side is not None:
            broken[side] = broken[side] | broken_vectors(tensor.detach())
    zeroed = [tensor if side is None else torch.where(broken[side], 0, tensor) for tensor, side in _sides(form)]
    return form.rebuilt(iter(zeroed)), broken[0], broken[1]


def _sides(form: Form) -> list[tuple[Tensor, int | None]]:
    """Each tensor of a form, and what it has numbers for: queries (0), keys (1), or neither alone."""
    return [
        (tensor, int(by_key) if by_query != by_key and tensor.is_floating_point() else None)
        for tensor, (by_query, by_key) in zip(form.tensors(), axes_of(form), strict=True)
    ]
