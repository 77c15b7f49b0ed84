"""What the page has of the visual language that every picture shares: its theme and the scale of weights."""

from __future__ import annotations

from regard.view import theme as shared
from regard.view.theme import scale

__all__ = ["scale", "theme"]


def theme() -> str:
    """The colours and fonts of pages as variables, and those of the scale: --w0 to --w32, and --i0 to --i32 on them."""
    light, dark = (shared.scale_variables(is_dark) for is_dark in (False, True))
    return f"{shared.theme()}\n:root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
