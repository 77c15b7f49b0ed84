"""Bundles of tensors that can be cut to a tile.

Each tensor field says which axis it follows: queries, keys, both or neither. From that one declaration come `narrow`
(the bundle of a tile), `tensors` and `rebuilt` (so that an engine can put buffers or leaves in their place).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from regard.tensors import Span, take


def per_query(**options: Any) -> Any:
    """A tensor field of shape `(..., n_queries or 1, width)`."""
    return field(metadata={"axes": (True, False)}, **options)


def per_key(**options: Any) -> Any:
    """A tensor field of shape `(..., n_keys or 1, width)`."""
    return field(metadata={"axes": (False, True)}, **options)


def per_pair(**options: Any) -> Any:
    """A tensor field of shape `(..., n_queries or 1, n_keys or 1)`."""
    return field(metadata={"axes": (True, True)}, **options)


def shared(**options: Any) -> Any:
    """A tensor field that every pair uses whole."""
    return field(metadata={"axes": (False, False)}, **options)


@dataclass(frozen=True)
class Parts:
    """A bundle of tensors that can be narrowed to a tile."""

    def _fields(self) -> Iterator[tuple[str, Tensor, tuple[bool, bool]]]:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if "axes" in each.metadata and value is not None:
                yield each.name, value, each.metadata["axes"]

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the bundle, in a fixed order."""
        return tuple(tensor for _, tensor, _ in self._fields())

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        """The same bundle around other tensors, taken from the iterator in the order of `tensors()`."""
        return dataclasses.replace(self, **{name: next(tensors) for name, _, _ in self._fields()})

    def narrow(self, rows: Span, columns: Span) -> Self:
        """The bundle for a tile: those queries and those keys."""
        changes = {}
        for name, tensor, (by_query, by_key) in self._fields():
            part = tensor
            if by_query:
                part = take(part, -2, rows)
            if by_key:
                part = take(part, -1 if by_query else -2, columns)
            changes[name] = part
        return dataclasses.replace(self, **changes)

    def to(self, dtype: torch.dtype) -> Self:
        """The bundle with its floating-point tensors in `dtype`."""
        return self.rebuilt(iter([each.to(dtype) if each.is_floating_point() else each for each in self.tensors()]))
