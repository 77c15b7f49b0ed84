"""What a chapter of the page is made of: its text, the numbers in it, its figures, and what its sliders move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from regard.cli.tour.guide import Numbers

Stops: TypeAlias = Mapping[str, Numbers]  # the tour's stops by name, measured


def nothing(*_: Any) -> dict[str, Any]:
    """Of a chapter that measures nothing, fills nothing in, or has nothing that moves."""
    return {}


@dataclass(frozen=True)
class Chapter:
    """One chapter. Its text is `chapters/NAME.html`, with `${slots}` for what is computed.

    `needs` are the stops of the tour whose numbers it shows; `measure` computes what it shows besides; `fill` makes
    of both the text of each slot; `live` is what the page's own script computes with.
    """

    name: str
    title: str
    needs: tuple[str, ...] = ()
    measure: Callable[[], Numbers] = nothing
    fill: Callable[[Stops, Numbers], Mapping[str, str]] = nothing
    live: Callable[[Stops, Numbers], Mapping[str, Any]] = nothing
