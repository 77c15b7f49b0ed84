"""Claims about the numbers of the room of the formula: whoever computes them, they are the library's."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import (
    Allowed,
    Boxcar,
    Conic,
    Cosine,
    Dot,
    Entmax,
    Epanechnikov,
    Gaussian,
    Laplacian,
    OneHot,
    Proportional,
    Raw,
    ScaledDot,
    Sigmoid,
    Softmax,
    Sparsemax,
    TopK,
    Triangular,
    Uniform,
    weigh,
)

SCORES: dict[str, Callable[[Any], Any]] = {
    "gaussian": lambda asked: Gaussian(asked["bandwidth"]),
    "scaled": lambda asked: ScaledDot(),
    "dot": lambda asked: Dot(),
    "cosine": lambda asked: Cosine(),
    "laplacian": lambda asked: Laplacian(asked["bandwidth"]),
    "boxcar": lambda asked: Boxcar(asked["bandwidth"]),
    "epanechnikov": lambda asked: Epanechnikov(asked["bandwidth"]),
    "triangular": lambda asked: Triangular(asked["bandwidth"]),
}
RULES: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda asked: Softmax(asked["temperature"]),
    "proportional": lambda asked: Proportional(),
    "sparsemax": lambda asked: Sparsemax(),
    "entmax": lambda asked: Entmax(asked["alpha"]),
    "topk": lambda asked: TopK(asked["k"], Softmax(asked["temperature"])),
    "onehot": lambda asked: OneHot(),
    "uniform": lambda asked: Uniform(),
    "sigmoid": lambda asked: Sigmoid(),
    "conic": lambda asked: Conic(),
    "raw": lambda asked: Raw(),
}
USUAL = {"bandwidth": 0.7, "temperature": 1.0, "alpha": 1.5, "k": 3, "mask": "all", "nearest": 3}
HERE = [(score, rule) for score in ("gaussian", "scaled", "dot") for rule in ("softmax", "onehot", "uniform")]
HERE += [("scaled", "proportional"), ("dot", "proportional")]


def attended(asked: dict[str, Any]) -> list[bool]:
    """Which keys the query may attend to."""
    query, keys, on = asked["query"], asked["keys"], asked["on"]
    if asked["mask"] == "left":
        return [each and key[0] <= query[0] for key, each in zip(keys, on, strict=True)]
    if asked["mask"] == "nearest":
        known = sorted((math.dist(query, key) ** 2, place) for place, key in enumerate(keys) if on[place])
        nearest = {place for _, place in known[: asked["nearest"]]}
        return [place in nearest for place in range(len(keys))]
    return list(on)


def view_of(asked: dict[str, Any]) -> Any:
    """What the library says."""
    query, keys, values = (torch.tensor(asked[each], dtype=torch.float64) for each in ("query", "keys", "values"))
    score, rule = SCORES[asked["score"]](asked), RULES[asked["rule"]](asked)
    return weigh(query[None], keys, values, score=score, weights=rule, mask=Allowed(torch.tensor([attended(asked)])))


def weights_of(asked: dict[str, Any]) -> tuple[list[float], list[float], float | None]:
    """The weights, the output, and the entropy where there is one."""
    view = view_of(asked)
    entropy = view.entropy().item() if view.kind in ("convex", "one-hot", "uniform") else None
    return view.dense()[0].tolist(), view.output[0].tolist(), entropy


def case(chance: random.Random, score: str, rule: str) -> dict[str, Any]:
    """Points and settings as a reader might set them."""
    dim, value_dim, count = chance.choice([1, 2]), chance.choice([1, 2]), chance.choice([1, 2, 3, 5, 11, 40])
    scale = chance.choice([0.01, 1, 3, 3, 100])

    def points(width: int) -> list[list[float]]:
        return [[chance.uniform(-scale, scale) for _ in range(width)] for _ in range(count)]

    keys, query = points(dim), [chance.uniform(-scale, scale) for _ in range(dim)]
    if rule == "proportional" and chance.random() < 0.6:
        keys, query = [[abs(each) for each in key] for key in keys], [abs(each) for each in query]
    return {
        "query": query,
        "keys": keys,
        "values": points(value_dim),
        "on": [chance.random() < 0.8 for _ in keys],
        "score": score,
        "bandwidth": scale * chance.choice([0.02, 0.2, 1, 5]),
        "rule": rule,
        "temperature": chance.choice([0.02, 0.5, 1, 7, 50]),
        "alpha": 1.5,
        "k": 3,
        "mask": chance.choice(["all", "all", "left", "nearest"]),
        "nearest": chance.choice([1, 3, 12]),
    }


PLANE = {"query": [1.0, 2.0], "keys": [[1.0, 1.0], [2.0, 0.0], [-1.0, 0.5]], "values": [[1.0], [2.0], [5.0]]}
PLANE |= {"on": [True, True, True], **USUAL}
EXTREMES: list[dict[str, Any]] = [
    {**PLANE, **changed}
    for score, rule in HERE
    for changed in (
        {"score": score, "rule": rule, **more}
        for more in (
            {"keys": [[1e6, 1e6], [9e5, 1e6], [1e6, 9e5]], "query": [1e6, 1e6]},  # scores of 10¹²
            {"keys": [[2.0, 1.0]] * 3},  # equal keys
            {"query": [0.0, 0.0]},  # equal scores, of dot products
            {"on": [False] * 3},  # nobody to attend to
            {"mask": "left", "query": [-2.0, 1.0]},
            {"keys": [[1.0, 1.0]], "values": [[3.0]], "on": [True]},
            {"bandwidth": 1e-9},
            {"bandwidth": 1e9, "temperature": 1e-3},
            {"keys": [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]},  # a score below 0
            {"mask": "nearest", "nearest": 1, "keys": [[1.0, 1.0], [1.0, 3.0], [1.0, 1.0]]},  # as near as each other
        )
    )
]

# As far from the query as each other on paper, but not by every way of computing it.
EXTREMES += [
    {
        **PLANE,
        "query": [x, y],
        "keys": [[x + 1.3, y], [x - 1.3, y], [x, y + 1.3]],
        "score": "gaussian",
        "rule": "onehot",
    }
    for x in (0.1, 0.7, 1.6, 2.3)
    for y in (-1.1, 0.4, 2.9)
]

WEIGHED = """async cases => {
    const address = new URL("static/rooms/formula-attention.js", document.baseURI);
    const { weigh, entropy, isOurs, field } = await import(address);
    return cases.map(asked => {
        const { query, keys, values, on } = asked, flat = points => Float64Array.from(points.flat());
        const points = {
            keys: flat(keys), values: flat(values), on: Uint8Array.from(on, Number),
            dim: query.length, valueDim: values[0].length,
        };
        if (!isOurs(asked)) return "not ours";
        if (asked.grid) return [...field(asked.grid, points, asked)];
        const found = weigh(query, points, asked);
        return found && [found.weights, found.output, entropy(found.weights)];
    });
}"""


def close(found: Any, expected: Any, scale: float = 1.0) -> bool:
    return found is None if expected is None else found == pytest.approx(expected, abs=1e-6 * scale, rel=1e-6)


def test_what_the_page_computes_itself_is_what_the_library_computes(tab: Any) -> None:
    chance = random.Random(16)
    cases = EXTREMES + [case(chance, score, rule) for score, rule in HERE for _ in range(20)]
    answered = 0
    for asked, found in zip(cases, tab.evaluate(WEIGHED, cases), strict=True):
        if found is None:
            # Left to the library: scores that the rule refuses, and keys of which rounding would choose the best.
            assert asked["rule"] in ("proportional", "onehot"), asked
            if asked["rule"] == "proportional":
                with pytest.raises(ValueError, match="not negative"):
                    weights_of(asked)
            else:
                assert cannot_tell(asked), asked
            continue
        answered += 1
        weights, output, entropy = weights_of(asked)
        assert close(found[0], weights), asked
        assert close(found[1], output, max(abs(each) for value in asked["values"] for each in value)), asked
        assert close(found[2], entropy), asked
    assert answered > 250


def cannot_tell(asked: dict[str, Any]) -> bool:
    """Whether two keys that the query may attend to are as good as each other, but for rounding."""
    query, keys = (torch.tensor(asked[each], dtype=torch.float64) for each in ("query", "keys"))
    scores = SCORES[asked["score"]](asked)(query[None], keys)[0]
    first, second = scores[torch.tensor(attended(asked))].topk(2).values.tolist()
    return bool(first - second <= 2e-9 * (1 + abs(first)))


def test_only_what_is_promised_is_computed_in_the_page(tab: Any) -> None:
    every = [{**PLANE, "score": score, "rule": rule} for score in SCORES for rule in RULES]
    ours = [each for each, found in zip(every, tab.evaluate(WEIGHED, every), strict=True) if found != "not ours"]
    assert [(each["score"], each["rule"]) for each in ours] == [
        pair for pair in itertools.product(SCORES, RULES) if pair in HERE
    ]


@pytest.mark.parametrize("score", SCORES)
def test_the_server_answers_every_score_rule_and_mask_as_the_library_does(served: Any, score: str) -> None:
    chance = random.Random(score)
    for rule, mask in itertools.product(RULES, ("all", "left", "nearest")):
        asked = {**case(chance, score, rule), "mask": mask}
        status, found = served.ask("formula", "weigh", asked)
        if status == 422:
            with pytest.raises(ValueError, match="must") as refused:
                weights_of(asked)
            assert found["error"] == str(refused.value), asked
            continue
        weights, output, entropy = weights_of(asked)
        assert status == 200, found
        assert close(found["weights"], weights), asked
        assert close(found["output"], output), asked
        assert close(found["entropy"], entropy), asked


GRIDS = {  # by coordinates
    1: {"low": [2.5], "high": [4.1], "shape": [31]},
    2: {"low": [-3.0, -3.0], "high": [3.0, 3.0], "shape": [9, 7]},
}


def test_the_outputs_of_a_picture_are_those_of_its_queries(tab: Any, served: Any) -> None:
    chance = random.Random(3)
    asked = [
        {**case(chance, score, rule), "mask": mask}
        for (score, rule), mask in itertools.product(HERE, ("all", "left", "nearest"))
        for _ in range(3)
    ]
    grids = [GRIDS[len(each["query"])] for each in asked]
    found = tab.evaluate(WEIGHED, [{**each, "grid": grid} for each, grid in zip(asked, grids, strict=True)])
    blank = 0
    for each, grid, here in zip(asked, grids, found, strict=True):
        status, there = served.ask("formula", "weigh", {**each, "field": grid})
        if status == 422:  # the reader's own query has scores below 0
            continue
        flat = [math.nan if number is None else number for output in there["field"] for number in output]
        assert here == pytest.approx(flat, abs=1e-6, rel=1e-6, nan_ok=True), each
        blank += sum(map(math.isnan, flat))
    assert blank > 0  # what the rule refuses of a picture is a blank


def saved(tab: Any, kind: str) -> str:
    with tab.expect_download() as found:
        tab.click(f".saving button:text-is('{kind}')")
    return Path(found.value.path()).read_text(encoding="utf-8")


@pytest.fixture
def printed() -> Iterator[Callable[[str], list[float]]]:
    """What lines of Python print: its numbers, to twelve digits."""

    def run(lines: str) -> list[float]:
        told = io.StringIO()
        torch.set_printoptions(precision=12)
        with contextlib.redirect_stdout(told):
            exec(lines, {})
        return [float(each) for each in re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?|-?\d+\b", told.getvalue())]

    before = torch.get_default_dtype()
    yield run
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(before)


PLACES = {
    "": 1,
    "?preset=graduates&mask=left&compare=1&rule2=onehot": 2,
    "?preset=cone": 1,
    "?preset=circle&mask=nearest&nearest=2&score=cosine&rule=entmax&alpha=1.7": 1,
    "?rule=topk&k=2&temperature=0.5&compare=1&score2=epanechnikov&bandwidth2=1.5&rule2=proportional": 2,
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_saved_are_the_librarys_numbers_and_lines_that_compute_them(
    open_page: Callable[..., Any], printed: Callable[[str], list[float]], place: str
) -> None:
    with open_page(f"#formula{place}") as tab:
        tab.focus(".plane-drawing")
        for key in ("n", "n", "m", "q", "Shift+ArrowLeft"):  # the second key is off
            tab.keyboard.press(key)
        columns = json.loads(saved(tab, "JSON"))
        assert len(columns) == PLACES[place]
        rows = list(csv.reader(io.StringIO(saved(tab, "CSV"))))
        tab.click(".saving button:text-is('Python')")
        tab.wait_for_selector("pre.python:not(:empty)")
        numbers = printed(tab.inner_text("pre.python"))
        for number, column in enumerate(columns):
            assert column["on"].count(False) == 1
            weights, output, _ = weights_of(column)
            assert close(column["weights"], weights)
            assert close(column["output"], output)
            assert close([float(row[number - len(columns)]) for row in rows[1:]], weights)
            count = len(output) + len(weights)
            assert close(numbers[:count], output + weights)
            del numbers[:count]
        assert numbers == []
        coordinates = [float(each) for each in rows[1][1 : 1 + len(columns[0]["query"])]]
        assert coordinates == columns[0]["keys"][0]


@pytest.mark.parametrize(
    "place", ["?compare=1&score2=boxcar", "?preset=graduates&rule=sigmoid", "?preset=circle&rule=proportional"]
)
def test_a_picture_that_is_saved_stands_alone(open_page: Callable[..., Any], browser: Any, place: str) -> None:
    with open_page(f"#formula{place}", color_scheme="dark") as tab:
        tab.wait_for_load_state("networkidle")
        drawn, background = saved(tab, "SVG"), tab.evaluate("getComputedStyle(document.body).backgroundColor")
        said = [each.text_content() for each in tab.locator(".sum:visible, .refusal:visible").all()]
        assert tab.locator("body > svg").count() == 0  # what was made for it is gone
    assert drawn.startswith("<svg")
    assert "var(" not in drawn
    assert re.search(r"<script|<style|<foreignObject|\bon\w+=|\bclass=", drawn) is None
    assert {each.split(":")[0].split("#")[0] for each in re.findall(r'(?:href|url)[=(]"?([^")]*)', drawn)} <= {
        "",
        "data",
    }
    page = browser.new_page(viewport={"width": 1400, "height": 1400})
    page.set_content(drawn)
    assert page.locator("svg > rect").first.get_attribute("fill") == background
    # No text is cut, and none lies on another.
    boxes = page.evaluate(
        """() => {
            const whole = document.querySelector("svg").getBoundingClientRect();
            return [...document.querySelectorAll("svg > text")].map(each => {
                const { left, right, top, bottom } = each.getBoundingClientRect();
                return [left - whole.left, whole.right - right, top, bottom, each.textContent];
            });
        }"""
    )
    words = " ".join(each[4] for each in boxes)
    assert all(" ".join(each.split()) in " ".join(words.split()) for each in said)
    assert all(left >= 0 and right >= 0 for left, right, *_ in boxes)
    page.close()
