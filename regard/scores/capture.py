"""Finds the tensors that a user's score function closes over, so that they get gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def capturing() -> Iterator[Mapping[int, Tensor]]:
    """While it is open, the tensors with a gradient that `call` brings to light are gathered here, by identity.

    It is meant for `no_grad`: tiles, and all that is computed from them, have no gradient there, so that what has one
    came from outside, however the function got hold of it.
    """
    watch = _Watch()
    token = _watch.set(watch)
    try:
        yield watch.found
    finally:
        _watch.reset(token)


def call(function: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor) -> Tensor:
    """`function(queries, keys)`, watched if someone is capturing."""
    watch = _watch.get()
    if watch is None:
        return function(queries, keys)
    with watch:
        return function(queries.detach(), keys.detach())


class _Watch(TorchFunctionMode):
    """Notes every tensor with a gradient that goes into a torch operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Tensor] = {}

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for value in _leaves((args, kwargs or {})):
            if isinstance(value, Tensor) and value.requires_grad:
                self.found.setdefault(id(value), value)
        return function(*args, **(kwargs or {}))


def _leaves(value: Any) -> Iterator[Any]:
    """What nested lists, tuples and dictionaries hold."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
