"""The widget: what is known when a picture is shown, and messages for everything else. Needs anywidget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import anywidget
import traitlets

from regard.printable import short_name
from regard.view.colours import GREY
from regard.view.drawing import POWER
from regard.view.notebook.answers import Answers
from regard.view.theme import LEVELS, by_theme, variables

if TYPE_CHECKING:
    from regard.view.notebook import Names
    from regard.view.weights_view import WeightsView

HERE = Path(__file__).parent
BUDGET = 1 << 30  # bytes that pictures keep alive: a notebook does not forget what it has shown
LONGEST_NAME = 40
MOST_NAMES = 1 << 16


def _style() -> str:
    light, dark = variables()
    colours = by_theme(".regard-picture", f"{light}--none:{GREY};", dark)
    return f"{colours}\n{(HERE / 'picture.css').read_text(encoding='utf-8')}"


class Picture(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
    """One view or recording, as notebooks show it.

    Args:
        answers: Who reads the weights.
        state: What is known from the start; each a trait.
    """

    _esm: ClassVar[Path] = HERE / "picture.js"
    _css: ClassVar[str] = _style()

    title = traitlets.Unicode().tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)  # the static picture, which is there before Python answers
    layers: Any = traitlets.List().tag(sync=True)
    names: Any = traitlets.List(default_value=None, allow_none=True).tag(sync=True)
    scale = traitlets.Dict({"levels": LEVELS, "power": POWER}).tag(sync=True)
    chosen = traitlets.Dict().tag(sync=True)  # {layer, entry, query}

    def __init__(self, answers: Answers, **state: Any) -> None:
        super().__init__(layers=answers.described(), **state)
        self.answers = answers
        self.on_msg(self._heard)

    def _heard(self, _: Any, asked: Any, buffers: Any) -> None:
        answer, numbers = self.answers.answer(asked)
        self.send({**answer, "to": asked.get("from") if isinstance(asked, dict) else None}, numbers)


_shown: list[Picture] = []


def show(
    title: str, layers: Sequence[tuple[str, WeightsView]], still: str, names: Names | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook shows of views, and how."""
    told = None
    if names is not None and max(map(len, names)) <= MOST_NAMES:
        told = [[short_name(each, LONGEST_NAME) for each in some] for some in names]
    *batch, n_queries, _ = layers[0][1].shape
    chosen = {"layer": 0, "entry": [0] * len(batch), "query": n_queries // 2}
    picture = Picture(Answers(layers), title=title, still=still, names=told, chosen=chosen)
    _shown.append(picture)
    _make_room()
    data, metadata = picture._repr_mimebundle_() or ({}, {})
    return data, metadata


def _make_room() -> None:
    """Let the oldest pictures go, where all of them keep more than they may; what they share counts once."""
    while len(_shown) > 1 and _bytes() > BUDGET:
        _shown.pop(0).answers.let_go()


def _bytes() -> int:
    kept = {id(tensor): tensor for picture in _shown for tensor in picture.answers.tensors()}
    return sum(tensor.nbytes for tensor in kept.values())
