"""How the page is put together: chapters, contents, colours, data, and the policy that a browser enforces."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.contents import CHAPTERS, COVER
from regard.cli.tour.page.drawing import LEVELS
from regard.cli.tour.page.notation import mathml
from regard.errors import CheckpointError, MissingDependency
from regard.plots.palette import colour_at, ink_on
from regard.view.drawing import POWER
from regard.view.theme import theme

HERE = Path(__file__).parent
FORMULA = re.compile(r"<(f|ff)>(.*?)</\1>", re.DOTALL)


def tour_page(stops: Stops) -> str:
    """The text of the page, whose numbers are those of `stops` and what its chapters measure besides."""
    cover, data = _written(COVER, stops)
    bodies = []
    for place, chapter in enumerate(CHAPTERS, start=1):
        body, live = _written(chapter, stops)
        data |= live
        bodies.append(
            f'<section id="{chapter.name}" aria-labelledby="{chapter.name}-title">\n'
            f'<h2 id="{chapter.name}-title"><span class="place">{place}</span> {escape(chapter.title)}</h2>\n'
            f"{body}</section>\n"
        )
    links = "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>\n' for each in CHAPTERS)
    own = {"style": _style(), "script": (HERE / "page.js").read_text(encoding="utf-8")}
    page = Template((HERE / "page.html").read_text(encoding="utf-8"))
    return page.substitute(
        **{f"{name}_source": f"'sha256-{_digest(text)}'" for name, text in own.items()},
        **own,
        cover=cover,
        contents=links,
        chapters="\n".join(bodies),
        # In a script no entity is decoded, and "</script>" would end it: JSON has another spelling for "<".
        data=json.dumps(
            data | {"scale_of_colours": {"levels": LEVELS, "power": POWER}}, ensure_ascii=False, allow_nan=False
        ).replace("<", "\\u003c"),
    )


def _written(chapter: Chapter, stops: Stops) -> tuple[str, dict[str, Any]]:
    """A chapter as markup, and the data of its sliders; where it lacks something, what to install."""
    missing = next((stops[name]["skipped"] for name in chapter.needs if "skipped" in stops[name]), None)
    own: Numbers = {}
    if missing is None:
        try:
            own = chapter.measure()
        except (CheckpointError, MissingDependency) as error:
            missing = str(error)
    if missing is not None:
        return f'<p class="skipped">Skipped. {escape(missing)}</p>\n', {}
    text = (HERE / "chapters" / f"{chapter.name}.html").read_text(encoding="utf-8")
    slots: Mapping[str, str] = chapter.fill(stops, own)
    live = chapter.live(stops, own)
    return FORMULA.sub(_formula, Template(text).substitute(slots)), {chapter.name: live} if live else {}


def _formula(found: re.Match[str]) -> str:
    return mathml(found[2], display=found[1] == "ff")


def _style() -> str:
    """The style, with the classes of the scale's colours: of a cell, and of the text on it."""
    light, dark = (
        "".join(
            f"rect.w{level}{{fill:{colour}}}text.w{level}{{fill:{ink_on(colour)}}}"
            for level in range(LEVELS + 1)
            for colour in [colour_at(level / LEVELS, is_dark)]
        )
        for is_dark in (False, True)
    )
    text = theme() + (HERE / "page.css").read_text(encoding="utf-8")
    # Paper is light, whatever the screen was.
    return f"{text}\n{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
