"""Bundles of tensors that can be cut to a tile.

Each tensor field says which axis it follows: queries, keys, both or neither. From that one declaration come `narrow`
(the bundle of a tile), `tensors` and `rebuilt` (so that an engine can put buffers or leaves in their place).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from regard.modes import is_tracing
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


Axes: TypeAlias = tuple[bool, bool]

# By kind of bundle. Not in the class itself: torch.compile does not read a class's dictionary in a function that has
# changed another.
_DECLARED: dict[type, tuple[tuple[str, Axes], ...]] = {}


@dataclass(frozen=True)
class Parts:
    """A bundle of tensors that can be narrowed to a tile."""

    @classmethod
    def _declared(cls) -> tuple[tuple[str, Axes], ...]:
        """The tensor fields of this kind with the axes that each follows; read once, and kept."""
        found = _DECLARED.get(cls)
        if found is None:
            fields = cls.__dataclass_fields__.values()
            found = tuple([(each.name, each.metadata["axes"]) for each in fields if "axes" in each.metadata])
            if not is_tracing():
                _DECLARED[cls] = found
        return found

    def fields(self) -> list[tuple[str, Tensor, Axes]]:
        """The tensors of the bundle itself: name, tensor, and whether it follows queries and keys."""
        declared = self._declared()
        return [(name, value, axes) for name, axes in declared if (value := getattr(self, name)) is not None]

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the bundle, in a fixed order."""
        return tuple([value for name, _ in self._declared() if (value := getattr(self, name)) is not None])

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        """The same bundle around other tensors, taken from the iterator in the order of `tensors()`."""
        return self._with({name: next(tensors) for name, _, _ in self.fields()})

    def narrow(self, rows: Span, columns: Span) -> Self:
        """The bundle for a tile: those queries and those keys."""
        changes = {}
        for name, tensor, (by_query, by_key) in self.fields():
            part = tensor
            if by_query:
                part = take(part, -2, rows)
            if by_key:
                part = take(part, -1 if by_query else -2, columns)
            if part is not tensor:
                changes[name] = part
        return self._with(changes)

    def to(self, dtype: torch.dtype) -> Self:
        """The bundle with its floating-point tensors in `dtype`."""
        found = self.tensors()
        if all(each.dtype == dtype or not each.is_floating_point() for each in found):
            return self
        return self.rebuilt(iter([each.to(dtype) if each.is_floating_point() else each for each in found]))

    def _with(self, changes: dict[str, Any]) -> Self:
        """This bundle with other values for some fields; itself where nothing changes."""
        return dataclasses.replace(self, **changes) if changes else self


def declare_all() -> None:
    """Read the tensor fields of every kind of bundle that there is, now.

    torch.compile reads them too, unless somebody has before; but not in a function that has changed a dictionary, as
    most models have by the time they attend.
    """
    kinds = [Parts]
    for kind in kinds:
        kinds += kind.__subclasses__()
        kind._declared()
