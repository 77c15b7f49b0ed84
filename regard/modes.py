"""Detects compilation, export, graph capture and functorch transforms.

Under each, control flow must not depend on the values of tensors, and results must not be cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

import torch
from torch.autograd import forward_ad

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


def is_tracing() -> bool:
    """Whether torch.compile, torch.export or torch.jit.trace is tracing, or a functorch transform is active."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or bool(torch._C._is_tracing())


def is_jit_tracing() -> bool:
    """Whether torch.jit.trace is tracing."""
    return not torch.compiler.is_compiling() and bool(torch._C._is_tracing())


def is_hidden(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor cannot be read: while tracing, and on the meta device."""
    return is_tracing() or tensor.device.type == "meta"


def waits(tensor: torch.Tensor) -> bool:
    """Whether a look at the numbers of a tensor would wait for a device."""
    return tensor.is_cuda


def is_transforming() -> bool:
    """Whether a transform of torch.func is active, compiled or not."""
    return torch._C._are_functorch_transforms_active()


def is_forward_mode() -> bool:
    """Whether a level of forward-mode differentiation is open: a tensor with a tangent does not require a gradient."""
    return forward_ad._current_level >= 0


def is_capturing(device: torch.device) -> bool:
    """Whether operations on that device are captured into a CUDA graph: values cannot be read."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def constant(function: Function) -> Function:
    """A function that torch.compile calls, rather than traces, and whose result it takes as fixed.

    As torch.compiler.assume_constant_result, without importing the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class kept(Generic[Value]):
    """functools.cached_property without the lock of Python 3.11, which torch.compile cannot trace."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: object | None, kind: type) -> Self | Value:
        if owner is None:
            return self
        value = self.function(owner)
        object.__setattr__(owner, self.name, value)  # owners are frozen
        return value
