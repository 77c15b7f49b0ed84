"""Batch axes for kernels: three of them, whatever a problem has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

MOST_AXES = 3  # of a batch, once those that can be are joined


@dataclass(frozen=True)
class Batch:
    """The batch axes of a problem, joined where every tensor allows it, and three of them."""

    shape: tuple[int, ...]  # as the problem has them
    joined: tuple[tuple[int, ...], ...]  # for each of three axes, which of the problem's it is

    @property
    def sizes(self) -> tuple[int, int, int]:
        first, second, third = (math.prod(self.shape[axis] for axis in axes) for axes in self.joined)
        return first, second, third

    def strides(self, tensor: Tensor, trailing: int) -> tuple[int, ...]:
        """How far apart the entries of a tensor are along each axis, then its own trailing strides; all times −1.

        Triton compiles a number that is 1 into a kernel, and 3.6 loses it where it was part of a tuple.
        """
        own = _batch_strides(tensor, self.shape, trailing)
        within = zip(tensor.shape[tensor.ndim - trailing :], tensor.stride()[tensor.ndim - trailing :], strict=True)
        # The last of joined axes has the stride of all; what there is one of serves every row and column.
        return (
            *(-own[axes[-1]] if axes else 0 for axes in self.joined),
            *(0 if size == 1 else -stride for size, stride in within),
        )


def join(shape: tuple[int, ...], tensors: Sequence[tuple[Tensor, int]]) -> Batch | None:
    """Three batch axes for tensors with so many trailing axes of their own; None if they need more."""
    strides = [_batch_strides(tensor, shape, trailing) for tensor, trailing in tensors]
    found: list[tuple[int, ...]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        # As one axis with the last: each step along that is a whole turn of this one, in every tensor.
        if found and all(each[found[-1][-1]] == each[axis] * size for each in strides):
            found[-1] = (*found[-1], axis)
        else:
            found.append((axis,))
    if len(found) > MOST_AXES:
        return None
    return Batch(shape, (*[()] * (MOST_AXES - len(found)), *found))


def _batch_strides(tensor: Tensor, shape: tuple[int, ...], trailing: int) -> list[int]:
    """The stride of a tensor along each batch axis of a problem, 0 where it broadcasts."""
    lead = tensor.ndim - trailing
    missing = len(shape) - lead
    own = zip(tensor.shape[:lead], tensor.stride()[:lead], strict=True)
    return [0] * missing + [0 if size == 1 else stride for size, stride in own]
