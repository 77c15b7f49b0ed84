"""Claims about pictures for terminals: 80 columns, with and without colour, any length."""

from __future__ import annotations

import io

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from regard import Causal, weigh
from regard.errors import ShapeError
from regard.plots import draw_matrix, draw_ranked
from regard.printable import short_name

AXES = "rows are queries, columns are keys"


def lines(picture: object) -> list[str]:
    return str(picture).splitlines()


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("size", [1, 2, 14, 18, 41, 90, 300])
@pytest.mark.parametrize("named", [True, False])
def test_no_line_is_wider_than_80_columns_and_the_axes_are_said(size, colour, named):
    weights = torch.rand(size, size).softmax(-1)
    names = [f"word{place}" for place in range(size)] if named else None
    picture = lines(draw_matrix(weights, names, names, colour=colour))
    assert max(map(cell_len, picture)) <= 80
    assert AXES in "\n".join(picture)
    assert len(picture) <= (110 if named and size <= 100 else 50)


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("width", [20, 33, 47, 61])
@pytest.mark.parametrize("size", [1, 2, 14, 60, 200])
@pytest.mark.parametrize(
    "name", ["incomprehensibilities", "犬はうれしい犬はうれしい", "👨‍👩‍👧"], ids=["long", "wide", "joined"]
)
def test_a_narrow_terminal_is_wide_enough(width, size, name, colour):
    names = [name] * size
    picture = lines(draw_matrix(torch.rand(size, size), names, names, width=width, colour=colour))
    assert max(map(cell_len, picture)) <= width
    assert AXES in " ".join(picture)
    assert max(map(cell_len, lines(draw_ranked([1 / size] * size, names, width=width)))) <= width


def test_a_long_view_is_pooled_and_the_picture_says_so():
    x = torch.randn(500, 4)
    picture = str(draw_matrix(weigh(x, x, x, mask=Causal()), colour=False))
    assert "each cell is the largest of about 12 × 6" in picture
    drawn = picture.splitlines()[:40]
    ends = [len(line) for line in drawn]
    assert ends == sorted(ends)  # a causal mask: each line reaches further than the one before


def test_without_colour_a_larger_weight_has_a_darker_shade():
    row = torch.linspace(0, 1, 60)[None]
    drawn = lines(draw_matrix(row, colour=False))[1]
    darkness = [" ·░▒▓█".index(letter) for letter in drawn.rstrip()]
    assert darkness == sorted(darkness)
    assert set(darkness) >= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("width", [80, 200])
def test_a_long_sentence_has_a_line_for_each_word_and_its_name_above_its_column(width, colour):
    words = [f"w{place:02}" for place in range(60)]
    picture = lines(draw_matrix(torch.eye(60), words, words, width=width, colour=colour))
    assert [line.split()[0] for line in picture[3:63]] == words
    assert "names of keys are read downwards" in picture[64]
    each = 1 if width == 80 else 3
    for place in (0, 37, 59):
        column = 4 + each * place + each // 2
        assert "".join(line[column] for line in picture[:3]) == words[place]
        assert picture[3 + place][column] == ("0" if colour and each == 3 else "█")  # of 100
    assert max(map(cell_len, picture)) <= width
    assert max(map(cell_len, picture)) > width // 2


def test_long_names_of_queries_are_cut_so_that_each_key_has_a_column():
    names = ["incomprehensible"] * 71
    picture = str(draw_matrix(torch.eye(71), names, names, colour=False))
    assert "largest of" not in picture
    assert picture.count("\nincompr… ") == 71


def test_names_of_one_letter_stand_above_their_columns():
    picture = lines(draw_matrix(torch.eye(30), [f"{place}." for place in range(30)], "abcdefghijklmnopqrstuvwxyzäöüß"))
    assert picture[0].replace(" ", "") == "abcdefghijklmnopqrstuvwxyzäöüß"
    assert picture[0].index("b") == 4 + 2


def test_a_letter_that_is_wider_than_its_column_is_a_box_and_many_of_them_are_numbers():
    words = [*["dog"] * 59, "🐶"]
    assert lines(draw_matrix(torch.eye(60), words, words))[2].endswith("g□")
    assert lines(draw_matrix(torch.eye(60), ["犬"] * 60, ["犬"] * 60))[0].split()[:2] == ["0", "10"]


def test_where_names_have_no_place_it_says_how_to_see_them():
    more = "the page has all of them"
    for size, names, said in ((60, "dog", False), (78, "dog", True), (60, "犬", True), (10, "dog", False)):
        assert (more in str(draw_matrix(torch.eye(size), [names] * size, [names] * size, more=more))) is said, size


def test_an_average_of_heads_is_drawn_as_one_matrix_is():
    both = lines(draw_matrix(torch.eye(3).expand(2, 3, 3)))
    assert both[:7] == lines(draw_matrix(torch.eye(3)))[:7]
    assert both[7] == f"{AXES}; averaged over 2"


