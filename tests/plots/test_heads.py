"""Claims about the maps of layers and heads: what they take, and how it is laid out."""

import pytest
import torch

from regard import WeightsView, nn, plots, weigh
from regard.errors import MissingKey, OptionError, ShapeError

pytest.importorskip("matplotlib")


def test_heads_are_laid_out_by_layer_and_head():
    weights = torch.rand(2, 3, 5, 5)
    figure = plots.heads(weights)
    maps = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(maps) == 6
    assert torch.allclose(torch.as_tensor(maps[4].data).float(), weights[1, 1])


def test_heads_take_the_views_of_layers_too():
    x = torch.randn(1, 2, 6, 4)
    view = weigh(x, x, x)
    maps = [axes.images[0].get_array() for axes in plots.heads([view, view]).axes if axes.images]
    assert len(maps) == 4
    assert torch.allclose(torch.as_tensor(maps[1].data).float(), view.dense()[0, 1], atol=1e-6)


def test_heads_take_a_recording_and_one_view():
    model, x = nn.Transformer(8, 2, 2, 1, 16, batch_first=True), torch.randn(1, 6, 8)
    with nn.record(model) as recording:
        model(x, x[:, :4])
    maps = [axes.images[0].get_array() for axes in plots.heads(recording).axes if axes.images]
    assert [each.shape for each in maps] == [(6, 6)] * 4 + [(4, 4)] * 2 + [(4, 6)] * 2
    last = recording["decoder.layers.0.multihead_attn"]
    for found in (maps[-1], [axes.images[0].get_array() for axes in plots.heads(last).axes if axes.images][-1]):
        torch.testing.assert_close(torch.as_tensor(found.data), last.dense()[0, 1].double(), check_dtype=False)


def test_a_recording_that_is_more_than_one_picture_says_what_to_pass():
    layer, x = nn.MultiHeadAttention(8, 2, batch_first=True), torch.randn(3, 6, 8)
    with nn.record(layer) as recording:
        with pytest.raises(MissingKey, match="got no call"):
            plots.heads(recording)
        layer(x, x, x)
    with pytest.raises(ShapeError, match=r"\[view.dense\(\)\[0\] for view in recording.views\(\)\]"):
        plots.heads(recording)
    with pytest.raises(ShapeError, match=r"\[view.dense\(\)\[0\] for view in views\]"):
        plots.heads(recording.views())
    for draw in (plots.matrix, plots.draw_matrix):
        with pytest.raises(ShapeError, match=r"Pass one layer of it, recording\[name\]"):
            draw(recording)
    with recording:
        layer(x, x, x)
    with pytest.raises(OptionError, match=r"Pass those of one: \[recording\.views\(layer\)\[step\] for layer in rec"):
        plots.heads(recording)


def test_the_view_of_a_layer_is_read_once_for_all_its_heads(monkeypatch):
    calls = []
    own = WeightsView.map
    monkeypatch.setattr(
        WeightsView, "map", lambda self, *sizes, **options: calls.append(1) or own(self, *sizes, **options)
    )
    x = torch.randn(1, 5, 6, 4)
    plots.heads([weigh(x, x, x)] * 2)
    assert len(calls) == 2


def test_heads_take_nested_lists_and_share_the_scale_of_their_largest():
    figure = plots.heads([[[[0.5, 0.5], [0.0, 1.0]]], [[[1.0]]]])
    assert [axes.images[0].get_array().shape for axes in figure.axes if axes.images] == [(2, 2), (1, 1)]
    assert [axes.images[0].get_clim() for axes in plots.heads([[[[0.5]]], [[[2.0]]]]).axes[:2]] == [(0.0, 2.0)] * 2


@pytest.mark.parametrize("weights", [torch.eye(3), [], [torch.eye(3)], [torch.ones(2, 1, 3, 3)]], ids=str)
def test_heads_without_layers_or_heads_are_refused(weights):
    with pytest.raises(ShapeError):
        plots.heads(weights)
