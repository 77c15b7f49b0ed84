"""Weights as one HTML file, which works offline: hover for three digits, click a word for its row."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regard.errors import OptionError, ShapeError
from regard.plots.bounded import AXES, names_of, read, unless_finite
from regard.plots.every_head import every_head
from regard.plots.palette import GREY, STOPS, colour_at, ink_on
from regard.view.drawing import BAR_COLOUR, POWER, largest_of
from regard.wording import listed

TEMPLATE = Path(__file__).with_name("page.html")  # beside it: its style, page.css, and its script, page.js
LEVELS = 32  # colours that the scale is drawn in
MOST = (200, 200)  # cells of one picture: a browser shows as many without delay
MOST_OF_HEADS = 1 << 19  # cells of all heads together: 2.7 MB of the file


@dataclass(frozen=True)
class Picture:
    """One matrix of a page, or a section of text alone.

    Args:
        weights: What `weigh` gives, or a tensor `(..., n_queries, n_keys)`; None for text alone.
        rows: A name for each query; numbers if left out.
        columns: A name for each key; likewise.
        title: Above it.
        note: Below the title; a line of it is a line there.
        selected: The row that is ranked when the page opens.
        printed: Below the matrix, line by line in type of one width: code, or what characters draw.
        heads: The weights of every head of every layer, as `plots.heads` takes them, with the same rows and columns:
            they are shown small, and one that is chosen takes the place of `weights`.
    """

    weights: Any = None
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    title: str = ""
    note: str = ""
    selected: int | None = None
    printed: str = ""
    heads: Any = None


def page(pictures: Picture | Sequence[Picture], title: str = "Attention weights") -> str:
    """The text of an HTML file with these pictures. It fetches nothing; names appear as text, never as markup.

    Args:
        pictures: One, or a list of them.
        title: Of the page.

    Example:
        >>> text = page(Picture([[0.9, 0.1], [0.2, 0.8]], ["<b>", "dog"], ["<b>", "dog"]))
        >>> "<b>" in text, "rows are queries, columns are keys" in text
        (False, True)
    """
    if not isinstance(title, str):
        raise OptionError(
            f"`title` must be text: got {type(title).__name__}. "
            f"Pass several pictures as one list: page([first, second])."
        )
    found: list[Any] = list(pictures) if isinstance(pictures, Iterable) else [pictures]
    if not found:
        raise OptionError("A page must have at least one picture: got none.")
    for each in found:
        if not isinstance(each, Picture):
            raise OptionError(
                f"A page must be made of pictures: got {type(each).__name__}. "
                f"Make one of the weights: page(Picture(weights))."
            )
    data = {"title": title, "pictures": [_described(each) for each in found]}
    # In a script no entity is decoded, and "</script>" or "<!--" would end it: JSON has another spelling for "<".
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    before, after = _template()
    return before.replace("{{title}}", html.escape(title)) + text + after


@cache
def _template() -> tuple[str, str]:
    """What stands before and after the data. The browser runs the page's own script and style and no other."""
    text = TEMPLATE.read_text(encoding="utf-8")
    for kind in ("css", "js"):
        text = text.replace("{{" + kind + "}}", TEMPLATE.with_suffix(f".{kind}").read_text(encoding="utf-8"))
    for name, put in _scale().items():
        text = text.replace("{{" + name + "}}", put)
    for name in ("style", "script"):
        (own,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        text = text.replace("{{" + name + "}}", f"'sha256-{digest}'")
    before, after = text.split("{{data}}")
    return before, after


def _scale() -> dict[str, str]:
    """What the template has of the palette: a class for each level of the scale, light and dark."""
    light, dark = (
        " ".join(
            f"td.w{level} {{ background: {colour}; color: {ink_on(colour)}; }}"
            for level in range(LEVELS + 1)
            for colour in [colour_at(level / LEVELS, is_dark)]
        )
        for is_dark in (False, True)
    )
    return {
        "levels": f"{light}\n  @media (prefers-color-scheme: dark) {{ {dark} }}",
        "light": ", ".join(STOPS),
        "dark": ", ".join(STOPS[::-1]),
        "bar": BAR_COLOUR,
        "grey": GREY,
        "colours": json.dumps(
            {
                name: [colour_at(level / LEVELS, is_dark) for level in range(LEVELS + 1)]
                for name, is_dark in (("light", False), ("dark", True))
            }
        ),
        "count": str(LEVELS),
        "power": repr(POWER),
    }


def _described(picture: Picture) -> dict[str, Any]:
    told = {"title": picture.title, "note": picture.note, "printed": picture.printed}
    if picture.weights is None:
        return {**told, "weights": None}
    reading = read(picture.weights, picture.rows, picture.columns, most=MOST)
    height, width = reading.picture.shape
    if picture.selected is not None and not 0 <= picture.selected < height:
        raise OptionError(f"`selected` must be a row from 0 to {height - 1}: got {picture.selected}.")
    weights = [[_shortest(each) if math.isfinite(each) else None for each in row] for row in reading.picture.tolist()]
    return {
        **told,
        "caption": reading.caption + unless_finite(reading.picture, "a grey cell"),
        "rows": reading.rows or [str(place) for place in range(height)],
        "columns": reading.columns or [str(place) for place in range(width)],
        "weights": weights,
        "largest": largest_of(each for row in weights for each in row if each is not None),
        "selected": picture.selected,
        "heads": None if picture.heads is None else _described_heads(picture, reading.size),
    }


def _described_heads(picture: Picture, size: tuple[int, int]) -> dict[str, Any]:
    """Every head's map, in as many cells as there is room for in all of them."""
    import torch

    found = every_head(picture.heads)
    if found.sizes != {size}:
        raise ShapeError(
            f"`heads` must have the queries and keys of `weights`, {size[0]:,} × {size[1]:,}: got "
            f"{listed([f'{n_queries:,} × {n_keys:,}' for n_queries, n_keys in sorted(found.sizes)])}."
        )
    room = max(MOST_OF_HEADS // sum(found.counts), 1)  # cells of one
    side = math.isqrt(room)
    height = min(size[0], MOST[0], side if size[1] > side else max(room // size[1], 1))
    pictures, notes = found.pictures(height, min(max(room // height, 1), MOST[1]))
    maps = torch.cat([torch.stack(of_layer) for of_layer in pictures])
    height, width = maps.shape[-2:]
    return {
        "layers": found.numbers,
        "counts": found.counts,
        "size": [height, width],
        "rows": names_of(picture.rows, size[0], height, "rows") or [str(place) for place in range(height)],
        "columns": names_of(picture.columns, size[1], width, "columns") or [str(place) for place in range(width)],
        "caption": "; ".join((AXES, *notes)) + unless_finite(maps, "a grey cell"),
        "weights": base64.b64encode(maps.numpy().astype("<f4").tobytes()).decode(),
    }


def _shortest(weight: float) -> float:
    """A float32 in as few digits as tell it from its neighbours."""
    return float(f"{weight:.9g}")
