"""Queries and keys that are not finite, found in a form: by then, projections are done."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.scores import Form, SumForm
from regard.scores.parts import Parts


def vectors_of(form: Form) -> list[Tensor]:
    """What a form has for each query or each key, where NaN and infinity come in."""
    return [tensor for tensor, _ in _followers(form)]


def without_broken(form: Form) -> tuple[Form, Tensor, Tensor]:
    """The form with zeros for queries and keys that are not finite, and which those are: `(..., n, 1)` each."""
    broken_queries = broken_keys = torch.zeros(1, 1, dtype=torch.bool, device=form.tensors()[0].device)
    for tensor, by_query in _followers(form):
        broken = ~tensor.isfinite().all(-1, keepdim=True)
        if by_query:
            broken_queries = broken_queries | broken
        else:
            broken_keys = broken_keys | broken
    zeroed = {
        id(tensor): torch.where(broken_queries if by_query else broken_keys, 0, tensor)
        for tensor, by_query in _followers(form)
    }
    sane = form.rebuilt(iter([zeroed.get(id(tensor), tensor) for tensor in form.tensors()]))
    return sane, broken_queries, broken_keys


def _followers(form: Form) -> Iterator[tuple[Tensor, bool]]:
    """Each tensor of numbers that follows queries alone or keys alone, and whether it is queries."""
    for part in _parts(form):
        for _, tensor, (by_query, by_key) in part.fields():
            if by_query != by_key and tensor.is_floating_point():
                yield tensor, by_query


def _parts(form: Form) -> Iterator[Parts]:
    yield form
    yield from form.steps
    if isinstance(form, SumForm):
        for term in form.terms:
            yield from _parts(term)
