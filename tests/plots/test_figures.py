"""Claims about figures: what they say, what they show, and that they need no window."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from regard import Causal, Conic, Database, Dot, Gaussian, Raw, attend, plots, weigh
from regard.errors import OptionError, ShapeError

pytest.importorskip("matplotlib")

AXES = "rows are queries, columns are keys"
WORDS = ["the", "dog", "was", "happy"]


def texts(figure: Any) -> str:
    """All that a figure says, with no regard to where its lines end."""
    from matplotlib.text import Text

    return " | ".join(" ".join(each.get_text().split()) for each in figure.findobj(Text))


def image(figure: Any) -> Any:
    return figure.axes[0].images[0]


def drawn(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


def every_figure() -> dict[str, Any]:
    weights = torch.eye(4)
    x = torch.linspace(0, 1, 9)
    return {
        "matrix": plots.matrix(weights, WORDS),
        "heads": plots.heads(weights.expand(2, 3, 4, 4)),
        "alignment": plots.alignment(weights[:2], WORDS[:2], WORDS),
        "ranked": plots.ranked(weights[0], WORDS, "the"),
        "flow": plots.flow(torch.ones(2), torch.ones(3, 2), torch.ones(3, 1)),
        "curve": plots.curve(x, x * x),
    }


def test_every_figure_says_what_rows_and_columns_are_and_can_be_drawn():
    for name, figure in every_figure().items():
        assert AXES in texts(figure), name
        assert drawn(figure).startswith(b"\x89PNG"), name


def test_every_scale_goes_from_0_to_the_largest_weight_and_its_legend_says_so():
    small = torch.tensor([[0.01, 0.02, 0.0], [0.005, 0.08, 0.01], [0.0, 0.0, 0.0]])
    for figure in (
        plots.matrix(small),
        plots.heads(torch.stack([small / 2, small])[None]),
        plots.alignment(small, WORDS[:3], WORDS[:3]),
    ):
        assert image(figure).get_clim() == pytest.approx((0.0, 0.08))
        legend = figure.axes[-1]
        assert legend.get_ylim() == pytest.approx((0.0, 0.08))
        assert [each.get_text() for each in legend.get_yticklabels()] == ["0%", "1%", "2.83%", "5.2%", "8%"]
        assert legend.get_ylabel() == "weight, up to the largest"
    assert image(plots.matrix(torch.zeros(2, 2))).get_clim() == (0.0, 1.0)


def test_the_bar_of_the_largest_has_the_full_width():
    axes = plots.ranked([0.01, 0.02], ["a", "b"], "a").axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.02, 0.01])
    assert axes.get_xlim() == pytest.approx((0.0, 0.02))


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_is_the_weights_and_its_colours_begin_at_the_page_s(dark):
    weights = torch.tensor([[0.9, 0.1], [0.25, 0.75]])
    with pytest.importorskip("matplotlib.style").context("dark_background" if dark else {}):
        figure = plots.matrix(weights)
    shown = image(figure)
    assert torch.allclose(torch.as_tensor(shown.get_array().data), weights.double(), atol=1e-6)
    light = [sum(shown.cmap(shown.norm(each))[:3]) / 3 for each in (0.0, 0.1, 0.25, 0.5, 0.9)]
    assert light == sorted(light, reverse=not dark)
    assert len(set(light)) == 5
    assert light[0] < 0.2 if dark else light[0] > 0.95
    numbers = [(each.get_text(), each.get_color()) for each in figure.axes[0].texts]
    black, white = "#000000", "#ffffff"
    assert numbers[:2] == [("90", black if dark else white), ("10", white if dark else black)]


def test_weights_below_0_are_said_to_be_at_the_end():
    assert "below 0 at the end" in texts(plots.matrix([[-2.0, 3.0]]))
    assert "below 0" not in texts(plots.matrix([[0.0, 3.0]]))


def test_words_stand_at_their_rows_and_columns():
    figure = plots.matrix(torch.eye(4), WORDS)
    axes = figure.axes[0]
    assert [each.get_text() for each in axes.get_yticklabels()] == WORDS
    assert [each.get_text() for each in axes.get_xticklabels()] == WORDS


def test_a_word_with_dollars_is_no_formula():
    drawn(plots.matrix(torch.eye(2), ["$\\frac", "$x$"], title="$\\nonsense$"))


def test_small_maps_have_their_numbers_and_large_ones_do_not():
    assert "numbers are percents" in texts(plots.matrix(torch.eye(5)))
    assert "percents" not in texts(plots.matrix(torch.eye(50)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_what_is_no_finite_number_is_said_and_has_no_colour(bad):
    few, many = torch.eye(3), torch.eye(40)
    few[0, 1] = many[0, 1] = bad
    numbered = plots.matrix(few)
    assert "? is no finite number" in texts(numbered)
    assert [each.get_text() for each in numbered.axes[0].texts][:3] == ["100", "?", "·"]
    assert image(numbered).get_array().mask.tolist()[0] == [False, True, False]
    assert "a grey cell is no finite number" in texts(plots.matrix(many))
    assert "a grey cell is no finite number" in texts(plots.heads([few[None], torch.eye(3)[None]]))
    assert "below 0" not in texts(numbered)
    for figure in (numbered, plots.matrix(torch.eye(40)), plots.heads(torch.eye(3)[None, None])):
        assert ("no finite number" in texts(figure)) is (figure is numbered)
        drawn(figure)


def test_a_ranked_row_has_what_is_no_finite_number_last():
    figure = plots.ranked([float("nan"), 0.25, float("inf"), 0.75], list("abcd"), "q")
    assert [each.get_text() for each in figure.axes[0].get_yticklabels()] == ["d", "b", "a", "c"]
    assert [each.get_text() for each in figure.axes[0].texts] == ["75.0%", "25.0%", "?", "?"]
    assert "? is no finite number" in texts(figure)
    assert figure.axes[0].get_xlim() == (0.0, 0.75)
    drawn(figure)


def test_long_inputs_are_pooled_to_the_largest_and_the_figure_says_so():
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x, x, mask=Causal())
    figure = plots.matrix(view, most=(70, 70))
    assert "each cell is the largest of about 10 × 10 weights, of 700 × 700" in texts(figure)
    by_hand = view.dense().reshape(70, 10, 70, 10).amax((1, 3))
    assert torch.allclose(torch.as_tensor(image(figure).get_array().data).float(), by_hand, atol=1e-5)
    of_tensor = plots.matrix(view.dense(), most=(70, 70))
    assert torch.allclose(torch.as_tensor(image(of_tensor).get_array().data).float(), by_hand, atol=1e-5)
    assert image(figure).get_extent() == [-0.5, 699.5, 699.5, -0.5]  # the axes count queries, not cells


def test_a_cell_of_few_weights_says_how_few():
    assert "largest of about 1.6 × 1 weights, of 405 × 9" in texts(plots.matrix(torch.ones(405, 9)))


@pytest.mark.parametrize("shape", [(5000, 5000), (300, 2), (1, 400), (70, 70)], ids=str)
def test_a_figure_of_any_size_fits_a_page(shape):
    width, height = plots.matrix(torch.ones(shape)).get_size_inches()
    assert max(width, height) < 15


@pytest.mark.parametrize("size", [1, 2, 10, 40])
def test_rows_and_columns_without_names_are_counted_in_whole_numbers(size):
    axes = plots.matrix(torch.eye(size)).axes[0]
    for ticks in (axes.get_xticks(), axes.get_yticks()):
        inside = [each for each in ticks if -0.5 < each < size - 0.5]
        assert inside
        assert all(each == int(each) for each in inside)


def boxes(figure: Any, found: list[Any]) -> list[Any]:
    """Where texts are drawn."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    return [(each.get_bbox_patch() or each).get_window_extent(renderer) for each in found]


