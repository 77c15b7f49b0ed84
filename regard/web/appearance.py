"""What the page has of the visual language that every picture shares: its theme and the scale of weights."""

from __future__ import annotations

import json

from regard.plots.palette import colour_at, ink_on
from regard.plots.theme import theme as shared_theme
from regard.view.drawing import POWER

LEVELS = 32  # colours that the scale is drawn in


def theme() -> str:
    """The colours and fonts of pages as variables, and those of the scale: --w0 to --w32, and --i0 to --i32 on them."""
    light, dark = (
        "".join(
            f"--w{level}:{colour};--i{level}:{ink_on(colour)};"
            for level in range(LEVELS + 1)
            for colour in [colour_at(level / LEVELS, is_dark)]
        )
        for is_dark in (False, True)
    )
    return f"{shared_theme()}\n:root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def scale() -> str:
    """The same as a module: where a weight lies on the scale, and the colours, for what is painted pixel by pixel."""
    colours = {
        name: [colour_at(level / LEVELS, is_dark) for level in range(LEVELS + 1)]
        for name, is_dark in (("light", False), ("dark", True))
    }
    numbers = f"export const POWER = {POWER!r};\nexport const LEVELS = {LEVELS};\n"
    return f"{numbers}export const COLOURS = {json.dumps(colours)};\n"