def test_with_colour_a_line_holds_two_queries():
    weights = torch.eye(40)
    picture = draw_matrix(weights, colour=True)
    assert sum("▀" in line for line in lines(picture)) == 20
    halves = [span for span in picture.spans if "▀" in picture.plain[span.start : span.end]]
    assert len({str(span.style) for span in halves}) == 3  # neither, the upper, the lower


def test_without_a_terminal_no_escape_is_written():
    page = io.StringIO()
    Console(file=page, width=80).print(draw_matrix(torch.eye(3), ["a", "b", "c"], ["a", "b", "c"]))
    assert "\x1b" not in page.getvalue()
    assert "a 100   ·   ·" in page.getvalue()


def test_columns_line_up_under_wide_letters():
    picture = lines(draw_matrix(torch.eye(3), ["犬", "dog", "🐶"], ["犬", "dog", "🐶"], colour=False))
    assert [cell_len(line[: line.index("████")]) for line in picture[2:5]] == [4, 8, 12]
    assert cell_len(picture[0][: picture[0].index("犬")]) == 5


def test_a_name_cannot_command_the_terminal():
    assert "\x1b" not in str(draw_matrix(torch.eye(2), ["\x1b[31m", "b"], ["\x1b[31m", "b"]))
    assert short_name("\x1b[2J") == "�[2J"
    assert short_name("") == "␣"


def test_the_signs_that_join_letters_stay():
    assert short_name("👨‍👩‍👧") == "👨‍👩‍👧"
    assert short_name("می‌خواهم") == "می‌خواهم"
    assert short_name("a\u202eb") == "a�b"  # what turns the rest of a line around does not


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_what_is_no_finite_number_is_a_question_mark_and_the_rest_is_drawn(bad, colour):
    few = str(draw_matrix([[bad, 0.5], [0.25, 0.0]], colour=colour))
    assert few.splitlines()[2].rstrip() == ("0   ?  50" if colour else "0   ? ████")
    assert "? is no finite number" in few
    many = torch.eye(40)
    many[4, 7] = bad
    picture = lines(draw_matrix(many, colour=colour))
    assert sum("?" in line for line in picture) == 2  # its line, and what it means
    assert "? is no finite number" in picture
    assert lines(draw_ranked([float("nan"), 0.5], ["a", "b"]))[0].split()[:2] == ["b", "50.0%"]


def test_weights_below_zero_are_said_to_be_drawn_as_zero():
    assert "weights below 0 are drawn as 0" in str(draw_matrix([[-1.0, 2.0]]))
    assert "weights below 0 are drawn as 0" in str(draw_matrix(-torch.eye(90)))
    assert "below 0" not in str(draw_matrix([[0.0, 2.0]]))


def test_zeros_can_be_drawn():
    assert "·" in str(draw_matrix(torch.zeros(2, 2)))
    draw_matrix(torch.zeros(100, 100), colour=False)
    draw_matrix(torch.zeros(100, 100), colour=True)


def test_a_ranked_row_is_in_order_and_equal_weights_keep_theirs():
    picture = lines(draw_ranked([0.2, 0.6, 0.2], ["a", "b", "c"]))
    assert [line.split()[:2] for line in picture] == [["b", "60.0%"], ["a", "20.0%"], ["c", "20.0%"]]


def test_the_bar_of_the_largest_is_full_and_the_others_are_shares_of_it():
    picture = lines(draw_ranked([0.02, 0.08, 0.04], ["a", "b", "c"], width=29))
    assert [line.count("█") for line in picture] == [20, 10, 5]
    assert max(map(len, picture)) == 29


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("size", [3, 60])
def test_the_legend_ends_at_the_largest_weight_and_the_picture_says_so(size, colour):
    picture = str(draw_matrix(0.26 * torch.eye(size), colour=colour))
    assert (" 26% " if colour else "█ 26%") in picture
    assert "go up to the largest weight" in picture


def test_a_ranked_row_says_how_many_it_leaves_out():
    assert lines(draw_ranked([0.1] * 30, list(map(str, range(30)))))[-1] == "and 10 lighter ones"
    assert lines(draw_ranked([0.1] * 3, ["a", "b", "c"], most=2))[-1] == "and 1 lighter one"


def test_a_ranked_row_takes_a_tensor_and_must_have_a_name_for_each_weight():
    assert str(draw_ranked(torch.tensor([0.25, 0.5]), ["a", "b"])) == str(draw_ranked([0.25, 0.5], ["a", "b"]))
    with pytest.raises(ShapeError, match="`columns` must have a name for each weight: got 2 for 3"):
        draw_ranked([0.1, 0.2, 0.7], ["a", "b"])
