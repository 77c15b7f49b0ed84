"""Finds the tensors that a user's score function closes over, so that they get gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

_mode: ContextVar[_Watch | _Swap | None] = ContextVar("mode", default=None)


@contextmanager
def capturing() -> Iterator[Mapping[int, Tensor]]:
    """While it is open, the tensors with a gradient that `call` brings to light are gathered here, by identity.

    It is meant for `no_grad`: tiles, and all that is computed from them, have no gradient there, so that what has one
    came from outside, however the function got hold of it.
    """
    watch = _Watch()
    with _using(watch):
        yield watch.found


@contextmanager
def substituting(leaves: Mapping[int, Tensor]) -> Iterator[None]:
    """While it is open, a function that `call` runs sees these tensors in place of those of that identity.

    A gradient with respect to what a function closes over must stop there: one captured tensor may be computed from
    another.
    """
    with _using(_Swap(leaves) if leaves else None):
        yield


def call(function: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor) -> Tensor:
    """`function(queries, keys)`, watched or with other tensors where someone asked for it."""
    mode = None if torch.compiler.is_compiling() else _mode.get()
    if mode is None:
        return function(queries, keys)
    if isinstance(mode, _Watch):
        queries, keys = queries.detach(), keys.detach()
    with mode:
        return function(queries, keys)


@contextmanager
def _using(mode: _Watch | _Swap | None) -> Iterator[None]:
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


class _Watch(TorchFunctionMode):
    """Notes every tensor with a gradient that goes into a torch operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Tensor] = {}

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, Tensor) and value.requires_grad:
                self.found.setdefault(id(value), value)
        return function(*args, **(kwargs or {}))


class _Swap(TorchFunctionMode):
    """Puts other tensors into torch operations, by identity."""

    def __init__(self, leaves: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.leaves = leaves

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map(self._swapped, (args, kwargs or {}))
        return function(*args, **kwargs)

    def _swapped(self, value: Any) -> Any:
        return self.leaves.get(id(value), value) if isinstance(value, Tensor) else value