@pytest.mark.parametrize("layers", [1, 6])
def test_the_numbers_of_a_legend_do_not_touch(layers):
    figure = plots.heads(torch.rand(layers, 2, 4, 4), title="a title", note="a note " * 20)
    found = boxes(figure, figure.axes[-1].get_yticklabels())
    assert len(found) >= 4
    assert not any(one.overlaps(other) for place, one in enumerate(found) for other in found[:place])


@pytest.mark.parametrize(
    ("dim", "scale", "names"), [(1, 1.0, None), (7, 1.0, None), (4, 1e8, None), (9, 1e-7, "incomprehensibilities")]
)
def test_the_boxes_of_the_diagram_do_not_touch_and_stay_on_the_figure(dim, scale, names):
    query, keys = torch.randn(dim), torch.randn(5, dim)
    key_names = names and [names] * 5
    figure = plots.flow(query, keys, keys * scale, key_names=key_names, query_name=names or "q", weights=Raw())
    framed = [each for each in figure.axes[0].texts if each.get_bbox_patch()]
    found = boxes(figure, framed)
    assert len(found) == 1 + 4 * 5 + 1
    assert not any(one.overlaps(other) for place, one in enumerate(found) for other in found[:place])
    assert all(figure.bbox.x0 <= each.x0 and each.x1 <= figure.bbox.x1 for each in found)


