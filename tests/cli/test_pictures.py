"""Claims about the pictures that commands draw."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.style import Style
from rich.text import Text

from regard.cli.console import HEADING
from regard.cli.doctor import _verdict
from regard.cli.tour.character_pictures import cells, columns_that_fit, scale, spark
from regard.cli.tour.guide import farewell, show, welcome
from regard.plots.palette import STOPS, colour_at, ink_on
from regard.view.drawing import BAR_COLOUR


def contrast(one: str, other: str) -> float:
    """How well one colour is read on another, as WCAG has it."""
    light = []
    for colour in (one, other):
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
        light.append(0.05 + sum(part * each for part, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return max(light) / min(light)


def test_the_scale_begins_near_white_and_each_stop_is_darker_than_the_one_before() -> None:
    on_white = [contrast(stop, "#ffffff") for stop in STOPS]
    assert on_white == sorted(on_white)
    assert on_white[0] < 1.05
    assert on_white[-1] > 15


def test_numbers_can_be_read_on_every_colour_and_bars_on_white_and_black() -> None:
    for step in range(101):
        assert contrast(colour_at(step / 100), ink_on(colour_at(step / 100))) > 4.4
    assert min(contrast(BAR_COLOUR, "#ffffff"), contrast(BAR_COLOUR, "#0d1117")) > 3


def test_a_matrix_is_one_line_for_each_row_under_two_lines_of_names() -> None:
    matrix, names = [[1.0, 0.0, 0.5], [0.2, 0.3, 0.5]], ["one", "three", "four"]
    drawn = cells(matrix, ["a", "bb"], names).plain.splitlines()
    assert len(drawn) == 4
    assert drawn[0].split() == ["one", "four"]
    assert drawn[1].split() == ["three"]
    assert drawn[2:] == [" a 100   ·  50 ", "bb  20  30  50 "]
    assert cells(matrix, ["a", "bb"], names, colour=False).plain.splitlines()[2:] == [
        " a ████ ·  ▓▓▓▓",
        "bb ░░░░▒▒▒▒▓▓▓▓",
    ]


def test_cells_are_tinted_by_their_weight_with_numbers_that_can_be_read() -> None:
    styles = [span.style for span in cells([[0.4, 0.1, 0.0]], ["a"], ["a", "b", "c"]).spans[-3:]]
    tints = [style.bgcolor.name for style in styles]
    assert tints == [STOPS[0], colour_at(0.25 ** (2 / 3), dark=True), STOPS[-1]]
    assert [style.color.name for style in styles] == [ink_on(tint) for tint in tints]


def test_a_light_terminal_has_the_scale_of_a_light_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert cells([[0.4]], ["a"], ["a"]).spans[-1].style.bgcolor.name == STOPS[-1]


def test_a_matrix_of_zeros_can_be_drawn() -> None:
    for colour in (True, False):
        assert cells([[0.0]], ["a"], ["a"], colour=colour).plain.splitlines()[-1].split() == ["a", "·"]


def test_the_legend_ends_with_the_largest_weight() -> None:
    assert scale(0.31).plain.endswith(" 31% ")
    assert scale(0.31, colour=False).plain.endswith("█ 31%")


@pytest.mark.parametrize("terminal", ["15;0", "0;15"])
def test_no_weight_of_the_legend_is_lost_in_the_background(terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", terminal)
    tiles = [span.style for span in scale(0.31).spans if isinstance(span.style, Style) and span.style.bgcolor]
    assert len(tiles) == 5
    assert all(tile.color.name == ink_on(tile.bgcolor.name) for tile in tiles)


def test_coloured_words_read_on_white_and_on_black() -> None:
    stop = {"title": "", "text": "", "code": "a = b", "picture": lambda numbers, width: [], "has_matrix": False}
    texts = [welcome(80), show(1, SimpleNamespace(**stop), {}, 80), farewell(80), _verdict("no"), Text("", HEADING)]
    styles = {str(style) for text in texts for style in (text.style, *(span.style for span in text.spans))}
    colours = [Style.parse(style).color for style in styles - {""}]
    named = [colour.get_truecolor().hex for colour in colours if colour is not None]
    assert len(named) >= 2
    assert all(contrast(each, ground) > 3 for each in named for ground in ("#ffffff", "#000000"))


def test_the_legend_has_as_many_lines_as_it_needs() -> None:
    legend = scale(0.6, width=30).plain.splitlines()
    assert max(map(len, legend)) <= 30
    assert len(legend) == 2
    assert scale(0.6, width=77).plain.count("\n") == 0


def test_parts_of_a_matrix_share_their_largest_weight() -> None:
    assert cells([[0.5]], ["a"], ["a"], largest=1.0, colour=False).plain.splitlines()[-1].split() == ["a", "▓▓▓▓"]


def test_what_fits_is_no_wider_than_the_page() -> None:
    names = ["When", "wagged", "tail"] * 5
    for width in (37, 40, 57, 77):
        room = columns_that_fit(names, width)
        drawn = cells([[1.0] * room] * len(names), names, ["wagged"] * room).plain
        assert max(map(len, drawn.splitlines())) <= width
    assert columns_that_fit(names, 5) == 1


def test_a_spark_of_nothing_is_dots() -> None:
    assert spark([0.0, 0.0]) == "··"
    assert spark([]) == ""


def test_a_spark_tells_little_from_less() -> None:
    assert spark([1.0, 0.07, 0.06], largest=1.0) == "█▁·"
