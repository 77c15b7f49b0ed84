"""Attention layers of other libraries that run on regard: how recordings, and who replaces their parts, find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from regard.masks import Mask
from regard.scores import Score


class Attending(Protocol):
    """What a recording asks of whoever attends: `AttentionLayer`, or what stands for a layer of another library."""

    @property
    def score(self) -> Score:
        """Its score, without what a call adds."""

    @property
    def mask(self) -> Mask | None:
        """Its own mask, which outlives a call and is not kept again."""

    def by_head(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with the batch axes that weights are read with."""

    @property
    def sharing(self) -> int:
        """How often `by_head` repeats the keys of a head for others that share them, and scores leave it at that."""


@dataclass(frozen=True)
class Host:
    """A library whose models may have their attention computed by regard.

    Args:
        is_attention: Whether a module is one of its attention layers.
        refusal: Why that layer's attention does not come to regard, and what to do; None where it does.
    """

    is_attention: Callable[[nn.Module], bool]
    refusal: Callable[[nn.Module], str | None]


HOSTS: list[Host] = []  # each integration adds one when it is imported


def host_of(module: nn.Module) -> Host | None:
    """The library that an attention layer belongs to; None for what is not an attention layer of a known one."""
    return next((host for host in HOSTS if host.is_attention(module)), None)
