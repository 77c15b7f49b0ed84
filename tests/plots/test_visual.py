"""Claims about docs/visual.md and the pictures beside it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from regard.plots.palette import STOPS

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_its_examples_run():
    pytest.importorskip("matplotlib")
    results = doctest.testfile(str(DOCS / "visual.md"), module_relative=False, encoding="utf-8")
    assert results.attempted > 8
    assert results.failed == 0


def test_its_pictures_are_there():
    text = (DOCS / "visual.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w-]+\.svg", text))
    assert named == {"scale.svg", "see.svg", "see-dark.svg", "terminal.svg"}
    assert all((DOCS / name).is_file() for name in named)
    assert re.findall("#[0-9a-f]{6}", (DOCS / "scale.svg").read_text(encoding="utf-8")) == list(STOPS)


@pytest.mark.parametrize("name", ["see", "pronounce", "view", "memory", "speed"])
def test_figures_have_no_background(name):
    for path in DOCS.glob(f"{name}*.svg"):
        first = re.search('<g id="patch_1">.*?</g>', path.read_text(encoding="utf-8"), re.DOTALL)
        assert first is not None, path
        assert "fill: none" in first[0], path


@pytest.mark.parametrize("name", ["see", "pronounce", "view"])
def test_maps_are_there_in_light_and_in_dark(name):
    ink = [(DOCS / f"{name}{dark}.svg").read_text(encoding="utf-8") for dark in ("", "-dark")]
    assert ink[0] != ink[1]
