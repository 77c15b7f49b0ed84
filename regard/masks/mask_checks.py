"""One check a concern, with the error that names the fix."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.grid import Grid
from regard.tensors import stretches

_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
_LARGEST = 1 << 62  # Twice this is more than an int64 holds.


def same_device(left: torch.device, right: torch.device) -> bool:
    """Whether two devices are one; `cuda` without an index is any of them."""
    return left.type == right.type and (left.index == right.index or left.index is None or right.index is None)


def check_devices(tensors: tuple[Tensor, ...], grid: Grid, owner: str) -> None:
    """Raise unless every tensor is where the problem is."""
    for tensor in tensors:
        if not same_device(tensor.device, grid.device):
            raise DeviceError(
                f"the tensors of {owner} must be on the device of the queries and keys, {grid.device}: "
                f'got {tensor.device}. Pass mask.to("{grid.device}").'
            )


def broadcasts_to(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a tensor of that shape can be expanded to `wanted`."""
    return len(shape) <= len(wanted) and all(
        stretches(size, want) for size, want in zip(reversed(shape), reversed(wanted), strict=False)
    )


def check_broadcasts(batch_shape: Sequence[int], grid: Grid, tensor: Tensor, owner: str, name: str) -> None:
    """Raise unless `batch_shape`, the batch axes of `tensor`, broadcasts with the problem's, from the right."""
    if not broadcasts_to(batch_shape, grid.batch_shape):
        raise ShapeError(
            f"`{name}` of {owner} must have batch axes that broadcast with {grid.batch_shape} from the right: "
            f"got {tuple(tensor.shape)}. Put axes of size 1 where it is the same for every entry."
        )


def integer(value: object, owner: str, name: str) -> int:
    """`value`, an integer of Python, NumPy or whoever else has them, as Python's."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or isinstance(value, Tensor):
        raise DtypeError(f"`{name}` of {owner} must be an integer: got {value!r}. Pass a whole number.")
    return operator.index(value)


def whole_number(value: object, owner: str, name: str, least: int, most: int | None = _LARGEST) -> int:
    """`value`, an integer of at least `least` and, unless that is None, at most `most`."""
    number = integer(value, owner, name)
    if number < least:
        raise OptionError(f"`{name}` of {owner} must be at least {least}: got {number}. Pass {least} or more.")
    if most is not None and number > most:
        raise OptionError(f"`{name}` of {owner} must be at most {most}: got {number}. Pass a smaller number.")
    return number


def whole_tensor(value: object, owner: str, name: str) -> Tensor:
    """`value`, a tensor or (nested) sequence of integers, as a tensor of int64 of its own."""
    if isinstance(value, Tensor):
        if value.dtype not in _INTEGERS:
            raise DtypeError(
                f"`{name}` of {owner} must hold integers: got a tensor of {value.dtype}. Pass {name}.long()."
            )
        return value.detach().to(torch.int64, copy=True)
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(
            f"`{name}` of {owner} must be integers: got {value!r}. Pass a tensor or a list of whole numbers."
        ) from error
    if tensor.numel() and tensor.dtype not in _INTEGERS:
        raise DtypeError(f"`{name}` of {owner} must hold integers: got {value!r}. Pass whole numbers.")
    return tensor.to(torch.int64, copy=True)


def bool_tensor(value: object, owner: str, name: str, fix: str) -> Tensor:
    """`value`, a bool tensor."""
    if not isinstance(value, Tensor):
        raise DtypeError(
            f"`{name}` of {owner} must be a bool tensor: got {type(value).__name__}. Pass torch.as_tensor({name})."
        )
    if value.dtype != torch.bool:
        raise DtypeError(f"`{name}` of {owner} must be bool, True where attention is allowed: got {value.dtype}. {fix}")
    return value


def described(tensor: Tensor) -> str:
    """Dtype and shape, for a repr: the values may be many, or on another device."""
    return f"<{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}>"