def test_letters_that_one_font_has_not_are_taken_from_another(monkeypatch):
    from regard.plots import canvas

    with pytest.warns(UserWarning, match="Glyph"):
        drawn(plots.matrix(torch.eye(1), ["⤐"]))
    monkeypatch.setattr(canvas, "FALLBACKS", ("no such font", "STIXGeneral"))  # the second comes with matplotlib
    drawn(plots.matrix(torch.eye(1), ["⤐"]))  # a warning would be an error


def test_a_view_of_several_heads_is_pooled_and_averaged_as_a_tensor_is():
    x = torch.randn(3, 101, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x, x)
    for entry in (None, (1,)):
        one, other = (
            image(plots.matrix(each, most=(30, 17), entry=entry)).get_array() for each in (view, view.dense())
        )
        assert torch.allclose(torch.as_tensor(one.data), torch.as_tensor(other.data), atol=1e-6)


def test_a_view_is_pooled_as_a_tensor_is_where_cells_are_of_different_sizes():
    x = torch.randn(101, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x, x)
    one, other = (image(plots.matrix(each, most=(30, 17))).get_array() for each in (view, view.dense()))
    assert one.shape == (30, 17)
    assert torch.allclose(torch.as_tensor(one.data), torch.as_tensor(other.data), atol=1e-6)


def test_leading_axes_are_averaged_and_said_or_one_is_chosen():
    weights = torch.stack([torch.eye(2), torch.eye(2).flip(0)])
    averaged = plots.matrix(weights)
    assert "averaged over 2" in texts(averaged)
    assert image(averaged).get_array().tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert image(plots.matrix(weights, entry=(1,))).get_array().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(OptionError, match=r"`entry` must be a place in the leading axes \(2,\): got \(2,\)"):
        plots.matrix(weights, entry=(2,))


@pytest.mark.parametrize("weights", [torch.ones(3), torch.ones(0, 3), [], [["a"]]], ids=str)
def test_what_is_no_table_of_weights_is_refused(weights):
    with pytest.raises(ShapeError, match="Weights must"):
        plots.matrix(weights)


def test_names_must_be_as_many_as_rows_and_columns():
    with pytest.raises(ShapeError, match="`rows` must have a name for each: got 1 for 2"):
        plots.matrix(torch.eye(2), ["a"])
    with pytest.raises(ShapeError, match="`columns` must have a name for each: got 3 for 2"):
        plots.alignment(torch.eye(2), ["a", "b"], ["a", "b", "c"])


def test_a_ranked_row_is_in_order_and_says_what_it_leaves_out():
    figure = plots.ranked([0.1, 0.6, 0.3], ["a", "b", "c"], "q", most=2)
    assert [each.get_text() for each in figure.axes[0].get_yticklabels()] == ["b", "c"]
    assert "; 1 lighter key is not shown" in texts(figure)


