"""Views as interactive pictures in notebooks: what they are made of, and when a notebook gets one.

`answers.py` reads what a picture asks for; `widget.py`, which alone needs anywidget, carries it to `picture.js`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from regard.view.weights_view import WeightsView

Names = tuple[list[str], list[str]]  # of queries and of keys


class Shown(Protocol):
    """What has static pictures."""

    def _repr_html_(self) -> str: ...


def bundle(
    shown: Shown, title: str, layers: Sequence[tuple[str, WeightsView]], names: Names | None = None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The interactive picture and, for who cannot show it, the static ones; None where there is no use for it.

    Saved notebooks, and sites that show them, have no Python to ask: they take the static picture.

    Args:
        shown: A view, or what holds several.
        title: What it is.
        layers: A name and a view for each of them.
        names: Of queries and keys, where they have any.
    """
    layers = [(name, view) for name, view in layers if 0 not in view.shape]
    if not layers or not _has_front_end() or not all(map(_is_readable, (view for _, view in layers))):
        return None
    try:
        from regard.view.notebook.widget import show
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "regard":
            raise
        return None
    still = shown._repr_html_()
    data, metadata = show(title, layers, still, names)
    return {**data, "text/html": still, "text/plain": repr(shown)}, metadata


def _has_front_end() -> bool:
    """Whether Python runs as a notebook's kernel: what is drawn elsewhere could ask nobody."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _is_readable(view: WeightsView) -> bool:
    return view._versions.changed is None and not view._problem.queries.is_meta
