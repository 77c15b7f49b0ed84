"""What a notebook shows of views and recordings: static pictures, bounded, light and dark."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from regard import Causal, Dot, Raw, nn, weigh
from regard.view import html
from regard.view.colours import GREY, colour_at
from regard.view.drawing import place_of


def picture(shown):
    """What a notebook gets, which is well-formed, and its maps: for each, a level for every cell."""
    text = shown._repr_html_()
    tree = ElementTree.fromstring(text)
    maps = []
    for group in tree.iter("g"):
        frame = next(each for each in group.iter("rect") if each.get("class") == "frame")
        width, height = int(frame.get("width")), int(frame.get("height"))
        cells = [["0"] * width for _ in range(height)]
        for path in group.iter("path"):
            for x, y, count in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d")):
                for column in range(int(x), int(x) + int(count)):
                    assert cells[int(y)][column] == "0"
                    cells[int(y)][column] = path.get("class")[1:]
        maps.append(cells)
    return text, tree, maps


def levels(weights, largest):
    return [[str(round(place_of(float(each), largest) * html.LEVELS)) for each in row] for row in weights]


def recorded(layers=3, n=9, heads=4, batch=1):
    torch.manual_seed(0)
    model = nn.Encoder(nn.EncoderLayer(4 * heads, heads, 32, batch_first=True), layers).eval()
    with nn.record(model) as seen, torch.no_grad():
        model(torch.randn(batch, n, 4 * heads))
    return seen


def test_cells_have_the_colours_of_their_weights():
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x[:5], x[:5])
    text, tree, (cells,) = picture(view)
    dense = view.dense()
    assert cells == levels(dense, float(dense.max()))
    assert "rows are queries, columns are keys" in text
    assert next(tree.iter("b")).text == "WeightsView of convex weights, 7 × 5: ScaledDot under Softmax"
    assert f"{100 * float(dense.max()):.3g}%" in text  # where the legend ends
    assert {path.get("fill") for path in tree.iter("path")} <= {colour_at(at / html.LEVELS) for at in range(17)}


def test_heads_stand_side_by_side_of_the_first_entry_of_the_batch():
    x = torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x, x, mask=Causal())
    text, tree, maps = picture(view)
    assert maps == [levels(each, 1.0) for each in view.dense()[0]]
    assert "of batch entry 0" in text
    assert "a map for each head" in text
    assert [each.text for each in tree.iter("title")] == ["head 0", "head 1", "head 2"]


def test_long_inputs_are_pooled_and_it_says_so():
    x = torch.randn(640, 4, generator=torch.Generator().manual_seed(0))
    view = weigh(x, x, x)
    text, _, (cells,) = picture(view)
    pooled = view.map(64, 64, pool="max")
    assert cells == levels(pooled, float(pooled.max()))
    assert "each cell is the largest of about 10 × 10 weights" in text


def test_a_recording_is_a_grid_of_layers_and_heads_on_one_scale():
    seen = recorded()
    text, tree, maps = picture(seen)
    dense = [view.dense()[0] for view in seen.views()]
    largest = max(float(each.max()) for each in dense)
    assert maps == [levels(head, largest) for layer in dense for head in layer]
    assert "layers downwards, heads across" in text
    assert [each.text for each in tree.iter("title")][5] == "layers.1.self_attn, head 1"
    with nn.record(torch.nn.ModuleList([seen._modules["layers.0.self_attn"]])) as nothing:
        pass
    assert "no layer was called" in picture(nothing)[0]


def test_pictures_are_bounded_in_size_and_what_is_left_out_is_said():
    text, _, maps = picture(recorded(layers=30, n=40, heads=20))
    assert len(maps) == html.MOST_ROWS * html.MOST_COLUMNS
    assert "the first 24 of 30 calls" in text
    assert "the first 16 of 20 heads" in text
    assert len(text) < 600_000
    x = torch.randn(64, 4)
    assert len(weigh(x, x, x)._repr_html_()) < 60_000


def test_what_would_take_long_is_not_read(monkeypatch):
    monkeypatch.setattr(html, "MOST_PAIRS", 700)
    x = torch.randn(30, 4)
    text, _, maps = picture(weigh(x, x, x))
    assert "(more than 700 weights: draw them with .map(height, width))" in text
    assert not maps
    text, _, maps = picture(recorded())  # 324 weights a layer
    assert len(maps) == 8
    assert "the first 2 of 3 calls" in text


def test_what_is_no_finite_number_or_below_zero_is_said():
    values = torch.tensor([[-1.0], [0.5], [torch.nan], [2.0]])
    text, tree, (cells,) = picture(weigh(torch.ones(1, 1), values, values, score=Dot(), weights=Raw()))
    assert cells[0][0] == "0"
    assert cells[0][2:] == ["x", "16"]
    assert GREY in {path.get("fill") for path in tree.iter("path")}
    assert "weights below 0 are drawn as 0; grey is no finite number" in text
    assert "> 2<" in text  # linear weights are no shares
    assert "(empty)" in weigh(torch.ones(0, 1), values, values)._repr_html_()


def test_names_are_text_and_there_is_no_script():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<script>alert(1)</script>", nn.SelfAttention(8, 8))

        def forward(self, x):
            return next(self.children())(x)

    model = Named()
    with nn.record(model) as seen, torch.no_grad():
        model(torch.randn(5, 8))
    text, *_ = picture(seen)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_view_that_expired_says_so():
    x = torch.randn(5, 4)
    view = weigh(x, x, x)
    x += 1
    assert "(expired:" in view._repr_html_()
    assert view._repr_html_().startswith("<pre>")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader_and_the_notebook_s_own_theme(browser, scheme):
    def fill(page):
        return page.evaluate("getComputedStyle(document.querySelector('.w16')).fill")

    x = torch.randn(9, 4)
    page = browser.new_page(color_scheme=scheme)
    page.set_content(f"<body>{weigh(x, x, x)._repr_html_()}")
    dark, light = "rgb(253, 253, 244)", "rgb(11, 23, 64)"
    assert fill(page) == (dark if scheme == "dark" else light)
    for theme, wanted in (("true", light), ("false", dark)):
        page.evaluate(f"document.body.dataset.jpThemeLight = '{theme}'")
        assert fill(page) == wanted
    page.set_viewport_size({"width": 400, "height": 600})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_a_grid_fits_a_phone(browser):
    page = browser.new_page(viewport={"width": 400, "height": 600})
    page.set_content(f"<body>{recorded(heads=12)._repr_html_()}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()