def test_the_diagram_has_the_numbers_of_the_formula():
    query, keys, values = torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[10.0], [20]])
    said = texts(plots.flow(query, keys, values, score=Dot(), key_names=["left", "right"])).split(" | ")
    alpha = weigh(query[None], keys, values, score=Dot()).dense()[0]
    output = float(attend(query[None], keys, values, score=Dot()))
    for expected in (*(f"{each:.1%}" for each in alpha.tolist()), "2", f"{output:.3g}", "left (2, 0)", "right (0, 1)"):
        assert expected in said


def test_the_diagram_draws_the_heaviest_keys_and_says_what_the_others_weigh():
    keys = torch.arange(6.0)[:, None]
    said = texts(plots.flow(torch.ones(1), keys, keys, score=Dot(), most=2))
    rest = float(torch.arange(6.0).softmax(0)[:4].sum())
    assert f"4 lighter keys, of {rest:.1%} together, are in the sum" in said


def test_the_diagram_takes_any_rule():
    for rule in (Raw(), Conic()):
        drawn(plots.flow(torch.ones(2), torch.randn(3, 2), torch.ones(3, 1), score=Dot(), weights=rule))


def test_the_diagram_is_of_one_query():
    with pytest.raises(ShapeError, match="one query"):
        plots.flow(torch.ones(2, 2), torch.ones(3, 2), torch.ones(3, 1))
    with pytest.raises(ShapeError, match="`key_names` must have a name for each key: got 1 for 3"):
        plots.flow(torch.ones(2), torch.ones(3, 2), torch.ones(3, 1), key_names=["a"])


def test_a_curve_goes_through_what_the_database_answers_and_maps_its_weights():
    database = Database([3.0, 1.0, 2.0], [30.0, 10.0, 20.0])
    figure = plots.curve(database, score=Gaussian(0.5), queries=[1.0, 2.5])
    above, below = figure.axes[:2]
    answers = database.attend([1.0, 2.5], score=Gaussian(0.5))
    assert above.lines[1].get_ydata() == pytest.approx([each.value for each in answers])
    keys = torch.tensor([[1.0], [2.0], [3.0]])  # in order, whatever their order in the database
    expected = weigh(torch.tensor([[1.0], [2.5]]), keys, keys, score=Gaussian(0.5)).dense()
    assert torch.allclose(torch.as_tensor(below.images[0].get_array().data).float(), expected, atol=1e-5)
    assert below.images[0].get_clim() == pytest.approx((0.0, float(expected.max())))


def test_a_curve_of_one_key_is_a_point():
    above, below = plots.curve([3.0], [7.0]).axes[:2]
    assert (list(above.lines[1].get_xdata()), list(above.lines[1].get_ydata())) == ([3.0], [7.0])
    assert below.images[0].get_array().shape == (1, 1)


def test_a_curve_leaves_a_gap_where_there_are_no_similar_rows_and_says_so():
    database = Database([0.0, 0.1, 0.2, 9.8, 9.9, 10.0], [1.0, 1.1, 0.9, 2.0, 2.1, 1.9])
    assert "no similar rows at 1 of 2 queries" in texts(plots.curve(database, queries=[0.0, 1e6]))


def test_a_curve_must_have_numbers():
    with pytest.raises(OptionError, match="numbers"):
        plots.curve(Database(["a", "b"], [1.0, 2.0]))
    with pytest.raises(OptionError, match="one key column"):
        plots.curve(Database({"a": [1.0, 2.0], "b": [1.0, 2.0]}, [1.0, 2.0]))
    with pytest.raises(OptionError, match="at least one place"):
        plots.curve([1.0, 2.0], [1.0, 2.0], queries=[])


def test_a_figure_needs_no_window_and_leaves_no_state(tmp_path):
    script = """
import sys, torch
from regard import plots
assert "matplotlib" not in sys.modules and "torch" in sys.modules
plots.matrix(torch.eye(3)).savefig(sys.argv[1])
print("matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "figure.png")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLBACKEND": "TkAgg", "DISPLAY": ""},
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def test_importing_plots_imports_neither_torch_nor_matplotlib():
    script = "import sys, regard.plots; print(sorted({'torch', 'matplotlib', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
