"""Small things that torch does not have, or not quite: what every other module may use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor

from regard.modes import is_capturing, is_tracing

# Elements of a tensor up to which an operation costs what its call costs.
SMALL = 1 << 14

Span: TypeAlias = range | Tensor
"""Some rows or columns: a range (a slice, no copy) or a tensor of indices (a gather)."""


def take(tensor: Tensor, axis: int, span: Span) -> Tensor:
    """The entries of `tensor` along `axis` that `span` names; an axis of size 1 stands for every entry."""
    if tensor.shape[axis] == 1:
        if isinstance(span, range):
            return tensor if span else tensor.narrow(axis, 0, 0)
        shape = list(tensor.shape)
        shape[axis] = len(span)
        return tensor.expand(shape)
    if isinstance(span, range):
        return tensor if len(span) == tensor.shape[axis] else tensor.narrow(axis, span.start, len(span))
    return tensor.index_select(axis, span)


def positions_of(span: Span, device: torch.device) -> Tensor:
    """The positions that a span names, `(length,)`."""
    return torch.arange(span.start, span.stop, device=device) if isinstance(span, range) else span


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, without a copy of `right` for each of the last batch entries of `left` that share it.

    torch.matmul makes those copies: for grouped queries, `(..., groups, repeat, n, d)` by `(..., groups, 1, d, m)`, the
    keys are copied `repeat` times. Here the entries that share become more rows of one product.
    """
    rows = [left.shape[-2]]
    while left.ndim > 2 and right.ndim > 2 and right.shape[-3] == 1:
        rows.insert(0, left.shape[-3])
        left, right = left.flatten(-3, -2), right.squeeze(-3)
    together = _matmul(left, right)
    return together if len(rows) == 1 else together.unflatten(-2, rows)


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, rounded alike whether a gradient is wanted or not.

    torch.matmul makes one product of a batch that shares a factor, or many, by whether that needs a gradient: scores
    of the backward pass would be other ones.
    """
    if left.shape[:-2] == right.shape[:-2] and 1 not in left.shape[:-2]:
        return left @ right
    if right.ndim == 2:
        together: Tensor = left.flatten(0, -2) @ right
        return together.unflatten(0, left.shape[:-1])  # type: ignore[no-any-return]
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    one, other = (each.expand(*batch, *each.shape[-2:]).flatten(0, -3) for each in (left, right))
    return torch.bmm(one, other).unflatten(0, batch)  # type: ignore[no-any-return]


def is_finite(*tensors: Tensor) -> bool:
    """Whether every entry is finite.

    While a CUDA graph is captured, and on the meta device, nobody can know, and it is taken that all are.
    """
    if not tensors[0].is_cpu and (tensors[0].is_meta or is_capturing(tensors[0].device)):
        return True
    # A sum is finite only if its terms are: one pass, no temporary.
    total: float | Tensor = 0.0
    for each in tensors:
        # Sums of half precision are taken in float32, where they do not overflow.
        plain = each.detach() if each.requires_grad else each
        term = plain.sum() if plain.itemsize > 2 else plain.sum(dtype=torch.float32)
        total = total + (term.item() if plain.is_cpu else term)  # a GPU is waited for once, below
    # The sum may have overflowed.
    return math.isfinite(total) or not any(bool(broken_vectors(each.detach()).any()) for each in tensors)


def are_finite(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """What `is_finite` says of three tensors; sooner where they are alike and small, as in self-attention."""
    soon = (
        queries.shape == keys.shape == values.shape
        and queries.dtype == keys.dtype == values.dtype
        and queries.is_cpu
        and keys.is_cpu
        and values.is_cpu
        and queries.numel() <= SMALL
        and not (queries.requires_grad or keys.requires_grad or values.requires_grad)
    )
    return (soon and have_finite_sum(queries, keys, values)) or is_finite(queries, keys, values)


def have_finite_sum(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether a sum that takes every entry of three alike tensors is finite, which it is only if the entries are."""
    return math.isfinite(torch.addcmul(queries, keys, values).sum().item())  # two operations for three tensors


def broken_vectors(tensor: Tensor) -> Tensor:
    """Which vectors hold an entry that is not finite: `(..., dim)` to bool `(..., 1)`."""
    # 0 · x is 0 or NaN, and sums of that are too: ten times as fast as asking each entry.
    return (tensor * 0).sum(-1, keepdim=True) != 0


def is_autocast_on(device: str) -> bool:
    """Whether autocast is on for that kind of device; the meta device, which computes nothing, knows none."""
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Autocast off for that kind of device; where it is off already, that costs nothing."""
    return torch.autocast(device, enabled=False) if is_autocast_on(device) else nullcontext()


def stretches(size: int, wanted: int) -> bool:
    """Whether an axis of that size broadcasts to `wanted`.

    Two comparisons, because torch.compile does not look into `size in (1, wanted)` where they are symbols.
    """
    return size == 1 or size == wanted


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that these broadcast to; a ValueError if they do not.

    torch has this too, at half the cost of a small attention.
    """
    if not is_tracing() and shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    length = max([0, *map(len, shapes)])
    result = [1] * length
    for shape in shapes:
        for place, size in enumerate(shape, start=length - len(shape)):
            if size != 1 and not stretches(result[place], size):
                raise ValueError(f"shapes {[tuple(each) for each in shapes]} do not broadcast")
            result[place] = size if size != 1 else result[place]
    return tuple(result)
