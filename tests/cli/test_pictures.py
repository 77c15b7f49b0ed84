"""Claims about the pictures that commands draw."""

from __future__ import annotations

from regard.cli.tour.character_pictures import CELLS, cell, columns_that_fit, half_blocks, half_blocks_legend, spark


def test_the_more_a_cell_weighs_the_more_half_blocks_it_fills() -> None:
    filled = [sum({"█": 2, "▄": 1, "▀": 1}.get(letter, 0) for letter in picture) for picture in CELLS]
    assert filled == list(range(7))
    assert [cell(level / 6) for level in range(7)] == list(range(7))


def test_a_matrix_is_one_line_for_each_row_under_two_lines_of_names() -> None:
    drawn = half_blocks([[1.0, 0.0, 0.5], [0.2, 0.3, 0.5]], ["a", "bb"], ["one", "three", "four"]).plain.splitlines()
    assert len(drawn) == 4
    assert drawn[0].split() == ["one", "four"]
    assert drawn[1].split() == ["three"]
    assert drawn[2] == " a  ███  ·  ▄▄▄"


def test_a_matrix_of_zeros_can_be_drawn() -> None:
    assert half_blocks([[0.0]], ["a"], ["a"]).plain.splitlines()[-1].split() == ["a", "·"]


def test_the_legend_ends_with_the_largest_weight() -> None:
    assert half_blocks_legend(0.31).plain.endswith("███ 0.31")


def test_the_legend_has_as_many_lines_as_it_needs() -> None:
    legend = half_blocks_legend(0.6, width=37).plain.splitlines()
    assert max(map(len, legend)) <= 37
    assert len(legend) == 3
    assert half_blocks_legend(0.6, width=77).plain.count("\n") == 0


def test_parts_of_a_matrix_share_their_largest_weight() -> None:
    assert half_blocks([[0.5]], ["a"], ["a"], largest=1.0).plain.splitlines()[-1].split() == ["a", "▄▄▄"]


def test_what_fits_is_no_wider_than_the_page() -> None:
    names = ["When", "wagged", "tail"] * 5
    for width in (37, 40, 57, 77):
        room = columns_that_fit(names, width)
        drawn = half_blocks([[1.0] * room] * len(names), names, ["wagged"] * room).plain
        assert max(map(len, drawn.splitlines())) <= width
    assert columns_that_fit(names, 5) == 1


def test_a_spark_of_nothing_is_dots() -> None:
    assert spark([0.0, 0.0]) == "··"
    assert spark([]) == ""


def test_a_spark_tells_little_from_less() -> None:
    assert spark([1.0, 0.07, 0.06], largest=1.0) == "█▁·"
