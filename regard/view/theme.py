"""The visual language of pages and notebooks: colours and fonts as variables of CSS, and the scale of weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

from regard.view.colours import colour_at, ink_on
from regard.view.drawing import BAR_COLOUR, POWER

STYLE = Path(__file__).with_name("theme.css")
LEVELS = 32  # colours that the scale is drawn in


def theme() -> str:
    """The style sheet of colours and fonts, light and dark by the reader's preference."""
    return STYLE.read_text(encoding="utf-8").replace("BAR_COLOUR", BAR_COLOUR)


def scale_variables(dark: bool) -> str:
    """The scale as variables: --w0 to --w32, and --i0 to --i32 on them."""
    return "".join(
        f"--w{level}:{colour};--i{level}:{ink_on(colour)};"
        for level in range(LEVELS + 1)
        for colour in [colour_at(level / LEVELS, dark)]
    )


def variables() -> tuple[str, str]:
    """All of them, for a light place and what is different in a dark one."""
    light, dark = re.findall(r":root \{(.*?)\}", theme(), re.DOTALL)
    return light + scale_variables(False), dark + scale_variables(True)


def by_theme(selector: str, light: str, dark: str) -> str:
    """Declarations for what stands in a notebook: by the reader's preference, unless the notebook says its theme.

    Args:
        selector: Of what they are for.
        light: Declarations for a light page.
        dark: For a dark one, where they are different.
    """
    is_light, is_dark = (
        f'[data-jp-theme-light="{lab}"] {selector},body.vscode-{name} {selector},html[theme="{name}"] {selector}'
        for name, lab in (("light", "true"), ("dark", "false"))
    )
    return (
        f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"
        f"{is_light}{{{light}color-scheme:light}}{is_dark}{{{dark}color-scheme:dark}}"
    )


def scale() -> str:
    """The scale as a module: where a weight lies on it, and its colours, for what is painted pixel by pixel."""
    colours = {
        name: [colour_at(level / LEVELS, is_dark) for level in range(LEVELS + 1)]
        for name, is_dark in (("light", False), ("dark", True))
    }
    numbers = f"export const POWER = {POWER!r};\nexport const LEVELS = {LEVELS};\n"
    return f"{numbers}export const COLOURS = {json.dumps(colours)};\n"
