"""What all calls of one kind, shape and strides have in common: worked out once, and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from regard.engines.cuda.batch import Batch, join

Value = TypeVar("Value")
MOST_KEPT = 1024

_LAYOUTS: dict[Hashable, Layout] = {}


class Layout:
    """How the tensors of a program lie, its strides as kernels take them, and what else follows from its kind."""

    def __init__(self, batch: Batch, strides: tuple[tuple[int, ...], ...]) -> None:
        self.batch = batch
        self.strides = strides  # of each tensor, in the order of the program
        self.compiled: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}  # kernels, with the values of their constants
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, find: Callable[[], Value]) -> Value:
        """What follows from the kind of a program; found now, unless it was before."""
        if name not in self._kept:
            self._kept[name] = find()
        found: Value = self._kept[name]
        return found


def layout_of(kind: Hashable, batch_shape: tuple[int, ...], tensors: Sequence[tuple[Tensor, int]]) -> Layout | None:
    """The layout of a program of a kind; None where its tensors need more than three batch axes.

    Args:
        kind: All that kernels are compiled for beside the tensors.
        batch_shape: Of the problem.
        tensors: Each with the number of its own axes.
    """
    # Kernels are compiled for strides, and for pointers that are multiples of 16.
    key = (kind, batch_shape, *[(each.dtype, each.shape, each.stride(), each.data_ptr() % 16) for each, _ in tensors])
    known = _LAYOUTS.get(key)
    if known is not None:
        return known
    batch = join(batch_shape, tensors)
    if batch is None:
        return None
    return keep(_LAYOUTS, key, Layout(batch, tuple(batch.strides(each, own) for each, own in tensors)))


def keep(known: dict[Hashable, Value], key: Hashable, value: Value) -> Value:
    """Keep a value, in place of the oldest where there are too many; other threads may do so at the same time."""
    if len(known) >= MOST_KEPT:
        known.pop(next(iter(list(known)), None), None)
    known[key] = value
    return value
