"""Who wants to see what the heads of a layer pool, and its gradient: every attention layer shows it here."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Protocol

from torch import Tensor, nn

from regard.modes import is_tracing


class Watcher(Protocol):
    """Sees what layers pool while it is among those that watch."""

    def see(self, owner: nn.Module, pooled: Tensor, heads_of: Callable[[Tensor], Tensor]) -> None:
        """Take note of one call.

        Args:
            owner: The module that models know by name.
            pooled: What its heads pool, as the model goes on with it.
            heads_of: Makes that, or its gradient, `(batch, heads, n_queries, value_dim)`.
        """


_watching: tuple[Watcher, ...] = ()
_changing = Lock()


def watch(watcher: Watcher) -> None:
    """Let it see every call from here on, of every thread."""
    global _watching
    with _changing:
        _watching = (*_watching, watcher)


def unwatch(watcher: Watcher) -> None:
    """Let it see no further call."""
    global _watching
    with _changing:
        _watching = tuple(each for each in _watching if each is not watcher)


def show_pooled(owner: nn.Module, pooled: Tensor, heads_of: Callable[[Tensor], Tensor]) -> None:
    """Show those who watch what a call pooled; arguments as `Watcher.see`."""
    if _watching and not is_tracing():
        for watcher in _watching:
            watcher.see(owner, pooled, heads_of)
