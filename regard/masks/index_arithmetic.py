"""Row and column arithmetic that masks share: picking, packing and finding entries without building n × m."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.tensors import broadcast_shapes

# An empty slot while indices are sorted: it comes after every column.
FAR = torch.iinfo(torch.int64).max


def positions(span: range, device: torch.device) -> Tensor:
    """The numbers of `span`, int64."""
    return torch.arange(span.start, max(span.start, span.stop), span.step, device=device)


def blocks(span: range, size: int) -> Iterator[range]:
    """`span` cut into ranges of at most `size`, and of one at least."""
    size = max(size, 1)
    for start in range(0, len(span), size):
        yield span[start : start + size]


def as_slice(span: range) -> slice:
    """`span` as a slice of an axis."""
    return slice(span.start, span.stop, span.step)


def pick(tensor: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The entries of `tensor` at (batch, row, column), as a view into nothing larger than the answer.

    Args:
        tensor: `(*batch, n, m)`; an axis of size 1 stands for any size.
        rows: `(..., r, 1)`.
        columns: `(..., 1 or r, c)`.

    Returns:
        What broadcasts to `(*batch, r, c)`: batch axes of the tensor meet those of rows and columns from the right.
    """
    index = []
    for axis, size in enumerate(tensor.shape[:-2]):
        if size != 1:
            entries = torch.arange(size, device=tensor.device)
            index.append(entries.reshape(size, *(1,) * (tensor.ndim - axis - 1)))
    if tensor.shape[-2] != 1:
        index.append(rows)
    if tensor.shape[-1] != 1:
        index.append(columns)
    if not index:
        return tensor.reshape(1, 1)
    kept = tensor.squeeze(tuple(axis for axis, size in enumerate(tensor.shape) if size == 1))
    return kept[tuple(index)]


def pack(allowed: Tensor) -> Tensor:
    """Where each row of `allowed` is True, ascending, then −1: `(..., r, m)` to `(..., r, width)`."""
    counts = allowed.sum(-1)
    width = int(counts.max()) if counts.numel() else 0
    n_rows = math.prod(counts.shape)
    row, column = allowed.reshape(n_rows, allowed.shape[-1]).nonzero(as_tuple=True)
    first = counts.flatten().cumsum(0) - counts.flatten()
    slot = torch.arange(row.numel(), device=row.device) - first[row]
    packed = torch.full((n_rows, width), -1, dtype=torch.int64, device=allowed.device)
    packed[row, slot] = column
    return packed.reshape(*counts.shape, width)


def between(first: Tensor, stop: Tensor) -> Tensor:
    """The columns first ≤ column < stop of each row, then −1: `(..., r)` each to `(..., r, width)`."""
    counts = stop - first
    width = max(int(counts.max()), 0) if counts.numel() else 0
    columns = first[..., None] + torch.arange(width, device=first.device)
    return torch.where(columns < stop[..., None], columns, -1)


def keep(indices: Tensor, kept: Tensor) -> Tensor:
    """`indices` without those that are not `kept`, packed to the left again. The two broadcast."""
    slot = kept.cumsum(-1)
    width = int(slot[..., -1].max()) if slot.numel() else 0
    # What is not kept lands in one spare slot.
    slot = torch.where(kept, slot - 1, width)
    packed = torch.full((*slot.shape[:-1], width + 1), -1, dtype=torch.int64, device=indices.device)
    return packed.scatter_(-1, slot, indices.expand(slot.shape))[..., :-1]


def sort_unique(indices: Tensor) -> Tensor:
    """Each row of `indices` ascending and without duplicates; −1 and duplicates become FAR, at the right."""
    ordered = indices.masked_fill(indices == -1, FAR).sort(-1).values
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    return ordered.masked_fill(repeated, FAR).sort(-1).values


def from_far(ordered: Tensor) -> Tensor:
    """`ordered` with −1 for FAR."""
    return ordered.masked_fill(ordered == FAR, -1)


def contains(ordered: Tensor, columns: Tensor) -> Tensor:
    """Whether each column is in its row of `ordered`.

    Args:
        ordered: `(..., r, k)`, ascending in each row.
        columns: `(..., 1 or r, c)`.

    Returns:
        bool `(..., r, c)`, in r·c·log k steps.
    """
    if ordered.shape[-1] == 0:
        return torch.zeros(*ordered.shape[:-1], 1, dtype=torch.bool, device=ordered.device)
    lead = broadcast_shapes(ordered.shape[:-1], columns.shape[:-1])
    ordered = ordered.expand(*lead, -1).contiguous()
    columns = columns.expand(*lead, -1).contiguous()
    slot = torch.searchsorted(ordered, columns).clamp_(max=ordered.shape[-1] - 1)
    return ordered.gather(-1, slot) == columns


def spread(ordered: Tensor, columns: range) -> Tensor:
    """Whether each of `columns` is in its row of `ordered`: `(..., r, k)` to `(..., r, len(columns))`."""
    if columns.step != 1:
        return contains(ordered, positions(columns, ordered.device)[None, :])
    slot = torch.where((ordered >= columns.start) & (ordered < columns.stop), ordered - columns.start, len(columns))
    tile = torch.zeros(*ordered.shape[:-1], len(columns) + 1, dtype=torch.bool, device=ordered.device)
    # What is outside lands in one spare column.
    return tile.scatter_(-1, slot, True)[..., :-1]
