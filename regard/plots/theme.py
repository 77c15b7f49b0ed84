"""The colours and fonts that the tour's page and the explorer's share, light and dark, as variables of CSS."""

from __future__ import annotations

from pathlib import Path

from regard.view.drawing import BAR_COLOUR

STYLE = Path(__file__).with_name("theme.css")


def theme() -> str:
    """The style sheet."""
    return STYLE.read_text(encoding="utf-8").replace("BAR_COLOUR", BAR_COLOUR)
